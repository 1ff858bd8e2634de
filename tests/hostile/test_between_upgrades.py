"""Rows of the battery for upgrades: kubelets that lie about their nodes, and two operators.

The runs are processes on the real clock, on a sandbox; the judge sees each write as it arrives.
"""

import asyncio
import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from aiohttp import web

from kubectl_nodelife.controllers.upgrade.document import UnreadableDocument, document_of
from kubectl_nodelife.controllers.upgrade.marks import ANNOTATION, NodeMark, NodeState, encode_mark
from kubectl_nodelife.kube.codec import decode
from kubectl_nodelife.kube.node import Lease
from kubectl_nodelife.sandbox.tls import Sandbox
from tests.acts.program import Ended, nodelife
from tests.hostile.between import Act, Between, body_of, just_before
from tests.hostile.parsers import RUN as RUN_OF_FUZZ
from tests.hostile.parsers import mutation
from tests.loopback import play, sandbox

GENERATE = {"zones": 1, "nodesPerZone": 3, "podsPerNode": 1, "daemonSets": 0}
TERMS = (
    *("--set", "node-monitor-grace-period=2s", "--set", "node-monitor-period=200ms"),
    *("--lease-duration", "4s", "--yes"),
)
SOON = ("--soak", "1s", "--node-soak", "1s", "--ready-for", "1s", "--force", "--max-unavailable=1")
RUN = "nodelife.dev/upgrade-run"
EVIL, PAUSE = "evil.example/attacker/pause:9", "registry.k8s.io/pause:3.10"


async def one_leader(between: Between, request: web.Request) -> str:
    """Writes on nodes come from whoever holds the Lease, and no canary has a foreign image."""
    if request.method == "POST" and request.path.endswith("/pods"):
        images = [c["image"] for c in (await body_of(request))["spec"]["containers"]]
        return "" if images == [PAUSE] else f"a pod of {images}"
    if request.method != "PATCH" or "/nodes/" not in request.path:
        return ""
    holder = between.found("Lease", "kubectl-nodelife-upgrade").get("spec", {})
    epoch, text = holder.get("leaseTransitions", 0), json.dumps(await body_of(request))
    mark = text.partition('\\"epoch\\":')[2]
    if not holder.get("holderIdentity"):
        return "nobody holds the Lease"
    if mark and int("".join(filter(str.isdigit, mark[:6]))) != epoch:
        return f"an epoch that is not the Lease's {epoch}: {mark[:6]}"
    return ""


def document(between: Between) -> dict[str, Any]:
    """The run's, on its Lease."""
    notes = between.found("Lease", "kubectl-nodelife-upgrade").get("metadata", {})
    found: dict[str, Any] = json.loads(notes.get("annotations", {}).get(RUN, "{}"))
    return found


def run(between: Between, *orders: tuple[str, ...]) -> list[Ended]:
    """These lines typed at once, by as many operators."""
    ended: list[Ended] = []

    async def test() -> None:
        async with sandbox(
            generate=GENERATE, controllers=("node-lifecycle",), between=between.middleware
        ) as served:
            between.served = served
            ended.extend(await asyncio.gather(*(typed(served, i, o) for i, o in enumerate(orders))))

    play(test)
    assert between.broken == []
    return ended


async def typed(served: Sandbox, number: int, order: tuple[str, ...]) -> Ended:
    """On a machine of his own: nothing is shared but the cluster."""
    home = Path(served.folder, f"operator-{number}")
    home.mkdir()
    return await nodelife(served.kubeconfig, str(home), "upgrade", *order)


def reporting(images: dict[str, str]) -> Act:
    """Kubelets that report these images."""

    async def act(between: Between, request: web.Request) -> web.StreamResponse | None:
        if (
            request.method != "GET"
            or request.path != "/api/v1/nodes"
            or "limit" not in request.query
        ):
            return None
        assert between.served is not None
        answer = await between.served.server._serve(request)
        assert isinstance(answer, web.Response) and isinstance(answer.body, bytes)
        found = json.loads(answer.body)
        for node in found.get("items") or ():
            image = images.get(node["metadata"]["name"])
            node["status"]["images"] = [{"names": [image], "sizeBytes": 1}] if image else []
        return web.json_response(found)

    return act


def test_no_image_that_a_kubelet_reports_is_a_canary() -> None:
    between = Between(reporting({"a1": EVIL, "a2": EVIL}), judge=one_leader)
    (proven,) = run(between, ("prove", "a1", "a2", "--ready-for", "1s", *TERMS))
    assert proven.code == 0, proven
    assert any(line.endswith("/pods") for line in between.wrote), "there was a canary"


