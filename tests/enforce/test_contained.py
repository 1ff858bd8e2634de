"""A bug of ours while we enforce: the writes of the controller concerned stop, never all go on."""

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest

from kubectl_nodelife.daemon.enforce import enforcement as enforcement_module
from kubectl_nodelife.daemon.enforce import write_gate
from kubectl_nodelife.daemon.enforce.enforcement import Enforcement
from kubectl_nodelife.daemon.enforce.host import EnforcingHost
from kubectl_nodelife.daemon.enforce.tripwires import Tripwires
from kubectl_nodelife.daemon.flags import Orders
from kubectl_nodelife.daemon.ledger import Ledger
from kubectl_nodelife.engine.actions import Action, ActionNumbers, DeletePod, RemoveTaints
from kubectl_nodelife.engine.cache import Cache
from kubectl_nodelife.engine.events import Put
from kubectl_nodelife.engine.guard import FAULT, GO, UPSTREAM, Guard, Hold, WriteConditions
from kubectl_nodelife.engine.quarantine import Bug
from kubectl_nodelife.engine.settings import make_settings
from kubectl_nodelife.kube.meta import ObjectMeta
from kubectl_nodelife.kube.node import Node
from kubectl_nodelife.kube.times import SECOND_NS

NOW = 1_000 * SECOND_NS
ENFORCED = ("node-lifecycle", "pod-gc")
VIEW = WriteConditions(kill_switch_absent_ns=NOW)
SECRET = "s3cr3t"


def delete(controller: str) -> DeletePod:
    return DeletePod(controller=controller, because="b", namespace="d", pod="p", pod_uid="u")


UNTAINT = RemoveTaints(controller="node-lifecycle", because="b", node="n", node_uid="u", taints=())


class Kept:
    """Stands for the journal of writes: words that are kept."""

    def __init__(self) -> None:
        self.error = ""
        self.marks: dict[str, str] = {}

    def mark(self, name: str, value: str | None = None) -> str:
        if value is not None:
            self.marks[name] = value
        return self.marks.get(name, "")


def enforcing(monkeypatch: pytest.MonkeyPatch, kept: Kept | None = None) -> Enforcement:
    """An `Enforcement` that has not begun."""
    monkeypatch.setattr(enforcement_module, "WritingSession", lambda *_, **__: SimpleNamespace())
    clock = SimpleNamespace(now_ns=lambda: NOW, steady_ns=lambda: NOW)
    session = SimpleNamespace(target=SimpleNamespace(server="s"))
    sources: Any = SimpleNamespace(
        client=SimpleNamespace(clock=None, session=session),
        journal=SimpleNamespace(ledger=Ledger(), fault=str),
        decisions=SimpleNamespace(clock=clock),
    )
    flags = SimpleNamespace(orders=Orders(ENFORCED, ENFORCED, "join", "upstream"), assignments=())
    options: Any = SimpleNamespace(environ={}, report=print, flags=flags)
    settings: Any = SimpleNamespace(warnings=[])
    made = Enforcement(options, sources, cast(Any, None), settings, cast(Any, kept or Kept()))
    monkeypatch.setattr(write_gate, "PAUSE_S", 0.0)
    return made


def host_of(enforcement: Enforcement, started: list[Action]) -> EnforcingHost:
    """Its host, with an executor that only notes."""
    note = enforcement._faults.note
    host = EnforcingHost("join", lambda names: None, ActionNumbers(), note)
    executor = SimpleNamespace(
        sending=set(),
        is_in_pass=lambda controller: False,
        start=lambda action, now_ns: started.append(action),
        refuse=lambda action, now_ns, because: None,
    )
    host.executor = cast(Any, executor)
    host.tripwires = Tripwires(enforcement.guard, host.cache, ENFORCED)
    host.join(make_settings("newest"), list(ENFORCED))
    for _ in host.step(NOW, []):
        pass
    return host


def raise_secret(*_: Any) -> Any:
    raise KeyError(SECRET)


