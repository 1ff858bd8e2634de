"""Node upgrades on a real control plane when their leaders die, sleep and meet, and people step in.

In each story one run has nodes that stand still in all the states, so that a leader's death, a
person's hand and the end of a run meet every state at once.
"""

from __future__ import annotations

import contextlib
import json
import signal
import time
from collections.abc import Iterator

import pytest

from tests.real.audited import instant
from tests.real.control_plane import Refused
from tests.real.upgrade_observer import Observer
from tests.real.upgrade_stages import (
    REBOOT,
    Stages,
    annotate,
    cordon,
    epochs_of,
    kill_in_phase,
    phase_of,
    run_of,
)
from tests.real.upgrading import ANNOTATION, LEASE, Fleet, Operator, fleet

NODES = tuple(f"a{number:02}" for number in range(20))
SPARE = NODES[-1]
TERMS = (
    *("--set", "node-monitor-grace-period=4s", "--set", "node-monitor-period=1s"),
    *("--lease-duration", "4s"),
)
FLAGS = (
    *("--soak", "1s", "--node-soak", "5s", "--ready-for", "2s", "--prove-timeout", "25s"),
    *("--zones", "0", "--max-unavailable", "12", "--canary", "12", "--yes", *TERMS),
)
RUN = ("--run", REBOOT)
TARGET = ("--target", "bootID=changed")
SCALE_DOWN = "cluster-autoscaler.kubernetes.io/scale-down-disabled"
CONFIG_MAPS = "/api/v1/namespaces/kube-system/configmaps"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    with fleet(tmp_path_factory.mktemp("upgrade"), NODES) as found:
        yield found


@pytest.fixture()
def stages(cluster: Fleet) -> Iterator[Stages]:
    cluster.operators.clear()
    one = Stages(cluster, SPARE)
    yield one
    one.release()
    for operator in cluster.operators:
        operator.kill()
    for name in NODES:
        cordon(cluster, name, off=True)
    if cluster.traces():  # a test that failed leaves nothing to the next one
        with contextlib.suppress(Refused):
            cluster.api.delete(LEASE)
        Operator(cluster, "cleaner").type("clean", "--release-failed", "--yes")


def assert_clean(cluster: Fleet, operator: Operator, *stays: str) -> None:
    """Nothing of ours is left after `clean --release-failed`; `stays`: what is of others."""
    code = operator.type("clean", "--release-failed", "--yes")
    assert code == 0, operator.said()
    assert cluster.traces() == list(stays), operator.said()


def test_a_leader_killed_in_every_state_is_gone_on_with_on_other_machines(
    cluster: Fleet, stages: Stages
) -> None:
    draining, working, settling, proving, canary, soaking = nodes = NODES[:6]
    order = ("start", *nodes, *RUN, *TARGET, *FLAGS)
    stages.hold(draining=[draining], working=[working], settling=[settling])
    stages.hold(proving=[proving, canary, soaking])
    one, two, three = (Operator(cluster, name) for name in ("one", "two", "three"))
    with Observer(cluster, floor=8) as observer:
        one.begin(*order)
        at = {draining: "Draining", working: "Working", settling: "Settling"}
        at |= dict.fromkeys((proving, canary, soaking), "Proving")
        for name, state in at.items():
            cluster.await_state(name, state)
        assert_refused_beside(cluster, one, two)
        stages.release(soaking)
        at[soaking] = cluster.await_state(soaking, "Soaking")
        stages.release(canary)
        cluster.until("its canary is Ready", lambda: stages.has_ready_canary(canary))
        one.kill()
        assert {name: cluster.state(name) for name in nodes} == at

        two.begin(*order)
        cluster.until("the second leads", lambda: epochs_of(cluster, *nodes) == {1})
        stages.release()
        kill_in_phase(cluster, two, "Finished")
        assert cluster.traces(), "it was killed before it had cleared away"

        assert three.type(*order) == 0, three.said()
        assert cluster.traces() == [], three.said()
        lease = cluster.api.get(LEASE)
        assert lease["spec"]["leaseTransitions"] == 2 and not lease["spec"]["holderIdentity"]
        for name in nodes:
            assert (stages.times_run(name), cluster.kubelets[name].reboots) == (1, 1)
        assert_clean(cluster, three)
    assert observer.faults == []


def assert_refused_beside(cluster: Fleet, leader: Operator, other: Operator) -> None:
    """A second operator is told who leads which run since when, and how his order differs."""
    holder = cluster.api.get(LEASE)["spec"]["holderIdentity"]
    run = run_of(cluster)["run"]
    nodes = NODES[:6]
    orders = {
        "is alive": ("start", *nodes, *RUN, *TARGET, *FLAGS),
        f"nodes {list(nodes)}, not ['{nodes[0]}']": ("start", nodes[0], *RUN, *TARGET, *FLAGS),
        "retries 1, not 3": ("start", *nodes, *RUN, *TARGET, *FLAGS, "--retries", "3"),
        "the command": ("start", *nodes, "--run", "true", *TARGET, *FLAGS),
    }
    for difference, order in orders.items():
        teller = Operator(cluster, "teller")
        assert teller.type(*order) == 5, teller.said()
        said = teller.said()
        assert difference in said and holder in said and run in said, said
        assert " ago" in said, said
    assert leader.process is not None and leader.process.poll() is None


