"""Every screen in the documentation says where it is from, and is what the commands print now."""

import difflib
import os
import re
from pathlib import Path

import pytest

from release import page_screens
from release.page_screens import DOCS, ROOT, comparable, remake, screens, unmarked
from tests.real import page_screens as seen_on_a_control_plane

ELSEWHERE = re.compile(
    r"of \d{4}-\d\d-\d\d, (a shell|typed by hand at a sandbox|a control plane: (\S+))"
)
HEADER = re.compile(r"[A-Z#][A-Z0-9 #-]*(?: {2,}[A-Z#][A-Z0-9 #-]*)+")
PAGES = [os.path.relpath(path, DOCS) for path in page_screens.pages()]
MADE = [name for name in PAGES if any(s.is_made() for s in screens((DOCS / name).read_text()))]


@pytest.mark.parametrize("name", PAGES)
def test_each_screen_says_where_it_comes_from(name: str) -> None:
    text = (DOCS / name).read_text()
    assert unmarked(text) == []
    assert text.count("<!-- screen ") == len(screens(text)), "a mark has no block of ``` behind it"
    for screen in screens(text):
        kind, _, rest = screen.source.partition(" ")
        assert screen.source == page_screens.ON_SANDBOX or kind in ("in", "of"), screen.source
        assert kind != "in" or (ROOT / rest).is_dir(), rest


def test_each_screen_seen_elsewhere_is_made_by_a_script() -> None:
    """They take minutes to make; here they are held to the commands and to today's columns."""
    pages = [ROOT / "kubectl_nodelife" / part for part in ("report", "commands")]
    reports = "".join(path.read_text() for part in pages for path in part.rglob("*.py"))
    seen = []
    for name in PAGES:
        elsewhere = [s for s in screens((DOCS / name).read_text()) if not s.is_made()]
        for screen in elsewhere:
            found = ELSEWHERE.fullmatch(screen.source)
            assert found is not None, screen.source
            if found[2]:
                seen.append(found[2])
                assert screen.commands() == [seen_on_a_control_plane.SCREENS[found[2]]]
            for line in filter(HEADER.fullmatch, screen.text.splitlines()):
                unknown = [t for t in re.split(r" {2,}", line) if t.lower() not in reports.lower()]
                assert not unknown, f"{name}: {unknown} in {line}; run: bin/docs screens --real"
    assert sorted(seen) == sorted(seen_on_a_control_plane.SCREENS)


@pytest.mark.parametrize("name", MADE)
def test_the_screens_are_what_is_printed_now(name: str) -> None:
    before = (DOCS / name).read_text()
    differences = difflib.unified_diff(
        comparable(before).splitlines(),
        comparable(remake(before)).splitlines(),
        name,
        "now",
        lineterm="",
    )
    assert "\n".join(differences) == "", "run: bin/docs screens"


def test_an_old_screen_is_made_anew(tmp_path: Path) -> None:
    page = "<!-- screen in tests/dumps -->\n```\n$ kubectl nodelife budgets -f two-zones -n shop\n"
    old, kept = (
        page + "NAMESPACE\n```\n",
        "<!-- screen of 2026-11-21, elsewhere -->\n```\n$ x\n```\n",
    )
    new = remake(f"Text\n{old}more\n{kept}")
    assert "minAvailable 5" in new and "NAMESPACE\n```" not in new
    assert new.startswith("Text\n") and new.endswith(f"more\n{kept}")
    assert remake(new) == new


def test_a_screen_without_a_mark_is_found() -> None:
    assert unmarked("a\n    $ kubectl nodelife status\n") == ["$ kubectl nodelife status"]
    assert unmarked("```\n$ kubectl nodelife status\n```\n") == ["$ kubectl nodelife status"]
