"""Loads YAML and refuses documents whose aliases expand to too much, as kubectl does.

An alias costs a few bytes, and stands for all that its anchor holds: nine anchors of nine aliases
each are a gigabyte, and an anchor may hold itself. kubectl refuses such files ("document contains
excessive aliasing", sigs.k8s.io/yaml) before any value is made, and so does this.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import yaml

NO_VALUE: Final = (ValueError, TypeError, AttributeError, LookupError, ArithmeticError)
"""What PyYAML's constructors raise for a scalar or key that they take for what it is not."""
MOST_ALIASED: Final = 100_000
"""So many values may stand behind aliases, and ten times what the file itself holds."""


def load_documents(text: bytes | str, loader_class: Any) -> Iterator[Any]:
    """Each document as plain objects. Raises yaml.YAMLError, also for too many aliases, and for a
    value that looks like another than it is (`2026-13-01` is no date, `!!timestamp x` no time).
    """
    loader = loader_class(text)
    aliased = (b"*" in text) if isinstance(text, bytes) else ("*" in text)
    try:
        while loader.check_node():
            node = loader.get_node()
            if aliased:
                AliasBudget().check(node)
            try:
                document = loader.construct_document(node)
            except NO_VALUE as error:
                raise refusal(node, f"it holds a value that is none: {error}") from None
            yield document
    except RecursionError:
        raise yaml.YAMLError("it is nested too deep") from None
    finally:
        loader.dispose()


class AliasBudget:
    """How much stands behind the aliases of one text, and how much it holds itself."""

    def __init__(self) -> None:
        self._written_out = 0
        self._held = 0

    def check(self, root: yaml.Node) -> None:
        """Raise for a node that holds itself, or where with this one there are more values than
        there may be, with aliases written out.
        """
        sizes: dict[int, int] = {}
        open_nodes: set[int] = set()
        stack = [root]
        while stack:
            node = stack[-1]
            key = id(node)
            children = _children(node)
            if key in sizes:
                stack.pop()
            elif key in open_nodes:
                sizes[key] = 1 + sum(sizes[id(child)] for child in children)
                open_nodes.discard(key)
                stack.pop()
            else:
                open_nodes.add(key)
                for child in children:
                    if id(child) in open_nodes:
                        raise refusal(child, "an alias refers to what holds it")
                stack += [child for child in children if id(child) not in sizes]
        self._written_out += sizes[id(root)]
        self._held += len(sizes)
        if self._written_out > MOST_ALIASED + 10 * self._held:
            what = f"its aliases stand for {self._written_out:,} values"
            raise refusal(root, what if self._written_out < 1 << 60 else "its aliases multiply")


def _children(node: yaml.Node) -> list[yaml.Node]:
    if isinstance(node, yaml.MappingNode):
        return [part for pair in node.value for part in pair]
    return list(node.value) if isinstance(node, yaml.SequenceNode) else []


def refusal(node: yaml.Node, what: str) -> yaml.MarkedYAMLError:
    """The error at a node."""
    return yaml.MarkedYAMLError(problem=what, problem_mark=node.start_mark)
