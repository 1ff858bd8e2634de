"""The words of a question: what is understood, and the one line about what is not."""

import json
from pathlib import Path

import pytest

from kubectl_nodelife.cli import main
from kubectl_nodelife.engine.cache import Cache
from kubectl_nodelife.errors import NodelifeError
from kubectl_nodelife.kube.load import decode
from kubectl_nodelife.outlook.what_if.acts import FORMS, Act, read_acts
from tests.what_if.stand import NOW_NS, SIX, node, workload

DUMP = Path(__file__).parents[1] / "dumps" / "two-zones"


def acts(words: str) -> list[Act]:
    documents = [*(each for name in SIX for each in node(name)), *workload("web", ["a1"])]
    cluster = Cache()
    cluster.fill([decode(d["kind"], d) for d in documents], NOW_NS)
    return read_acts(words.split(), cluster, beta_zone_labels_only=False)


@pytest.mark.parametrize(
    "words, expected",
    [
        pytest.param("lose node a1", ["lose node: a1"], id="a-node"),
        pytest.param(
            "lose nodes -l topology.kubernetes.io/zone=b", ["lose nodes: b1 b2 b3"], id="a-selector"
        ),
        pytest.param("lose a1", ["lose node: a1"], id="a-name-is-a-node"),
        pytest.param("lose node/a1 node/b2", ["lose node: a1 b2"], id="kind-and-name"),
        pytest.param("lose zone/a", ["lose zone: a1 a2 a3"], id="a-zone-in-one-word"),
        pytest.param("taint node/a1 k:NoExecute", ["taint: a1"], id="a-taint-of-kind-and-name"),
        pytest.param("untaint a1 example.com/key", ["untaint: a1"], id="a-key-with-a-prefix"),
        pytest.param("delete pod/default/web-0", ["delete pod:"], id="a-pod-in-one-word"),
        pytest.param("delete node/a1", ["delete node: a1"], id="a-deleted-node"),
        pytest.param("lose zone a b", ["lose zone: a1 a2 a3 b1 b2 b3"], id="two-zones"),
        pytest.param("lose link", ["lose link: a1 a2 a3 b1 b2 b3"], id="the-link-of-all"),
        pytest.param(
            "lose link zone b --for 5m", ["lose link zone: b1 b2 b3 for 300"], id="a-link"
        ),
        pytest.param(
            "drain a1 --ignore-daemonsets --timeout=5m", ["drain: a1"], id="kubectl-flags"
        ),
        pytest.param("cordon node a1 a1", ["cordon: a1"], id="named-twice"),
        pytest.param(
            "cordon a1 --and lose node a1 --at=1m", ["cordon: a1", "lose node: a1 at 60"], id="and"
        ),
        pytest.param("set a=b c=d lose zone a", ["set:", "lose zone: a1 a2 a3"], id="set-and-act"),
        pytest.param("untaint node a1 key", ["untaint: a1"], id="a-key-alone"),
        pytest.param("delete pod default/web-0", ["delete pod:"], id="a-pod"),
    ],
)
def test_what_is_understood(words: str, expected: list[str]) -> None:
    told = []
    for act in acts(words):
        at = f" at {act.at_seconds:g}" if act.at_seconds else ""
        lasts = f" for {act.for_seconds:g}" if act.for_seconds else ""
        told.append(f"{act.act}: {' '.join(act.nodes)}".strip() + at + lasts)
    assert told == expected


@pytest.mark.parametrize(
    "words, line",
    [
        ("loose node a1", "what-if: no act 'loose'; did you mean lose?"),
        ("lose node a9", 'nodes "a9" not found; known: a1, a2'),
        ("lose zone q", "zone: no zone 'q'; known: a, b"),
        ("lose nodes -l rack=r7", "--selector rack=r7: no node of 6 matches; check the labels"),
        ("lose", "lose: names nothing; such as: kubectl nodelife what-if lose"),
        ("lose pod/a1", "which object is meant is unclear from 'pod/a1'; write node/NAME or zone"),
        ("lose node/a1 zone/b", "nodes and zones stand together; write an act for each"),
        ("lose node a1 --for soon", "--for: 'soon' is no such duration; write 90s, 10m or 2h"),
        ("lose node a1 --at", "--at: lacks its value"),
        (
            "lose node a1 --force",
            "--force: is not known by lose; such as: kubectl nodelife what-if",
        ),
        (
            "drain a1 --for 5m",
            "--for: is not known by drain; such as: kubectl nodelife what-if drain",
        ),
        ("set", "set: give FLAG=VALUE; such as: kubectl nodelife what-if set node-monitor"),
        (
            "set a=b --at 5m",
            "--at: is not for set without --restart: it is as if it had always been so",
        ),
        ("--and lose node a1", "--and: stands between two acts"),
        ("taint node a1", "taint: give nodes and taints; such as: kubectl nodelife what-if taint"),
        ("delete pod web-9", 'pods "default/web-9" not found; write NAMESPACE/NAME'),
        ("delete pod", "delete: names nothing; such as: kubectl nodelife what-if delete"),
    ],
)
def test_what_is_not_understood_gets_one_line(words: str, line: str) -> None:
    with pytest.raises(NodelifeError) as refused:
        acts(words)
    assert str(refused.value).startswith(line)


