"""Every verb's screen fits the terminal: in tmux, 80, 120 and 200 columns wide, on three dumps.

One tmux window a width plays all verbs one after another; what it shows is read with its lines as
they were printed. A command may be longer than a line: half of one may be copied, and do something
else.
"""

import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from kubectl_nodelife.cli import VERBS
from kubectl_nodelife.report.terminal import _COMMAND
from tests.drain.build import budget, node, pod, replica_set
from tests.objects import write_list

ROOT = Path(__file__).parents[2]
TMUX = shutil.which("tmux")
MARK = "@@@"
DRAINED = ("--ignore-daemonsets", "--force", "--delete-emptydir-data")

NO_DUMP = {
    "simulate": "plays a scenario; its narration is a table like the others",
    "drain": "writes to a cluster; shows the page of drain-plan, and a line a wave",
    "daemon": "asks processes, not a cluster",
    "snapshot": "writes a file",
    "sandbox": "serves, and shows a line a change",
    "sweep": "plays a study on workers; its page is tables like the others",
    "rbac": "prints YAML to be applied",
    "completion": "prints a script",
}
"""Verbs that take no dump, and why their screens are not played here."""


def verbs(node_name: str, pod_name: str, namespace: str) -> list[list[str]]:
    """All verbs that take a dump, in their forms."""
    plan = ["drain-plan", node_name]
    return [
        *(["status", *more] for more in ([], ["-o", "wide"], ["--trouble"])),
        ["explain", "node", node_name],
        ["explain", "pod", pod_name, "-n", namespace],
        *([*plan, *more] for more in ([], ["-o", "wide"], DRAINED)),
        ["drain-plan", "--all", "--max-parallel", "2", *DRAINED],
        *(["budgets", *more] for more in ([], ["-o", "wide"])),
        *(["daemonset", "-A", *more] for more in ([], ["-o", "wide"])),
        *(["changes", "--since", "9999h", *more] for more in ([], ["-o", "wide"])),
        *(["diverge", *more] for more in ([], ["-o", "wide"])),
        *(["replay", "--since", "9999h", *more] for more in ([], ["-o", "wide"])),
        *(["audit", *more] for more in ([], ["-o", "wide"])),
        ["repair"],
        *(["upgrade", "plan", node_name, "--nothing", *more] for more in ([], ["-o", "wide"])),
        ["daemonset", "status", "daemonset", "no-such-set"],
    ]


WITHOUT_A_DUMP = [["--help"], ["options"], ["version"], ["doctor"], ["status", "--help"]]


def hard_dump(folder: Path) -> str:
    """Names as long as names may be, a long message, a budget that holds, no zone."""
    long_node = "ip-10-0-131-207.eu-central-1.compute.internal." + "x" * 40
    message = "container runtime network not ready: " + "NetworkReady=false reason:Plugin " * 8
    condition = {"type": "Ready", "status": "False", "reason": "KubeletNotReady"}
    objects: list[Any] = [
        node(long_node, status={"conditions": [{**condition, "message": message}]}),
        node("a2"),
        pod("p" * 60 + "-" + "q" * 60, long_node),
        replica_set("web-" + "w" * 50, long_node, "a2"),
        budget("guard", "web-" + "w" * 50, healthy=2, desired=2, expected=2, minAvailable=2),
    ]
    flat = [o for each in objects for o in (each if isinstance(each, list) else [each])]
    return write_list(folder / "hard.json", flat, annotations={"nodelife.dev/kinds": "all"})


def test_every_verb_is_played_or_it_is_said_why_not() -> None:
    played = {words[0] for words in [*verbs("n", "p", "d"), *WITHOUT_A_DUMP]}
    assert played.isdisjoint(NO_DUMP)
    assert set(VERBS) - played - set(NO_DUMP) <= {"clusters", "ui", "metrics", "what-if"}


def plays(folder: Path) -> list[list[str]]:
    """What is typed, one after another."""
    stuck = str(ROOT / "tests/dumps/stuck-pods.yaml")
    dumps = [
        (str(ROOT / "tests/dumps/two-zones"), "worker-a1", "db-0", "shop"),
        (stuck, "lost", "no-such-pod", "default"),
        (hard_dump(folder), "a2", "p" * 60 + "-" + "q" * 60, "default"),
    ]
    return [
        *WITHOUT_A_DUMP,
        *([*words, "-f", path] for path, *names in dumps for words in verbs(*names)),
    ]


PLAYER = """
import json, sys
from kubectl_nodelife.cli import main
for number, words in enumerate(json.load(open(sys.argv[1]))):
    print("@@@", number, flush=True)
    main(words)
print("@@@ end", flush=True)
"""


@pytest.mark.skipif(TMUX is None, reason="there is no tmux on this machine")
@pytest.mark.parametrize("width", [80, 120, 200])
def test_every_screen_fits(tmp_path: Path, width: int) -> None:
    typed = plays(tmp_path)
    (tmp_path / "words.json").write_text(json.dumps(typed))
    (tmp_path / "player.py").write_text(PLAYER)
    shown = show_in_tmux(tmp_path, width)
    played: dict[str, list[str]] = {}
    for line in shown.splitlines():
        if line.startswith(MARK):
            name = line.removeprefix(MARK).strip()
            played[name] = []
        else:
            played[name].append(line)
    assert len(played) == len(typed) + 1, "each verb was played"
    too_wide = [
        f"{' '.join(typed[int(name)])}: {len(line)} columns: {line}"
        for name, lines in played.items()
        for line in lines
        if len(line) > width and not is_command(line)
    ]
    assert not too_wide, "\n".join(too_wide)
    bugs = [line for lines in played.values() for line in lines if "a bug in" in line]
    assert not bugs, bugs


def is_command(line: str) -> bool:
    """True if the line has a command and, for its length, nothing else."""
    import re

    found = re.search(_COMMAND, line)
    return found is not None and line.lstrip().startswith(found[0][:8])


def show_in_tmux(folder: Path, width: int) -> str:
    """What a window of that width shows of the player, its wrapped lines joined."""
    assert TMUX is not None
    tmux = [TMUX, "-S", str(folder / "tmux"), "-f", "/dev/null"]
    environ = {
        "PATH": os.environ["PATH"],
        "HOME": str(folder),
        "NODELIFE_RUNTIME_DIR": str(folder / "r"),
        "KUBECONFIG": str(folder / "no-config"),
        "PYTHONPATH": str(ROOT),
        "TERM": "screen",
        "LC_ALL": "C.UTF-8",
    }

    def run(*words: str) -> str:
        return subprocess.run(
            [*tmux, *words], env=environ, check=True, capture_output=True, text=True
        ).stdout

    wait = "sh -c 'sleep 600'"
    run("new-session", "-d", "-s", "s", "-x", str(width), "-y", "50", wait)
    try:
        run("set-option", "-g", "history-limit", "100000")
        player = f"{sys.executable} {folder}/player.py {folder}/words.json; sleep 600"
        run("new-window", "-d", "-t", "s:1", player)
        end = time.monotonic() + 240
        shown = ""
        while f"{MARK} end" not in shown:
            assert time.monotonic() < end, shown[-2000:]
            time.sleep(0.5)
            shown = run("capture-pane", "-p", "-J", "-S", "-", "-t", "s:1")
        return shown
    finally:
        subprocess.run([*tmux, "kill-server"], env=environ, check=False)
