"""How long the command line takes to print: whole processes, as ratios to `python -c pass`.

`--help` and a TAB of every verb, a small dump, and a first look at a sandbox. The ratios are of
processor time, the least of several runs, so that they mean the same on a busy machine; --nodes
and --pods change nothing.
"""

from __future__ import annotations

import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from bench import Stopwatch
from kubectl_nodelife.cli import VERBS

NODES = 0
PODS = 0

RUNS = 15
TIMES = 4

# Times of `python -c pass`, which takes 13 ms on the machine that the aims were set for.
MOST_TO_HELP = 9.0  # 120 ms
MOST_TO_READ = 23.0  # 300 ms
MOST_TO_LOOK = 46.0  # 600 ms

DUMP = Path(__file__).parents[1] / "tests/dumps/two-zones"
OF_A_DUMP = ("status", "daemonset -A", "audit -A", "budgets -A", "drain-plan --all", "replay")
SCENARIO = """apiVersion: nodelife.dev/v1alpha1
kind: Scenario
metadata: {name: startup}
spec: {generate: {zones: 1, nodesPerZone: 3, podsPerNode: 2}}
"""


def run(nodes: int, pods: int, seed: int, stopwatch: Stopwatch) -> dict[str, object]:
    """Median milliseconds of three commands, and each verb's ratio; `overLimit`: those too slow.

    Ratios are the processor time of a command to that of a Python that does nothing.
    """
    with stopwatch:
        python = cpu_seconds(["-c", "pass"], {})
        helped = {verb: ratio(python, [verb, "--help"]) for verb in VERBS}
        tabs = {verb: ratio(python, ["__complete", verb, "--"]) for verb in VERBS}
        read = {line: ratio(python, [*line.split(), "-f", str(DUMP)]) for line in OF_A_DUMP}
        look = first_look(python)
        return {
            "pythonMilliseconds": median_milliseconds("-c", ""),
            "helpMilliseconds": median_milliseconds("-m", "kubectl_nodelife", "--help"),
            "versionMilliseconds": median_milliseconds("-m", "kubectl_nodelife", "version"),
            "helpRatios": helped,
            "tabRatios": tabs,
            "dumpRatios": read,
            "firstLookRatio": look,
            "overLimit": [
                *over(helped, MOST_TO_HELP, "--help"),
                *over(tabs, MOST_TO_HELP, "TAB"),
                *over(read, MOST_TO_READ, "-f"),
                *over({"status": look}, MOST_TO_LOOK, "first look"),
            ],
        }


def over(ratios: Mapping[str, float], most: float, what: str) -> list[str]:
    """The commands above their limit, in words."""
    return [
        f"{words} {what}: {found}, not {most}" for words, found in ratios.items() if found > most
    ]


def ratio(python: float, arguments: Sequence[str], **environ: str) -> float:
    """The processor time of a command, in times of a Python that does nothing."""
    return round(cpu_seconds(["-m", "kubectl_nodelife", *arguments], environ) / python, 1)


def first_look(python: float) -> float:
    """The ratio of `status` on a sandbox of three nodes that no daemon watches."""
    with tempfile.TemporaryDirectory() as folder:
        scenario = Path(folder, "scenario.yaml")
        scenario.write_text(SCENARIO)
        served = subprocess.Popen(
            [sys.executable, "-P", "-m", "kubectl_nodelife", "sandbox", "-f", scenario],
            stdout=subprocess.PIPE,
            text=True,
        )
        try:
            assert served.stdout is not None
            kubeconfig = served.stdout.readline().partition("=")[2].strip()
            return ratio(python, ["status", "--no-daemon"], KUBECONFIG=kubeconfig)
        finally:
            served.terminate()
            served.wait(30)


def cpu_seconds(arguments: Sequence[str], environ: Mapping[str, str]) -> float:
    """The least processor time of several runs; one more before them warms the caches."""
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    least = float("inf")
    for turn in range(TIMES + 1):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run(
            [sys.executable, "-P", *arguments],
            check=True,
            capture_output=True,
            env={**kept, **environ},
        )
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        spent = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        least = min(least, spent) if turn else least
    return least


def median_milliseconds(*arguments: str) -> float:
    """Of RUNS runs of this Python with these arguments; one more before them warms the caches."""
    seconds = []
    for _ in range(RUNS + 1):
        start = time.perf_counter()
        subprocess.run([sys.executable, "-P", *arguments], check=True, capture_output=True)
        seconds.append(time.perf_counter() - start)
    return round(statistics.median(seconds[1:]) * 1000, 1)
