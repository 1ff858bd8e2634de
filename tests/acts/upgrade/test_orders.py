"""`upgrade pause`, `resume`, `abort` and `clean` on the sandbox: what they write and leave."""

import json
from contextlib import AbstractAsyncContextManager
from typing import Any

from kubectl_nodelife.controllers.upgrade.document import (
    ANNOTATION_REQUEST,
    ANNOTATION_RUN,
    RunDocument,
    RunPhase,
    encode_document,
)
from kubectl_nodelife.controllers.upgrade.marks import (
    ANNOTATION,
    LABEL_STATE,
    CordonOwner,
    NodeMark,
    NodeState,
    encode_mark,
)
from kubectl_nodelife.sandbox.tls import Sandbox
from tests.acts.program import Ended, nodelife
from tests.acts.test_repair import KUBE_SYSTEM
from tests.loopback import client, sandbox
from tests.objects import manifest, of_kind, owner
from tests.pod_status.test_live import well_node

LEASE = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/kubectl-nodelife-upgrade"
NAMESPACE = of_kind("Namespace", "nodelife", uid="the-namespace")
UNPROVEN = {"key": "nodelife.dev/unproven", "value": "r1", "effect": "NoSchedule"}
THEIRS = {"key": "dedicated", "value": "gpu", "effect": "NoSchedule"}


def node(
    name: str,
    state: NodeState,
    cordon: CordonOwner = CordonOwner.OURS,
    *,
    cordoned: bool = True,
    taints: tuple[dict[str, str], ...] = (),
) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(json.dumps(well_node()))
    mark = NodeMark(run="r1", state=state, cordon=cordon, shield=("karpenter.sh/do-not-disrupt",))
    meta = found["metadata"]
    meta |= {"name": name, "uid": f"uid-{name}"}
    meta["annotations"] = {ANNOTATION: encode_mark(mark), "karpenter.sh/do-not-disrupt": "true"}
    meta["labels"] = {LABEL_STATE: str(state), "mine": "yes"}
    found["spec"] = {"unschedulable": cordoned, "taints": list(taints)}
    return found


def lease(run: RunDocument | None, holder: str = "") -> dict[str, Any]:
    notes = {ANNOTATION_RUN: encode_document(run)} if run is not None else {}
    return manifest(
        "Lease",
        "kubectl-nodelife-upgrade",
        "kube-system",
        metadata={"annotations": notes},
        spec={
            "holderIdentity": holder,
            "leaseDurationSeconds": 1,
            "leaseTransitions": 2,
            "renewTime": "2026-11-22T09:00:00.000000Z",
        },
    )


def on(*things: dict[str, Any]) -> AbstractAsyncContextManager[Sandbox]:
    return sandbox(generate=None, objects=[KUBE_SYSTEM, NAMESPACE, *things])


async def upgrade(served: Sandbox, *words: str) -> Ended:
    return await nodelife(served.kubeconfig, served.folder, "upgrade", *words)


async def read(served: Sandbox, path: str) -> dict[str, Any]:
    async with client(served) as reader:
        found: dict[str, Any] = json.loads(await reader.read(path))
        return found


async def phase(served: Sandbox) -> str:
    text = (await read(served, LEASE))["metadata"]["annotations"][ANNOTATION_RUN]
    return str(json.loads(text).get("phase", "Running"))


async def test_a_run_that_nobody_leads_is_paused_at_once() -> None:
    async with on(well_node(), lease(RunDocument(run="r1"))) as served:
        ended = await upgrade(served, "pause", "--because", "lunch")
        assert ended.code == 0, ended.err
        assert await phase(served) == "Paused"
        answer = await upgrade(served, "status", "-o", "json", "--exit-code")
        status = json.loads(answer.out)
        assert answer.code == 4 and "lunch" in status["because"]
        assert status["gates"][0]["gate"] == "paused"


async def test_without_a_run_there_is_nothing_to_pause() -> None:
    async with on(well_node()) as served:
        ended = await upgrade(served, "pause")
        assert ended.code == 5 and "no upgrade is under way" in ended.err
        assert "upgrade start" in ended.err


async def test_clean_gives_back_keeps_what_is_not_proven_and_leaves_others_marks() -> None:
    async with on(
        node("b0", NodeState.DRAINING),
        node("b1", NodeState.PROVING, cordoned=False, taints=(THEIRS, UNPROVEN)),
        node("b2", NodeState.DONE, CordonOwner.THEIRS),
        lease(RunDocument(run="r1", phase=RunPhase.ABORTED)),
    ) as served:
        ended = await upgrade(served, "clean", "--yes")
        assert ended.code == 0, ended.err
        assert "kubectl uncordon b0" in ended.out
        nodes = {n["metadata"]["name"]: n for n in (await read(served, "/api/v1/nodes"))["items"]}
        given = nodes["b0"]
        assert not given["spec"].get("unschedulable")
        assert ANNOTATION not in given["metadata"].get("annotations", {})
        assert "karpenter.sh/do-not-disrupt" not in given["metadata"].get("annotations", {})
        assert given["metadata"]["labels"] == {"mine": "yes"}
        proving = nodes["b1"]
        assert proving["spec"]["unschedulable"] is True
        assert [t["key"] for t in proving["spec"]["taints"]] == ["dedicated"]
        assert proving["metadata"]["labels"][LABEL_STATE] == "Failed"
        theirs = nodes["b2"]
        assert theirs["spec"]["unschedulable"] is True, "another's cordon stays"
        assert ANNOTATION not in theirs["metadata"].get("annotations", {})
        again = await upgrade(served, "clean", "--yes")
        assert again.code == 0 and "node/b1 (Failed): stays" in again.out
        whole = await upgrade(served, "clean", "--release-failed", "--yes")
        assert whole.code == 0, whole.err
        assert not (await read(served, "/api/v1/nodes/b1"))["spec"].get("unschedulable")
        leases = await read(served, LEASE.rpartition("/")[0])
        assert [one["metadata"]["name"] for one in leases["items"]] == [], "the Lease goes last"
        nothing = await upgrade(served, "clean", "--yes")
        assert nothing.out == "nothing is left of an upgrade\n"