def test_a_kubelet_that_forges_an_epoch_or_another_s_place_ends_no_run() -> None:
    async def forge(between: Between) -> None:
        known = document(between)["run"]
        for name, more in (("a2", {"epoch": 999}), ("a3", {"for_": "a1", "epoch": 0})):
            mark = NodeMark(run=known, state=NodeState.SETTLING, **more)
            notes = {"metadata": {"annotations": {ANNOTATION: encode_mark(mark)}}}
            await between.patch("Node", ("", name), notes)

    between = Between(just_before("PATCH", "/nodes/a1", forge), judge=one_leader)
    order = ("start", "a1", "--nothing", "--canary-image", PAUSE, *SOON, *TERMS)
    (ended,) = run(between, order)
    found = document(between)
    assert (found["phase"], found["because"][:6]) == ("Finished", "1 done"), ended
    assert ended.code == (1 if found.get("left") else 0), "1: somebody is to look at those nodes"
    assert "a2" in ended.err and "a3" in ended.err, "and they are named"
    assert any("/nodes/a1" in line for line in between.wrote)
    assert not any("/nodes/a2" in line or "/nodes/a3" in line for line in between.wrote)


def test_an_address_that_two_nodes_report_reaches_no_command(tmp_path: Path) -> None:
    """The command of a1 would go to the machine of a2, or of whoever that is."""

    async def claim(between: Between) -> None:
        address = {"type": "InternalIP", "address": "10.0.0.7"}
        for name in ("a1", "a2"):
            await between.status("Node", ("", name), {"status": {"addresses": [address]}})

    said = tmp_path / "said"
    command = f'echo "$NODE <$INTERNAL_IP>" >> {said}'
    between = Between(just_before("PATCH", "/nodes/a1", claim), judge=one_leader)
    order = ("start", "a1", "--run", command, "--canary-image", PAUSE, *SOON, *TERMS)
    (ended,) = run(between, order)
    assert ended.code == 0, ended
    assert said.read_text() == "a1 <>\n"
    assert "INTERNAL_IP is not given" in ended.out + ended.err


def test_of_two_operators_with_one_order_one_leads() -> None:
    """Each write is judged by the Lease as it is then; the work is done once on each node."""
    between = Between(judge=one_leader)
    order = ("start", "a1", "a2", "--nothing", "--canary-image", PAUSE, *SOON, *TERMS)
    one, two = run(between, order, order)
    assert document(between)["phase"] == "Finished", (one, two)
    assert sorted((one.code, two.code)) in ([0, 0], [0, 5]), (one, two)
    told = one.out + two.out
    for name in ("a1", "a2"):
        assert told.count(f"node {name}: cordoned, now Draining") == 1, (one, two)


def unreadable_documents(most: int) -> Iterator[str]:
    """A run's document, mutated until nobody can say which run it is."""
    chance, well_formed = random.Random(7), json.dumps(RUN_OF_FUZZ).encode()
    while most:
        text = mutation(well_formed, chance).decode(errors="replace")
        annotations = {RUN: text}
        lease = decode("Lease", {"metadata": {"name": "l", "annotations": annotations}})
        assert isinstance(lease, Lease)
        try:
            document_of(lease)
        except UnreadableDocument:
            most -= 1
            yield text


def test_a_hostile_document_on_the_lease_is_refused_with_a_line() -> None:
    """Whoever may write the Lease cannot make `status`, `resume` or `start` fail by a bug, and
    nothing is written for what nobody can read.
    """
    texts = (
        "[]",
        "{",
        '{"run":5}',
        '{"run":"r","spec":' + "[" * 3000,
        *unreadable_documents(7),
    )
    between = Between()
    ended: list[Ended] = []

    async def test() -> None:
        async with sandbox(generate=GENERATE, between=between.middleware) as served:
            between.served = served
            await between.write_lease()
            for text in texts:
                notes = {"metadata": {"annotations": {RUN: text}}}
                await between.patch("Lease", ("kube-system", "kubectl-nodelife-upgrade"), notes)
                asked = (
                    nodelife(served.kubeconfig, served.folder, "upgrade", *words)
                    for words in (("resume",), ("status",))
                )
                ended.extend(await asyncio.gather(*asked))
            notes = {"metadata": {"annotations": {RUN: '{"run":"r","spec":{"drain":[]}}'}}}
            await between.patch("Lease", ("kube-system", "kubectl-nodelife-upgrade"), notes)
            ended.append(await nodelife(served.kubeconfig, served.folder, "upgrade", "status"))

    play(test, 400)
    for one in ended:
        assert one.code in (0, 1, 2, 5), one
        assert "Traceback" not in one.err and "a bug in" not in one.err, one
    assert [line for line in between.wrote if "/apis/authorization" not in line] == []
