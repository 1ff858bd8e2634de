"""Questions that nobody asks by accident: one line or an answer, and bounded work."""

import json
from pathlib import Path

import pytest

from kubectl_nodelife.cli import main
from tests.what_if.stand import ask, workload

DUMP = str(Path(__file__).parents[1] / "dumps" / "two-zones")
API_VERSION = "nodelife.dev/v1alpha1"


def test_ten_thousand_acts_in_one_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ("cordon", "uncordon")
    events = [
        {"at": f"{second % 3000}s", words[second % 2]: {"nodes": ["worker-a1"]}}
        for second in range(10_000)
    ]
    file = tmp_path / "acts.json"
    spec = {"apiVersion": API_VERSION, "kind": "Acts", "spec": {"events": events}}
    file.write_text(json.dumps(spec))
    assert main(["what-if", "-f", DUMP, "-f", str(file), "-o", "json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert len(answer["acts"][0]["detail"]) == 10_000
    assert 3000 < len(answer["differences"]) <= 10_000 and not answer["truncated"]


def test_two_thousand_zones(capsys: pytest.CaptureFixture[str]) -> None:
    names = [f"zone{'abcdefghij'[n % 10] * (1 + n // 10)}1" for n in range(2000)]
    answer = ask(f"lose node {names[7]}", workload("web", names[:8]), nodes=names)
    assert [node.name for node in answer.nodes] == [names[7]]
    assert [zone.states[-1].state for zone in answer.zones] == ["FullDisruption"]


def test_a_cluster_that_never_rests_for_a_day() -> None:
    """The pod is evicted and placed on the same node each minute."""
    slow = workload("slow", ["a1"], tolerates=60)
    terms = [{"key": "k", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 60}]
    for document in slow:
        spec = document["spec"]
        spec = spec["template"]["spec"] if "template" in spec else spec
        spec["tolerations"] = terms
    day = 24 * 3600
    answer = ask("taint node a1 k=v:NoExecute", slow, nodes=("a1",), until_s=day)
    assert answer.horizon.ended == "horizon" and answer.horizon.pending_events
    (repeat,) = answer.repeats
    assert repeat.every_seconds == pytest.approx(60, abs=1)
    assert repeat.pods == pytest.approx(day / 60, rel=0.02)


@pytest.mark.parametrize(
    "words, code",
    [
        (["lose", "node", "--and"], 2),
        (["--and", "lose", "node", "worker-a1"], 2),
        (["lose", "node", "x\x1b[31m\nevil"], 2),
        (["lose", "zone", "‮"], 2),
        (["lose", "node", "x" * 100_000], 2),
        (["lose", "nodes", "-l", "a=("], 2),
        (["taint", "node", "worker-a1", "k=\x07:NoExecute"], 2),
        (["set", "node-monitor-grace-period=-1s"], 2),
        (["set", f"node-eviction-rate={'9' * 400}"], 2),
        (["lose", "node", "worker-a1", "--for", "9" * 400], 2),
        (["lose", "node", "worker-a1", "--until", "25h"], 2),
        (["--each", "label=\x1b", "lose"], 2),
        (["--each", "node", "set", "a=b"], 2),
    ],
)
def test_what_makes_no_sense_is_one_line(
    words: list[str], code: int, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["what-if", *words, "-f", DUMP]) == code
    said = capsys.readouterr()
    assert said.out == "" and said.err.count("\n") == 1 and said.err.startswith("error: ")
    assert said.err[:-1].isprintable()
