"""Loads YAML and refuses documents whose aliases expand to too much, as kubectl does.

An alias costs a few bytes, and stands for all that its anchor holds: nine anchors of nine aliases
each are a gigabyte, and an anchor may hold itself. kubectl refuses such files ("document contains
excessive aliasing", sigs.k8s.io/yaml) before any value is made, and so does this.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import yaml

MOST_ALIASED: Final = 100_000
"""So many values may stand behind aliases, and ten times what the file itself holds."""


def load_documents(text: bytes | str, loader_class: Any) -> Iterator[Any]:
    """Each document as plain objects. Raises yaml.YAMLError, also for too many aliases."""
    loader = loader_class(text)
    aliased = (b"*" in text) if isinstance(text, bytes) else ("*" in text)
    try:
        while loader.check_node():
            node = loader.get_node()
            if aliased:
                _check_aliases(node)
            yield loader.construct_document(node)
    finally:
        loader.dispose()


def _check_aliases(root: yaml.Node) -> None:
    """Raise for a node that holds itself, or more values than it may with aliases written out."""
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
                    raise _refusal(child, "an alias refers to what holds it")
            stack += [child for child in children if id(child) not in sizes]
    if sizes[id(root)] > MOST_ALIASED + 10 * len(sizes):
        what = f"its aliases stand for {sizes[id(root)]:,} values"
        raise _refusal(root, what if sizes[id(root)] < 1 << 60 else "its aliases multiply")


def _children(node: yaml.Node) -> list[yaml.Node]:
    if isinstance(node, yaml.MappingNode):
        return [part for pair in node.value for part in pair]
    return list(node.value) if isinstance(node, yaml.SequenceNode) else []


def _refusal(node: yaml.Node, what: str) -> yaml.MarkedYAMLError:
    return yaml.MarkedYAMLError(problem=what, problem_mark=node.start_mark)
