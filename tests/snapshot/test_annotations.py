"""The table of annotations against the source: each key that the code reads, and no other."""

import ast
import importlib
from collections.abc import Iterator
from pathlib import Path

from kubectl_nodelife.controllers.upgrade.document import ANNOTATION_REQUEST
from kubectl_nodelife.controllers.upgrade.marks import SHIELD_ANNOTATIONS
from kubectl_nodelife.kube.wellknown import ANNOTATION_KINDS, ANNOTATION_MOMENT
from kubectl_nodelife.live.listwatch import INITIAL_EVENTS_END
from kubectl_nodelife.snapshot import KEPT

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "kubectl_nodelife"

# Of a List, of a watch's bookmark, of the Lease of an upgrade's run, of a ClusterRole: a snapshot
# has none of these.
OF_NO_OBJECT = {
    ANNOTATION_KINDS,
    ANNOTATION_MOMENT,
    INITIAL_EVENTS_END,
    ANNOTATION_REQUEST,
    "rbac.authorization.kubernetes.io/autoupdate",
}

# What stands for the keys of the run's Lease, of SHIELD_ANNOTATIONS, of what proves a node; and a
# namespace, by which those of all namespaces are looked up.
_UPGRADE = "kubectl_nodelife.controllers.upgrade"
NO_CONSTANTS = {
    (f"{_UPGRADE}.document", "annotation"),
    (f"{_UPGRADE}.marks", "key"),
    (f"{_UPGRADE}.policy", "self.key"),
    ("kubectl_nodelife.outlook.daemonset.view", "daemon_set.namespace"),
}


def keys(tree: ast.AST) -> Iterator[ast.expr]:
    """What is looked up in something called annotations: by `get`, `[...]` or `in`."""
    for node in ast.walk(tree):
        match node:
            case ast.Call(func=ast.Attribute(value=value, attr="get"), args=[key, *_]):
                found = value, key
            case ast.Subscript(value=value, slice=key, ctx=ast.Load()):
                found = value, key
            case ast.Compare(left=key, ops=[ast.In() | ast.NotIn()], comparators=[value]):
                found = value, key
            case _:
                continue
        if "annotations" in ast.unparse(found[0]).lower():
            yield found[1]


def constant_of(module: str, constant: str) -> str:
    value = getattr(importlib.import_module(module), constant, None)
    assert isinstance(value, str), f"{module}: {constant} is no constant"
    return value


def read_keys() -> set[str]:
    """The annotation keys that the code reads."""
    found = set()
    for path in PACKAGE.rglob("*.py"):
        name = ".".join(path.relative_to(ROOT).with_suffix("").parts)
        tree = ast.parse(path.read_text())
        imported = {
            alias.asname or alias.name: (str(node.module), alias.name)
            for node in ast.walk(tree)
            if isinstance(node, ast.ImportFrom)
            for alias in node.names
        }
        for key in keys(tree):
            if (name, ast.unparse(key)) in NO_CONSTANTS:
                continue
            match key:
                case ast.Constant(value=str(text)):
                    found.add(text)
                case ast.Name(id=constant):
                    found.add(constant_of(*imported.get(constant, (name, constant))))
                case ast.Attribute(value=ast.Name(id=module), attr=constant) if module in imported:
                    found.add(constant_of(".".join(imported[module]), constant))
                case _:
                    raise AssertionError(f"{name}: cannot tell the key {ast.unparse(key)}")
    return found


def test_the_table_is_what_the_code_reads() -> None:
    assert (read_keys() | SHIELD_ANNOTATIONS.keys()) - OF_NO_OBJECT == set(KEPT)


def test_the_finder_finds() -> None:
    text = (
        "a = (x.annotations or {}).get('one')\nb = 'two' in annotations\nc = annotations['three']"
    )
    assert [ast.literal_eval(key) for key in keys(ast.parse(text))] == ["one", "two", "three"]
