"""`sweep`: runs of a cluster of that size for an hour with about three losses, in one process.

`efficiencyOfTwo` is the work of two processes of `sweep --on local:2` in the time of one, by wall
time, without what it takes to start them.
"""

from __future__ import annotations

import resource
import time
from tempfile import TemporaryDirectory

from bench import Stopwatch
from kubectl_nodelife.engine.settings import make_settings
from kubectl_nodelife.kube.times import HOUR_NS, MINUTE_NS
from kubectl_nodelife.sim.generate import Generate
from kubectl_nodelife.sweep.failures import Independent, Law
from kubectl_nodelife.sweep.points import Terms, base_of_recipe
from kubectl_nodelife.sweep.pool import FailedRuns, pool_at
from kubectl_nodelife.sweep.result import runs_of
from kubectl_nodelife.sweep.runs import Plan, RunId, play_runs
from kubectl_nodelife.sweep.study import DEFAULT_MEASURES

NODES = 100
PODS = 3000
_RUNS = 40
_ZONES = 4
_LOSSES = 3


def run(nodes: int, pods: int, seed: int, stopwatch: Stopwatch) -> dict[str, object]:
    """Play the runs of one point, and then twice as many on workers."""
    recipe = Generate(
        zones=_ZONES,
        nodes_per_zone=nodes // _ZONES,
        pods_per_node=max(1, pods // nodes),
        seed=seed,
    )
    base = base_of_recipe(recipe, make_settings("newest"))
    losses = Independent(
        Law("exponential", HOUR_NS * nodes // _LOSSES), Law("lognormal", 10 * MINUTE_NS)
    )
    plan = Plan("bench", base, (("independent", losses),), Terms(HOUR_NS), DEFAULT_MEASURES)
    runs = runs_of([{}], range(1, _RUNS + 1))
    play_runs(plan, runs[:1])
    with stopwatch:
        play_runs(plan, runs)
    seconds = {many: _on_workers(plan, runs * 2, many, pods) for many in (1, 2)}
    peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024
    return {
        "runs": len(runs),
        "secondsPerRun": round(stopwatch.wall_seconds / len(runs), 4),
        "efficiencyOfTwo": round(seconds[1] / seconds[2] / 2, 3),
        "workerPeakRssBytes": peak,
    }


def _on_workers(plan: Plan, runs: list[RunId], many: int, pods: int) -> float:
    """Seconds for the runs but the first task, which makes the present of each worker."""
    numbered = [each._replace(number=number) for number, each in enumerate(runs)]
    with TemporaryDirectory() as private, pool_at(many, pods, private) as pool:
        warm = list(pool.play(plan, numbered[: 4 * many], lambda seconds: None))
        assert not any(isinstance(each, FailedRuns) for each in warm)
        began = time.perf_counter()
        played = list(pool.play(plan, numbered, lambda seconds: None))
        assert len(played) == len(numbered)
        return time.perf_counter() - began
