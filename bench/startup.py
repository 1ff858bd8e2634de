"""How long the command line takes to say anything: whole processes of `--help` and `version`.

No cluster is involved; --nodes and --pods change nothing.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import time

from bench import Stopwatch

NODES = 0
PODS = 0

RUNS = 15


def run(nodes: int, pods: int, seed: int, stopwatch: Stopwatch) -> dict[str, object]:
    """Median milliseconds of each command, and of a Python that does nothing."""
    with stopwatch:
        return {
            "pythonMilliseconds": median_milliseconds("-c", ""),
            "helpMilliseconds": median_milliseconds("-m", "kubectl_nodelife", "--help"),
            "versionMilliseconds": median_milliseconds("-m", "kubectl_nodelife", "version"),
        }


def median_milliseconds(*arguments: str) -> float:
    """Of RUNS runs of this Python with these arguments; one more before them warms the caches."""
    seconds = []
    for _ in range(RUNS + 1):
        start = time.perf_counter()
        subprocess.run([sys.executable, "-P", *arguments], check=True, capture_output=True)
        seconds.append(time.perf_counter() - start)
    return round(statistics.median(seconds[1:]) * 1000, 1)
