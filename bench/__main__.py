"""Runs one bench and prints its figures as one JSON object; `compare` and `growth` are in modules
of these names.

`wallSeconds` and `cpuSeconds` are the measured part alone, `peakRssBytes` is the whole process's.
`referenceSeconds` is a fixed loop timed in the same run, and `ratio` is wall to reference: it
depends less on the machine.
"""

from __future__ import annotations

import argparse
import importlib
import json
import pkgutil
import resource
import sys
import time
from collections.abc import Sequence

import bench


def names() -> list[str]:
    """All benches, from the modules in this folder."""
    modules = (module.name for module in pkgutil.iter_modules(bench.__path__))
    return sorted(name.replace("_", "-") for name in modules if not name.startswith("_"))


def measure(name: str, nodes: int | None, pods: int | None, seed: int) -> dict[str, object]:
    """Run the bench and return the object to print."""
    module = importlib.import_module(f"bench.{name.replace('-', '_')}")
    nodes = getattr(module, "NODES", 5000) if nodes is None else nodes
    if pods is None:
        per_node = getattr(module, "PODS_PER_NODE", 0)
        pods = nodes * per_node or getattr(module, "PODS", 150_000)
    stopwatch = bench.Stopwatch()
    before = reference_seconds()
    figures = module.run(nodes, pods, seed, stopwatch)
    reference = min(before, reference_seconds())
    return {
        "name": name,
        "nodes": nodes,
        "pods": pods,
        "seed": seed,
        "wallSeconds": round(stopwatch.wall_seconds, 6),
        "cpuSeconds": round(stopwatch.cpu_seconds, 6),
        "peakRssBytes": peak_rss_bytes(),
        "referenceSeconds": round(reference, 6),
        "ratio": round(stopwatch.wall_seconds / reference, 6),
        **figures,
    }


def reference_seconds() -> float:
    """The CPU seconds this machine and this Python need to sum `range(5_000_000)` in a for loop:
    those by a clock where nothing else runs."""
    start = time.process_time()
    total = 0
    for number in range(5_000_000):
        total += number
    return time.process_time() - start


def peak_rss_bytes() -> int:
    """The most memory that this process has held so far."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


def main(argv: Sequence[str] | None = None) -> None:
    """Parse the command line, run, print."""
    arguments = sys.argv[1:] if argv is None else list(argv)
    if arguments[:1] in (["compare"], ["growth"]):
        importlib.import_module(f"bench._{arguments[0]}").main(arguments[1:])
        return
    parser = argparse.ArgumentParser(prog="python -m bench", description="Measure one thing.")
    parser.add_argument("name", choices=names(), metavar="NAME", help=", ".join(names()))
    parser.add_argument("--nodes", type=int, help="how many nodes; each bench has its default")
    parser.add_argument("--pods", type=int, help="how many pods in all; each bench has its default")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("-o", "--output", choices=["json"], default="json")
    given = parser.parse_args(arguments)
    try:
        figures = measure(given.name, given.nodes, given.pods, given.seed)
    except bench.BenchFailed as failed:
        sys.exit(f"error: {failed}")
    print(json.dumps(figures, indent=2))


if __name__ == "__main__":
    main()
