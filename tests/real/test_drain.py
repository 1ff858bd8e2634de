"""Plans of `drain-plan` against what the real kubectl then does, on a real control plane.

A plan is right by the rule for recorded drains (`tests/drain/recorded.py`), and where the rule says
nothing: what stays on the nodes, and where replacements land.
"""

import json
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from kubectl_nodelife.commands.drain import drain_plan
from kubectl_nodelife.drain.results import NEVER, READY, REFUSED, SLOW, DrainPlan, worst
from kubectl_nodelife.kube.meta import controller_of
from kubectl_nodelife.kube.pod import Pod
from kubectl_nodelife.report.drain import headline
from tests.drain.recorded import (
    GATES,
    Recorded,
    alike,
    counted,
    evicted_by_plan,
    full_name,
    parse_command,
    read,
)
from tests.real.control_plane import ControlPlane, control_plane, until
from tests.real.drain_runs import just_before, outcome_of, pods_of, prepare, record, run
from tests.real.drain_setups import SETUPS, Setup
from tests.real.kubelets import Kubelets

WHOLE_GRACE_S = 3600.0
GOES_WITHIN_S = 10.0
LANDS_WITHIN_S = 40.0
AT_A_TIME = 4


@dataclass
class Drained:
    """A set-up, the plan for it, and what kubectl did. `first`: the plan for the flags given."""

    setup: Setup
    plane: ControlPlane
    folder: Path
    recorded: Recorded
    first: DrainPlan
    plan: DrainPlan

    @property
    def outcome(self) -> dict[str, Any]:
        """What kubectl did."""
        return self.recorded.outcome

    def drained(self, node: str) -> bool:
        """True if kubectl says that it drained the node."""
        return f"node/{node} drained" in self.outcome["stdout"]


def drain(plane: ControlPlane, setup: Setup, folder: Path) -> Drained:
    """Record the cluster, run kubectl at once, and plan from what was recorded."""
    just_before(plane, setup)
    record(plane, folder / "cluster.json")
    command = setup.command()
    if setup.as_printed:
        command = as_recorded(folder, setup).plan().nodes[0].command
    outcome = outcome_of(plane, setup.name, run(plane, command, setup.stopped_after_s))
    recorded = as_recorded(folder, setup, outcome)
    first = plan = recorded.plan()
    if setup.as_printed:
        assert first.with_flags is not None
        plan, recorded.options = first.with_flags, parse_command(command)[1]
    return Drained(setup, plane, folder, recorded, first, plan)


def as_recorded(folder: Path, setup: Setup, outcome: dict[str, Any] | None = None) -> Recorded:
    """What was recorded, in the form of the drains in `tests/drains/`."""
    (folder / "command.txt").write_text(setup.command())
    (folder / "outcome.json").write_text(json.dumps(outcome or {}, indent=1))
    return read(folder)


class Drains:
    """Runs set-ups in their order, some at a time: a drain is mostly waiting."""

    def __init__(self, plane: ControlPlane, folder: Path, pool: ThreadPoolExecutor) -> None:
        self._plane = plane
        self._folder = folder
        self._pool = pool
        self._begun: dict[str, Future[Drained]] = {}

    def of(self, setup: Setup) -> Drained:
        """The set-up's drain. Those that follow begin, too."""
        at = SETUPS.index(setup)
        for other in SETUPS[at : at + AT_A_TIME]:
            if other.name not in self._begun:
                folder = self._folder / other.name
                folder.mkdir()
                self._begun[other.name] = self._pool.submit(drain, self._plane, other, folder)
        return self._begun[setup.name].result()


@pytest.fixture(scope="module")
def drains(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Drains]:
    with (
        control_plane(controller_manager=[], scheduler=True) as plane,
        Kubelets(plane.api, renew_every_s=5.0, stop_s=WHOLE_GRACE_S, tick_s=0.25) as kubelets,
        ThreadPoolExecutor(AT_A_TIME) as pool,
    ):
        prepare(plane, kubelets, SETUPS)
        yield Drains(plane, tmp_path_factory.mktemp("drains"), pool)


@pytest.fixture(scope="module", params=[pytest.param(s, id=s.name) for s in SETUPS])
def case(request: pytest.FixtureRequest, drains: Drains) -> Drained:
    return drains.of(request.param)


# --- the rule for recorded drains ----------------------------------------------------------------


def test_verdict(case: Drained) -> None:
    """By node, as kubectl says by node whether it is drained; and the worst of them for all."""
    for node in case.plan.nodes:
        if node.may_fail:
            assert node.verdict == SLOW
        elif case.drained(node.name):
            assert node.verdict in (READY, SLOW)
        else:
            assert node.verdict == (NEVER if touched(case, node.name) else REFUSED)
    assert case.plan.verdict == worst([node.verdict for node in case.plan.nodes])
    if not may_fail(case):
        assert (case.plan.verdict in (READY, SLOW)) == (case.outcome["exitCode"] == 0)


EITHER = {"time-runs-out": 1, "time-suffices": 0}
"""What kubectl ends with where --timeout is over in the midst of what the plan tells."""


def test_a_drain_that_may_fail_does_either(case: Drained) -> None:
    if case.setup.name in EITHER:
        assert may_fail(case)
        assert case.outcome["exitCode"] == EITHER[case.setup.name]
        assert headline(case.plan).startswith("This drain may not finish within --timeout=16s; ")


