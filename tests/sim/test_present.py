"""What `status` says comes next is what playing the present does next.

On the dumps of `tests/dumps/` and of the folders in `NODELIFE_DUMPS`, and on the recorded traces,
cut at seeded instants: nothing is known of a cut run but its objects.
"""

import os
import random
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest

from kubectl_nodelife.commands.answering.status import finished
from kubectl_nodelife.commands.cluster.look import view_of_dump
from kubectl_nodelife.dumps.dump import load
from kubectl_nodelife.engine.cache import Cache
from kubectl_nodelife.engine.settings import NEWEST, Settings, make_settings, parse_profile
from kubectl_nodelife.kube.kinds import KINDS as ALL_KINDS
from kubectl_nodelife.kube.meta import KubeObject
from kubectl_nodelife.kube.times import MINUTE_NS, SECOND_NS, format_time, parse_time
from kubectl_nodelife.outlook.node_verdict import NextAction
from kubectl_nodelife.outlook.status import KINDS, NodeLifeStatus, status_steps
from kubectl_nodelife.outlook.view import ClusterView
from kubectl_nodelife.sim.present import Branch, Present, join
from kubectl_nodelife.sim.scenario import CONTROLLER_NAMES, assemble, parse_scenario
from kubectl_nodelife.sim.timeline import Record
from kubectl_nodelife.sim.timing import FAST, SLOW, Timing
from tests.deep import first_few, one_of
from tests.drain.troubled import troubled
from tests.objects import ago, lease
from tests.sim.cut import cut
from tests.sim.documents import found, node, pod, scenario, stop, story, times
from tests.simulating import begin
from tests.what_if.stand import NOW_NS as STAND_NS

HERE = Path(__file__).parents[1]
MORE = os.environ.get("NODELIFE_DUMPS")
DUMPS = [
    *sorted((HERE / "dumps").iterdir()),
    *(sorted(p for p in Path(MORE).iterdir() if p.is_dir()) if MORE else ()),
]
TRACES = sorted(path.parent.name for path in (HERE / "traces").glob("*/scenario.yaml"))
CUTS = 5
SEED = 1

WITHIN_S = 0.2
"""What a pass drifts, and a timer rounds."""


def disagreements(
    status: NodeLifeStatus, present: Present, controllers: Iterable[str] = CONTROLLER_NAMES
) -> Iterator[str]:
    """Each node of which `status` says something else than the play of half an hour shows."""
    play = present.begin(30 * MINUTE_NS, controllers=tuple(controllers))
    homes = {key: p.spec.node_name for key, p in present.setting.cluster.pods.items()}
    play.play()
    first: dict[str, tuple[float, str]] = {}
    for record in play.records():
        told = _on_node(record, homes)
        if told is not None:
            first.setdefault(told[0], (record.at, told[1]))
    for entry in status.nodes:
        name, expected = entry.outlook.node.name, entry.verdict.next
        if not _agree(expected, first.get(name)):
            yield f"{name} ({entry.verdict.state}): {expected}, the play: {first.get(name)}"


def _on_node(record: Record, homes: dict[tuple[str, str], str]) -> tuple[str, str] | None:
    """The node that it is about, in the words of a verdict; None for what no verdict tells."""
    about, detail = record.object, record.detail
    if record.controller not in ("node-lifecycle", "taint-eviction"):
        return None
    if record.action == "SetNodeCondition" and detail["type"] == "Ready":
        return about.name, f"SetNodeCondition Ready={detail['status']}"
    if record.action in ("AddTaint", "RemoveTaint") and detail["effect"] == "NoExecute":
        return about.name, f"{record.action} {detail['key']}:NoExecute"
    if record.action == "DeletePod":
        return homes[about.namespace, about.name], f"DeletePod {about.namespace}/{about.name}"
    return None


def _agree(expected: NextAction | None, found: tuple[float, str] | None) -> bool:
    if expected is None or expected.in_seconds is None or found is None:
        return (expected is None or expected.in_seconds is None) and found is None
    at, action = found
    if expected.within is None:
        return action == expected.action and abs(at - expected.in_seconds) < 1 + WITHIN_S
    low, high = expected.within.low_ns / SECOND_NS, expected.within.high_ns / SECOND_NS
    return action == expected.action and low - WITHIN_S <= at <= high + WITHIN_S


