"""The enforcing daemon on a simulated API server, on virtual time, with seeded faults.

CI plays 300 seeds, `bin/test` a few. By hand: `pytest tests/enforce/test_simulation.py --seeds
10000 -n 4`; a failure names its seed.
"""

from tests.enforce.simulation import Run, faults_found, play


def test_all_holds_and_ends_as_without_faults(seeds: range) -> None:
    for seed in seeds:
        assert faults_found(seed) == [], f"seed {seed}"


def test_it_does_something() -> None:
    assert play(Run(1), 1).deleted, "an observer that saw nothing has judged nothing"
