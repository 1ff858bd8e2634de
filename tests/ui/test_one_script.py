"""The page's modules as one script: all that are needed, each once, after those that it needs."""

from __future__ import annotations

from graphlib import CycleError

import pytest

from kubectl_nodelife.daemon.ui.endpoint import one_script, page_files
from tests.loopback import play
from tests.ui.browser import needs_chromium
from tests.ui.test_drawing import shown

MODULES = {
    "main": 'import { twice, Box } from "./sums.js";\nnew Box(twice(ONE));\n',
    "sums": (
        'import { ONE } from "./ones.js";\nexport const twice = (n) => n * (ONE + ONE);\n'
        "export class Box {}\nexport async function later() {}\n"
    ),
    "ones": "const ZERO = 0;\nexport const ONE = ZERO + 1;\n",
    "other": "never();\n",
}


def test_a_module_is_a_function_called_once_after_what_it_needs() -> None:
    assert one_script(MODULES, "main") == (
        "const of_ones = (() => {\nconst ZERO = 0;\nconst ONE = ZERO + 1;\nreturn { ONE };\n})();\n"
        "const of_sums = (() => {\nconst { ONE } = of_ones;\n"
        "const twice = (n) => n * (ONE + ONE);\n"
        "class Box {}\nasync function later() {}\nreturn { twice, Box, later };\n})();\n"
        "const of_main = (() => {\nconst { twice, Box } = of_sums;\nnew Box(twice(ONE));\n"
        "return {  };\n})();\n"
    )


@pytest.mark.parametrize(
    "text, error",
    [
        ('import sums from "./sums.js";\n', ValueError),
        ('import * as sums from "./sums.js";\n', ValueError),
        ('import { twice } from "https://elsewhere/sums.js";\n', ValueError),
        ("export default 1;\n", ValueError),
        ("export let changing = 1;\n", ValueError),
        ('import { gone } from "./gone.js";\n', KeyError),
        ('import { twice } from "./circle.js";\n', CycleError),
    ],
)
def test_what_is_not_known_is_an_error(text: str, error: type[Exception]) -> None:
    circle = 'import { x } from "./main.js";\nexport const twice = 2;\n'
    with pytest.raises(error):
        one_script({**MODULES, "circle": circle, "main": text}, "main")


@needs_chromium
def test_the_page_is_painted_after_three_requests() -> None:
    """The page, its style and its script; what comes then is data."""

    async def test() -> None:
        async with shown(3) as (window, _):
            loaded = await window.run(
                "return performance.getEntriesByType('resource')"
                ".filter(({ initiatorType }) => ['link', 'script'].includes(initiatorType))"
                ".map(({ name }) => new URL(name).pathname)"
            )
            assert loaded == ["/page.css", "/page.js"]
            first = page_files()["/"][0].decode()
            assert first.count("<script") == 1 and first.count('rel="stylesheet"') == 1

    play(test)
