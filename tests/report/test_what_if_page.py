"""The page of a `what-if`: what bands and bars show, and that texts of the cluster stay texts."""

import json
import re
from pathlib import Path

import msgspec
import pytest

from kubectl_nodelife.cli import main
from kubectl_nodelife.outlook.what_if.document import WhatIf
from kubectl_nodelife.report.html import LEAVE, PAST, RANGE, near_bottom
from kubectl_nodelife.report.what_if import _last, _rows, _served_lane, html_page
from tests.what_if.stand import Document, ask, budget, service, workload

DUMP = Path(__file__).parents[1] / "dumps" / "two-zones"
EVIL = "<script>alert(1)</script>\"'&"


def answer() -> WhatIf:
    web = [*workload("web", ["a1", "a1"]), *service("web"), *budget("web", 1, 2)]
    return ask("lose node a1 --for 20m", [*web, *workload("db", ["a1", "b1"], "StatefulSet")])


def test_lanes_are_acts_and_nodes_over_time() -> None:
    found = answer()
    rows = {row.label: row for row in _rows(found, _last(found))}
    assert list(rows) == ["node a1 is lost for 20m", "a1"]
    (act,) = rows["node a1 is lost for 20m"].bars
    assert (act.begin, act.end, act.style) == (0.0, 1200.0, "act")
    (node,) = found.nodes
    styles = [bar.style for bar in rows["a1"].bars if bar.style != RANGE]
    assert styles == [PAST, "unknown", "taint", PAST, LEAVE]
    lost, *_ = rows["a1"].bars
    assert lost.begin == node.lost_seconds and rows["a1"].note == "lost"
    words = rows["a1"].words
    assert words.startswith("Unknown ") and f"{node.evicted} pods leave " in words
    assert words.endswith("→ back 20m")


def test_nodes_of_one_fate_are_one_lane() -> None:
    found = answer()
    (node,) = found.nodes
    later = {"tainted_seconds": (node.tainted_seconds or 0) + 10, "ranges": {}}
    other = msgspec.structs.replace(node, name="a2", **later)
    both = msgspec.structs.replace(found, nodes=[node, other])
    *_, lane = _rows(both, _last(both))
    assert lane.label == f"2 nodes of {node.zone}: a1, a2"
    assert f"{2 * node.evicted} pods leave " in lane.words
    well = msgspec.structs.replace(other, back_seconds=None)
    apart = msgspec.structs.replace(found, nodes=[node, well])
    assert [row.label for row in _rows(apart, _last(apart))][-2:] == ["a1", "a2"]


def test_a_workload_is_a_lane_with_its_numbers_over_how_bad_that_is() -> None:
    found = answer()
    rows = {row.label: row for row in (_served_lane(w, _last(found)) for w in found.workloads)}
    assert list(rows) == ["default/web", "default/db"]
    web = [(bar.begin, bar.end, bar.style) for bar in rows["default/web"].bars]
    assert web[0] == (0.0, 352.15, "zero")
    db = [bar.style for bar in rows["default/db"].bars]
    assert db == ["fewer", *(["range"] if len(db) > 1 else [])]
    for each in found.workloads:
        row = rows[f"{each.namespace}/{each.name}"]
        backs = {each.low.back_seconds, each.back_seconds, each.high.back_seconds}
        assert (row.bars[-1].style == RANGE) == (len(backs) > 1)
        healthy, ready = row.lines
        assert len(healthy.points) == len(ready.points) == len(each.series)


def test_the_page_stands_alone_and_says_what_the_table_says() -> None:
    found = answer()
    text = html_page(found)
    assert not re.search(r"<script|src=|href=|url\(|@import|http:", text)
    assert text.count(found.verdict.text) == 1
    for heading in ("When", "Who serves", "Workloads", "Nodes", "Budgets", "What happens"):
        assert f"<h2>{heading}</h2>" in text
    records = re.search(r"Record by record: (\d+) that", text)
    assert records and int(records[1]) == len(found.differences) > 0
    assert html_page(found) == text == html_page(answer())


def test_cluster_text_is_no_markup() -> None:
    evil: list[Document] = json.loads(
        json.dumps(workload("web", ["a1"])).replace('"web', json.dumps(EVIL)[:-1])
    )
    text = html_page(ask("lose node a1", evil))
    assert "<script" not in text and "&lt;script&gt;" in text


def test_on_the_command_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["what-if", "lose", "zone", "eu-1a", "-f", str(DUMP), "-o", "html"]) == 0
    assert capsys.readouterr().out.startswith("<!doctype html>")
    assert main(["what-if", "--each", "zone", "-f", str(DUMP), "-o", "html"]) == 2
    assert capsys.readouterr().err == ("error: -o html: is not for --each; ask about one target\n")


def test_workloads_that_stay_as_they_are_have_a_row_and_no_chart() -> None:
    found = answer()
    level = msgspec.structs.replace(
        found.workloads[0], name="steady", series=found.workloads[0].series[:1]
    )
    text = html_page(msgspec.structs.replace(found, workloads=[*found.workloads, level]))
    assert text.count('class="plot"') == len(found.workloads)
    first = level.series[0]
    row = "".join(f'<td class="short">{word}</td>' for word in (first.serving, first.ready))
    assert f"default/steady</td>{row}</tr>" in text


@pytest.mark.parametrize(
    ("counts", "bottom"),
    [([15, 14], 13), ([15, 15], 14), ([100, 80], 70), ([3, 2], 0), ([9, 0], 0), ([], 0)],
)
def test_a_chart_begins_near_its_numbers_where_their_change_is_small(
    counts: list[int], bottom: int
) -> None:
    assert near_bottom(counts) == bottom
