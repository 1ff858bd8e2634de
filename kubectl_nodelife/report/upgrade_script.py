"""An upgrade's plan as a program for /bin/sh: what a run does, by hand, with kubectl alone.

Nodes go in the plan's steps, never more at once than the plan takes out of service; it stops at the
first command that fails, says where, and begins at any step (`FROM=2`). Budgets are kept by
`kubectl drain`; what only a run does is not in it: gates, the counting of other sick nodes, the
checks of a node beside Ready, retries.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from typing import Final

from kubectl_nodelife.kube.times import SECOND_NS
from kubectl_nodelife.report.ages import clock
from kubectl_nodelife.report.shell_script import comment, flag_words, script_head
from kubectl_nodelife.report.upgrade_plan import finding_lines, headline, lowest_lines
from kubectl_nodelife.sim.upgrade_course import CourseStep
from kubectl_nodelife.upgrade.plan_values import CLAIM, UpgradePlan
from kubectl_nodelife.upgrade.ports import drain_options

_NODES: Final = """
work() { # NODE: what is done to a drained node
%(work)s
}

one() { # NODE: out of service, worked on, Ready without a break, back in service
  k cordon -- "$1" &&
    kubectl%(flags)s drain%(drain)s -- "$1" &&
    work "$1" &&
    k wait --for=condition=Ready "node/$1" --timeout=%(back)ds &&
    sleep %(ready)d &&
    k wait --for=condition=Ready "node/$1" --timeout=0s &&
    k uncordon -- "$1"
}

all() { # NODE...: at once; fails if one does
  for node in "$@"; do
    one "$node" &
    pids="$pids $!"
  done
  wait_all
}
"""


def script(plan: UpgradePlan, flags: Sequence[str] = ()) -> str:
    """The script. `flags`: kubectl's own, such as --context, that every command gets."""
    lines = ["#!/bin/sh", *map(comment, _words(plan))]
    if not plan.course.steps:
        lines += ["echo 'no node of this plan can be done' >&2", "exit 1"]
        return "\n".join(lines) + "\n"
    words = flag_words(flags)
    lines += [script_head("step", 0, words), (_NODES % _values(plan, words)).rstrip()]
    most = _most_at_once(plan)
    for index, step in enumerate(plan.course.steps):
        lines += _step(index, step, most)
    return "\n".join(lines) + "\n"


def _words(plan: UpgradePlan) -> Iterator[str]:
    yield headline(plan)
    yield from lowest_lines(plan)
    yield from finding_lines(plan)
    for node in plan.nodes:
        if node.decision != CLAIM:
            yield f"{node.decision}: node {node.name}: {node.reason}"


def _values(plan: UpgradePlan, flags: str) -> dict[str, object]:
    policy = plan.policy
    options = drain_options(policy).command("x").removeprefix("kubectl drain x")
    return {
        "flags": flags,
        "work": _work(plan),
        "drain": options,
        "back": policy.return_timeout_ns // SECOND_NS,
        "ready": policy.ready_for_ns // SECOND_NS,
    }


def _work(plan: UpgradePlan) -> str:
    work = plan.policy.work
    if work.mode == "nothing":
        return '  echo "nothing is done to $1"'
    if work.runs_command:
        return f"  NODE=$1 sh -c {shlex.quote(work.command)}"
    return '  echo "put here what is done to $1, and wait until it is done" >&2\n  return 1'


def _most_at_once(plan: UpgradePlan) -> int:
    """The most nodes that are out of service at once in the plan."""
    ends = []
    for turn in plan.course.turns.values():
        back_ns = turn.released_ns if turn.released_ns is not None else turn.done_ns
        ends += [(turn.claimed_ns, 1), (back_ns or turn.claimed_ns, -1)]
    out = most = 0
    for _, change in sorted(ends):
        out += change
        most = max(most, out)
    return max(1, most)


def _step(index: int, step: CourseStep, most: int) -> Iterator[str]:
    count = f"{len(step.names)} node{'s' if len(step.names) > 1 else ''}"
    yield ""
    yield comment(
        f"step {index}: {count} of {', '.join(step.zones)}, at {clock(step.start_ns / SECOND_NS)}"
    )
    yield f'if [ "$FROM" -le {index} ]; then'
    yield f"  doing='step {index}'"
    for begin in range(0, len(step.names), most):
        names = " ".join(shlex.quote(name) for name in step.names[begin : begin + most])
        yield f"  all {names}"
    if step.soak_ns:
        yield f"  sleep {step.soak_ns // SECOND_NS} # soak"
    yield "fi"
