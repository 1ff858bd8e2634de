"""Node upgrades on a real control plane when their leaders die, sleep and meet, and people step in.

In each story one run has nodes that stand still in all the states, so that a leader's death, a
person's hand and the end of a run meet every state at once. Each has a cluster of its own.

A leader on a busy machine may be without its Lease for a moment, and leads in another epoch then:
nothing here counts epochs, only which is later.
"""

import json
import signal
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

from tests.real.audited import instant
from tests.real.upgrade_observer import Observer, mark_written
from tests.real.upgrade_stages import (
    REBOOT,
    Stages,
    annotate,
    cordon,
    epochs_of,
    keep_web_on,
    kill_in_phase,
    phase_of,
    run_of,
)
from tests.real.upgrading import ANNOTATION, LEASE, Fleet, Operator, fleet

NODES = tuple(f"a{number:02}" for number in range(20))
SPARE, WEB = NODES[-1], NODES[15:]
MET = D0, D1, W0, W1, W2, S0, S1, P0, P1, P2, K0, HOLD, THEIRS = NODES[:13]
"""The nodes that people meet: Draining, Working, Settling, Proving, in service again, or none."""
LEFT = {D1: "Draining", W2: "Working", S1: "Settling", P2: "Proving", K0: "Soaking"}
"""Those that the run keeps."""
LEASE_S = 8
NAP_S = 4
"""Longer than a Lease of so long is believed in, and no standstill yet, after which the leader
decides nothing for a minute.
"""
LOST_S = 20
"""No node here is lost; a machine that stands still for some seconds shall not lose one either."""
TERMS = (
    *("--set", "node-monitor-grace-period=4s", "--set", "node-monitor-period=1s"),
    *("--lease-duration", f"{LEASE_S}s"),
)
FLAGS = (
    *("--soak", "1s", "--node-soak", "15s", "--ready-for", "2s"),
    *("--zones", "0", "--max-unavailable", "12", "--canary", "12", "--yes", *TERMS),
)
ONCE_MORE = "Ctrl-C once more leaves at once"
RUN = ("--run", REBOOT)
TARGET = ("--target", "bootID=changed")
SCALE_DOWN = "cluster-autoscaler.kubernetes.io/scale-down-disabled"
CONFIG_MAPS = "/api/v1/namespaces/kube-system/configmaps"


@pytest.fixture()
def cluster(tmp_path: Path) -> Iterator[Fleet]:
    with fleet(tmp_path, NODES, LOST_S) as found:
        keep_web_on(found, WEB)
        yield found


@pytest.fixture()
def stages(cluster: Fleet) -> Iterator[Stages]:
    one = Stages(cluster, SPARE)
    yield one
    one.release()  # the commands of leaders that were killed wait for it
    for operator in cluster.operators:
        operator.kill()


def assert_clean(cluster: Fleet, operator: Operator, *stays: str) -> None:
    """Nothing of ours is left after `clean --release-failed`, once the canaries that it deleted
    have ended; `stays`: what is of others.
    """
    code = operator.type("clean", "--release-failed", "--yes")
    assert code == 0, operator.said()
    left = list(stays)
    cluster.until(f"{left} is left", lambda: cluster.traces() == left)


def leads_all(cluster: Fleet, holder: str, *nodes: str) -> bool:
    """True if another one than this holder leads, and these nodes' annotations name its epoch."""
    spec = cluster.api.get(LEASE)["spec"]
    later = {spec["leaseTransitions"]} == epochs_of(cluster, *nodes) != {0}
    return spec["holderIdentity"] not in ("", holder) and later


def holder_of(cluster: Fleet) -> str:
    """Who leads, "" for nobody."""
    return str(cluster.api.get(LEASE)["spec"]["holderIdentity"] or "")


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
        led = holder_of(cluster)
        one.kill()
        assert {name: cluster.state(name) for name in nodes} == at

        two.begin(*order)
        cluster.until("the second leads", lambda: leads_all(cluster, led, *nodes))
        stages.release()
        kill_in_phase(cluster, two, "Finished")
        assert cluster.traces(), "it was killed before it had cleared away"

        assert three.type(*order) == 0, three.said()
        assert cluster.traces() == [], three.said()
        lease = cluster.api.get(LEASE)
        assert lease["spec"]["leaseTransitions"] >= 2 and not lease["spec"]["holderIdentity"]
        for name in nodes:
            assert (stages.times_run(name), cluster.kubelets[name].reboots) == (1, 1)
        assert_clean(cluster, three)
    assert observer.faults == []


