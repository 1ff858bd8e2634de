"""The examples in docs/scenario.md are what they say."""

import json
import re
from pathlib import Path

import pytest
import yaml

from kubectl_nodelife.sim.scenario import assemble, parse_scenario
from tests.sim.documents import document, node
from tests.simulating import simulate_scenario

TEXT = (Path(__file__).parents[2] / "docs" / "scenario.md").read_text()
BLOCKS = re.findall(r"```yaml\n(.*?)```", TEXT, re.DOTALL)


def test_the_first_example_runs() -> None:
    told = simulate_scenario(parse_scenario(BLOCKS[0].encode(), "docs"))
    assert len(told.nodes) == 20
    assert {loss.zone for loss in told.nodes} == {"r1/a"}


@pytest.mark.parametrize("line", BLOCKS[1].splitlines())
def test_each_event_is_one(line: str) -> None:
    (event,) = yaml.safe_load(line)
    nodes = [node(name) for name in ("a1", "a2", "a7")]
    text = json.dumps(document(objects=nodes, events=[event])).encode()
    assert len(assemble(parse_scenario(text, "docs")).scenario.events) == 1


def test_each_write_that_fails_is_one() -> None:
    entries = yaml.safe_load(BLOCKS[2])["failingWrites"]
    text = json.dumps(document(failingWrites=entries)).encode()
    assert len(parse_scenario(text, "docs").failing_writes) == len(entries)


def test_each_read_that_fails_is_one() -> None:
    entries = yaml.safe_load(BLOCKS[3])["failingReads"]
    text = json.dumps(document(failingReads=entries)).encode()
    assert len(parse_scenario(text, "docs").failing_reads) == len(entries)


def test_the_fields_of_generate_are_all_told() -> None:
    wanted = yaml.safe_load(BLOCKS[-1])["generate"]
    text = json.dumps(document(generate={**wanted, "nodesPerZone": 1})).encode()
    assert parse_scenario(text, "docs").generate is not None


def test_every_field_is_documented() -> None:
    from kubectl_nodelife.sim import scenario as read

    fields = {*read._SPEC, *read._KUBELET, *read._GENERATE}
    assert [
        name for name in sorted(fields) if f"`{name}`" not in TEXT and f"{name}:" not in TEXT
    ] == []
