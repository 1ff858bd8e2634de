"""Scenarios that nobody chose, and a watch of Leases that stands still, recorded from the real
controllers, against their simulation.

The rule is that of the recordings in tests/traces: each write at its time, none missing or extra.
NODELIFE_SEEDS=20-60 plays others, three at a time, a minute each.
"""

import json
import os
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from kubectl_nodelife.sim.scenario import parse_scenario
from tests.real.audited import Json
from tests.real.recording import record
from tests.real.unplanned import unplanned
from tests.simulating import simulate_scenario
from tests.traces.compare import compare
from tests.traces.conftest import OWN_TRACES

AT_A_TIME = 3
STALE = "v1.37-stale-leases"
PUNCTUAL_S = 0.3


def wanted_seeds() -> list[int]:
    first, _, last = os.environ.get("NODELIFE_SEEDS", "1-5").partition("-")
    return list(range(int(first), int(last or first) + 1))


SEEDS = wanted_seeds()


def chosen(name: int | str) -> Json:
    """The scenario of a seed, or of a trace of that name."""
    if isinstance(name, int):
        return unplanned(name)
    scenario: Json = yaml.safe_load((OWN_TRACES / name / "scenario.yaml").read_bytes())
    return scenario


def play(name: int | str) -> tuple[Json, Json]:
    """The scenario, and its recording. One that was not played on time is none, and made again."""
    for _ in range(3):
        scenario = chosen(name)
        recording = record(scenario)
        if recording["latestSeconds"] < PUNCTUAL_S:
            return scenario, recording
    raise AssertionError(f"this machine is too busy: {recording['latestSeconds']:.1f}s late")


@pytest.fixture(scope="module")
def recordings(request: pytest.FixtureRequest) -> Iterator[dict[object, Future[Any]]]:
    """Those that this run asks for, being made."""
    asked = {
        item.callspec.params["name"]
        for item in request.session.items
        if isinstance(item, pytest.Function) and item.module is request.module
    }
    with ThreadPoolExecutor(AT_A_TIME) as pool:
        yield {name: pool.submit(play, name) for name in (STALE, *SEEDS) if name in asked}


@pytest.mark.parametrize("name", [STALE, *SEEDS])
def test_simulation_does_what_the_real_controllers_did(
    name: int | str, recordings: dict[object, Future[tuple[Json, Json]]], tmp_path: Path
) -> None:
    scenario, recording = recordings[name].result()
    content = json.dumps(scenario).encode()
    story = simulate_scenario(parse_scenario(content, "scenario.json"))
    simulated = msgspec.json.decode(msgspec.json.encode(story.document()))
    (tmp_path / "scenario.json").write_bytes(content)
    (tmp_path / "recorded.json").write_text(json.dumps(recording))
    outcome = compare(recording, simulated)
    assert outcome.matched > 0
    assert not outcome.differences, "\n".join([f"kept in {tmp_path}", *outcome.differences])
