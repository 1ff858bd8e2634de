"""The enforcing daemon on a simulated API server, on virtual time, with seeded faults.

CI plays 500 seeds, by default it is 30. By hand: `pytest tests/enforce/test_simulation.py --seeds
10000 -n 4`; a failure names its seed.
"""

from __future__ import annotations

import pytest

from tests.enforce.simulation import Run, faults_found, play

_BATCH = 10


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """A test for each batch of seeds."""
    if "first_seed" in metafunc.fixturenames:
        metafunc.parametrize("first_seed", range(0, metafunc.config.getoption("--seeds"), _BATCH))


def test_all_holds_and_ends_as_without_faults(first_seed: int) -> None:
    for seed in range(first_seed, first_seed + _BATCH):
        assert faults_found(seed) == [], f"seed {seed}"


def test_it_does_something() -> None:
    assert play(Run(1), 1).deleted, "an observer that saw nothing has judged nothing"
