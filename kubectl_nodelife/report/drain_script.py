"""A drain plan as a shell script: kubectl lines, wave by wave, with what to expect as comments."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable

from kubectl_nodelife.drain.results import NEVER, REFUSED, DrainPlan, NodePlan, WavePlan
from kubectl_nodelife.report.drain import blockers, clock, headline

_COMMENT_BREAK = re.compile(r"[\x00-\x1f\x7f\u2028\u2029]+")


def script(plan: DrainPlan) -> str:
    """The script. A node that cannot be drained stands in it as a comment, with the reason."""
    return "\n".join(_lines(plan)) + "\n"


def _lines(plan: DrainPlan) -> Iterable[str]:
    yield "#!/bin/sh"
    yield _comment(headline(plan))
    for pod in blockers(plan):
        if pod.gate != "none":
            yield _comment(f"{pod.verdict}: {pod.namespace}/{pod.name}: {pod.reason}")
            if pod.remedy is not None:
                yield _comment(f"  to unblock: {pod.remedy.change} (risk: {pod.remedy.risk})")
            elif pod.hint:
                yield _comment(f"  {pod.hint}")
    yield "set -u"
    nodes = {node.name: node for node in plan.nodes}
    possible = [n.name for n in plan.nodes if n.verdict not in (NEVER, REFUSED)]
    if plan.own_waves and possible:
        yield ""
        yield _comment("all nodes first, so that no pod moves twice")
        yield "kubectl cordon " + " ".join(shlex.quote(name) for name in possible)
    for wave in plan.waves:
        yield from _wave_lines(plan, wave, nodes)


def _wave_lines(plan: DrainPlan, wave: WavePlan, nodes: dict[str, NodePlan]) -> Iterable[str]:
    yield ""
    when = f"at {clock(wave.start)}, until {clock(wave.end)}" if wave.start is not None else "never"
    yield _comment(f"wave {wave.index + 1}: {len(wave.nodes)} node(s), {when}")
    parallel = plan.own_waves and len(wave.nodes) > 1
    for name in wave.nodes:
        node = nodes[name]
        if node.verdict in (NEVER, REFUSED):
            yield _comment(f"{node.verdict}: {node.command}")
        else:
            yield node.command + (" &" if parallel else "")
    if parallel:
        yield "wait"
    if plan.own_waves:
        done = [n for n in wave.nodes if nodes[n].verdict not in (NEVER, REFUSED)]
        if done:
            yield _comment("here the maintenance of these nodes; and then:")
            yield _comment("kubectl uncordon " + " ".join(shlex.quote(n) for n in done))


def _comment(text: str) -> str:
    """One comment line: nothing in a name or a message can end it."""
    return "# " + _COMMENT_BREAK.sub(" ", text)
