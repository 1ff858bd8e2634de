"""One small play for each behaviour that begins or ends with v1.33 to v1.38, in which the release
before and the release after differ, and what the real code of both did on it.

    python -m tests.real_code.boundaries 1.33.13 PROGRAM    # records what this program does

`recordings/` has a file for each release with what its code did on the plays whose boundary it is
at, so that each row of the tables is held by real code without a build of each release.
"""

import json
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from msgspec.structs import replace

from kubectl_nodelife.controllers.daemonset.behaviour import SINCE_UNTIL as DAEMON_SETS
from kubectl_nodelife.engine.settings import SWITCHES, Profile, Span, holds
from kubectl_nodelife.kube.times import SECOND_NS
from kubectl_nodelife.kubelet.releases import SINCE_UNTIL as KUBELETS
from kubectl_nodelife.kubelet.releases import rules_for
from tests.real_code import drains, evictions, status_manager
from tests.real_code.judge import FIRST, Facts, differences, play_real, simulate
from tests.real_code.owners import pod_of
from tests.real_code.workload_scenario import ready_node, scenario

Json = dict[str, Any]
RECORDINGS = Path(__file__).parent / "recordings"
FIRST_MINOR, LAST_MINOR = 32, 38

AT_ONCE = ("-lag-min=1ns", "-lag-max=1ns", "-write-min=0s", "-write-max=0s")
"""Watchers see a write a nanosecond later, as they do here."""
KUBELET = {"leaseRenewInterval": "5s", "leaseRenewPhase": "2.33s", "podStopDuration": "1s"}
CONTAINERS = [{"name": "c", "image": "registry.example/app:1"}]


# --- node lifecycle, taint eviction and drains ----------------------------------------------------


def a_node_falls_silent() -> Json:
    """One of four is lost; its taint comes with its condition, or a pass later."""
    stop = {"at": "13.1s", "kubelet": {"nodes": ["n0"], "heartbeats": "stop"}}
    return _of_nodes("a-node-falls-silent", [stop])


def leases_stand_still() -> Json:
    """No renewal is seen for so long that all nodes are lost to who does not read Leases."""
    events = [
        {"at": "13.1s", "controllers": {"leases": "stale"}},
        {"at": "113.1s", "controllers": {"leases": "current"}},
    ]
    return _of_nodes("leases-stand-still", events)


def a_pod_ends_slowly_and_a_second_taint_comes() -> Json:
    """A pod was deleted for a taint, and is still there when its node gets another one, which it
    tolerates for a while as well.
    """
    tolerates = {"operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 7}
    spec = {"nodeName": "n0", "containers": CONTAINERS, "terminationGracePeriodSeconds": 300}
    spec["tolerations"] = [tolerates]
    events = [
        {"at": "11.1s", "kubelet": {"nodes": ["n0"], "heartbeats": "stop"}},
        {"at": "13.1s", "taint": {"nodes": ["n0"], "add": ["one=x:NoExecute"]}},
        {"at": "23.1s", "taint": {"nodes": ["n0"], "add": ["two=x:NoExecute"]}},
    ]
    return _of_nodes("a-second-taint", events, [pod_of(None, "slow", {"app": "slow"}, spec)])


def another_groups_daemon_set() -> Json:
    """A pod whose owner is a DaemonSet, but not one of the group apps."""
    owner = {"apiVersion": "apps.kruise.io/v1alpha1", "kind": "DaemonSet", "name": "kruise"}
    spec = {"nodeName": "n0", "containers": CONTAINERS, "terminationGracePeriodSeconds": 1}
    pod = pod_of({**owner, "uid": "kruise"}, "kruise-n0", {"app": "kruise"}, spec)
    drain = {"nodes": ["n0"], "ignoreDaemonSets": True}
    event = {"at": "13.1s", "drain": drain}
    return _of_nodes("another-groups-daemonset", [event], [pod, _daemon_set()])


def a_silent_node_is_made_again() -> Json:
    """Without a condition: the time it is given runs from its creation, or from when the controller
    last heard of the Node before.
    """
    node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n0"}}
    events = [
        {"at": "13.1s", "kubelet": {"nodes": ["n0"], "heartbeats": "stop"}},
        {"at": "33.1s", "delete": {"kind": "Node", "name": "n0"}},
        {"at": "43.1s", "apply": node},
    ]
    return _of_nodes("a-node-is-made-again", events)


def a_pod_leaves_its_budget_for_another() -> Json:
    """By its labels: the first budget is told, and refuses the pod that is left, or it is not."""
    spec = {"containers": CONTAINERS, "terminationGracePeriodSeconds": 1}
    pods = [pod_of(None, f"p{i}", {"app": "a"}, {**spec, "nodeName": f"n{i}"}) for i in range(2)]
    budgets = [
        {
            "apiVersion": "policy/v1",
            "kind": "PodDisruptionBudget",
            "metadata": {"name": name, "namespace": "default"},
            "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": name}}},
        }
        for name in ("a", "b")
    ]
    meta = {"name": "p1", "namespace": "default", "labels": {"app": "b"}}
    drain = {"nodes": ["n0"], "force": True, "timeout": "20s"}
    events = [
        {"at": "13.1s", "apply": {"apiVersion": "v1", "kind": "Pod", "metadata": meta}},
        {"at": "23.1s", "drain": drain},
    ]
    return _of_nodes("a-pod-leaves-its-budget", events, [*pods, *budgets])


