"""`python -m bench growth`: how time and memory grow with the cluster, as a table and as a plot.

Each bench runs in a process of its own at each size, with thirty pods a node. Times are ratios to
the reference loop of the same run, so that they mean something on another machine; memory is the
process's highest. `--plot FILE` draws the ratios on two logarithmic axes, as SVG.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from jinja2 import Environment
from tabulate import tabulate

from bench import BenchFailed
from bench._process import run_bench

SIZES = (50, 500, 5_000)
PODS_PER_NODE = 30
DEFAULT = ("status", "audit", "drain-plan", "what-if", "zone-outage", "first-sync")

_WIDTH, _HEIGHT, _LEFT, _BOTTOM, _RIGHT = 640, 400, 60, 40, 110
_COLOURS = ("#1b6ca8", "#b34d00", "#3a7d34", "#8a3fa0", "#a8262b", "#00756f")

_PLOT = Environment(autoescape=True).from_string(
    """<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {{ width }} {{ height }}"
 font-family="sans-serif" font-size="12" fill="#333">
<rect width="100%" height="100%" fill="#fff"/>
{% for x, text in x_ticks %}<path d="M{{ x }} 10V{{ bottom }}" stroke="#ddd"/>
<text x="{{ x }}" y="{{ bottom + 16 }}" text-anchor="middle">{{ text }}</text>
{% endfor %}{% for y, text in y_ticks %}<path d="M{{ left }} {{ y }}H{{ right }}" stroke="#ddd"/>
<text x="{{ left - 6 }}" y="{{ y + 4 }}" text-anchor="end">{{ text }}</text>
{% endfor %}<text x="{{ left }}" y="{{ height - 6 }}">nodes, with 30 pods each</text>
<text x="6" y="10" transform="translate(6 {{ bottom }}) rotate(-90)">reference loops</text>
{% for name, colour, points, y in lines %}<polyline points="{{ points }}" fill="none"
 stroke="{{ colour }}" stroke-width="2"/>
<text x="{{ right + 6 }}" y="{{ y }}" fill="{{ colour }}">{{ name }}</text>
{% endfor %}</svg>
"""
)


class Figure(NamedTuple):
    """One bench's figure at one size: time as a multiple of the reference loop, and bytes."""

    ratio: float
    memory: int


def main(argv: Sequence[str]) -> None:
    """Parse the command line, run, print the table."""
    parser = argparse.ArgumentParser(prog="python -m bench growth", description=__doc__)
    parser.add_argument("names", nargs="*", default=DEFAULT, metavar="NAME")
    parser.add_argument("--sizes", default=",".join(map(str, SIZES)), metavar="N,N,...")
    parser.add_argument("--plot", type=Path, metavar="FILE", help="draw the ratios there, as SVG")
    given = parser.parse_args(argv)
    sizes = [int(size) for size in given.sizes.split(",")]
    found = {name: [figure(name, size) for size in sizes] for name in given.names}
    headers = ["BENCH", *(f"{size:,} nodes" for size in sizes)]
    rows = [[name, *map(_told, figures)] for name, figures in found.items()]
    print(tabulate(rows, headers=headers, tablefmt="pipe", disable_numparse=True))
    if given.plot is not None:
        given.plot.write_text(plot(sizes, found))


def figure(name: str, nodes: int) -> Figure:
    """Run the bench at that size. Ends the program where the bench fails."""
    print(f"{name}: {nodes} nodes", file=sys.stderr)
    try:
        said = run_bench([name, f"--nodes={nodes}", f"--pods={nodes * PODS_PER_NODE}"])
    except BenchFailed as failed:
        sys.exit(f"error: {failed}")
    return Figure(said["cpuSeconds"] / said["referenceSeconds"], said["peakRssBytes"])


def plot(sizes: Sequence[int], found: Mapping[str, Sequence[Figure]]) -> str:
    """An SVG document: a line for each bench, both axes logarithmic, whole powers of ten."""
    ratios = [figure.ratio for figures in found.values() for figure in figures]
    low, high = math.floor(math.log10(min(ratios))), math.ceil(math.log10(max(ratios)))
    right, bottom = _WIDTH - _RIGHT, _HEIGHT - _BOTTOM

    def x(size: int) -> float:
        share = math.log(size / sizes[0]) / math.log(sizes[-1] / sizes[0])
        return round(_LEFT + share * (right - _LEFT), 1)

    def y(ratio: float) -> float:
        return round(bottom - (math.log10(ratio) - low) / (high - low) * (bottom - 10), 1)

    lines, labels = [], _apart([(y(figures[-1].ratio), name) for name, figures in found.items()])
    for number, (name, figures) in enumerate(found.items()):
        points = " ".join(f"{x(n)},{y(one.ratio)}" for n, one in zip(sizes, figures, strict=True))
        lines.append((name, _COLOURS[number % len(_COLOURS)], points, labels[name]))
    return _PLOT.render(
        width=_WIDTH,
        height=_HEIGHT,
        left=_LEFT,
        right=right,
        bottom=bottom,
        x_ticks=[(x(size), f"{size:,}") for size in sizes],
        y_ticks=[(y(10.0**power), f"{10.0**power:g}") for power in range(low, high + 1)],
        lines=lines,
    )


def _apart(wanted: Sequence[tuple[float, str]]) -> dict[str, float]:
    """The heights of labels, near the wanted ones, each a line of text below the one before."""
    placed: dict[str, float] = {}
    last = -math.inf
    for at, name in sorted(wanted):
        last = max(at + 4, last + 14)
        placed[name] = round(last, 1)
    return placed


def _told(one: Figure) -> str:
    return f"{one.ratio:.3g} loops, {one.memory >> 20} MB"
