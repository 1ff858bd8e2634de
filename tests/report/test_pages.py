"""Pages are made by templates alone, which escape and bound every text, and come in the wheel."""

import base64
import configparser
import hashlib
import re
from fnmatch import fnmatch
from pathlib import Path

import pytest

from kubectl_nodelife.outlook.replay.replay_line import Actor, ReplayLine
from kubectl_nodelife.report.html import LONGEST, render_page
from kubectl_nodelife.report.replay import Replay, html_page

ROOT = Path(__file__).parents[2]
TEMPLATES = sorted((ROOT / "kubectl_nodelife/report/templates").iterdir())
T0 = 1_790_000_000 * 10**9
MOST_BYTES = 5_000_000
EVIL = "<script>alert(1)</script>\"'&"


def packaged(path: Path) -> bool:
    """True if setup.cfg's package_data names that file of the package."""
    config = configparser.ConfigParser()
    config.read(ROOT / "setup.cfg")
    for package, patterns in config["options.package_data"].items():
        folder = ROOT / package.replace(".", "/")
        if folder in path.parents:
            inside = path.relative_to(folder).as_posix()
            if any(fnmatch(inside, pattern.strip()) for pattern in patterns.split(",")):
                return True
    return False


def test_every_file_that_is_no_code_is_in_the_wheel() -> None:
    files = [path for path in (ROOT / "kubectl_nodelife").rglob("*") if path.is_file()]
    data = [path for path in files if path.suffix not in (".py", ".pyc")]
    assert set(TEMPLATES) <= set(data)
    assert [str(path) for path in data if not packaged(path)] == []


@pytest.mark.parametrize("path", TEMPLATES, ids=lambda path: path.name)
def test_no_template_takes_markup(path: Path) -> None:
    assert not re.search(r"\|\s*safe|autoescape|<script|https?:", path.read_text())


@pytest.mark.parametrize("path", TEMPLATES, ids=lambda path: path.name)
def test_no_template_styles_by_attributes(path: Path) -> None:
    assert not re.search(r"\bstyle=|unsafe-inline", path.read_text())


def test_the_policy_allows_the_pages_own_style_alone() -> None:
    text = html_page(Replay([line(0)], {"server": "s"}, T0, T0 + 10**12, []), "replay")
    (allowed,) = re.findall(r"content=\"default-src 'none'; style-src 'sha256-([^']+)'\"", text)
    (style,) = re.findall(r"<style>(.*?)</style>", text, re.DOTALL)
    digest = hashlib.sha256(style.encode()).digest()
    assert allowed == base64.b64encode(digest).decode()


def test_no_code_makes_markup_of_a_text() -> None:
    for path in (ROOT / "kubectl_nodelife").rglob("*.py"):
        assert not re.search(r"\bMarkup\(|</\w+>", path.read_text()), path


def line(number: int, **fields: object) -> ReplayLine:
    given: dict[str, object] = {
        "time_ns": T0 + number * 10**9 // 3,
        "actor": Actor("controller", EVIL),
        "action": "AddTaint",
        "kind": "Node",
        "namespace": "",
        "name": EVIL,
        "identity": ("g", str(number)),
        "seen": (EVIL,),
        "detail": EVIL,
        "why": EVIL,
    }
    return ReplayLine(**{**given, **fields})  # type: ignore[arg-type]


def replayed(lines: list[ReplayLine], told: str) -> str:
    return html_page(Replay(lines, {"server": told}, T0, T0 + 10**12, [told] * 500), told)


def test_every_text_of_a_replay_is_escaped() -> None:
    text = replayed([line(0), line(9)], EVIL)
    assert "<script" not in text and text.count("&lt;script&gt;") > 10


def test_a_replay_of_very_long_texts_is_small_and_its_links_lead_somewhere() -> None:
    # Each text is made once: 30,000 copies of them would be 3 GB.
    long, why, detail = "x" * 253, "w" * 10**5, "d" * 5000
    user = Actor("user", "m" * 5000)
    lines = [line(i, actor=user, name=f"{long}-{i}", why=why, detail=detail) for i in range(30_000)]
    text = replayed(lines, "s" * 10**6)
    assert len(text.encode()) < MOST_BYTES
    assert set(re.findall(r'href="#([^"]+)"', text)) <= set(re.findall(r'id="([^"]+)"', text))
    assert "d" * (LONGEST - 50) in text and "d" * (LONGEST + 1) not in text


def test_a_value_that_is_missing_is_an_error() -> None:
    with pytest.raises(Exception, match="undefined"):
        render_page("replay", title="t")
