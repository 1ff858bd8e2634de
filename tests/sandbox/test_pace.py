"""The controllers inside the sandbox write at the pace of kube-controller-manager's clients, as
those of a simulation do."""

from collections import deque
from pathlib import Path

from kubectl_nodelife.controllers import make_controllers
from kubectl_nodelife.engine.engine import EngineHost
from kubectl_nodelife.engine.settings import make_settings
from kubectl_nodelife.kube.times import SECOND_NS
from kubectl_nodelife.sandbox.cluster import SandboxCluster
from kubectl_nodelife.sim.scenario import PASS_DRIFT_NS, assemble, parse_scenario
from tests.simulating import simulate_file

SCENARIO = Path(__file__).parent.parent / "pace" / "taint-by-hand" / "scenario.yaml"
"""A node with 110 pods that do not tolerate the taint that it gets."""

LASTS_NS = 60 * SECOND_NS


class Clock:
    """The sandbox's clock, which is set by hand."""

    def __init__(self, now_ns: int) -> None:
        self.now_ns = now_ns

    def __call__(self) -> int:
        return self.now_ns


def deletions() -> list[float]:
    """When each pod gets its deletion timestamp in the sandbox, seconds."""
    scenario = parse_scenario(SCENARIO.read_bytes(), SCENARIO.name)
    setting = assemble(scenario)
    settings = make_settings(setting.profile, scenario.flags)
    controllers = make_controllers(settings, scenario.controllers, pass_drift_ns=PASS_DRIFT_NS)
    clock = Clock(setting.start_ns)
    cluster = SandboxCluster(setting.under(settings), controllers, now_ns=clock)
    world = cluster.world
    host = EngineHost(cluster.engine, world)
    seen: dict[str, float] = {}
    while clock.now_ns <= setting.start_ns + LASTS_NS:
        _, events = world.advance(clock.now_ns)
        deque(host.step(clock.now_ns, list(cluster._react(events))), maxlen=0)
        for pod in cluster.api.store.pods.values():
            if pod.metadata.deletion_timestamp is not None:
                seen.setdefault(pod.name, (clock.now_ns - setting.start_ns) / SECOND_NS)
        due = (world.agenda.next_at(), host.next_due())
        if not world.has_news:
            clock.now_ns = min(at_ns for at_ns in due if at_ns is not None)
    return sorted(seen.values())


def test_pods_go_when_those_of_a_simulation_go() -> None:
    records = simulate_file(SCENARIO).records
    told = [r for r in records if (r.controller, r.action) == ("taint-eviction", "DeletePod")]
    simulated, served = sorted(record.at for record in told), deletions()
    assert len(served) == len(simulated) == 110
    assert served[-1] - served[0] > 5
    assert max(abs(a - b) for a, b in zip(simulated, served, strict=True)) < 0.01
