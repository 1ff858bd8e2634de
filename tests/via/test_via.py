"""`--via`: each verb says there what it says on the socket, and gives no orders."""

import contextlib
from collections.abc import AsyncIterator
from typing import Any

import pytest

from kubectl_nodelife.commands.via import parse_via
from kubectl_nodelife.errors import BadInput
from kubectl_nodelife.sandbox.tls import Sandbox
from tests.daemon.user import SET, User, user
from tests.loopback import free_port, sandbox
from tests.via.played import NAME, NAMESPACE, VIA, Plays, pod

CONTROLLERS = ("node-lifecycle", "taint-eviction", "daemonset")


@contextlib.asynccontextmanager
async def asked(*pods: Any, **ports: int | None) -> AsyncIterator[tuple[Sandbox, User, Plays]]:
    """A user whose daemon serves answers; the pods `first` and `second` lead to it."""
    port = free_port()
    plays = Plays(pods or [pod("first")], {"first": port, "second": port, **ports})
    async with (
        sandbox(controllers=CONTROLLERS, between=plays.between) as served,
        user(served.kubeconfig) as one,
    ):
        await one.begin(*SET, f"--serve-answers={port}")
        yield served, one, plays


async def test_each_verb_says_what_it_says_on_the_socket() -> None:
    async with asked() as (_, one, plays):
        node = (await one.ok("status", "-o", "name")).split()[0].removeprefix("node/")
        for words in (
            ("status", "-o", "name"),
            ("status", "-o", "name", "-l", "topology.kubernetes.io/zone=a"),
            ("daemonset", "-A", "-o", "name"),
            ("changes", "-o", "name"),
            ("diverge", "-o", "name"),
            ("what-if", "lose", "node", node, "-o", "name"),
        ):
            there, here = await one.run(*words, *VIA), await one.run(*words)
            assert (there.code, there.out) == (0, here.out), (words, there, here)
            assert "first look" not in there.err
        assert node in await one.ok("explain", "node", node, *VIA)
        planned = await one.run("drain-plan", node, "--ignore-daemonsets", *VIA)
        assert planned.code == 0 and node in planned.out, planned
        assert "r1/a" in await one.ok("explain", "zone", "r1/a", *VIA)
        (item,) = (await one.json("daemon", "status", *VIA))["items"]
        assert item["running"] and item["pid"] == (await one.health())["pid"]
        assert f"/api/v1/namespaces/{NAMESPACE}/pods/first/portforward?ports=9877" in plays.seen


async def test_it_can_be_watched() -> None:
    async with asked() as (_, one, _):
        process = await one.start("status", "-w", "-o", "json", *VIA)
        try:
            assert process.stdout is not None
            assert b"\n" in await process.stdout.readline()
        finally:
            process.kill()
            await process.wait()


async def test_orders_and_what_reads_the_cluster_itself_are_refused() -> None:
    async with asked() as (_, one, plays):
        for words in (
            ("daemon", "pause"),
            ("daemon", "pause", "--everyone"),
            ("daemon", "resume"),
            ("daemon", "stop"),
            ("daemon", "stop", "--all"),
            ("daemon", "restart"),
            ("daemon", "start", "--enforce=pod-gc", "--yes"),
            ("daemon", "run", "--enforce=pod-gc", "--yes"),
        ):
            said = await one.run(*words, *VIA)
            assert said.code == 5 and "orders do not" in said.err, (words, said)
        for words in (("budgets",), ("audit",), ("drain", "a"), ("snapshot", "save", "x")):
            said = await one.run(*words, *VIA)
            assert said.code == 2 and "--via" in said.err, (words, said)
        for words in (("status", "--no-daemon"), ("status", "--profile", "v1.30")):
            said = await one.run(*words, *VIA)
            assert said.code == 2 and "--via: asks a daemon" in said.err, (words, said)
        assert plays.seen == [], "nothing was asked"
        said = await one.run("ui", "--no-open", *VIA)
        assert said.code == 5 and "is an order" in said.err, "the port itself says so"
        assert said.err.count("\n") == 1 and (await one.health())["running"]


async def test_another_pod_is_asked_where_one_cannot_be() -> None:
    pods = (pod("first"), pod("gone", phase="Failed"), pod("second", ready="False"))
    async with asked(*pods, first=None) as (_, one, plays):
        plays.refuses["/first/portforward"] = (502, {"message": "no route to host"}, {})
        assert "node/" in await one.ok("status", "-o", "name", *VIA)
        plays.refuses["/second/portforward"] = (502, {"message": "no route either"}, {})
        said = await one.run("status", *VIA)
        assert said.code == 1 and "pod nodelife/first" in said.err, said
        assert "no route to host" in said.err and not said.out


FORBIDDEN = {"kind": "Status", "code": 403, "message": 'pods "first" is forbidden: no'}
TROUBLES: dict[str, tuple[str, Any, str]] = {
    "no right to forward": ("/portforward", (403, FORBIDDEN, {}), "is forbidden: no; kubectl"),
    "no right to read it": (f"/deployments/{NAME}", (403, FORBIDDEN, {}), "rbac --mode via"),
    "no such deployment": (
        f"/deployments/{NAME}",
        (404, {"message": "not found"}, {}),
        "not found",
    ),
    "no pod runs": ("/pods", (200, {"items": [pod("x", phase="Pending")]}, {}), "no pod that runs"),
    "the cluster may not be known": (
        "/namespaces/kube-system",
        (403, FORBIDDEN, {}),
        "which cluster answers",
    ),
    "the daemon watches another cluster": (
        "/namespaces/kube-system",
        (200, {"metadata": {"uid": "another"}}, {}),
        "watches another cluster",
    ),
    "a redirect is not followed": (
        "/portforward",
        (302, {}, {"Location": "https://elsewhere.example/"}),
        "redirect to https://elsewhere.example",
    ),
    "no websocket": ("/portforward", (200, {}, {}), "pod nodelife/first"),
}


async def test_what_does_not_work_is_one_line() -> None:
    async with asked() as (_, one, plays):
        for title, (path, answer, words) in TROUBLES.items():
            plays.refuses = {path: answer}
            said = await one.run("status", *VIA)
            assert said.code == 1 and not said.out, (title, said)
            assert said.err.startswith("error: ") and said.err.count("\n") == 1, (title, said)
            assert words in said.err, (title, said)
        plays.refuses, plays.ports["first"] = {}, None
        said = await one.run("status", *VIA)
        assert said.code == 1 and "--serve-answers" in said.err, said
        assert "error forwarding port 9877" in said.err


@pytest.mark.parametrize(
    "text, message",
    [
        ("svc/x", "neither a Deployment nor a pod"),
        ("deploy/", "names nothing"),
        ("/deploy/x", "names nothing"),
        ("a/b/c/d", "names nothing"),
    ],
)
def test_names_that_are_none(text: str, message: str) -> None:
    with pytest.raises(BadInput, match=message):
        parse_via(text)


async def test_the_namespace_may_stand_with_the_name_and_the_pod_names_its_port() -> None:
    async with asked(pod("first", port=12345)) as (_, one, plays):
        for via in (f"{NAMESPACE}/deployment/{NAME}", f"{NAMESPACE}/pod/first"):
            out = await one.ok("daemonset", "-A", "-o", "name", "--via", via)
            assert out == await one.ok("daemonset", "-A", "-o", "name")
        assert plays.seen[-1].endswith("/pods/first/portforward?ports=12345")
