"""`drain` on the sandbox: dry runs, refusals, interruption, going on, what is held."""

import asyncio
import json
import signal
from types import SimpleNamespace
from typing import Any, cast

import pytest
from msgspec.structs import replace

from kubectl_nodelife.acts import drain as drain_act
from kubectl_nodelife.acts.node_drain import NodeDrain, SeenPod
from kubectl_nodelife.engine.calls import Answer, Result
from kubectl_nodelife.engine.calls.call import Patch
from kubectl_nodelife.engine.calls.pod_calls import WAIT
from kubectl_nodelife.errors import Failed
from kubectl_nodelife.kube.codec import decode
from kubectl_nodelife.kube.meta import ObjectMeta
from kubectl_nodelife.kube.node import Node
from kubectl_nodelife.kube.pod import Pod
from kubectl_nodelife.live.client import Client
from kubectl_nodelife.live.writer import Writer, WritingSession
from kubectl_nodelife.sandbox.tls import Sandbox
from kubectl_nodelife.sim.kubectl.options import DrainOptions
from tests.acts.program import Ended, nodelife, start
from tests.acts.test_repair import KUBE_SYSTEM, rows
from tests.loopback import client, sandbox, target_of
from tests.objects import ROOM, node, pod

NODE = "/api/v1/nodes/a1"


def of_web(name: str, uid: str = "", **meta: Any) -> dict[str, Any]:
    """A pod of the app web on a1, that ends within a second."""
    about = {"namespace": "shop", "labels": {"app": "web"}, "uid": uid, "metadata": meta}
    return pod(name, "a1", grace=1, ready=True, **about)


def objects(*pods: dict[str, Any]) -> list[dict[str, Any]]:
    return [KUBE_SYSTEM, node("a1", allocatable=ROOM), node("a2", allocatable=ROOM), *pods]


async def drain(served: Sandbox, *words: str) -> Ended:
    return await nodelife(served.kubeconfig, served.folder, "drain", "a1", *words)


async def is_cordoned(reader: Client) -> bool:
    return bool(json.loads(await reader.read(NODE)).get("spec", {}).get("unschedulable"))


async def names(reader: Client) -> list[str]:
    found = json.loads(await reader.read("/api/v1/namespaces/shop/pods"))["items"]
    return sorted(item["metadata"]["name"] for item in found)


async def test_it_cordons_evicts_and_tells_promised_against_real() -> None:
    async with (
        sandbox(generate=None, objects=objects(of_web("one"), of_web("two"))) as served,
        client(served) as reader,
    ):
        refused = await drain(served, "--yes")
        assert refused.code == 1 and "nothing was touched" in refused.err
        asked = await drain(served, "--force")
        assert asked.code == 5 and "give --yes" in asked.err
        for how in ("client", "server"):
            tried = await drain(served, "--force", f"--dry-run={how}")
            assert tried.code == 0 and f"node/a1 drained ({'server ' * (how == 'server')}" in (
                tried.out
            )
        few = await drain(served, "--force", "--yes", "--max-writes=2")
        assert few.code == 5 and "give --max-writes 3" in few.err
        assert await names(reader) == ["one", "two"] and not await is_cordoned(reader)
        assert rows(served) == []
        done = await drain(served, "--force", "--yes")
        assert done.code == 0, done.err
        assert await names(reader) == [] and await is_cordoned(reader)
        assert "pod/one evicted" in done.out and "PROMISED" in done.out
        kinds = sorted(kind for kind, _, state in rows(served) if state == "applied")
        assert kinds == ["EvictPod", "EvictPod", "SetUnschedulable"]
        again = await drain(served, "--force", "--yes")
        assert again.code == 0 and "node/a1 already cordoned" in again.out


