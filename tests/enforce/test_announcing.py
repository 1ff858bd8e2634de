"""What enforcing says of itself: Events and rows, what stays behind, which nodes are gone."""

import asyncio
from pathlib import Path
from typing import Any, cast

import pytest

from kubectl_nodelife.controllers.tainteviction import TaintEvictionController
from kubectl_nodelife.daemon.changes import ChangeFilter, Store, document
from kubectl_nodelife.daemon.enforce.recorder import (
    MOST,
    Announcer,
    ChangeRecorder,
    left_behind,
    user_and_host,
)
from kubectl_nodelife.daemon.enforce.tripwires import GoneNodes, Tripwires
from kubectl_nodelife.daemon.intents import Intents
from kubectl_nodelife.daemon.ledger import Ledger
from kubectl_nodelife.engine.actions import DeletePod
from kubectl_nodelife.engine.cache import Cache
from kubectl_nodelife.engine.calls import Answer, Result
from kubectl_nodelife.engine.election import Election
from kubectl_nodelife.engine.events import Gone, Put
from kubectl_nodelife.engine.guard import NODES_GONE, Breaker, Caps, Guard
from kubectl_nodelife.engine.settings import make_settings
from kubectl_nodelife.kube.meta import ObjectMeta, Time
from kubectl_nodelife.kube.node import Node, NodeCondition, NodeSpec, NodeStatus, Taint
from kubectl_nodelife.kube.pod import Pod, PodSpec, Toleration
from kubectl_nodelife.kube.times import SECOND_NS
from kubectl_nodelife.kube.workload import DaemonSet, DaemonSetStatus
from kubectl_nodelife.live.events import EventSender
from tests.objects import node, pod, put

NOW = 1_767_225_600 * SECOND_NS


class Api:
    """Takes Events."""

    def __init__(self) -> None:
        self.events: list[dict[str, Any]] = []

    async def call(self, call: Any) -> Answer:
        self.events.append(call.body)
        return Answer(201)


async def test_begin_end_and_breakers_are_events_on_the_lease_and_rows() -> None:
    api, ledger, election = Api(), Ledger(), Election("kube-system", "nodelife", "me")
    election.taken_from = "laptop-2"

    async def admitted() -> bool:
        return True

    sender = EventSender(cast(Any, api), lambda: NOW, admitted)
    keeper = cast(Any, type("Keeper", (), {"election": election}))
    announcer = Announcer(ledger, sender, keeper, lambda: NOW)
    sending = asyncio.ensure_future(announcer.run())
    guard = Guard(Caps(errors=1))
    guard.on_close = announcer.closed
    breaker = Breaker("surprise", "another writer", NOW)
    announcer.began("daemonset,pod-gc")
    announcer.began("daemonset,pod-gc")
    guard.open(breaker)
    announcer.opened(breaker)
    guard.resume()
    announcer.ended("the Lease is lost")
    announcer.ended("stopped")
    await announcer.flush()
    sending.cancel()
    told = [(e["reason"], e["type"], e["message"]) for e in api.events]
    assert told == [
        (
            "EnforcingBegan",
            "Normal",
            f"daemonset,pod-gc by order of {user_and_host()}, after laptop-2",
        ),
        ("BreakerOpened", "Warning", "surprise: another writer"),
        ("BreakerClosed", "Normal", "surprise: closed by `daemon resume`"),
        ("EnforcingEnded", "Warning", "the Lease is lost"),
    ]
    about = api.events[0]["involvedObject"]
    where = about["kind"], about["namespace"], about["name"]
    assert where == ("Lease", "kube-system", "nodelife")
    assert api.events[0]["source"] == {"component": "kubectl-nodelife"}
    rows, _, _ = ledger.take_batch()
    assert [(r.kind, r.mode, r.outcome) for r in rows] == [("Lease", "enforce", "applied")] * 4


