"""The documentation as a site: every page is in it, every link leads somewhere, screens are new."""

import re
import subprocess
from pathlib import Path

import yaml

from kubectl_nodelife import cli
from release import screens

ROOT = Path(__file__).parents[2]
FETCHED = re.compile(
    r"""<(?:link|script|img|iframe|source)\b[^>]*(?:href|src)=["']?(?:https?:)?//[^"' >]+"""
    r"""|url\(["']?(?:https?:)?//[^)]+"""
)
"""What a browser would load from another host; a link is none."""


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
    site = tmp_path / "site"
    page = (site / "screens.html").read_text()
    assert "$ kubectl nodelife status" in page and "healthy" in page
    first = (site / "index.html").read_text()
    assert '<img alt="The live page' in first and "are in trouble; the worst is" in first
    assert "nodelife" in (site / "search/search_index.json").read_text()
    fetched = {path.name: FETCHED.findall(path.read_text()) for path in site.rglob("*.html")}
    fetched |= {path.name: FETCHED.findall(path.read_text()) for path in site.rglob("*.css")}
    assert len(fetched) > 50 and {name: hosts for name, hosts in fetched.items() if hosts} == {}


def test_what_a_page_would_fetch_is_found() -> None:
    for text in (
        '<link rel="stylesheet" href="https://fonts.example/css">',
        "<script async src='//cdn.example/x.js'>",
        "@import url(https://fonts.example/x)",
        'src: url("//fonts.example/x.woff2")',
    ):
        assert FETCHED.findall(text), text
    assert not FETCHED.findall('<a href="https://kubernetes.io/docs">')
