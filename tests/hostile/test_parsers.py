"""No input that somebody else wrote is a bug of ours; by hand an hour (`tests.hostile.parsers`)."""

import io
import json
import zipfile
from pathlib import Path
from typing import Any

import pytest

from tests.hostile.parsers import Find, Parser, fuzz, parsers, run

FEW_INPUTS, INPUTS, MANY_INPUTS = 50, 300, 1_000
"""Of each parser, and where CI asks for more seeds: the same on every machine, so that a faster one
finds nothing new.
"""
LONGEST_S = 120.0
UPGRADE = b"apiVersion: nodelife.dev/v1alpha1\nkind: Upgrade\nspec: "
PARSERS = {parser.name: parser for parser in parsers()}


@pytest.mark.parametrize("name", PARSERS)
def test_no_mutated_input_is_a_bug(name: str, tmp_path: Path, pytestconfig: pytest.Config) -> None:
    most = INPUTS if pytestconfig.getoption("--deep") else FEW_INPUTS
    if pytestconfig.getoption("--seeds") > 60:
        most = MANY_INPUTS
    assert fuzz(PARSERS[name], LONGEST_S, seed=1, folder=tmp_path, most=most) > 0


def lost_node(reason: str) -> bytes:
    """A node that was lost, as the lifecycle controller says with that reason."""
    ready = {
        "type": "Ready",
        "status": "Unknown",
        "reason": reason,
        "lastTransitionTime": "2026-01-01T00:00:00Z",
        "lastHeartbeatTime": "2026-01-01T00:00:00Z",
    }
    field = {"f:status": {"f:conditions": {'k:{"type":"Ready"}': {"f:status": {}, "f:reason": {}}}}}
    manager = {
        "manager": "kube-controller-manager",
        "operation": "Update",
        "time": "2026-01-01T00:00:00Z",
        "fieldsType": "FieldsV1",
        "fieldsV1": field,
        "subresource": "status",
    }
    node: dict[str, Any] = {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": "n1", "uid": "u1", "managedFields": [manager]},
        "status": {"conditions": [ready]},
    }
    return json.dumps(node).encode()


def nameless_member() -> bytes:
    """A zip with a member of an empty name."""
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as made:
        made.writestr("nodes.json", lost_node("x"))
        made.writestr("QQQQ", b"x")
    return packed.getvalue().replace(b"QQQQ", b"\0QQQ")


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("upgrade file", UPGRADE + b"{target: 5}"),
        ("upgrade file", UPGRADE + b"{target: [{a: b}]}"),
        ("upgrade file", UPGRADE + b'{job: "a\\0b"}'),
        ("upgrade file", UPGRADE + b"{soak: 1e400}"),
        ("archive", nameless_member()),
        ("changes", lost_node("a)b")),
        ("changes", lost_node("(")),
        ("changes", lost_node(") (, by: ")),
        ("kubeconfig", b"current-context: 2026-13-01"),
        ("kubeconfig", b"clusters: true"),
        ("kubeconfig", b"contexts: !!timestamp x"),
        ("config file", b"clusters: {2026-13-01: {}}"),
        ("dump", b"a: 2026-02-30T00:00:00Z"),
        ("journal", PARSERS["journal"].seeds[0].replace(b"CREATE INDEX", b"CREATE \xffNDEX")),
    ],
)  # fmt: skip
def test_what_was_one_is_told_with_a_line(name: str, data: bytes, tmp_path: Path) -> None:
    run(PARSERS[name], data, tmp_path)


def test_the_fuzzer_sees_a_bug(tmp_path: Path) -> None:
    def read(path: Path) -> None:
        raise KeyError(path.read_bytes())

    with pytest.raises(Find, match="KeyError"):
        run(Parser("x", [], read), b"abc", tmp_path)


@pytest.mark.parametrize(
    "running",
    [
        pytest.param({"flags": {"node-monitor-period": "5s"}}, id="a-flag-of-no-origin"),
        pytest.param(
            {"flags": {"made-up": "1"}, "origins": {"made-up": "x"}}, id="no-flag-of-ours"
        ),
        pytest.param({"version": f"v1.{'9' * 30}"}, id="a-release-that-never-was"),
        pytest.param({"version": 5, "flags": []}, id="of-other-types"),
    ],
)
def test_what_a_snapshot_says_of_what_runs_there_is_believed_as_far_as_it_goes(
    running: dict[str, Any], tmp_path: Path
) -> None:
    parser = PARSERS["snapshot, status"]
    document = json.loads(parser.seeds[0])
    document["metadata"]["annotations"]["nodelife.dev/running"] = json.dumps(running)
    run(parser, json.dumps(document).encode(), tmp_path)