def test_a_leader_that_was_suspended_is_succeeded_and_writes_no_more_and_an_abort_ends_the_run(
    cluster: Fleet, stages: Stages
) -> None:
    draining, working, settling, proving = nodes = NODES[6:10]
    order = ("start", *nodes, *RUN, *TARGET, *FLAGS)
    stages.hold(
        draining=[draining], working=[working], settling=[settling], proving=[proving]
    )
    first, second, third = (Operator(cluster, name) for name in ("first", "second", "third"))
    with Observer(cluster, floor=8) as observer:
        first.begin(*order)
        cluster.await_state(proving, "Proving")
        for name, state in zip(nodes, ("Draining", "Working", "Settling"), strict=False):
            cluster.await_state(name, state)
        first.signal(signal.SIGSTOP)
        second.begin(*order)
        cluster.until("the second leads", lambda: epochs_of(cluster, *nodes) == {1})
        woken_at = time.time()
        first.signal(signal.SIGCONT)
        assert first.end(30) == 5, first.said()
        assert "leads the upgrade now" in first.said(), first.said()

        assert third.type("abort", *TERMS, "--yes") == 0, third.said()
        assert "has been told: abort" in third.said()
        stages.release(working, settling)
        assert second.end() == 1, second.said()
        assert phase_of(cluster) == "Aborted"
        states = [cluster.state(name) for name in nodes]
        assert states == ["", "", "", "Failed"], second.said()
        stages.release()
        assert third.type("clean", "--yes") == 0
        assert {trace.split(":")[0] for trace in cluster.traces()} == {proving}, third.said()
        assert_clean(cluster, third)
    assert observer.faults == []
    assert epochs_written(cluster, since=woken_at) <= {1}, "the first wrote after it woke"


def epochs_written(cluster: Fleet, since: float) -> set[int]:
    """The epochs on nodes that the upgrades' account has written since then."""
    found = set()
    for entry in cluster.plane.audit():
        ref, at = entry.get("objectRef") or {}, instant(entry["requestReceivedTimestamp"])
        by_us = entry["user"]["username"] == cluster.account and ref.get("resource") == "nodes"
        meta = (entry.get("responseObject") or {}).get("metadata") or {}
        text = (meta.get("annotations") or {}).get(ANNOTATION)
        if by_us and at >= since and text:
            found.add(int(json.loads(text).get("epoch", 0)))
    return found


def test_people_have_the_last_word_in_each_state_and_clean_ends_what_has_no_lease_any_more(
    cluster: Fleet, stages: Stages
) -> None:
    d0, d1, w0, w1, w2, s0, s1, p0, p1, p2, k0, held, theirs = nodes = NODES[:13]
    order = ("start", *nodes, *RUN, *TARGET, *FLAGS, "--node-soak", "10m")
    stages.hold(draining=[d0, d1], working=[w0, w1, w2], settling=[s0, s1], proving=[p0, p1, p2])
    set_hold(cluster, held)
    cordon(cluster, theirs)
    one = Operator(cluster, "one")
    with Observer(cluster, floor=8) as observer:
        observer.cordoned_by_person(theirs)
        one.begin(*order)
        at = {d0: "Draining", d1: "Draining", w0: "Working", w1: "Working", w2: "Working"}
        at |= {s0: "Settling", s1: "Settling", p0: "Proving", p1: "Proving", p2: "Proving"}
        for name, state in {**at, k0: "Soaking"}.items():
            cluster.await_state(name, state, seconds=90)

        for name in (d0, w0):
            cordon(cluster, name, off=True)
        set_hold(cluster, d1)
        edited = {**cluster.mark(w1), "reason": "a person knows better"}
        annotate(cluster, w1, json.dumps(edited))
        annotate(cluster, s0, None)
        cluster.taint(p0, "nodelife.dev/unproven", off=True)
        for name in (p1, k0):
            cordon(cluster, name)
        observer.cordoned_by_person(p1, k0)

        for name in (d0, w0, p0):
            cluster.await_state(name, "Held")
        for name in (p1, k0):
            cluster.until(
                f"{name}'s cordon is theirs", lambda n=name: cluster.mark(n)["cordon"] == "theirs"
            )
        for name, what in ((w1, "was edited"), (s0, "was removed")):
            said = f"node {name}: annotation {ANNOTATION} {what} by somebody else"
            cluster.until(said, lambda text=said: text in one.said())
            assert f"kubectl uncordon {name};" in one.said()
            assert f"kubectl annotate node {name} {ANNOTATION}-" in one.said()
        assert cluster.mark(w1) == edited
        still = {d1: "Draining", w2: "Working", s1: "Settling", p2: "Proving", k0: "Soaking"}
        assert {name: cluster.state(name) for name in still} == still
        for name in (held, theirs):
            assert cluster.state(name) == "" and cluster.mark(name) == {}

        cluster.api.delete(LEASE)
        assert one.end(30) == 5, one.said()
        assert "it was deleted" in one.said()
        assert {name: cluster.state(name) for name in still} == still
        two = Operator(cluster, "two")
        assert two.type("clean", "--yes") == 0, two.said()
        marked = {name: cluster.state(name) for name in nodes if cluster.state(name)}
        failed = (w1, w2, s1, p1, p2)
        assert marked == dict.fromkeys(failed, "Failed"), two.said()
        for name in failed:
            assert f"kubectl nodelife upgrade prove {name}" in two.said()
        stages.release()
        stays = [f"{s0}: {SCALE_DOWN}", *(f"{name}: cordoned" for name in (s0, p1, k0, theirs))]
        assert_clean(cluster, two, *stays)
    assert observer.faults == []
    cluster.api.merge(f"/api/v1/nodes/{s0}", {"metadata": {"annotations": {SCALE_DOWN: None}}})


