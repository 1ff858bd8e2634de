"""Random weather around one kubelet: whatever happened, once it is over the API server shows what
the containers are, within two sync periods. A failure prints the seed; the seed replays it.

The judge does not ask the machine: it computes the conditions from the containers that the world
has.
"""

import random

import pytest
from msgspec.structs import replace

from kubectl_nodelife.engine.settings import parse_profile
from kubectl_nodelife.kube.meta import Time
from kubectl_nodelife.kube.pod import (
    ContainerState,
    ContainerStateRunning,
    ContainerStateTerminated,
    ContainerStateWaiting,
    ContainerStatus,
    Pod,
    PodCondition,
    PodStatus,
)
from kubectl_nodelife.kube.times import SECOND_NS
from kubectl_nodelife.kubelet import machine
from kubectl_nodelife.kubelet.releases import rules_for
from kubectl_nodelife.kubelet.status import with_condition
from tests.pod_status.objects import NOW_NS, pod

STATES = {
    "running": ContainerState(running=ContainerStateRunning()),
    "waiting": ContainerState(waiting=ContainerStateWaiting(reason="CrashLoopBackOff")),
    "ended": ContainerState(terminated=ContainerStateTerminated(exit_code=1)),
}
NAMES = ("a", "b")
FAULTS = ("mark", "rewrite", "prober", "container", "sync", "cut", "foreign", "refuse")


