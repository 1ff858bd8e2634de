"""A drain plan as a program for /bin/sh: run, it does wave by wave what the plan says.

It stops at the first command that fails, says where, and begins at any wave (`FROM=2`). A wave
begins when the nodes of the one before are back from their maintenance and the workloads that lost
pods have as many Ready ones as before; so the limits of the plan hold while it runs. What cannot be
drained stands in it as a comment.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from kubectl_nodelife.drain.results import (
    CORDON_BY_WAVE,
    NEVER,
    REFUSED,
    DrainPlan,
    NodePlan,
    WavePlan,
)
from kubectl_nodelife.kube.names import counted
from kubectl_nodelife.kube.times import clock
from kubectl_nodelife.report.drain import blocker_lines, consequences, headline

_COMMENT_BREAK: Final = re.compile(r"[\x00-\x1f\x7f\u2028\u2029]+")
_HEAD: Final = """\
set -eu
FROM=${FROM:-1} # the wave to begin with
doing=nothing
pids=

k() {
  kubectl%(flags)s "$@"
}

ended() { # what is stopped and said where a command fails, or Ctrl-C is pressed
  code=$?
  for pid in $pids; do
    kill "$pid" 2>/dev/null || :
  done
  if [ "$code" -ne 0 ]; then
    echo "stopped (exit code $code) in $doing; nodes that are cordoned stay so" >&2
    echo "to go on: run it again with FROM=N set; to give up: kubectl uncordon NODE" >&2
  fi
}
trap ended EXIT
trap 'exit 130' INT
trap 'exit 143' TERM HUP

wait_all() { # to the end of each; fails if one did
  failed=0
  for pid in $pids; do
    wait "$pid" || failed=1
  done
  pids=
  return "$failed"
}
"""
_WITH_READY_REPLICAS: Final = {
    "Deployment": "deployment",
    "ReplicaSet": "replicaset",
    "StatefulSet": "statefulset",
    "ReplicationController": "replicationcontroller",
}
LEAST_WAIT_S: Final = 300
"""For so long at least a workload's pods may take to be Ready before the script gives up."""
SLACK_S: Final = 120.0
"""A replacement that gets its room when the maintenance is over becomes Ready within that."""

_DRAIN_ALL: Final = """
drain_all() { # NODE...: at once
  for node in "$@"; do
    kubectl%(flags)s drain%(options)s -- "$node" &
    pids="$pids $!"
  done
  wait_all
}
"""
_READY: Final = """
ready() { # KIND/NAME NAMESPACE PODS SECONDS: wait until so many are Ready
  tries=$(($4 / 2))
  until count=$(k get "$1" --namespace "$2" --output 'jsonpath={.status.readyReplicas}') &&
    [ "${count:-0}" -ge "$3" ]; do
    tries=$((tries - 1))
    if [ "$tries" -le 0 ]; then
      echo "$2 $1 has ${count:-0} Ready pods after $4 s, not $3" >&2
      return 1
    fi
    sleep 2
  done
}
"""
_MAINTENANCE: Final = """
maintain() { # NODE: what is done to a drained node. Put it here; now it only takes its time
  echo "maintenance of $1: %(seconds)d s"
  sleep %(seconds)d
}

back() { # NODE: its maintenance, and then it takes pods again
  maintain "$1" && k wait --for=condition=Ready "node/$1" --timeout=15m && k uncordon -- "$1"
}

back_all() { # NODE...: at once
  for node in "$@"; do
    back "$node" &
    pids="$pids $!"
  done
  wait_all
}
"""


def script(plan: DrainPlan, flags: Sequence[str] = ()) -> str:
    """The script. `flags`: kubectl's own, such as --context, that every command gets."""
    nodes = {n.name: n for n in plan.nodes if n.verdict not in (NEVER, REFUSED)}
    lines = ["#!/bin/sh", *map(_comment, _words(plan))]
    if nodes:
        lines += [*_begin(plan, nodes, flags), *_waves(plan, nodes)]
    else:
        lines += ["echo 'no node of this plan can be drained' >&2", "exit 1"]
    return "\n".join(lines) + "\n"


def _words(plan: DrainPlan) -> Iterator[str]:
    """The plan in comments, for the one who reads the script."""
    yield headline(plan)
    yield from consequences(plan)
    for blocker in blocker_lines(plan):
        yield from blocker.split("\n")