def is_held(guard: Guard, action: Action) -> bool:
    return guard.admit(action, VIEW, NOW) != GO


def test_a_bug_of_one_controller_stops_its_writes_and_no_other_s(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    kept = Kept()
    enforcement = enforcing(monkeypatch, kept)
    host = host_of(enforcement, [])
    assert host.engine is not None
    gc = next(c for c in host.engine.controllers if c.name == "pod-gc")
    monkeypatch.setattr(gc, "changed", raise_secret)
    for _ in host.step(NOW, [Put("Node", Node(ObjectMeta(name="n1", uid="u")))]):
        pass
    guard = enforcement.guard
    assert [*guard.breakers] == [(FAULT, "pod-gc")]
    assert is_held(guard, delete("pod-gc"))
    assert not is_held(guard, UNTAINT)
    (line,) = enforcement.state()["breakers"] if enforcement.keeper else []
    assert "pod-gc at Node n1 (KeyError at raise_secret" in line
    assert SECRET not in line + caplog.text + str(kept.marks)
    again = enforcing(monkeypatch, kept)
    assert is_held(again.guard, delete("pod-gc")), "a restart forgets no fault"
    again.resume()
    assert not is_held(again.guard, delete("pod-gc"))


def test_recovery_of_that_controller_stops_as_well(monkeypatch: pytest.MonkeyPatch) -> None:
    enforcement = enforcing(monkeypatch)
    enforcement._faults.note(Bug("node-lifecycle", "pass", KeyError(), NOW))
    assert is_held(enforcement.guard, UNTAINT)


@pytest.mark.parametrize("what", ["tripwires", "cache", "settling", "enforcing", "a batch"])
def test_a_bug_of_what_all_stand_on_stops_all(monkeypatch: pytest.MonkeyPatch, what: str) -> None:
    enforcement = enforcing(monkeypatch)
    started: list[Action] = []
    host = host_of(enforcement, started)
    node = Put("Node", Node(ObjectMeta(name="n1", uid="u")))
    if what == "tripwires":
        monkeypatch.setattr(Tripwires, "sees", raise_secret)
    elif what == "cache":
        monkeypatch.setattr(Cache, "set", raise_secret)
    if what in ("tripwires", "cache"):
        for _ in host.step(NOW, [node]):
            pass
    else:

        async def fails() -> None:
            raise_secret()

        asyncio.run(enforcement._faults.contain(what, fails()))
    for action in (delete("pod-gc"), UNTAINT):
        held = enforcement.guard.admit(action, VIEW, NOW)
        assert isinstance(held, Hold) and "a bug of ours" in held.because
        assert SECRET not in held.because


async def test_a_part_that_ends_by_a_bug_stops_all(monkeypatch: pytest.MonkeyPatch) -> None:
    """Such as the one that looks whether a kube-controller-manager came back."""
    enforcement = enforcing(monkeypatch)

    async def fails() -> None:
        raise_secret()

    task = asyncio.create_task(fails())
    task.add_done_callback(enforcement._faults.part_ended)
    await asyncio.gather(task, return_exceptions=True)
    await asyncio.sleep(0)
    assert is_held(enforcement.guard, UNTAINT)


def test_a_decision_that_cannot_be_begun_stops_its_controller(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    enforcement = enforcing(monkeypatch)
    host = host_of(enforcement, [])
    assert host.engine is not None and host.executor is not None
    monkeypatch.setattr(host.executor, "start", raise_secret)
    monkeypatch.setattr(host.engine, "step", lambda now_ns, events: iter([delete("pod-gc")]))
    for _ in host.step(NOW, []):
        pass
    assert is_held(enforcement.guard, delete("pod-gc"))
    assert not is_held(enforcement.guard, UNTAINT)


def test_the_guard_of_the_default_caps_holds_no_one_else() -> None:
    guard = Guard(UPSTREAM)
    assert not is_held(guard, delete("pod-gc"))
