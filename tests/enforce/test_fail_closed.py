"""What cannot be read, or leads elsewhere, stops writing: nothing is guessed."""

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from kubectl_nodelife.daemon.decisions import DecisionTask
from kubectl_nodelife.daemon.enforce.host import JOIN, EnforcingHost
from kubectl_nodelife.daemon.enforce.tripwires import GoneNodes, Tripwires
from kubectl_nodelife.daemon.enforce.write_gate import Pause, WriteGate
from kubectl_nodelife.daemon.intents import Intents
from kubectl_nodelife.daemon.ledger import Ledger
from kubectl_nodelife.engine.actions import ActionNumbers, RemoveTaints
from kubectl_nodelife.engine.cache import Cache
from kubectl_nodelife.engine.calls import Answer
from kubectl_nodelife.engine.guard import GO, UPSTREAM, Guard, Hold
from kubectl_nodelife.engine.settings import make_settings
from kubectl_nodelife.kube.times import SECOND_NS
from kubectl_nodelife.live.clock import DaemonClock
from kubectl_nodelife.live.news import WATCHING, KindState, OtherCluster
from tests.enforce.test_manager import pod
from tests.enforce.test_preflight import Server, refusal

NOW = 1_000 * SECOND_NS
RECOVERY = RemoveTaints(controller="node-lifecycle", because="b", node="n", taints=())


class Feed:
    """Lists and watches that work."""

    def __init__(self) -> None:
        self.queue: asyncio.Queue[Any] = asyncio.Queue()
        self.states = {kind: KindState(kind, WATCHING, synced=True) for kind in ("Node", "Pod")}
        self.relisted: list[str] = []

    def relist(self, kinds: Any) -> None:
        self.relisted += kinds


async def test_a_cluster_behind_another_name_stops_every_write() -> None:
    """Where the kubeconfig's context, or the address, leads elsewhere, recovery waits too."""
    feed, guard = Feed(), Guard(UPSTREAM)
    clock = DaemonClock(lambda: NOW, wall=lambda: NOW, steady=lambda: NOW, awake=lambda: NOW)
    host = EnforcingHost(JOIN, lambda names: None, ActionNumbers())
    settings = make_settings("v1.36")
    task = DecisionTask(
        cast(Any, feed), clock, Ledger(), settings, ["pod-gc"], cast(Any, None), host
    )
    host.join(settings, ["pod-gc"])
    one = SimpleNamespace(
        leads=lambda: True,
        because=lambda now_ns: "",
        present=False,
        absent_ns=NOW,
        error="",
    )
    parts = cast(Any, (one, one, one, str, lambda: NOW))
    gate = WriteGate(*parts)

    def admitted() -> Any:
        task.gate.may_decide(frozenset())
        return guard.admit(RECOVERY, gate.view(host.cache, task), NOW)

    assert admitted() == GO
    await task._note(OtherCluster("kubeconfig", "context 'a' leads to https://b"), [])
    held = admitted()
    assert isinstance(held, Hold) and "leads to https://b" in held.because
    await task._note(OtherCluster("kubeconfig", ""), [])
    assert isinstance(admitted(), Hold) and feed.relisted, "until all is listed anew"


def test_a_cluster_that_does_not_say_which_it_is() -> None:
    def silent(path: str, body: dict[str, Any]) -> Answer | None:
        return Answer(200, raw={"metadata": {}}) if path.endswith("/kube-system") else None

    server = Server(silent)
    server.marks["kube-system-uid"] = "u"
    assert "does not say which cluster it is" in refusal(server)


@pytest.mark.parametrize(
    "flag",
    ["node-monitor-grace-period=$(GRACE)", "node-eviction-rate=fast", "node-monitor-period=1ns"],
)
def test_a_running_flag_that_cannot_be_read(flag: str) -> None:
    def shown(path: str, body: dict[str, Any]) -> Answer | None:
        items = [pod(f"--{flag}")]
        return Answer(200, raw={"items": items}) if path.endswith("/pods") else None

    assert f"it runs with --{flag}" in refusal(Server(shown))


def marked(path: Path, name: str, text: str) -> Intents:
    """A journal of writes in which somebody else's words stand."""
    intents = Intents(str(path))
    intents.mark(name, text)
    return intents


@pytest.mark.parametrize("text", ["soon", "-1", "1e9", "{}", " "])
async def test_a_pause_that_cannot_be_read_is_for_ever(text: str, tmp_path: Path) -> None:
    intents = marked(tmp_path / "writes.db", "paused", text)
    pause = Pause(intents)
    assert pause.because(NOW) == "paused by `daemon pause`"
    pause.end()
    assert Pause(intents).because(NOW) == ""
    await intents.close()


async def test_gone_nodes_that_cannot_be_read_open_the_breaker(tmp_path: Path) -> None:
    for text, told in (("", 0), ('{"gone":{},"there":[]}', 0), ("[{", 1)):
        intents, guard = marked(tmp_path / "writes.db", "nodes", text), Guard(UPSTREAM)
        gone = GoneNodes(intents)
        Tripwires(guard, Cache(), ["pod-gc"], gone).check_gone(NOW)
        assert len(guard.breakers) == told
        gone.forget()
        assert not gone.unreadable, "a person has said go on"
        await intents.close()