def _begin(plan: DrainPlan, nodes: dict[str, NodePlan], flags: Sequence[str]) -> Iterator[str]:
    first = next(iter(nodes.values()))
    options = first.command.removeprefix(f"kubectl drain {shlex.quote(first.name)}")
    words = "".join(f" {shlex.quote(flag)}" for flag in flags)
    yield (_HEAD % {"flags": words}).rstrip()
    yield (_DRAIN_ALL % {"flags": words, "options": options}).rstrip()
    if plan.own_waves:
        yield _READY.rstrip()
    if plan.maintenance:
        yield (_MAINTENANCE % {"seconds": round(plan.maintenance)}).rstrip()
    if plan.cordon is None or plan.cordon.when != CORDON_BY_WAVE:
        yield ""
        yield _comment("all nodes first, so that no pod moves twice")
        yield "doing='the cordon of all nodes'"
        yield from _cordon(nodes, first_time=bool(plan.maintenance))


def _cordon(names: Iterable[str], *, first_time: bool) -> Iterator[str]:
    cordon = f"k cordon -- {_quoted(names)}"
    if first_time:  # a later start must not cordon again what is back
        yield f'[ "$FROM" -gt 1 ] || {cordon}'
    else:
        yield cordon


def _waves(plan: DrainPlan, nodes: dict[str, NodePlan]) -> Iterator[str]:
    by_name = {node.name: node for node in plan.nodes}
    for number, wave in enumerate(plan.waves, start=1):
        yield ""
        when = "never" if wave.start is None else f"at {clock(wave.start)}"
        until = f", until {clock(wave.end)}" if wave.end is not None else ""
        nodes_out = counted(len(wave.nodes), "node")
        yield _comment(f"wave {number} of {len(plan.waves)}: {nodes_out}, {when}{until}")
        for name in wave.nodes:
            if name not in nodes:
                yield _comment(f"{by_name[name].verdict}: {by_name[name].command}")
        names = [name for name in wave.nodes if name in nodes]
        if names:
            yield f'if [ "$FROM" -le {number} ]; then'
            yield from (f"  {line}" for line in _wave(plan, wave, names, number))
            yield "fi"


def _wave(plan: DrainPlan, wave: WavePlan, names: list[str], number: int) -> Iterator[str]:
    yield f"doing='wave {number}'"
    if plan.cordon is not None and plan.cordon.when == CORDON_BY_WAVE:
        yield f"k cordon -- {_quoted(names)}"
    yield f"drain_all {_quoted(names)}"
    more = number < len(plan.waves)
    if plan.own_waves and (more or plan.maintenance):
        yield from _waits(plan, wave, 0.0)
    if plan.maintenance:
        yield f"back_all {_quoted(names)}"
        if more:
            yield from _waits(plan, wave, plan.maintenance)


def _waits(plan: DrainPlan, wave: WavePlan, after: float) -> Iterator[str]:
    """A line for each workload that lost a pod here and has all of them again at the wave's end.

    `after`: those that have them only once the maintenance is over, which takes so many seconds.
    """
    lost = {(pod.namespace, pod.owner) for pod in wave.pods if pod.gone is not None and pod.landing}
    seconds = round(max(LEAST_WAIT_S, 3 * (wave.estimate.high if wave.estimate else 0.0)))
    for workload in plan.workloads:
        kind, _, name = workload.top.partition("/")
        key = (workload.namespace, f"{workload.kind}/{workload.name}")
        if key not in lost or not workload.ready or kind not in _WITH_READY_REPLICAS:
            continue
        subject = shlex.quote(f"{_WITH_READY_REPLICAS[kind]}/{name}")
        again = _all_ready_again(plan, wave, key)
        end = wave.end if wave.end is not None else 0.0
        if again is None or again > end + plan.maintenance + SLACK_S:
            if not after:
                yield _comment(f"not waited for, not all of its pods are Ready then: {subject}")
        elif (again > end) == bool(after):
            yield f"ready {subject} {shlex.quote(workload.namespace)} {workload.ready} {seconds}"


def _all_ready_again(plan: DrainPlan, wave: WavePlan, key: tuple[str, str]) -> float | None:
    """When the replacements of the workload's pods of this wave and of those before are Ready."""
    ends = [
        pod.end
        for earlier in plan.waves[: wave.index + 1]
        for pod in earlier.pods
        if (pod.namespace, pod.owner) == key and pod.start is not None
    ]
    told = [end for end in ends if end is not None]
    return max(told, default=0.0) if len(told) == len(ends) else None


def _quoted(names: Iterable[str]) -> str:
    return " ".join(shlex.quote(name) for name in names)


def _comment(text: str) -> str:
    """The text on one line of comment: nothing from the cluster may end it and begin a command."""
    return "# " + _COMMENT_BREAK.sub(" ", text)
