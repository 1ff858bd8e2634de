"""The page of a played course: lanes of nodes, zones and workloads agree with the tables below."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from kubectl_nodelife.cli import main
from kubectl_nodelife.report.simulate_html import _fate, page
from kubectl_nodelife.sim.run import NodeLoss
from tests.sim.documents import node, owner, pod, stop, story

ROOT = Path(__file__).parents[2]
OUTAGE = ROOT / "bin/stories/zone-outage.yaml"
DRAIN = ROOT / "tests/scenarios/drain-while-a-zone-is-dark.yaml"
EVIL = "<script>alert(1)</script>\"'&"


def shown(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    assert main(["simulate", *words, "-o", "html"]) == 0
    return capsys.readouterr().out


def test_nodes_of_one_fate_are_one_lane_beside_their_zone(
    capsys: pytest.CaptureFixture[str],
) -> None:
    text = shown(capsys, "-f", str(OUTAGE))
    names = re.findall(r'<b>(.*?)</b>(?: <span class="note">(.*?)</span>)?', text)
    assert ("zone r1/a", "Normal") in names
    assert ("4 nodes of r1/a: a1, a2 and 2 more", "") in names
    words = re.findall(r'<span class="words">(.*?)</span>', text)
    assert "FullDisruption 1m16s → Normal 5m1s" in words
    assert "Unknown 1m10s → tainted 1m11s–1m40s → 95 pods leave 1m41s–3m42s → back 5m0s" in words
    assert not re.search(r"<script|src=|href=|url\(|@import|http:", text)
    for heading in ("When", "Whom it hurt", "What happened", "Nodes that were lost"):
        assert f"<h2>{heading}</h2>" in text
    assert "<strong>4 nodes of zone r1/a lost at 1m10.014s" in text


def test_drains_are_lanes(capsys: pytest.CaptureFixture[str]) -> None:
    text = shown(capsys, "-f", str(DRAIN))
    assert text.count('<rect class="going"') == 1 and "drained 7m1s" in text


def test_a_node_alone(capsys: pytest.CaptureFixture[str]) -> None:
    text = shown(capsys, "node", "a1", "-f", str(OUTAGE))
    assert "<h1>Simulation of zone-outage, node/a1</h1>" in text and "<b>a1</b>" in text


def test_what_came_to_a_node_is_in_the_order_of_time_and_its_return_last() -> None:
    loss = NodeLoss("n", "z", "False", None, 10.0, 12.0, 50.0, 3, 3, 2, 20.0, 60.0)
    fate = _fate(loss)
    assert [step.says for step in fate.steps] == ["NotReady", "tainted", "pods leave", "back"]
    assert fate.since_s is None and fate.stays == ""


def test_texts_are_no_markup() -> None:
    objects = [
        node("a1", zone=EVIL),
        node("b1", "b"),
        owner("ReplicaSet", "web", 1),
        pod("web-1", "a1", owner=("ReplicaSet", "web"), tolerates=60),
    ]
    text = page(story(duration="8m", objects=objects, events=[stop("10s", "a1")]))
    assert "<script" not in text and "&lt;script&gt;" in text
