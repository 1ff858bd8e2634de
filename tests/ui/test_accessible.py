"""What axe-core finds wrong with the page, in Chromium: nothing that is serious or critical."""

from pathlib import Path
from typing import Any

import pytest

from tests.daemon.user import silence
from tests.release.users import TOOLS
from tests.ui.browser import Browser, needs_chromium
from tests.ui.test_page import ZONES, opened

AXE = TOOLS / "axe-core-4.10.3/package/axe.min.js"
"""A program of others, used here alone."""

pytestmark = [
    needs_chromium,
    pytest.mark.skipif(
        not AXE.exists(), reason="there is no axe-core on this machine; .ci/release-tools brings it"
    ),
]

FIND = """
  return axe.run(document, { resultTypes: ['violations'] }).then(({ violations, passes }) => ({
    passed: passes.length,
    found: violations.filter((v) => ['serious', 'critical'].includes(v.impact))
      .map((v) => `${v.id}: ${v.nodes.map((n) => n.html.slice(0, 200)).join(' | ')}`),
  }));
"""
LEGEND = "return document.querySelector('#legend').innerText"


async def violations(window: Browser) -> list[str]:
    if not await window.run("return typeof axe === 'object'"):
        await window.devtools("Runtime.evaluate", expression=Path(AXE).read_text())
    told: dict[str, Any] = await window.run(FIND)
    assert told["passed"] > 10
    found: list[str] = told["found"]
    return found


async def explained(window: Browser) -> None:
    await window.run("location.hash = '#/node/a1'")
    await window.until("return document.querySelectorAll('#panel-body h3').length > 2")


async def as_table(window: Browser) -> None:
    await window.run("location.hash = '#/'")
    await window.run("document.getElementById('table-box').open = true")
    await window.until("return document.querySelectorAll('#rows tr').length === 12")


async def with_help(window: Browser) -> None:
    await window.run("document.getElementById('help').showModal()")


async def as_it_begins(window: Browser) -> None:
    await window.until(ZONES)


VIEWS = (as_it_begins, explained, as_table, with_help)


async def test_axe_finds_nothing_serious() -> None:
    async with opened() as page:
        window = page.browser
        for name in ("a1", "a2", "a3", "a4", "b2"):
            silence(page.served, name)
        await window.until(f"{LEGEND}.includes('unreachable 5')")
        found = {}
        for view in VIEWS:
            await view(window)
            for scheme in ("light", "dark"):
                for width in (360, 1280):
                    await window.look(width, 900, scheme)
                    found[f"{view.__name__}, {scheme}, {width}"] = await violations(window)
        assert {where: what for where, what in found.items() if what} == {}
        await window.run(BREAK)
        assert any("button-name" in each for each in await violations(window))


BREAK = """
  document.getElementById('help').close();
  document.getElementById('leave').textContent = '';
"""
"""So that it would be found if something were wrong."""