def a_budget_allows_less_than_nothing() -> Json:
    """A 403, by a status that the disruption controller would not write."""
    pod = pod_of(None, "p", {"app": "a"}, {"nodeName": "n0", "containers": CONTAINERS})
    budget = {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": "b", "namespace": "default", "generation": 1},
        "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "a"}}},
        "status": {"observedGeneration": 1, "disruptionsAllowed": -1},
    }
    return {"pod": pod, "budgets": [budget]}


def _of_nodes(name: str, events: list[Json], objects: list[Json] | None = None) -> Json:
    nodes = [ready_node(f"n{i}") for i in range(4)]
    return scenario(name, 180, {}, KUBELET, [*nodes, *(objects or ())], events)


# --- DaemonSets -----------------------------------------------------------------------------------


def a_roll_out_begins_as_pods_become_available() -> Json:
    """In the instant in which minReadySeconds are over two of two pods are out of date: both were
    unavailable, or none and one at a time is.
    """
    image = {"template": {"spec": {"containers": [{**CONTAINERS[0], "image": "app:2"}]}}}
    apply = {**_daemon_set(30), "spec": image}
    return _of_a_daemon_set(
        "available-at-the-instant", [{"at": "31.999999999s", "apply": apply}], 30
    )


def a_node_stops_to_fit_its_daemon_pod() -> Json:
    """A NoSchedule taint: the pod stays, and is one too many from then on."""
    taint = {"at": "33.1s", "taint": {"nodes": ["n0"], "add": ["one=x:NoSchedule"]}}
    return _of_a_daemon_set("a-daemon-pod-too-many", [taint])


def _daemon_set(min_ready_seconds: int = 0) -> Json:
    labels = {"app": "agent"}
    return {
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": {"name": "agent", "namespace": "default", "uid": "daemonset-agent"},
        "spec": {
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": {"containers": CONTAINERS}},
            "updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 1}},
            "minReadySeconds": min_ready_seconds,
        },
    }


def _of_a_daemon_set(name: str, events: list[Json], min_ready_seconds: int = 0) -> Json:
    """On two nodes, where its pods are Ready from 2 s on."""
    daemon_set = _daemon_set(min_ready_seconds)
    objects = [ready_node("n0"), ready_node("n1"), daemon_set]
    return scenario(name, 90, {}, KUBELET | {"podStartDuration": "2s"}, objects, events)


# --- the kubelet's status manager -----------------------------------------------------------------


def conditions_of_a_resize_by_somebody_else() -> Json:
    """The kubelet takes away what only it may write."""
    pending = {"type": "PodResizePending", "status": "True", "reason": "Deferred"}
    change = {"op": "change", "name": "p", "drop": [], "conditions": [pending], "fields": {}}
    return _sequence(_sync(_running()), change, _sync(_running(podIP="10.0.0.1")))


def a_condition_is_lost() -> Json:
    """The second status lacks a condition of the first."""
    both = [{"type": word, "status": "True"} for word in ("Initialized", "PodScheduled")]
    steps = [_sync(_running(conditions=some), generate=False) for some in (both, both[:1])]
    return _sequence(*steps)


def a_container_starts_again_by_its_own_rule() -> Json:
    """In a pod that never restarts: a transition that the status manager allows or refuses."""
    return _sequence(_sync(_ended(1)), _sync(_running()), rule="Restart")


def all_containers_are_restarting() -> Json:
    """A condition that somebody else wrote, of a type that became the kubelet's own."""
    told = {"type": "AllContainersRestarting", "status": "True"}
    change = {"op": "change", "name": "p", "drop": [], "conditions": [told], "fields": {}}
    return _sequence(_sync(_running()), change, _sync(_running(podIP="10.0.0.1")))