def test_a_breaker_that_heals_says_so() -> None:
    guard, closed = Guard(Caps(errors=1)), list[str]()
    guard.on_close = lambda breaker, how: closed.append(f"{breaker.rule}: {how}")
    action = DeletePod(controller="pod-gc", because="b", namespace="d", pod="p", pod_uid="u")
    guard.ended(action, 500, "broken", NOW)
    guard._half_open["DeletePod Pod"] = (action, NOW)
    guard.ended(action, 200, "", NOW + 40 * SECOND_NS)
    assert closed == ["errors: a write has worked again"]


# The journal of changes


def test_tries_and_what_holds_an_action_are_kept(tmp_path: Path) -> None:
    store = Store(str(tmp_path / "journal.db"))
    ledger = Ledger()
    recorder = ChangeRecorder(ledger)
    action = DeletePod(controller="pod-gc", because="b", namespace="d", pod="p", pod_uid="u", id=1)
    recorder.planned(action, None, NOW)
    recorder.held(action, "10 deletions a minute are the cap", NOW + SECOND_NS)

    def row() -> dict[str, Any]:
        new, settled, _ = ledger.take_batch()
        store.write(new, settled)
        (change,) = store.select(ChangeFilter())
        return document(change)

    held = row()
    assert (held["outcome"], held["heldBecause"]) == ("held", "10 deletions a minute are the cap")
    assert held["heldUntil"] == "2026-01-01T00:00:01.000000Z" and "attempts" not in held
    assert [c.outcome for c in store.still_open()] == ["held"], "a restart settles it"
    recorder.sending(action)
    recorder.sending(action)
    recorder.ended(action, Result(500, "broken"), NOW)
    failed = row()
    assert (failed["outcome"], failed["attempts"]) == ("failed", 2)
    assert failed["error"] == "500: a server error"
    assert "heldBecause" not in failed and "heldUntil" not in failed
    store.close()


QUOTED = 'Pod "p" is invalid: spec.containers[0].env[0].value: Invalid value: "s3cret"'
MODIFIED = 'nodes "a": the object has been modified'
DENIED = 'admission webhook "w" denied the request: s3cret'


@pytest.mark.parametrize(
    ("code", "reason", "message", "kept"),
    [
        (422, "Invalid", QUOTED, "Invalid"),
        (403, "Forbidden", DENIED, "Forbidden"),
        (409, "Conflict", DENIED, "Conflict"),
        (400, "Unknown", DENIED, "Unknown"),
        (500, "InternalError", DENIED, "InternalError"),
        (503, "Unknown", DENIED, "Unknown"),
        (599, "", DENIED, "a server error"),
        (409, "Conflict", MODIFIED, MODIFIED),
        (0, "", "no answer in time", "no answer in time"),
    ],
)
def test_a_text_that_refuses_a_write_is_not_kept(
    code: int, reason: str, message: str, kept: str
) -> None:
    """It quotes the values that it refuses, and a journal keeps it for seven days."""
    ledger = Ledger()
    recorder = ChangeRecorder(ledger)
    action = DeletePod(controller="pod-gc", because="b", namespace="d", pod="p", pod_uid="u", id=1)
    recorder.planned(action, None, NOW)
    result = Result(code, message, reason)
    recorder.ended(action, result, NOW)
    _, _, changed = ledger.take_batch()
    assert [change.error for change in changed] == [f"{code}: {kept}"]
    assert result.recorded == kept


def test_a_journal_of_an_older_release_is_taken_over(tmp_path: Path) -> None:
    path = str(tmp_path / "journal.db")
    store = Store(path)
    for column in ("attempts", "held_until_ns", "identity"):
        store._db.execute(f"ALTER TABLE changes DROP COLUMN {column}")
    store._db.execute("PRAGMA user_version = 3")
    store.close()
    store = Store(path)
    assert store.select(ChangeFilter()) == []
    store.close()


# What stays behind


