"""docs/security.md: each claim of what is defended names its tests, and they exist."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
DEFENDED = "## What is defended"


def claims() -> list[str]:
    """The rows of the table of what is defended."""
    text = (ROOT / "docs/security.md").read_text()
    section = text.partition(DEFENDED)[2].partition("\n## ")[0]
    return [line for line in section.splitlines() if line.startswith("| ")][2:]


def test_every_claim_names_tests_that_exist() -> None:
    assert len(claims()) > 15
    for claim in claims():
        named = re.findall(r"`(tests/[^`]+)`", claim.rsplit("|", 2)[1])
        assert named, claim
        for path in named:
            assert "def test_" in (ROOT / path).read_text(), path


def test_every_hostile_test_is_named() -> None:
    text = (ROOT / "docs/security.md").read_text()
    files = sorted((ROOT / "tests/hostile").glob("test_*.py"))
    assert [path.name for path in files if f"tests/hostile/{path.name}" not in text] == []
