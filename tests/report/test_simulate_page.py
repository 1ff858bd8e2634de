"""The page of a played course: lanes of nodes, zones and workloads agree with the tables below."""

import re
from pathlib import Path

import pytest

from kubectl_nodelife.cli import main
from kubectl_nodelife.report.narration import _fate, html_page
from kubectl_nodelife.sim.run import NodeLoss
from tests.sim.documents import node, owner, pod, stop, story

ROOT = Path(__file__).parents[2]
OUTAGE = ROOT / "bin/stories/zone-outage.yaml"
UPGRADES = ROOT / "tests/scenarios"
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


def lane_of(text: str, name: str) -> tuple[list[str], str]:
    """The classes of the lane's bars, and the words behind it."""
    (lane,) = re.findall(
        rf'<li class="lane[^>]*><span class="name"><b>{name}</b>.*?</li>', text, re.S
    )
    words = re.findall(r'<span class="words">(.*?)</span>', lane)
    return re.findall(r'<rect class="([\w-]+)"', lane), "".join(words)


def test_an_upgrades_nodes_are_lanes_in_the_order_of_their_claims(
    capsys: pytest.CaptureFixture[str],
) -> None:
    text = shown(capsys, "-f", str(UPGRADES / "upgrade-in-three-zones.yaml"))
    run, words = lane_of(text, "the upgrade")
    assert run == ["held"] and words.startswith("Finished ")
    states = ["draining", "working", "settling", "proving", "soaking"]
    order = re.findall(r"<b>([abc][12])</b>", text)
    claims = re.findall(r"<td>ClaimNode.*?</td><td[^>]*>(.*?)</td>", text)
    assert order == re.findall(r"node/(\w\d)", " ".join(claims)) and len(order) == 6
    for name in order:
        bars, words = lane_of(text, name)
        assert bars == states and words.startswith("Done ")
    assert text.count("Soaking (in service)</b>") == 1, "the key"


def test_a_node_that_fails_stays_failed_and_holds_the_run(
    capsys: pytest.CaptureFixture[str],
) -> None:
    text = shown(capsys, "-f", str(UPGRADES / "upgrade-canary-fails.yaml"))
    run, words = lane_of(text, "the upgrade")
    assert (run, words) == (["held", "held"], "Paused 10m21s")
    assert "<title>blind</title>" in text and "<title>paused</title>" in text
    lanes = re.findall(r"<b>a1</b>.*?</li>", text, re.S)
    bars = [re.findall(r'<rect class="([\w-]+)"', lane) for lane in lanes]
    assert ["draining", "working", "settling", "stuck"] in bars
    assert "Failed 10m21s" in text


def test_without_an_upgrade_nothing_is_said_of_one(capsys: pytest.CaptureFixture[str]) -> None:
    text = shown(capsys, "-f", str(OUTAGE))
    assert "the upgrade<" not in text and "Soaking" not in text


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
    text = html_page(story(duration="8m", objects=objects, events=[stop("10s", "a1")]))
    assert "<script" not in text and "&lt;script&gt;" in text