@pytest.mark.parametrize("path", DUMPS, ids=lambda path: path.name)
def test_status_and_play_of_a_dump(path: Path) -> None:
    dump = load((str(path),), None, None)
    view = view_of_dump(dump, KINDS)
    read = [kind.name for kind in ALL_KINDS if dump.has_read(kind.name)]
    present = join(view.cache, view.settings, view.now_ns, read)
    assert list(disagreements(finished(status_steps(view)), present)) == []


@pytest.mark.parametrize("name", one_of(6, TRACES))
def test_status_and_play_of_a_cut_trace(name: str) -> None:
    path = HERE / "traces" / name / "scenario.yaml"
    read_in = parse_scenario(path.read_bytes(), name)
    setting = assemble(read_in)
    settings = make_settings(setting.profile, read_in.flags)
    dice = random.Random(f"{name} {SEED}")
    for at_ns in sorted(dice.randrange(SECOND_NS // 2, read_in.duration_ns) for _ in range(CUTS)):
        branch, now_ns = begin(setting), setting.start_ns + at_ns
        play_until(branch, now_ns)
        view = view_of(branch, settings, now_ns)
        read = ("Node", "Pod", "Lease", "DaemonSet", "ControllerRevision")
        present = join(view.cache, settings, now_ns, read)
        found = list(disagreements(finished(status_steps(view)), present, read_in.controllers))
        assert found == [], f"cut at {at_ns / SECOND_NS} s"


def play_until(branch: Branch, now_ns: int) -> None:
    """Play all that happens at or before that instant."""
    branch.play_to(now_ns)


@pytest.mark.parametrize("added_s", [10, 270], ids=["silent first", "evicted first"])
def test_status_and_play_of_a_node_that_says_it_is_not_ready_and_falls_silent(added_s: int) -> None:
    since = format_time(NOW_NS - added_s * SECOND_NS)
    taint = {"key": "node.kubernetes.io/not-ready", "effect": "NoExecute", "timeAdded": since}
    old = pod("p", "a1")
    old["metadata"]["creationTimestamp"] = format_time(NOW_NS - 400 * SECOND_NS)
    documents = [node("a1", ready="False", taints=[taint]), aged("a1", 20), old]
    documents += [node("a2"), aged("a2", 3)]
    setting = assemble(scenario(**JOIN, objects=documents))
    settings = make_settings(setting.profile, {})
    view = view_of_objects([*setting.objects], settings, NOW_NS)
    present = join(view.cache, settings, NOW_NS, ("Node", "Pod", "Lease"))
    status = finished(status_steps(view))
    assert status.nodes[0].verdict.next is not None
    assert list(disagreements(status, present)) == []


def view_of(branch: Branch, settings: Settings, now_ns: int) -> ClusterView:
    """What the run shows at that instant."""
    shown = cut(branch, now_ns)
    objects = [obj for kind in shown.objects for obj in shown.all(kind)]
    return view_of_objects(
        [*shown.nodes.values(), *objects, *shown.pods.values()], settings, now_ns
    )


def view_of_objects(objects: list[KubeObject], settings: Settings, now_ns: int) -> ClusterView:
    """The objects as a dump of that instant."""
    return ClusterView(
        settings, now_ns, source={}, moment={}, warnings=[], unread={}, objects=objects
    )


# --- what is joined ------------------------------------------------------------------------------

NOW_NS = int(parse_time("2026-01-01T00:10:00Z"))
NOW = format_time(NOW_NS)
JOIN: dict[str, Any] = {"start": "join", "time": NOW, "duration": "10m"}


def aged(name: str, age_s: float) -> dict[str, Any]:
    return lease(name, ago(age_s, NOW_NS))


def unknown_at(
    *objects: dict[str, Any], events: Iterable[Any] = (), **spec: Any
) -> dict[str, float]:
    """When each node turns Unknown."""
    told = story(**{**JOIN, "objects": list(objects), "events": list(events), **spec})
    lost = found(told, "SetNodeCondition", type="Ready", status="Unknown")
    return {record.object.name: record.at for record in lost}


@pytest.mark.parametrize("events", [(), (stop("0s", "a1"),)], ids=["silent already", "lost at 0"])
def test_a_late_kubelet_stays_silent(events: tuple[Any, ...]) -> None:
    nodes = [node("a1"), aged("a1", 20), node("a2"), aged("a2", 4)]
    assert unknown_at(*nodes, events=events) == {"a1": 30.006}


def test_a_node_lost_at_the_start_is_not_heard_of_then() -> None:
    nodes = [node("a1"), aged("a1", 4), node("a2"), aged("a2", 4), node("a3"), aged("a3", 10)]
    lost = unknown_at(*nodes, events=[stop("0s", "a1", "a3")])
    assert lost == {"a1": 50.01, "a3": 40.008}  # and not 50.01: the renewal due at 0 is not made


def test_each_kubelet_renews_in_its_own_phase() -> None:
    """Lost at 31 s, after the renewals at 26 s and at 21 s; noticed at 30.006 s and 25.005 s."""
    nodes = [
        node("a1"),
        aged("a1", 4),
        node("a2"),
        aged("a2", 9),
        node("b1", "b"),
        aged("b1", 0),
    ]
    lost = unknown_at(*nodes, events=[stop("30500ms", "a1", "a2")])
    assert lost == {"a1": 80.016, "a2": 75.015}


def test_a_kubelet_that_reports_not_ready_goes_on() -> None:
    """Tainted 100 s ago: its pod's time is over in 200 s, and it never turns Unknown."""
    since = format_time(NOW_NS - 100 * SECOND_NS)
    taints = [
        {"key": "node.kubernetes.io/not-ready", "effect": effect, "timeAdded": since}
        for effect in ("NoSchedule", "NoExecute")
    ]
    sick = node("a1", ready="False", taints=taints)
    old = pod("p", "a1")
    old["metadata"]["creationTimestamp"] = format_time(NOW_NS - 400 * SECOND_NS)
    objects = [sick, aged("a1", 0), old, node("a2"), aged("a2", 3)]
    told = story(**{**JOIN, "duration": "1h", "objects": objects})
    assert found(told, "SetNodeCondition") == []
    assert times(found(told, "DeletePod", controller="taint-eviction")) == [200.0]


@pytest.mark.parametrize(
    ("age_s", "expected"),
    [(4, {}), (20, {"a1": 155.031})],
    ids=["its kubelet renews its Lease", "its kubelet does not report"],
)
def test_a_node_that_is_deleted_and_made_again(age_s: float, expected: dict[str, float]) -> None:
    """Made at 101 s and seen at 105 s, with a status of before; its grace period is 50 s."""
    made = {"at": "101s", "apply": node("a1", ready="False")}
    objects = [aged("a1", age_s), node("a2"), aged("a2", 3)]
    assert unknown_at(*objects, events=[made]) == expected


def test_no_lease_was_read() -> None:
    assert unknown_at(node("a1"), node("a2", ready="False"), duration="1h") == {}


def test_a_daemon_set_whose_revisions_were_not_read_is_up_to_date() -> None:
    template = {"metadata": {"labels": {"app": "d"}}, "spec": {"containers": [{"name": "c"}]}}
    daemon_set = {
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": {"name": "d", "namespace": "default", "uid": "DaemonSet-d", "generation": 1},
        "spec": {"selector": {"matchLabels": {"app": "d"}}, "template": template},
    }
    pods = []
    for name, revision in (("a1", "old"), ("a2", "new")):
        made = pod(f"d-{name}", name, owner=("DaemonSet", "d"), tolerates=None)
        made["metadata"]["labels"] = {"app": "d", "controller-revision-hash": revision}
        pods.append(made)
    told = story(**JOIN, objects=[node("a1"), node("a2"), daemon_set, *pods])
    done = {r.action for r in told.records if r.controller == "daemonset"}
    assert done <= {"UpdateDaemonSetStatus"}


@pytest.mark.parametrize("timing", [FAST, SLOW], ids=lambda timing: timing.name)
@pytest.mark.parametrize("seed", first_few(range(20)))
def test_a_fork_under_another_timing_is_the_present_under_that_timing(
    seed: int, timing: Timing
) -> None:
    """On clusters on which pods start, stop and wait, and budgets are to be counted anew."""
    objects, _, _ = troubled(seed)
    cluster = Cache()
    cluster.fill(objects, STAND_NS)
    settings = make_settings(parse_profile(NEWEST), {})
    present = join(cluster, settings, STAND_NS, (kind.name for kind in ALL_KINDS))
    begun = present.begin(10 * MINUTE_NS)
    forked, anew = begun.fork_under(timing), present.begin(10 * MINUTE_NS, timing=timing)
    for branch in (forked, anew):
        branch.react_after(timing)
        branch.play()
    assert forked.records() == anew.records()
    begun.play()
    assert begun.records() == present_played(present)


def present_played(present: Present) -> list[Record]:
    branch = present.begin(10 * MINUTE_NS)
    branch.play()
    return branch.records()
