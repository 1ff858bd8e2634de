"""The direction of imports, as the package's docstring draws it: by folder, without cycles, no edge
of the world in the core. Imports inside functions and for type checking count as well."""

import ast
import functools
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGE = "kubectl_nodelife"

# Folder -> the folders it may import from; OPEN may be imported by all.
RULES = {
    "kube": "",
    "workloads": "kube",
    "engine": "kube",
    "kubelet": "kube workloads engine",
    "controllers": "kube workloads engine",
    "drain": "kube workloads engine controllers sim",
    "upgrade": "kube workloads engine controllers drain sim",
    "outlook": "kube workloads engine kubelet controllers sim drain upgrade",
    "live": "kube engine",
    "sim": "kube workloads engine kubelet controllers",  # the marks and policy of an upgrade
    "sandbox": "kube workloads engine kubelet controllers sim live",
    "snapshot": "kube engine live",
    "sweep": "kube workloads engine kubelet controllers outlook sim snapshot",
    "daemon": "kube workloads engine controllers drain upgrade outlook live sim sandbox",
    "acts": "kube workloads engine controllers drain upgrade outlook live sim daemon",
    "report": "kube workloads engine drain upgrade outlook sim sweep",  # their data types
    "dumps": "kube engine outlook daemon report",
    "commands": "kube workloads engine kubelet controllers drain upgrade outlook live sim sandbox"
    " snapshot sweep daemon acts report dumps",
    "cli": "commands report",
    "quick": "commands daemon report cli",
    "__main__": "quick",
    "errors": "",
    "copy_on_write": "",
    "document": "",
    "build_info": "",
    "": "",
}
OPEN = {"errors", "copy_on_write", "document", "build_info", ""}
MAY_IMPORT = {folder: {*OPEN, *others.split()} for folder, others in RULES.items()}

CORE = {"kube", "workloads", "engine", "kubelet", "controllers", "drain", "upgrade", "outlook"}
BANNED_IN_CORE = {"time", "random", "threading", "socket", "asyncio", "os", "logging", "click"}
BANNED_IN_CORE |= {"aiohttp", "kubernetes", "subprocess"}


def modules() -> dict[str, Path]:
    found = {}
    for path in sorted((ROOT / PACKAGE).rglob("*.py")):
        found[".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")] = (
            path
        )
    return found


MODULES = modules()


@functools.cache
def imports(name: str) -> set[str]:
    """The modules that `name` imports, ours with full name and others too."""
    names = set()
    for node in ast.walk(ast.parse(MODULES[name].read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"rule: no relative imports; {name}:{node.lineno} has one"
            whole = {f"{node.module}.{alias.name}" for alias in node.names}
            names |= {full if full in MODULES else str(node.module) for full in whole}
    return names


def folder_of(module: str) -> str:
    return module.split(".")[1] if "." in module else ""


@pytest.mark.parametrize("name", MODULES)
def test_imports_only_what_its_folder_may(name: str) -> None:
    folder = folder_of(name)
    assert folder in MAY_IMPORT, f"rule: each folder has a row in RULES; {folder!r} has none"
    for other in imports(name) & MODULES.keys():
        allowed = MAY_IMPORT[folder] | {folder}
        assert folder_of(other) in allowed, (
            f"rule: {folder!r} may import only {sorted(MAY_IMPORT[folder])}; {name} imports {other}"
        )


def test_controllers_never_import_one_another() -> None:
    def controller_of(module: str) -> str:
        return ".".join(module.split(".")[:3]) if folder_of(module) == "controllers" else ""

    for name in MODULES:
        mine = controller_of(name)
        for other in imports(name) if mine.count(".") == 2 else ():
            assert controller_of(other) in ("", mine), (
                f"rule: controllers never import one another; {name} imports {other}"
            )


@pytest.mark.parametrize("verb", ["doctor", "rbac"])
def test_who_only_asks_for_rights_can_import_no_play(verb: str) -> None:
    """However lazily: somebody who reads such a verb reads what it stands on, and no more."""
    heavy = {"drain", "outlook", "sim", "upgrade", "workloads"}
    reached: set[str] = set()
    ahead = [f"kubectl_nodelife.commands.{verb}"]
    while ahead:
        name = ahead.pop()
        if name not in reached:
            reached.add(name)
            ahead += imports(name) & MODULES.keys()
    found = {name for name in reached if folder_of(name) in heavy}
    assert not found, f"rule: {verb} can import no play of a cluster; {sorted(found)} are reached"


def test_no_import_cycles() -> None:
    graph = {name: (imports(name) & MODULES.keys()) - {name} for name in MODULES}
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        pytest.fail(f"rule: no import cycles; {' <- '.join(error.args[1])}")


@pytest.mark.parametrize("name", [name for name in MODULES if folder_of(name) in CORE])
def test_core_knows_no_clock_nor_world(name: str) -> None:
    found = {other.split(".")[0] for other in imports(name)} & BANNED_IN_CORE
    assert not found, f"rule: the core imports no {', '.join(sorted(BANNED_IN_CORE))}; {name} does"


MAY_WRITE = {
    "kubectl_nodelife.acts.session",
    "kubectl_nodelife.live.executor_port",
    "kubectl_nodelife.live.events",
    "kubectl_nodelife.live.lease",
    "kubectl_nodelife.daemon.preflight",
    "kubectl_nodelife.daemon.enforce.manager",
    "kubectl_nodelife.daemon.enforce.enforcement",
    "kubectl_nodelife.daemon.enforce.write_gate",
}


def test_only_enforcing_can_send_anything_but_get() -> None:
    writer = "kubectl_nodelife.live.writer"
    importers = {name for name in MODULES if writer in imports(name)}
    assert importers <= MAY_WRITE, (
        "rule: live.writer is the only code that can write to a cluster, and only these import "
        f"it; {sorted(importers - MAY_WRITE)} do too"
    )