def set_hold(cluster: Fleet, name: str) -> None:
    """A person asks that the node is left alone."""
    labels = {"nodelife.dev/upgrade-hold": "mine"}
    cluster.api.merge(f"/api/v1/nodes/{name}", {"metadata": {"labels": labels}})


def test_the_kill_switch_a_sleep_a_pause_and_ctrl_c_once_and_twice(
    cluster: Fleet, stages: Stages
) -> None:
    nodes = NODES[12:14]
    order = ("start", *nodes, *RUN, *FLAGS, "--canary", "1")
    stages.hold(working=nodes)
    one, two, three = (Operator(cluster, name) for name in ("one", "two", "three"))
    with Observer(cluster, floor=8) as observer:
        one.begin(*order)
        cluster.until("one works", lambda: "Working" in map(cluster.state, nodes))
        first = next(name for name in nodes if cluster.state(name) == "Working")
        (second,) = {*nodes} - {first}

        one.signal(signal.SIGSTOP)
        time.sleep(5)
        one.signal(signal.SIGCONT)
        cluster.until("it leads anew", lambda: epochs_of(cluster, first) == {1})

        stop = {"metadata": {"name": "nodelife-stop"}}
        cluster.api.create(CONFIG_MAPS, stop)
        time.sleep(3)  # so long until each leader has looked for it
        stages.release(first)
        cluster.until("its work is done", lambda: cluster.kubelets[first].reboots == 1)
        cluster.until("it says so", lambda: "nodelife-stop" in one.said())
        assert cluster.state(first) == "Working"
        cluster.api.delete(f"{CONFIG_MAPS}/nodelife-stop")
        cluster.await_state(first, "Settling", "Proving")

        one.signal(signal.SIGINT)
        assert one.end() == 130, one.said()
        assert "pauses, and waits for what is in work" in one.said()
        assert (cluster.state(first), cluster.state(second)) == ("Done", "")
        assert phase_of(cluster) == "Paused"

        two.begin(*order)
        cluster.until("it leads", lambda: cluster.api.get(LEASE)["spec"]["holderIdentity"] != "")
        time.sleep(6)
        assert (cluster.state(second), phase_of(cluster)) == ("", "Paused")
        assert three.type("resume", *TERMS, "--yes") == 0, three.said()
        cluster.await_state(second, "Working")
        two.signal(signal.SIGINT)
        cluster.until("it pauses", lambda: phase_of(cluster) == "Paused")
        two.signal(signal.SIGINT)
        assert two.end(15) == 130, two.said()
        assert cluster.state(second) == "Working"

        assert three.type("resume", *RUN, *TERMS, "--yes") == 1, three.said()
        assert cluster.state(second) == "Held" and stages.times_run(second) == 1
        assert cluster.mark(second)["reason"] == "unknown whether it ran"
        stages.release()
        assert_clean(cluster, three)
    assert observer.faults == []


def test_work_that_may_run_twice_is_run_again_and_cut_off_by_an_abort_now(
    cluster: Fleet, stages: Stages
) -> None:
    (name,) = NODES[14:15]
    order = ("start", name, *RUN, "--rerun-safe", *FLAGS)
    stages.hold(working=[name])
    one, two, three = (Operator(cluster, name) for name in ("one", "two", "three"))
    with Observer(cluster, floor=8) as observer:
        one.begin(*order)
        cluster.until("it runs", lambda: stages.times_run(name) == 1)
        one.kill()
        two.begin(*order)
        cluster.until("it runs again", lambda: stages.times_run(name) == 2)
        assert cluster.mark(name).get("try", 1) == 1, "a leader's death costs no try"
        assert three.type("abort", "--now", *TERMS, "--yes") == 0, three.said()
        assert two.end() == 1, two.said()
        assert cluster.mark(name)["reason"] == "cut off by abort --now"
        stages.release()
        assert_clean(cluster, three)
    assert observer.faults == []
