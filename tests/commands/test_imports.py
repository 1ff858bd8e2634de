"""A verb imports what it needs: none of what it starts for --help or a TAB, nothing live for -f."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from kubectl_nodelife import cli

ROOT = Path(__file__).parents[2]
DUMP = "tests/dumps/two-zones"

# Each costs 30 to 700 ms of a start.
LIVE = {"aiohttp", "asyncio", "kubernetes", "logging", "requests", "ssl", "watchdog"}
LIVE |= {"prometheus_client"}
CONTROLLERS = {"nodelifecycle", "podgc", "tainteviction", "upgrade"}
CORE = {
    *(
        f"kubectl_nodelife.{name}"
        for name in ("acts", "outlook.view", "drain", "live.client", "outlook")
    ),
    *("kubectl_nodelife.engine.cache", "kubectl_nodelife.sim.world", "yaml"),
    *(f"kubectl_nodelife.controllers.{name}.controller" for name in CONTROLLERS),
}
PLANNER = {"kubectl_nodelife.drain.plan", "kubectl_nodelife.sim.world", "kubectl_nodelife.acts"}

# Constants and options that a flag's help shows, without what they belong to.
LIGHT = {
    "audit": {"kubectl_nodelife.outlook"},
    "drain-plan": {"kubectl_nodelife.drain"},
    "drain": {"kubectl_nodelife.drain"},
    "repair": {"kubectl_nodelife.outlook"},
    "what-if": {"kubectl_nodelife.outlook"},
    "upgrade start": {"kubectl_nodelife.drain"},
    "upgrade plan": {"kubectl_nodelife.drain"},
    "upgrade prove": {"kubectl_nodelife.drain"},
}

OF_A_DUMP = {
    "status": PLANNER,
    "explain node worker-a2": set(),
    "daemonset -A": PLANNER,
    "budgets -A": set(),
    "audit -A": PLANNER,
    "drain-plan --all": set(),
    "replay": set(),
    "diverge": PLANNER,
}

# One process that is forked for each command line: starting Python fifty times takes longer.
TRY_EACH = """
import contextlib, io, json, os, sys
from kubectl_nodelife import quick
found = {}
for words in json.load(sys.stdin):
    reading, writing = os.pipe()
    if not os.fork():
        sys.argv = ["kubectl-nodelife", *words]
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        os.dup2(1, 2)
        code = quick.main()
        with os.fdopen(writing, "w") as file:
            json.dump([code, sorted(sys.modules)], file)
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as file:
        found[" ".join(words)] = json.load(file)
    os.wait()
json.dump(found, sys.stdout)
"""


def imported(lines: list[list[str]]) -> dict[str, set[str]]:
    """The modules that each command line imports; it must end well, or find trouble (4)."""
    done = subprocess.run(
        [sys.executable, "-P", "-c", TRY_EACH],
        input=json.dumps(lines), capture_output=True, text=True, cwd=ROOT,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert {words: code for words, (code, _) in found.items() if code not in (0, 4)} == {}
    return {words: set(modules) for words, (_, modules) in found.items()}


def verbs() -> list[list[str]]:
    """The words of each command, those of groups included."""
    from tests.test_cli import COMMANDS

    return [words.removeprefix(cli.PROGRAM).split() for words in COMMANDS]


@pytest.mark.parametrize("asked", ["--help", "TAB"])
def test_flags_are_declared_apart_from_what_they_start(asked: str) -> None:
    lines = [
        [*words, "--help"] if asked == "--help" else ["__complete", *words, "--"]
        for words in verbs()
    ]
    wrong = {}
    for words, modules in imported(lines).items():
        verb = words.removeprefix("__complete ").rpartition(" --")[0]
        found = modules & (LIVE | CORE - LIGHT.get(verb, set()))
        if found:
            wrong[verb] = found
    assert wrong == {}


def test_a_dump_is_answered_without_what_a_cluster_needs() -> None:
    found = imported([[*words.split(), "-f", DUMP] for words in OF_A_DUMP])
    wrong = {
        words: modules & (LIVE | OF_A_DUMP[words.partition(" -f")[0]])
        for words, modules in found.items()
    }
    assert {words: names for words, names in wrong.items() if names} == {}


IMPORT_ALL = """
import importlib, pkgutil, sys
import kubectl_nodelife
for module in pkgutil.walk_packages(kubectl_nodelife.__path__, "kubectl_nodelife."):
    if module.name not in ("kubectl_nodelife.__main__", "kubectl_nodelife.live.typed"):
        importlib.import_module(module.name)
print(sorted(name for name in sys.modules if name.partition(".")[0] == "kubernetes"))
"""


def test_the_official_client_is_loaded_only_where_its_typed_calls_are_made() -> None:
    """No read, no watch and no daemon in dry run pays for it: one module of ours loads it, and that
    one is imported by what checks rights before a write alone.
    """
    done = subprocess.run(
        [sys.executable, "-P", "-c", IMPORT_ALL], capture_output=True, text=True, cwd=ROOT
    )
    assert (done.returncode, done.stdout) == (0, "[]\n"), done.stderr
    importers = {
        str(path.relative_to(ROOT))
        for path in (ROOT / "kubectl_nodelife").rglob("*.py")
        if "kubectl_nodelife.live.typed import" in path.read_text()
    }
    assert importers == {"kubectl_nodelife/daemon/preflight.py"}
