"""`-o markdown`: tables for tickets, whatever stands in the cells."""

from pathlib import Path

import pytest

from kubectl_nodelife.cli import main
from kubectl_nodelife.report.formats import Column, Table, markdown

DUMP = str(Path(__file__).parents[1] / "drains" / "budget-one-at-a-time" / "cluster.json")
SCENARIO = str(next((Path(__file__).parents[1] / "scenarios").glob("*.yaml")))


def test_a_table_and_a_paragraph() -> None:
    table = Table([Column("NAME"), Column("AGE", wide=True), Column("WHY")], [("a-1", "5d", None)])
    assert markdown(["two nodes", table], True).splitlines() == [
        "two nodes",
        "",
        "| NAME   | WHY          |",
        "|:-------|:-------------|",
        "| a-1    | &lt;none&gt; |",
    ]


def test_nothing_in_a_cell_is_markup() -> None:
    evil = "a|b\n<script>[x](http://y) `c` *d* \\|"
    text = markdown([Table([Column("A"), Column("B")], [(evil, "<img>"), ("12", "0x1")])], True)
    rows = text.splitlines()[2:]
    assert len(rows) == 2 and "<" not in text
    assert rows[0].startswith("| a\\|b...") and "12" in rows[1] and "0x1" in rows[1]
    assert "\\[x\\]" in markdown(["[x](http://y)"], True)


def test_several_lines_keep_their_layout() -> None:
    assert markdown(["a\n  b\n"], True) == "```\na\n  b\n```\n"
    assert markdown(["a\n```\nb"], True).startswith("````\n")


@pytest.mark.parametrize(
    "arguments",
    [
        ["status", "-f", DUMP],
        ["explain", "node", "a1", "-f", DUMP],
        ["drain-plan", "a1", "-f", DUMP],
        ["budgets", "-A", "-f", DUMP],
        ["audit", "-A", "-f", DUMP],
        ["simulate", "-f", SCENARIO],
    ],
    ids=lambda arguments: arguments[0],
)
def test_verbs_write_markdown(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*arguments, "-o", "markdown"]) == 0
    text = capsys.readouterr().out
    assert "| " in text or "```" in text or arguments[0] == "audit"


def test_a_wrong_format_names_markdown(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["status", "-f", DUMP, "-o", "xml"]) == 2
    assert "markdown" in capsys.readouterr().err