def made(kind: str, namespace: str, spec: dict[str, Any]) -> dict[str, Any]:
    """What a run made for node b0 and its dead leader left."""
    return of_kind(
        kind,
        "nodelife-canary-0",
        namespace,
        uid=f"uid-{kind}",
        labels={"nodelife.dev/run": "r1"},
        owners=[owner("Node", "b0", controller=None)],
        spec=spec,
    )


async def test_clean_shows_and_deletes_what_a_dead_leader_made() -> None:
    template = {"spec": {"containers": [{"name": "c", "image": "c"}]}}
    async with on(
        well_node(),
        made("Pod", "nodelife", template["spec"]),
        made("Job", "kube-system", {"template": template}),
        lease(RunDocument(run="r1", phase=RunPhase.ABORTED)),
    ) as served:
        shown = await upgrade(served, "clean")
        lines = ("pod", "job")
        for line in lines:
            assert f"kubectl delete {line} nodelife-canary-0 -n " in shown.out, "before it asks"
        assert "kubectl delete lease kubectl-nodelife-upgrade -n kube-system" in shown.out
        ended = await upgrade(served, "clean", "--yes")
        assert ended.code == 0, ended.err
        paths = ("/api/v1/pods", "/apis/batch/v1/jobs")
        left = [item for path in paths for item in (await read(served, path))["items"]]
        assert [item for item in left if "deletionTimestamp" not in item["metadata"]] == []
        again = await upgrade(served, "clean", "--yes")
        assert again.code == 0 and not again.err, again.err


async def test_clean_is_refused_while_a_run_is_open_and_ends_one_that_shall_be_aborted() -> None:
    async with on(
        node("b0", NodeState.DRAINING),
        node("b1", NodeState.WORKING),
        lease(RunDocument(run="r1")),
    ) as served:
        ended = await upgrade(served, "clean", "--yes")
        assert ended.code == 5 and "upgrade abort" in ended.err
        ended = await upgrade(served, "abort", "--because", "lunch")
        assert ended.code == 1 and "no process leads the run" in ended.err, ended.err
        assert await phase(served) == "Running", "a request is a request"
        ended = await upgrade(served, "clean", "--yes")
        assert ended.code == 0, ended.out + ended.err
        assert await phase(served) == "Aborted"
        notes = (await read(served, LEASE))["metadata"]["annotations"]
        assert ANNOTATION_REQUEST not in notes and "lunch" in notes[ANNOTATION_RUN]
        assert json.loads(notes[ANNOTATION_RUN])["left"] == ["b1"]
        given, worked = [
            (await read(served, f"/api/v1/nodes/{name}"))["metadata"] for name in ("b0", "b1")
        ]
        assert ANNOTATION not in given.get("annotations", {}), "what was drained is given back"
        assert worked["labels"][LABEL_STATE] == "Failed", "what was worked on is not proven"


async def test_clean_does_nothing_without_a_terminal_or_ones_word() -> None:
    async with on(node("b0", NodeState.DRAINING), lease(None)) as served:
        ended = await upgrade(served, "clean")
        assert ended.code == 5 and "--yes" in ended.err
        assert "kubectl uncordon b0" in ended.out, "it is shown all the same"
        assert (await read(served, "/api/v1/nodes/b0"))["spec"]["unschedulable"] is True


async def test_resume_knows_its_nodes_and_is_only_a_request() -> None:
    paused = lease(RunDocument(run="r1", phase=RunPhase.PAUSED))
    async with on(node("b0", NodeState.FAILED), paused) as served:
        ended = await upgrade(served, "resume", "--retry", "b00")
        assert ended.code == 1 and "did you mean b0?" in ended.err, ended.err
        assert ANNOTATION_REQUEST not in (await read(served, LEASE))["metadata"]["annotations"]
        ended = await upgrade(served, "resume", "--retry", "b0")
        assert ended.code == 1 and "`upgrade start`" in ended.err, ended.err
        assert await phase(served) == "Paused", "nobody was there to do it"
        notes = (await read(served, LEASE))["metadata"]["annotations"]
        assert json.loads(notes[ANNOTATION_REQUEST])["retry"] == ["b0"]