def test_what_stays_behind_is_told_with_the_line_that_clears_it() -> None:
    cache = Cache()
    taint = Taint("node.kubernetes.io/unreachable", "NoExecute", "", Time(NOW))
    ready = NodeCondition("Ready", "Unknown")
    status = NodeStatus(conditions=(ready,))
    spec = NodeSpec(taints=(taint, Taint("team", "NoSchedule")))
    cache.apply(Put("Node", Node(ObjectMeta(name="n", uid="u-n"), spec, status)), NOW)
    stays = Toleration(key=taint.key, operator="Exists", toleration_seconds=300)
    pod = Pod(ObjectMeta(name="p", namespace="d"), PodSpec(node_name="n", tolerations=(stays,)))
    cache.apply(Put("Pod", pod), NOW)
    counts = DaemonSetStatus(desired_number_scheduled=3, updated_number_scheduled=1)
    agent = DaemonSet(ObjectMeta(name="agent", namespace="d"), status=counts)
    cache.apply(Put("DaemonSet", agent), NOW)
    eviction = TaintEvictionController(make_settings("v1.36"))
    assert list(eviction.start(cache, NOW))
    every = ("node-lifecycle", "taint-eviction", "daemonset")
    assert left_behind(cache, eviction, every, NOW + 60 * SECOND_NS) == [
        "node/n keeps node.kubernetes.io/unreachable:NoExecute: "
        "kubectl taint node n node.kubernetes.io/unreachable:NoExecute-",
        "node/n is Unknown until its kubelet posts: kubectl describe node n",
        "pod/p was to be evicted in 4m0s: kubectl delete pod -n d p",
        "daemonset/agent has 1 of 3 pods up to date: kubectl rollout undo -n d daemonset agent",
    ]
    assert left_behind(cache, eviction, ("pod-gc",), NOW) == []
    for number in range(20):
        meta = ObjectMeta(name=f"x{number:02}", uid=f"u{number}")
        cache.apply(Put("Node", Node(meta, status=status)), NOW)
    lines = left_behind(cache, None, ("node-lifecycle",), NOW)
    assert len(lines) == 1 + MOST + 1 and lines[-1] == "node: and 11 more"


# Nodes that are gone


def nodes(*names: str) -> Cache:
    cache = Cache()
    for name in names:
        cache.apply(put(node(name, None)), NOW)
    for number in range(10):
        cache.apply(put(pod(f"p{number}", f"n{number}")), NOW)
    return cache


def test_nodes_that_are_gone_are_remembered_over_a_restart(tmp_path: Path) -> None:
    path = str(tmp_path / "j.writes.db")
    all_ = [f"n{number}" for number in range(10)]

    async def first() -> None:
        intents = Intents(path)
        gone, cache = GoneNodes(intents), nodes(*all_)
        gone.begin(cache, NOW)
        tripwires = Tripwires(guard := Guard(Caps()), cache, ["pod-gc"], gone)
        tripwires.sees(Gone("Node", ("", "n0")), NOW)
        assert gone.count(NOW) == 1 and not guard.breakers
        gone.keep(NOW)
        await intents.close()

    async def second() -> None:
        intents = Intents(path)
        gone, cache = GoneNodes(intents), nodes(*all_[3:])
        gone.begin(cache, NOW + 60 * SECOND_NS)  # n1 and n2 went while nobody looked
        tripwires = Tripwires(guard := Guard(Caps()), cache, ["pod-gc"], gone)
        tripwires.check_gone(NOW + 60 * SECOND_NS)
        assert gone.count(NOW + 60 * SECOND_NS) == 3 and (NODES_GONE, "") in guard.breakers
        assert gone.count(NOW + 601 * SECOND_NS) == 2, "ten minutes"
        gone.forget()
        assert gone.count(NOW + 60 * SECOND_NS) == 0
        await intents.close()

    asyncio.run(first())
    asyncio.run(second())


def test_a_node_with_daemon_pods_alone_is_none_of_them() -> None:
    gone, cache = GoneNodes(), nodes("n0")
    cache.apply(Gone("Pod", ("default", "p0")), NOW)
    assert not gone.gone("n0", cache, NOW) and gone.count(NOW) == 0