def assert_refused_beside(cluster: Fleet, leader: Operator, other: Operator) -> None:
    """A second operator is told who leads which run since when, and how his order differs."""
    holder = holder_of(cluster)
    run = run_of(cluster)["run"]
    nodes = NODES[:6]
    orders = {
        "is alive": ("start", *nodes, *RUN, *TARGET, *FLAGS),
        f"nodes is {', '.join(nodes)} there, {nodes[0]} here": (
            "start",
            nodes[0],
            *RUN,
            *TARGET,
            *FLAGS,
        ),
        "retries is 1 there, 3 here": ("start", *nodes, *RUN, *TARGET, *FLAGS, "--retries", "3"),
        "differs": ("start", *nodes, "--run", "true", *TARGET, *FLAGS),
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
    order = ("start", *nodes, *RUN, *TARGET, *FLAGS, "--prove-timeout", "20s")
    stages.hold(draining=[draining], working=[working], settling=[settling], proving=[proving])
    first, second, third = (Operator(cluster, name) for name in ("first", "second", "third"))
    with Observer(cluster, floor=8) as observer:
        first.begin(*order)
        cluster.await_state(proving, "Proving")
        for name, state in zip(nodes, ("Draining", "Working", "Settling"), strict=False):
            cluster.await_state(name, state)
        led = holder_of(cluster)
        first.signal(signal.SIGSTOP)
        second.begin(*order)
        cluster.until("the second leads", lambda: leads_all(cluster, led, *nodes))
        (epoch,), woken_at = epochs_of(cluster, *nodes), time.time()
        first.signal(signal.SIGCONT)
        assert first.end() == 5, first.said()
        assert "leads the upgrade now" in first.said(), first.said()

        assert third.type("abort") == 0, third.said()
        assert "the run ends once what is in work is over" in third.said()
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
    assert min(epochs_written(cluster, since=woken_at)) >= epoch, "the first wrote after it woke"


def epochs_written(cluster: Fleet, since: float) -> set[int]:
    """The epochs on nodes that the upgrades' account has written since then."""
    marks = [
        mark_written(entry)
        for entry in cluster.plane.audit()
        if entry["user"]["username"] == cluster.account
        and instant(entry["requestReceivedTimestamp"]) >= since
    ]
    return {int(mark.get("epoch", 0)) for mark in marks if mark}


def test_people_have_the_last_word_in_each_state_and_clean_ends_a_run_without_a_lease(
    cluster: Fleet, stages: Stages
) -> None:
    stages.hold(draining=[D0, D1], working=[W0, W1, W2], settling=[S0, S1], proving=[P0, P1, P2])
    set_hold(cluster, HOLD)
    cordon(cluster, THEIRS)
    one, two = (Operator(cluster, name) for name in ("one", "two"))
    with Observer(cluster, floor=8) as observer:
        observer.cordoned_by_person(THEIRS)
        one.begin("start", *MET, *RUN, *TARGET, *FLAGS, "--node-soak", "10m")
        for name, state in {D0: "Draining", W0: "Working", W1: "Working", **LEFT}.items():
            cluster.await_state(name, state)
        cluster.await_state(S0, "Settling")
        for name in (P0, P1):
            cluster.await_state(name, "Proving")
        intervene(cluster, one)
        observer.cordoned_by_person(P1, K0)
        assert states_of(cluster, LEFT) == LEFT
        for name in (HOLD, THEIRS):
            assert (cluster.state(name), cluster.mark(name)) == ("", {})

        cluster.api.create(CONFIG_MAPS, {"metadata": {"name": "nodelife-stop"}})
        cluster.until("it stops", lambda: "nodelife-stop is there" in one.said())
        stages.release(P2)
        cluster.until("its canary is Ready", lambda: stages.has_ready_canary(P2))
        time.sleep(11)  # a canary that is Ready for so long has shown what it was to show
        assert states_of(cluster, LEFT) == LEFT

        cluster.api.delete(LEASE)
        assert one.end() == 5, one.said()
        cluster.api.delete(f"{CONFIG_MAPS}/nodelife-stop")
        assert "it was deleted" in one.said()
        assert states_of(cluster, LEFT) == LEFT
        assert two.type("clean", "--yes") == 0, two.said()
        failed = (W1, W2, S1, P1, P2)
        assert states_of(cluster, MET) == dict.fromkeys(MET, "") | dict.fromkeys(failed, "Failed")
        for name in failed:
            assert f"kubectl nodelife upgrade prove {name}" in two.said()
        stages.release()
        stays = [f"{S0}: {SCALE_DOWN}", *(f"{name}: cordoned" for name in (S0, P1, K0, THEIRS))]
        assert_clean(cluster, two, *stays)
    assert observer.faults == []


def intervene(cluster: Fleet, leader: Operator) -> None:
    """People step in, a hand in each state; the leader holds or lets go, and says so."""
    for name in (D0, W0):
        cordon(cluster, name, off=True)
    set_hold(cluster, D1)
    edited = {**cluster.mark(W1), "reason": "a person knows better"}
    annotate(cluster, W1, json.dumps(edited))
    annotate(cluster, S0, None)
    cluster.taint(P0, "nodelife.dev/unproven", off=True)
    for name in (P1, K0):
        cordon(cluster, name)

    for name in (D0, W0, P0):
        cluster.await_state(name, "Held")
    for name in (P1, K0):
        cluster.until(
            f"{name}'s cordon is theirs", lambda n=name: cluster.mark(n).get("cordon") == "theirs"
        )
    for name, what in ((W1, "was edited"), (S0, "was removed")):
        said = f"node {name}: annotation {ANNOTATION} {what} by another client"
        cluster.until(said, lambda text=said: text in leader.said())
        assert f"kubectl uncordon {name};" in leader.said()
        assert f"kubectl annotate node {name} {ANNOTATION}-" in leader.said()
    assert cluster.mark(W1) == edited


def states_of(cluster: Fleet, names: Iterable[str]) -> dict[str, str]:
    """The states of these nodes."""
    return {name: cluster.state(name) for name in names}


def set_hold(cluster: Fleet, name: str) -> None:
    """A person asks that the node is left alone."""
    labels = {"nodelife.dev/upgrade-hold": "mine"}
    cluster.api.merge(f"/api/v1/nodes/{name}", {"metadata": {"labels": labels}})


def test_a_sleep_a_pause_and_ctrl_c_once_and_twice(cluster: Fleet, stages: Stages) -> None:
    nodes = NODES[12:14]
    order = ("start", *nodes, *RUN, *FLAGS, "--canary", "1", "--lease-duration", f"{NAP_S}s")
    stages.hold(working=nodes)
    one, two, three = (Operator(cluster, name) for name in ("one", "two", "three"))
    with Observer(cluster, floor=8) as observer:
        one.begin(*order)
        cluster.until("one works", lambda: sum(map(stages.times_run, nodes)) == 1)
        first = next(name for name in nodes if stages.times_run(name))
        (second,) = {*nodes} - {first}

        (epoch,) = epochs_of(cluster, first)
        one.signal(signal.SIGSTOP)
        time.sleep(NAP_S)
        one.signal(signal.SIGCONT)
        cluster.until("it leads anew", lambda: min(epochs_of(cluster, first)) > epoch)

        stages.release(first)
        one.signal(signal.SIGINT)
        assert one.end() == 130, one.said()
        assert ONCE_MORE in one.said()
        assert (cluster.state(first), cluster.state(second)) == ("Done", "")
        assert phase_of(cluster) == "Paused"

        two.begin(*order)
        cluster.until("it leads", lambda: holder_of(cluster) != "")
        time.sleep(6)
        assert (cluster.state(second), phase_of(cluster)) == ("", "Paused")
        assert three.type("resume") == 0, three.said()
        cluster.await_state(second, "Working")
        assert three.type("pause", "--because", "lunch") == 0, three.said()
        assert phase_of(cluster) == "Paused" and "lunch" in run_of(cluster)["because"]
        two.signal(signal.SIGINT)
        cluster.until("it was interrupted once", lambda: ONCE_MORE in two.said())
        two.signal(signal.SIGINT)
        assert two.end() == 130, two.said()
        assert cluster.state(second) == "Working"

        assert three.type(*order, "--resume") == 1, three.said()
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
        assert three.type("abort", "--now") == 0, three.said()
        assert two.end() == 1, two.said()
        assert cluster.mark(name)["reason"] == "cut off by abort --now"
        stages.release()
        assert_clean(cluster, three)
    assert observer.faults == []
