"""docs/since-dates.md, which is written from the Go modules, is what our tables of releases say."""

from __future__ import annotations

import re

from tests.upstream.since_dates import MARKS, PAGE, TABLES


def test_our_tables_are_what_the_page_says() -> None:
    lines = re.findall(r"\| `(\w+)` \| (?:1\.)?(\d+|-) \| (?:1\.)?(\d+|-) \|", PAGE.read_text())
    said = {
        rule: (0 if since == "-" else int(since), None if until == "-" else int(until) + 1)
        for rule, since, until in lines
    }
    ours = {mark.rule: TABLES[name][mark.rule] for name, marks in MARKS.items() for mark in marks}
    assert said == ours
