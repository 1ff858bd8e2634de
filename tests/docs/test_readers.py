"""Each page of docs/ says in its first line whom it is for."""

from pathlib import Path

import pytest

DOCS = Path(__file__).parents[2] / "docs"
FINDINGS = DOCS / "upstream"
PAGES = [path for path in sorted(DOCS.rglob("*.md")) if path.parent != FINDINGS]


@pytest.mark.parametrize("page", [*PAGES, FINDINGS / "README.md"], ids=lambda page: page.stem)
def test_a_page_says_whom_it_is_for(page: Path) -> None:
    title, blank, first, *_ = page.read_text().splitlines()
    assert title.startswith("# ") and not blank
    assert first.startswith("For ") and len(first) > len("For users."), first
