"""docs/since-dates.md, which is written from the Go modules, is what our tables of releases say."""

import re

from tests.docs.test_coverage import rows
from tests.upstream.coverage_dates import UNDATED
from tests.upstream.since_dates import MARKS, PAGE, TABLES


def test_our_tables_are_what_the_page_says() -> None:
    lines = re.findall(r"\| `(\w+)` \| (?:1\.)?(\d+|-) \| (?:1\.)?(\d+|-) \|", PAGE.read_text())
    said = {
        rule: (0 if since == "-" else int(since), None if until == "-" else int(until) + 1)
        for rule, since, until in lines
    }
    ours = {mark.rule: TABLES[name][mark.rule] for name, marks in MARKS.items() for mark in marks}
    assert said == ours


def test_each_date_of_coverage_is_what_the_page_says() -> None:
    said = dict(re.findall(r"(?m)^\| ([^`|][^|]*) \| ([^|]+) \| `pkg", PAGE.read_text()))
    ours = {row.mechanism: row.cells[1] for row in rows() if row.cells[1] not in ("-", "ours")}
    undated = {mechanism: ours.pop(mechanism, None) for mechanism in UNDATED}
    assert said == ours
    assert None not in undated.values()