def may_fail(case: Drained) -> bool:
    """True if the plan says that kubectl may give up."""
    return any(node.may_fail for node in case.plan.nodes)


def touched(case: Drained, node: str) -> bool:
    """True if kubectl asked for the end of any of the node's pods."""
    asked = {row["pod"] for row in case.outcome["accepted"] + case.outcome["refused"]}
    return any(f"{p.namespace}/{p.name}" in asked for p in case.recorded.snapshot.pods_on(node))


def told_by_chance(case: Drained) -> bool:
    """True if the plan tells the play that empties the node, and kubectl gave up."""
    return may_fail(case) and case.outcome["exitCode"] != 0 and case.setup.name not in EITHER


def test_who_is_evicted(case: Drained) -> None:
    if told_by_chance(case):
        return
    accepted = [row["pod"] for row in case.outcome["accepted"]]
    planned = evicted_by_plan(case.plan)
    assert counted(case.recorded, planned) == counted(case.recorded, accepted)
    hows = {row["how"] for row in case.outcome["accepted"]}
    assert hows <= {"delete" if case.recorded.options.disable_eviction else "eviction"}


def test_seconds(case: Drained) -> None:
    if case.outcome["exitCode"] != 0:
        assert (case.plan.estimate is not None) == may_fail(case)
        return
    assert case.plan.estimate is not None
    assert case.plan.estimate.low <= case.outcome["seconds"] <= case.plan.estimate.high


def test_gates(case: Drained) -> None:
    planned = Counter((alike(case.recorded, full_name(p)), p.gate) for p in case.plan.pods())
    for refused in case.outcome["refused"]:
        like = alike(case.recorded, refused["pod"])
        gates = {gate for (other, gate), _ in planned.items() if other == like}
        assert gates & GATES[refused["code"]], refused


# --- and beyond it -------------------------------------------------------------------------------


def test_the_command_prints_this_plan(case: Drained) -> None:
    """`drain-plan -f` with the same flags gives the plan that is held against kubectl here."""
    nodes = [case.setup.node(name) for name in case.setup.drained]
    file = str(case.folder / "cluster.json")
    arguments = [*nodes, *case.setup.flags.split(), "-f", file, "-o", "json"]
    result = CliRunner().invoke(drain_plan, arguments)
    assert result.exit_code == 0, result.output
    printed = json.loads(result.stdout)
    planned = json.loads(json.dumps(case.first.document({})))
    for member in ("verdict", "flagsNeeded", "estimate", "waves", "nodes", "withFlags"):
        assert printed[member] == planned[member]
    assert printed["notEvaluated"] == []


def test_what_stays(case: Drained) -> None:
    """The pods that the plan leaves on the nodes, and no others, are there in the end.

    Where kubectl gives up on one pod, others may be on their way out still.
    """
    if told_by_chance(case):
        return
    planned = counted(case.recorded, [full_name(p) for p in case.plan.pods() if p.gone is None])
    until(
        lambda: counted(case.recorded, staying(case)) == planned,
        lambda: (planned, staying(case)),
        GOES_WITHIN_S,
    )


def staying(case: Drained) -> list[str]:
    """The pods of the drained nodes that are there now."""
    there = {pod["metadata"]["uid"] for pod in pods_of(case.plane, case.setup.name)}
    pods = [pod for node in case.plan.nodes for pod in case.recorded.snapshot.pods_on(node.name)]
    return [f"{pod.namespace}/{pod.name}" for pod in pods if pod.metadata.uid in there]


def test_where_replacements_land(case: Drained) -> None:
    """As many find a node as the plan says, on nodes that it names."""
    if told_by_chance(case):
        return
    wanted: Counter[str] = Counter()
    allowed: dict[str, set[str]] = {}
    for pod in case.plan.pods():
        at_once = (pod.owner or "").startswith("ReplicaSet/")
        if (pod.start if at_once else pod.gone) is None:
            continue
        nodes = {place.node for place in pod.landing if place.node}
        owner = owner_of(case, pod.namespace, pod.name)
        wanted[owner] += bool(nodes)
        allowed.setdefault(owner, set()).update(nodes)
    until(
        lambda: Counter(owner for owner, _ in landed(case)) == +wanted,
        lambda: (wanted, landed(case)),
        LANDS_WITHIN_S,
    )
    assert all(node in allowed[owner] for owner, node in landed(case))


def owner_of(case: Drained, namespace: str, name: str) -> str:
    """The uid of the pod's controller."""
    pod = case.recorded.snapshot.find("Pod", namespace, name)
    assert isinstance(pod, Pod)
    owner = controller_of(pod.metadata)
    return owner.uid if owner is not None else ""


def landed(case: Drained) -> list[tuple[str, str]]:
    """(owner's uid, node) of the pods that came after the plan and have a node."""
    known = {pod.uid for pod in case.recorded.snapshot.pods}
    return [
        (owner["uid"], pod["spec"]["nodeName"])
        for pod in pods_of(case.plane, case.setup.name)
        for owner in pod["metadata"].get("ownerReferences", ())
        if pod["metadata"]["uid"] not in known and pod["spec"].get("nodeName")
    ]
