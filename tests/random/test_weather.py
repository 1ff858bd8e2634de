"""Random clusters before outside judges. A failure names its seed, and the seed replays it."""

import json
from collections.abc import Callable
from functools import cache
from typing import Any

import msgspec
import pytest

from kubectl_nodelife.engine.settings import make_settings
from kubectl_nodelife.sim.run import summarize_run
from kubectl_nodelife.sim.scenario import assemble, parse_scenario
from tests.random import judges
from tests.random.judges import Replay
from tests.random.weather import stormy_faults, weather
from tests.simulating import play

SEEDS = range(40)
STORMY_SEEDS = range(1000, 1025)

ALWAYS = (
    judges.no_tolerating_pod_is_evicted,
    judges.no_zone_is_over_its_rate,
    judges.nothing_is_tainted_while_all_is_dark,
    judges.recovery_withdraws_everything,
    judges.one_daemon_pod_a_node,
    judges.pods_of_a_lost_node_are_marked,
)
WITHOUT_FAULTS = (*ALWAYS, judges.evictions_are_not_forgotten)

Judge = Callable[[Replay], None]


def simulated(seed: int, *, faults: bool) -> bytes:
    """The Timeline of a seed, as JSON."""
    scenario = parse_scenario(json.dumps(weather(seed)).encode(), f"seed-{seed}")
    setting = assemble(scenario)
    done = play(setting, stormy_faults(seed) if faults else None)
    told = summarize_run(done, make_settings(setting.profile, scenario.flags))
    return msgspec.json.encode(told.document())


@cache
def timeline(seed: int, faults: bool) -> Any:
    return json.loads(simulated(seed, faults=faults))


@pytest.mark.parametrize("judge", WITHOUT_FAULTS, ids=lambda judge: judge.__name__)
@pytest.mark.parametrize("seed", SEEDS)
def test_in_any_weather(seed: int, judge: Judge) -> None:
    judge(Replay(weather(seed), timeline(seed, False)))


@pytest.mark.parametrize("judge", ALWAYS, ids=lambda judge: judge.__name__)
@pytest.mark.parametrize("seed", STORMY_SEEDS)
def test_while_the_api_server_fails(seed: int, judge: Judge) -> None:
    judge(Replay(weather(seed), timeline(seed, True)))


@pytest.mark.parametrize("seed", [*SEEDS[:5], *STORMY_SEEDS[:5]])
def test_equal_runs_give_equal_bytes(seed: int) -> None:
    faults = seed in STORMY_SEEDS
    assert simulated(seed, faults=faults) == simulated(seed, faults=faults)


def test_the_storms_are_storms() -> None:
    """Judges that never had anything to judge would prove nothing."""
    done = [r for seed in SEEDS for r in timeline(seed, False)["records"]]
    wanted = {
        ("taint-eviction", "DeletePod"): 50,
        ("taint-eviction", "CancelEviction"): 50,
        ("node-lifecycle", "AddTaint"): 200,
        ("node-lifecycle", "UnqueueNode"): 20,
        ("node-lifecycle", "SetZoneState"): 100,
        ("pod-gc", "DeletePod"): 5,
        ("daemonset", "CreatePod"): 50,
    }
    for (controller, action), least in wanted.items():
        found = [r for r in done if (r["controller"], r["action"]) == (controller, action)]
        assert len(found) >= least, (controller, action, len(found))
    assert any("error" in r for seed in STORMY_SEEDS for r in timeline(seed, True)["records"])