def test_each_form_has_an_example_that_is_understood() -> None:
    for form, example in FORMS.items():
        verb = form.split()[0]
        words = example.removeprefix("what-if ").replace("worker-1", "a1").replace("eu-1a", "a")
        words = words.replace("rack=r7", "topology.kubernetes.io/zone=a")
        words = words.replace("shop/web-0", "default/web-0")
        assert acts(words)[0].act.split()[0] == verb, form


def test_on_a_dump(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["what-if", "lose", "zone", "eu-1a", "--for", "20m", "-f", str(DUMP)]
    assert main([*words, "--exit-code"]) == 4
    shown = capsys.readouterr().out
    assert shown.startswith("what if zone eu-1a is lost for 20m (3 nodes): ")
    assert "replicaset/search-c867d6c96" in shown
    assert main([*words, "-o", "json", "--fail-on", "degraded"]) == 4
    document = json.loads(capsys.readouterr().out)
    assert (document["apiVersion"], document["kind"]) == ("nodelife.dev/v1alpha1", "WhatIf")
    assert document["acts"][0]["forSeconds"] == 1200
    assert {unread["kind"] for unread in document["notEvaluated"]} >= {"Service"}
    assert main([*words, "-o", "name"]) == 0
    assert capsys.readouterr().out.splitlines()[0].startswith("workload/shop/")


def test_a_setting_that_there_is_not(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["what-if", "set", "node-monitor-grace-perod=20s", "-f", str(DUMP)]) == 2
    assert "set: " in capsys.readouterr().err
    assert main(["what-if", "-f", str(DUMP)]) == 2
    assert "which act?; one of: lose node NAME..." in capsys.readouterr().err


ACTS = """\
apiVersion: nodelife.dev/v1alpha1
kind: Acts
spec:
  events:
  - {at: 0s, lose: {nodes: [worker-a3], for: 20m}}
  - {at: 60s, cordon: {nodes: [worker-b1]}}
"""


def test_acts_from_a_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Beside a dump; they give what the same acts in words give."""
    file = tmp_path / "acts.yaml"
    file.write_text(ACTS)
    assert main(["what-if", "-f", str(file), "-f", str(DUMP), "-o", "json"]) == 0
    of_file = json.loads(capsys.readouterr().out)
    words = "lose node worker-a3 --for 20m --and cordon worker-b1 --at 60s"
    assert main(["what-if", *words.split(), "-f", str(DUMP), "-o", "json"]) == 0
    of_words = json.loads(capsys.readouterr().out)
    assert of_file["workloads"] == of_words["workloads"]
    assert [act["act"] for act in of_file["acts"]] == ["file"]
    assert of_file["acts"][0]["nodes"] == ["worker-a3", "worker-b1"]


@pytest.mark.parametrize(
    "was, now, line",
    [
        ("worker-a3", "worker-x9", "no node worker-x9; did you mean"),
        ("lose", "loose", "unknown field; did you mean lose?"),
        ("  events:", "  incidents:", "is no field of Acts; it has only events"),
        ("v1alpha1", "v9", "acts have apiVersion: nodelife.dev/v1alpha1 and kind: Acts"),
        ("at: 60s, ", "", "lacks the field at"),
    ],
)
def test_a_file_that_is_wrong_gets_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], was: str, now: str, line: str
) -> None:
    file = tmp_path / "acts.yaml"
    file.write_text(ACTS.replace(was, now))
    assert main(["what-if", "-f", str(file), "-f", str(DUMP)]) == 2
    told = capsys.readouterr().err
    assert line in told and told.count("\n") == 1


def test_why_something_changes(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["what-if", "lose", "node", "worker-a3", "-f", str(DUMP), "-o", "json"]
    assert main([*words, "--why", "node/worker-a3", "--why", "shop/statefulset/db"]) == 0
    node_why, db_why = json.loads(capsys.readouterr().out)["why"]
    taint = next(chain for chain in node_why["changes"] if chain[0]["action"] == "AddTaint")
    assert "its machine is off" in taint[-1]["reason"]
    assert any(chain[0]["action"] == "DeletePod" for chain in db_why["changes"])
    assert main([*words, "--why", "db"]) == 2
    assert main([*words, "--why", "node/worker-x"]) == 2


def test_left_out_of_the_verdict(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["what-if", "lose", "node", "worker-a3", "-f", str(DUMP), "--exit-code", "-o", "json"]
    assert main(words) == 4
    capsys.readouterr()
    assert main([*words, "--ignore", "shop/replicaset/search-c867d6c96"]) == 0
    assert json.loads(capsys.readouterr().out)["ignored"] == 1
    assert main([*words, "--ignore", "shop/replicaset/none"]) == 2
    assert "matches no workload" in capsys.readouterr().err


def test_the_future_as_a_timeline(capsys: pytest.CaptureFixture[str]) -> None:
    """As simulate's; what the acts change nothing of is said on stderr."""
    words = ["what-if", "lose", "node", "worker-a3", "--for", "2h", "-f", str(DUMP)]
    assert main([*words, "-o", "timeline"]) == 0
    told = capsys.readouterr()
    document = json.loads(told.out)
    assert (document["kind"], document["duration"]) == ("Timeline", 3600)
    assert any(
        record["action"] == "EvictPod" or record["action"] == "DeletePod"
        for record in document["records"]
    )
    assert "--for of 'lose node' ends after the horizon" in told.err
    assert main(["what-if", "--each", "node", "-o", "timeline", "-f", str(DUMP)]) == 2