def a_sync_says_that_all_containers_restart() -> Json:
    """A condition that the kubelet dates, or takes with the time that it came with."""
    told = {"type": "AllContainersRestarting", "status": "True"}
    told["lastTransitionTime"] = "1999-12-31T23:00:00Z"
    return _sequence(_sync(_running(conditions=[told]), generate=False))


def claims_alone_are_other() -> Json:
    """Two statuses that differ in what belongs to another component."""
    claims = [{"name": "gpu", "resourceClaimName": "p-gpu"}]
    return _sequence(_sync(_running()), _sync(_running(resourceClaimStatuses=claims)))


def no_sandbox() -> Json:
    """PodReadyToStartContainers is False."""
    return _sequence(_sync(_running()) | {"noSandbox": True})


def a_volume_is_unwell() -> Json:
    """Its driver reports so, in whole seconds, which is how exactly the API server keeps it."""
    health = [{"status": "Degraded", "reason": "Slow", "message": "slow"}]
    step = {"op": "setPodVolumeHealth", "uid": "u1", "volume": "data", "health": health}
    return _sequence(_sync(_running()), step)


def a_volume_is_unwell_between_two_seconds() -> Json:
    """The time of it is a whole second, or is cut to one by the API server alone."""
    play = a_volume_is_unwell()
    for step in play["steps"]:
        step["at"] += SECOND_NS // 2
    return play


def _sequence(*steps: Json, rule: str = "") -> Json:
    """A pod of one container, which may have a restart rule, and a step each second."""
    container: Json = {"name": "c", "image": "i"}
    if rule:
        codes = {"operator": "In", "values": [1]}
        container |= {"restartPolicy": "Never"}
        container["restartPolicyRules"] = [{"action": rule, "exitCodes": codes}]
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "p", "namespace": "default", "uid": "u1"},
        "spec": {"nodeName": "n1", "restartPolicy": "Never", "containers": [container]},
        "status": {"phase": "Pending"},
    }
    dated = [{"at": second * SECOND_NS, **step} for second, step in enumerate(steps, 1)]
    return {
        "latency": 1_009,
        "lag": 1_000_003,
        "end": 40 * SECOND_NS,
        "pods": [pod],
        "steps": dated,
    }


def _sync(status: Json, *, generate: bool = True) -> Json:
    return {"op": "setPodStatus", "uid": "u1", "status": status, "generate": generate}


def _running(**more: Any) -> Json:
    return _with_container({"running": {"startedAt": "1999-12-31T23:00:00Z"}}, ready=True) | more


def _ended(code: int) -> Json:
    return _with_container({"terminated": {"exitCode": code}}, ready=False)


def _with_container(state: Json, *, ready: bool) -> Json:
    container = {"name": "c", "containerID": "c://u1-c", "image": "i", "imageID": ""}
    container |= {"state": state, "ready": ready, "restartCount": 0, "started": ready}
    return {"phase": "Running", "containerStatuses": [container]}


# --- the table ------------------------------------------------------------------------------------


class Boundary(NamedTuple):
    """A row of one of the tables of releases, and the play that tells its releases apart."""

    table: dict[str, Span]
    play: Callable[[], Json]
    flags: tuple[str, ...] = FIRST


BOUNDARIES = {
    "decide_on_current": Boundary(SWITCHES, a_node_falls_silent),
    "lease_circuit_breaker": Boundary(SWITCHES, leases_stand_still),
    "sticky_timer_keys": Boundary(SWITCHES, a_pod_ends_slowly_and_a_second_taint_comes),
    "drains_daemon_sets_by_kind": Boundary(SWITCHES, another_groups_daemon_set),
    "health_follows_node": Boundary(SWITCHES, a_silent_node_is_made_again),
    "syncs_every_budget": Boundary(SWITCHES, a_pod_leaves_its_budget_for_another),
    "refusals_name_budget": Boundary(SWITCHES, a_budget_allows_less_than_nothing),
    "available_at_the_instant": Boundary(
        DAEMON_SETS, a_roll_out_begins_as_pods_become_available, AT_ONCE
    ),
    "node_queue": Boundary(DAEMON_SETS, a_node_stops_to_fit_its_daemon_pod),
    "resize_conditions": Boundary(KUBELETS, conditions_of_a_resize_by_somebody_else),
    "lost_condition_differs": Boundary(KUBELETS, a_condition_is_lost),
    "restart_rules": Boundary(KUBELETS, a_container_starts_again_by_its_own_rule),
    "restarting_is_dated": Boundary(KUBELETS, a_sync_says_that_all_containers_restart),
    "restart_all_containers": Boundary(KUBELETS, all_containers_are_restarting),
    "claims_never_differ": Boundary(KUBELETS, claims_alone_are_other),
    "ready_to_start_says_why": Boundary(KUBELETS, no_sandbox),
    "volume_health": Boundary(KUBELETS, a_volume_is_unwell),
    "volume_health_in_seconds": Boundary(KUBELETS, a_volume_is_unwell_between_two_seconds),
}
NOT_PLAYED = {
    "pops_backoff_queue": "the real scheduler says where one pod goes; its queue is not played",
    "dry_run_ends": "a simulated drain is no dry run",
    "waiting_for_detach": "the attach-detach controller is not played",
    "detach_when_node_is_gone": "the attach-detach controller is not played",
    "empty_selector_spreads": "the real scheduler says where one pod goes, in v1.36 and v1.37",
    "eviction_tells_version": "of a simulated eviction only the verdict is kept",
    "evicted_stays_failed": "what a pod sync finds is part of a sequence",
}
"""Rows whose releases no play here tells apart."""