async def test_interrupted_it_says_what_it_cordoned_or_takes_it_back() -> None:
    held = of_web("held", finalizers=["example.com/hold"])
    async with sandbox(generate=None, objects=objects(held)) as served, client(served) as reader:
        flags = ("--force", "--timeout=60s", "--yes")
        for more, cordoned in (((), True), (("--uncordon-on-abort",), False)):
            where = (served.kubeconfig, served.folder)
            process = await start(*where, "drain", "a1", *flags, *more)
            assert process.stdout is not None and process.stderr is not None
            async for line in process.stdout:
                if b"evicting pod shop/held" in line:
                    break
            await asyncio.sleep(1)
            process.send_signal(signal.SIGINT)
            _, err = await process.communicate()
            assert process.returncode == 130, err.decode()
            assert await is_cordoned(reader) is cordoned
            if cordoned:
                assert b"kubectl uncordon a1" in err
                await uncordon(served)


async def test_it_holds_while_somebody_has_uncordoned_the_node() -> None:
    held = of_web("held", finalizers=["example.com/hold"])
    async with sandbox(generate=None, objects=objects(held)) as served, client(served) as reader:
        where = (served.kubeconfig, served.folder)
        words = ("drain", "a1", "--force", "--timeout=120s", "--yes")
        process = await start(*where, *words)
        assert process.stdout is not None and process.stderr is not None
        async for line in process.stdout:
            if b"evicting pod shop/held" in line:
                break
        await uncordon(served)
        async for line in process.stderr:
            if b"held: another client uncordoned it" in line:
                break
        assert not await is_cordoned(reader), "it does not cordon against a person's word"
        process.send_signal(signal.SIGTERM)
        await process.communicate()
        assert process.returncode == 130


async def uncordon(served: Sandbox) -> None:
    """As somebody else would."""
    writer = Writer(WritingSession(target_of(served), {}), "somebody", lambda: 0)
    answer = await writer.call(Patch("Node", ("", "a1"), {"spec": {"unschedulable": None}}))
    assert answer.ok, answer
    await writer.close()


@pytest.mark.parametrize("there", [True, False])
def test_nothing_is_evicted_before_the_cordon_is_seen(
    monkeypatch: pytest.MonkeyPatch, there: bool
) -> None:
    """An answer that says so proves nothing: a node that still takes pods would get them back."""
    shown = Node(ObjectMeta(name="a1", uid="u"))
    cordoned = replace(shown, spec=replace(shown.spec, unschedulable=there))
    looks = iter([shown, cordoned])

    class Believer:
        async def carry_out(self, action: Any, seen: Any) -> Result:
            return Result(200, changed=True)

        async def stop(self) -> None: ...

        async def call(self, call: Any) -> Answer:
            return Answer(200, next(looks))

    monkeypatch.setattr(drain_act, "make_carrier", lambda session: Believer())
    session = SimpleNamespace(reader=Believer(), order=SimpleNamespace(dry_run=False))
    order = SimpleNamespace()
    told: list[str] = []
    act = drain_act.Drain(cast(Any, session), cast(Any, order), cast(Any, None), told.append, print)
    if there:
        asyncio.run(act._cordon("a1"))
        assert told == ["node/a1 cordoned"]
    else:
        with pytest.raises(Failed, match="was said to be cordoned, and is not"):
            asyncio.run(act._cordon("a1"))
        assert told == []


def test_a_pod_that_came_back_under_the_same_name_is_told() -> None:
    """kubectl says drained, though the node is not empty."""
    shown = decode("Pod", of_web("web-0", uid="one"))
    back = decode("Pod", of_web("web-0", uid="two"))
    assert isinstance(shown, Pod) and isinstance(back, Pod)
    told: list[str] = []
    session = SimpleNamespace(monotonic_ns=lambda: 0, order=SimpleNamespace(dry_run=False))
    bare = DrainOptions(force=True)
    drain = NodeDrain(
        cast(Any, session), Node(ObjectMeta(name="a1")), bare, told.append, told.append
    )
    drain._turn.listed([SeenPod(shown), SeenPod(shown)], cast(Any, None), 0)
    for target, there in zip(drain.pods, (back, None), strict=True):
        assert drain._turn.evicted(target, 201, "", 0) == WAIT
        drain._see(target, there)
    assert [target.outcome for target in drain.pods] == ["failed", "gone"]
    assert "pod/web-0 evicted" in told
    because = "it is gone, and another pod has come in its place"
    about = 'pod "web-0" in namespace "shop"'
    assert drain._error() == f"error when waiting for {about} to terminate: {because}"
