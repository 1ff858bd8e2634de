"""The documentation as a site: every page is in it, every link leads somewhere, screens are new."""

from __future__ import annotations

import subprocess
from pathlib import Path

import yaml

from kubectl_nodelife import cli
from release import screens

ROOT = Path(__file__).parents[2]


def test_every_page_is_in_the_navigation() -> None:
    text = (ROOT / "mkdocs.yml").read_text()
    listed = {word.strip() for word in text.replace(":", "\n").split("\n") if ".md" in word}
    docs = ROOT / "docs"
    there = {str(path.relative_to(docs)) for path in docs.rglob("*.md")}
    assert listed == there | {"screens.md"}, "each page of docs/ needs its line in mkdocs.yml"
    assert yaml.safe_load(text)["strict"] is True


def test_screens_show_verbs_that_there_are() -> None:
    for _, words in screens.SCREENS:
        assert words.split()[0] in cli.VERBS


def test_the_site_is_made(tmp_path: Path) -> None:
    done = subprocess.run([ROOT / "bin/docs", tmp_path / "site"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    page = (tmp_path / "site/screens.html").read_text()
    assert "$ kubectl nodelife status" in page and "healthy" in page
