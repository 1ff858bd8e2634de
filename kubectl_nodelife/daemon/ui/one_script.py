"""The page's modules as one script, so that a browser asks once for all of them.

The modules stay as they are written, and nothing is built: each becomes a function that is called
once and returns what it exports, after those that it imports. Left out on purpose: all of the
language of modules that the page does not use; a line of it that is not known here is an error.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from graphlib import TopologicalSorter

_IMPORT = re.compile(r'^import (\{ [\w, ]+ \}) from "\./(\w+)\.js";$', re.MULTILINE)
_EXPORT = re.compile(r"^export (?=(?:async )?(?:function|class|const) (\w+))", re.MULTILINE)
_UNKNOWN = re.compile(r"^(?:import|export)\b.*", re.MULTILINE)


def one_script(modules: Mapping[str, str], entry: str) -> str:
    """The module `entry` and those that it needs, as one script. `modules`: text by name.

    Raises ValueError for an import or export of another form, KeyError for a module that is not
    there, CycleError for modules that need each other.
    """
    needs: dict[str, list[str]] = {}
    left = [entry]
    while left:
        name = left.pop()
        if name not in needs:
            needs[name] = [found[2] for found in _IMPORT.finditer(modules[name])]
            left += needs[name]
    order = TopologicalSorter({name: sorted(found) for name, found in sorted(needs.items())})
    return "".join(_called(name, modules[name]) for name in order.static_order())


def _called(name: str, text: str) -> str:
    """The module as a constant that holds what it exports."""
    exported = ", ".join(found[1] for found in _EXPORT.finditer(text))
    body = _EXPORT.sub("", _IMPORT.sub(r"const \1 = of_\2;", text))
    if unknown := _UNKNOWN.search(body):
        raise ValueError(f"{name}.js: {unknown[0]}")
    return f"const of_{name} = (() => {{\n{body}return {{ {exported} }};\n}})();\n"
