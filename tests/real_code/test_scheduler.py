"""Pods fit where they fit for the real scheduler, go where it lets them go, and preempt whom it
lets them preempt.

Like `test_real_code.py`, whose program says it (`-schedule`).
"""

from pathlib import Path

import pytest

from kubectl_nodelife.sim.preemption import Preemption
from kubectl_nodelife.workloads import placement, scoring
from kubectl_nodelife.workloads.placement import PlacementSimulator
from kubectl_nodelife.workloads.placement_rules import SoftRules
from kubectl_nodelife.workloads.scheduling import NodeInfo
from kubectl_nodelife.workloads.topology import InterPodAffinity, TopologySpread
from tests.real_code import clusters
from tests.real_code.test_real_code import program
from tests.real_code.workload_scenario import NEWEST, RELEASE

__all__ = ["program"]

HAVE_IT = (NEWEST, "v1.36")
pytestmark = pytest.mark.skipif(RELEASE not in HAVE_IT, reason="its build has no -schedule")

TOGETHER = 20
"""Clusters of so many seeds are judged at once."""


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """One item for some seeds."""
    if "first_seed" in metafunc.fixturenames:
        seeds = range(0, metafunc.config.getoption("--seeds"), TOGETHER)
        metafunc.parametrize("first_seed", seeds)


def test_pods_go_where_the_real_scheduler_lets_them(
    first_seed: int, program: Path, tmp_path: Path
) -> None:
    seeds = range(first_seed, first_seed + TOGETHER)
    apart = differences_of(seeds, program, tmp_path)
    assert not apart, "\n".join(apart)


def differences_of(seeds: range, program: Path, folder: Path) -> list[str]:
    """Seed by seed."""
    given = [clusters.generate(seed) for seed in seeds]
    branches = [clusters.ours(objects) for objects in given]
    given = list(map(clusters.with_budgets_of, branches, given))
    verdicts = clusters.theirs(program, given, folder)
    return [
        f"seed {seed}: {difference}"
        for seed, branch, real in zip(seeds, branches, verdicts, strict=True)
        for difference in clusters.differences(branch, real)
    ]


@pytest.mark.parametrize(
    ("of", "name", "wrong"),
    [
        (NodeInfo, "port_taken", lambda *_: False),
        (NodeInfo, "shortages", lambda *_: []),
        (TopologySpread, "reason", lambda *_: None),
        (InterPodAffinity, "reason", lambda *_: None),
        (PlacementSimulator, "_reserved_from", lambda *_: {}),
        (Preemption, "_breaking", lambda *_: set()),
        (SoftRules, "_spread_scores", lambda _, __, nodes: [0] * len(nodes)),
        (SoftRules, "_liking_scores", lambda _, __, nodes: [0] * len(nodes)),
        (scoring, "_balance", lambda *_: 0),
        (scoring, "room_score", lambda *_: 0),
        (placement, "preference_of", lambda *_: scoring.Preference()),
    ],
)
def test_a_wrong_rule_is_noticed(
    of: object,
    name: str,
    wrong: object,
    program: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(of, name, wrong)
    assert differences_of(range(100), program, tmp_path)