def minor_of(rule: str) -> int:
    """The first minor release that has the behaviour of the row, or that no longer has it."""
    table = BOUNDARIES[rule].table if rule in BOUNDARIES else SWITCHES
    return next(minor for minor in table[rule] if minor and FIRST_MINOR < minor <= LAST_MINOR)


def moved(span: Span, minor: int, by: int) -> Span:
    """The span with its boundary at `minor` put so many releases later."""
    since, until = span
    return (since + by, until) if since == minor else (since, minor + by)


def recording_of(minor: int) -> Path:
    """The file with what the real code of v1.`minor` did."""
    return RECORDINGS / f"{Profile(minor).name}.json"


def play_of(rule: str, minor: int) -> Json:
    """The play of the row for v1.`minor`."""
    play = BOUNDARIES[rule].play()
    if "spec" in play:
        play["spec"]["profile"] = Profile(minor).name
    return play


def record(rule: str, minor: int, program: Path, folder: Path) -> Json:
    """What the real code of v1.`minor` does on the play of the row."""
    boundary, play = BOUNDARIES[rule], play_of(rule, minor)
    if boundary.table is KUBELETS:
        return status_manager.play_real(program, [play], folder)[0]
    if "pod" in play:
        return evictions.play_real(program, [play], folder)[0]
    scenario_file = folder / "scenario.json"
    scenario_file.write_text(json.dumps(play))
    timeline = dict(play_real(program, scenario_file, folder / "real.json", boundary.flags))
    return {name: timeline[name] for name in ("duration", "records", "final")}


def apart(rule: str, minor: int, real: Json, span: Span) -> list[str]:
    """How ours differs from the real code of v1.`minor` if the row had this span."""
    boundary, play = BOUNDARIES[rule], play_of(rule, minor)
    if boundary.table is KUBELETS:
        rules = replace(rules_for(Profile(minor)), **{rule: holds(span, minor)})
        return status_manager.differences(play, real, rules)
    if "pod" in play:
        return list(evictions.differences(play, real, names_budget=holds(span, minor)))
    before = boundary.table[rule]
    boundary.table[rule] = span
    try:
        ours = simulate(play)
    finally:
        boundary.table[rule] = before
    return list(timelines_apart(play, real, ours))


def timelines_apart(play: Json, real: Json, ours: Json) -> Iterator[str]:
    """Each fact in which two Timelines of a play differ."""
    drained = drains.differences(play, real, ours)
    for key, difference in (differences(Facts.of(real), Facts.of(ours)) | drained).items():
        yield f"{' '.join(filter(None, key))}: {difference.text}"
    theirs, mine = _deletes(real), _deletes(ours)
    if len(theirs) != len(mine):
        yield f"deletes: real {theirs}, ours {mine}"


def _deletes(timeline: Json) -> list[float]:
    """When taint-eviction deleted a pod, also one that terminates already."""
    done = ("taint-eviction", "DeletePod")
    return [r["at"] for r in timeline["records"] if (r["controller"], r["action"]) == done]


def at(minor: int) -> list[str]:
    """The rows whose boundary v1.`minor` is at, on either side."""
    return [rule for rule in BOUNDARIES if minor_of(rule) - minor in (0, 1)]


def main(version: str, program: str) -> None:
    """Record what the program does on each row whose boundary its release is at."""
    minor = int(version.split(".")[1])
    with tempfile.TemporaryDirectory() as folder:
        real = {rule: record(rule, minor, Path(program), Path(folder)) for rule in at(minor)}
    told = json.dumps({"version": version, "real": real}, separators=(",", ":"))
    recording_of(minor).write_text(told + "\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
