"""The page's modules: its head names each that is needed, and the browser asks for nothing else."""

import re

from kubectl_nodelife.daemon.ui.endpoint import page_files
from tests.ui.browser import needs_chromium
from tests.ui.test_drawing import shown

_NEEDS = re.compile(r'^import .* from "(?:\./)(\w+\.js)";$', re.MULTILINE)


def needed(entry: str) -> set[str]:
    """The module and all that it needs."""
    found, left = set[str](), [entry]
    while left:
        name = left.pop()
        if name not in found:
            found.add(name)
            left += _NEEDS.findall(page_files()[f"/{name}"][0].decode())
    return found


def test_the_head_names_each_module_that_the_page_needs() -> None:
    head = page_files()["/"][0].decode().partition("</head>")[0]
    named = re.findall(r'<link rel="modulepreload" href="/(\w+\.js)">', head)
    assert sorted([*named, "main.js"]) == sorted(needed("main.js"))
    assert head.count("<script") == 1 and '<script type="module" src="/main.js">' in head


def test_each_import_is_one_that_is_followed_here() -> None:
    for path, (body, _) in page_files().items():
        if path.endswith(".js"):
            text = body.decode()
            assert len(_NEEDS.findall(text)) == len(re.findall(r"\bimport\b.*[\"']", text)), path


@needs_chromium
async def test_the_browser_asks_for_the_style_and_the_modules_once_each() -> None:
    async with shown(3) as (window, _):
        loaded = await window.run(
            "return performance.getEntriesByType('resource')"
            ".filter(({ initiatorType: by }) => ['link', 'script', 'other'].includes(by))"
            ".map(({ name }) => new URL(name).pathname)"
        )
        wanted = {f"/{name}" for name in needed("main.js")} | {"/page.css"}
        assert wanted <= set(loaded) and all(loaded.count(name) == 1 for name in wanted)