class World:
    """One pod of two containers, its kubelet, its API server, and a hand that throws dice."""

    def __init__(self, profile: str, seed: int, *, listing: bool) -> None:
        self.chance = random.Random(seed)
        self.listing = listing
        self.machine = machine.PodStatusMachine(rules_for(parse_profile(profile)), self)
        self.now_ns = NOW_NS
        self.truth = dict.fromkeys(NAMES, ("running", True))
        self.connected = True
        self.refusing = 0.0
        self.deletes = 0
        self.versions: list[int] = []
        self.stored = pod(
            spec__containers=[{"name": name} for name in NAMES],
            status__containerStatuses=None,
            conditions={"Ready": None, "ContainersReady": None, "Initialized": None},
        )
        self.machine.observe(self.stored)
        self.sync_pod()

    def could_have_running_containers(self, subject: Pod) -> bool:
        return any(state == "running" for state, _ in self.truth.values())

    def pod_resources_are_reclaimed(self, subject: Pod, status: PodStatus) -> bool:
        return False

    def answer(self, call: machine.ApiCall) -> machine.Answer:
        if not self.connected or self.chance.random() < self.refusing:
            return None
        self.deletes += isinstance(call, machine.DeletePodCall)
        if isinstance(call, machine.PatchPodStatusCall):
            self.write(call.status)
        return self.stored

    def write(self, status: PodStatus) -> None:
        self.stored = replace(self.stored, status=status)

    def watch(self) -> None:
        if self.connected:
            self.machine.observe(self.stored)

    # -- what the kubelet does

    def sync_pod(self) -> None:
        """The pod worker computes the status from the containers that there are."""
        statuses = tuple(
            ContainerStatus(name=name, ready=ready, state=STATES[state], container_id=f"x://{name}")
            for name, (state, ready) in self.truth.items()
        )
        status = PodStatus(phase="Running", container_statuses=statuses)
        conditions = (*expected(self.truth), PodCondition(type="PodScheduled", status="True"))
        subject = self.machine.pods.by_uid(self.stored.uid)
        assert subject is not None
        self.machine.set_pod_status(subject, replace(status, conditions=conditions), self.now_ns)

    def tick(self) -> None:
        """One second; a full batch every tenth."""
        self.now_ns += SECOND_NS
        self.watch()
        if (self.now_ns - NOW_NS) % machine.SYNC_PERIOD_NS == 0:
            if self.listing:
                self.machine.list_pods()
            machine.drive(self.machine.sync_batch(self.now_ns), self.answer)
        elif self.machine.wakes_sender():
            machine.drive(self.machine.sync_changed(self.now_ns), self.answer)
        cached = self.machine.statuses[self.stored.uid]
        self.versions.append(cached.version)

    # -- what happens to it

    def throw(self) -> None:
        fault = self.chance.choice(FAULTS)
        name = self.chance.choice(NAMES)
        state, ready = self.truth[name]
        if fault == "mark":
            self.set_condition("Ready", "False", "")
        elif fault == "rewrite":
            type_ = self.chance.choice(("Ready", "ContainersReady", "PodScheduled"))
            self.set_condition(type_, self.chance.choice(("True", "False", "Unknown")), "Meddler")
        elif fault == "foreign":
            self.set_condition("example.com/x", self.chance.choice(("True", "False")), "")
        elif fault == "prober" and state == "running":
            self.truth[name] = (state, not ready)
            self.machine.set_container_readiness(
                self.stored.uid, f"x://{name}", not ready, self.now_ns
            )
        elif fault == "container":
            state = self.chance.choice(sorted(STATES))
            self.truth[name] = (state, state == "running" and self.chance.random() < 0.7)
            self.sync_pod()
        elif fault == "sync":
            self.sync_pod()
        elif fault == "cut":
            self.connected = not self.connected
        elif fault == "refuse":
            self.refusing = self.chance.choice((0.0, 0.5))

    def set_condition(self, type_: str, status: str, reason: str) -> None:
        """Somebody else writes a condition into the API server."""
        now = Time(self.now_ns)
        condition = PodCondition(type=type_, status=status, reason=reason, last_transition_time=now)
        conditions = with_condition(self.stored.status.conditions, condition)
        self.write(replace(self.stored.status, conditions=conditions))

    def play(self, seconds: int) -> None:
        for _ in range(seconds):
            if self.chance.random() < 0.3:
                self.throw()
            self.tick()

    def calm_down(self) -> None:
        """Faults end; two sync periods pass."""
        self.connected, self.refusing = True, 0.0
        for _ in range(2 * machine.SYNC_PERIOD_NS // SECOND_NS):
            self.tick()


def expected(truth: dict[str, tuple[str, bool]]) -> tuple[PodCondition, ...]:
    """Ready, ContainersReady and Initialized of these containers, by a rule of three lines."""
    unready = [name for name in NAMES if not truth[name][1]]
    reason = "ContainersNotReady" if unready else ""
    message = f"containers with unready status: [{' '.join(unready)}]" if unready else ""
    status = "False" if unready else "True"
    return (
        PodCondition(type="Initialized", status="True"),
        PodCondition(type="Ready", status=status, reason=reason, message=message),
        PodCondition(type="ContainersReady", status=status, reason=reason, message=message),
    )


def words(status: PodStatus) -> set[tuple[str, str, str, str]]:
    """The kubelet's own conditions, without times."""
    types = ("Initialized", "Ready", "ContainersReady")
    return {(c.type, c.status, c.reason, c.message) for c in status.conditions if c.type in types}


def converged(world: World) -> bool:
    shown = world.stored.status
    ready = {s.name: s.ready for s in shown.container_statuses or ()}
    return words(shown) == words(PodStatus(conditions=expected(world.truth))) and ready == {
        name: ready for name, (_, ready) in world.truth.items()
    }


@pytest.mark.parametrize("seed", range(60))
@pytest.mark.parametrize("profile", ["v1.16", "v1.20", "v1.26", "v1.36"])
def test_the_api_shows_what_the_containers_are(profile: str, seed: int) -> None:
    world = World(profile, seed, listing=profile == "v1.36")
    world.play(120)
    foreign = world.stored.status.condition("example.com/x")
    world.calm_down()
    assert converged(world), f"seed {seed}: {world.stored.status}"
    assert world.stored.status.condition("example.com/x") == foreign, f"seed {seed}"
    assert world.versions == sorted(world.versions), f"seed {seed}: a version went down"
    assert world.deletes == 0, f"seed {seed}: a pod was deleted that nobody asked to delete"
    calm = world.stored.status
    world.calm_down()
    assert world.stored.status == calm and world.machine.settled, f"seed {seed}: it is not calm"


def test_the_judge_sees_the_fault_of_1_16() -> None:
    """Where somebody lists the kubelet's pods, a mark stays for ever in many a run."""
    stuck = 0
    for seed in range(60):
        world = World("v1.16", seed, listing=True)
        world.play(120)
        world.connected, world.refusing = True, 0.0
        world.tick()
        world.set_condition("Ready", "False" if world.truth["a"][1] else "True", "")
        world.calm_down()
        stuck += not converged(world)
    assert stuck > 30


def test_the_same_seed_gives_the_same_run() -> None:
    runs = []
    for _ in range(2):
        world = World("v1.36", 5, listing=False)
        world.play(120)
        runs.append(world.stored.status)
    assert runs[0] == runs[1]
