"""Writes docs/releases.md from the tables of releases and their notes:
`python -m tests.docs.releases_page --write`.
"""

import sys
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path

from kubectl_nodelife.engine.settings import (
    BETA,
    FLAGS,
    GATES,
    NEWEST,
    OLDEST,
    Flag,
    Gate,
    parse_profile,
)
from kubectl_nodelife.outlook.releases import all_changes

PAGE = Path(__file__).parents[2] / "docs" / "releases.md"

HEAD = f"""# What each release changed

For operators who upgrade Kubernetes, or ask since when something is so.

Nodes, taints, pods, DaemonSets and drains, from {OLDEST} to {NEWEST}, and {BETA} as its beta is:
what an operator notices, or may rely on. Each line is a row of the tables that this program follows
([since-dates.md](since-dates.md) names the line of Kubernetes' source that dates it); what is not
followed is in [deviations.md](deviations.md).

What of this concerns a cluster of yours:

    kubectl nodelife upgrade preview {BETA}

Written by `python -m tests.docs.releases_page --write`.

| release | area | what changed | in |
| --- | --- | --- | --- |
"""

DEFAULTS = f"""
## Defaults

The flags and feature gates that matter here, with their defaults. `kubectl nodelife options
--profile {NEWEST}` lists those of one release, and `--set` assumes others.

| flag or gate | of | default |
| --- | --- | --- |
"""


def page() -> str:
    """The whole page."""
    return HEAD + "".join(changed()) + DEFAULTS + "".join(defaults())


def changed() -> Iterator[str]:
    """A line for each change, the newest release first."""
    releases = groupby(all_changes(), key=lambda change: change.release)
    for name, changes in reversed([(name, list(changes)) for name, changes in releases]):
        told = f"{name} (beta)" if parse_profile(name).is_beta else name
        for change in changes:
            yield f"| {told} | {change.area} | {change.change} | {change.program} |\n"


def defaults() -> Iterator[str]:
    """A line for each flag and gate."""
    for flag in FLAGS.values():
        yield f"| `--{flag.name}` | {flag.origin} | {of_flag(flag)} |\n"
    for gate in GATES.values():
        yield f"| `{gate.name}` | feature gate | {of_gate(gate)} |\n"


def of_flag(flag: Flag) -> str:
    """`40s, from 1.32 50s`."""
    (_, first), *rest = flag.defaults
    words = [first or "none", *(f"from 1.{since} {value}" for since, value in rest)]
    return ", ".join([*words, *gone(flag.until)])


def of_gate(gate: Gate) -> str:
    """`from 1.29 on, locked from 1.34`."""
    words = [f"from 1.{since} {'on' if on else 'off'}" for since, on in gate.stages]
    locked = [f"locked from 1.{gate.locked}"] if gate.locked < 100 else []
    return ", ".join([*words, *locked, *gone(gate.until)])


def gone(until: int) -> list[str]:
    """Since when there is none."""
    return [f"gone from 1.{until}"] if until < 100 else []


if __name__ == "__main__":
    if "--write" in sys.argv:
        PAGE.write_text(page())
    else:
        print(page())
