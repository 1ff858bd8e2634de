"""Explains what becomes of a pod when it goes: who replaces it and when, and what a drain does."""

from __future__ import annotations

from collections.abc import Iterator

from kubectl_nodelife.answers.explain_webhooks import webhook_section
from kubectl_nodelife.drain.of_pod import pod_in_drain
from kubectl_nodelife.drain.results import KEPT, NEVER, REFUSED, UNKNOWN, PodPlan
from kubectl_nodelife.drain.snapshot import PlanSnapshot
from kubectl_nodelife.kube.duration import human_duration
from kubectl_nodelife.kube.meta import KubeObject, controller_of
from kubectl_nodelife.kube.pod import Pod
from kubectl_nodelife.kube.times import SECOND_NS
from kubectl_nodelife.outlook.explain import ExplainedQuestion
from kubectl_nodelife.workloads.owners import NEVER as NOBODY
from kubectl_nodelife.workloads.owners import WHEN_GONE, replacement_of


def drain_sections(snapshot: PlanSnapshot, pod: Pod) -> Iterator[ExplainedQuestion]:
    """Who replaces the pod, and what a drain of its node would do to it."""
    yield ExplainedQuestion("Who replaces it, and when?", list(_replacement(snapshot, pod)))
    node = pod.spec.node_name
    if node in snapshot.nodes:
        question = "What would a drain of its node do to it?"
        yield ExplainedQuestion(question, list(_drained(snapshot, pod)))
        yield webhook_section(snapshot, [pod])


def owner_chain(snapshot: PlanSnapshot, pod: Pod) -> list[str]:
    """`Kind/name` of the pod's controller, of that one's controller, and so on."""
    chain: list[str] = []
    found: KubeObject | None = pod
    while found is not None:
        owner = controller_of(found.metadata)
        if owner is None or f"{owner.kind}/{owner.name}" in chain:
            break
        chain.append(f"{owner.kind}/{owner.name}")
        found = snapshot.find(owner.kind, pod.namespace, owner.name)
    return chain


def _replacement(snapshot: PlanSnapshot, pod: Pod) -> Iterator[str]:
    rule = replacement_of(pod, snapshot)
    chain = owner_chain(snapshot, pod)
    who = chain[0] if chain else ""
    if len(chain) > 1:
        who += f" (of {chain[-1]})"
    if rule.when == NOBODY:
        yield f"Nobody: {rule.why}."
    elif rule.when == WHEN_GONE:
        once = f"{who} makes the next only when this object is gone"
        if chain[0].startswith("StatefulSet/"):
            once += f", so that there is at most one {pod.name}"
        yield f"{once}."
        if rule.ordered:
            yield "It goes by ordinals: each only when those before it are Ready."
    else:
        leaving = pod.metadata.deletion_timestamp is not None
        when = "now that this one is" if leaving else "as soon as this one is"
        yield f"{who} makes another {when} being deleted."
    if rule.delay_ns:
        after = human_duration(rule.delay_ns)
        yield f"A Job waits {after} after a failed pod, and longer each time."
    if rule.assumed:
        yield f"That is assumed: {chain[0]} was not read."
    if rule.min_ready_seconds:
        yield f"It counts as available {rule.min_ready_seconds}s after it is Ready."


def _drained(snapshot: PlanSnapshot, pod: Pod) -> Iterator[str]:
    outcome = pod_in_drain(snapshot, pod)
    found = outcome.planned
    for fault in outcome.lifted:
        yield f"kubectl drain refuses its node: {fault.message}; {fault.flag} lifts that."
    if found is None:
        yield "Nothing: kubectl drain does not touch it."
        return
    yield _verdict(found)
    if found.remedy is not None:
        risk = f" ({found.remedy.risk})" if found.remedy.risk not in ("", "none") else ""
        yield f"To unblock: {found.remedy.change}{risk}."
    if found.budgets:
        yield f"Budgets that its eviction asks: {', '.join(found.budgets)}."
    lands = [place.node for place in found.landing if place.node]
    refused = [f"{p.reason} on {p.nodes}" for p in found.landing if not p.node and p.reason]
    if lands:
        yield f"Its replacement can go to {', '.join(lands[:5])}."
    elif refused and found.verdict != KEPT:
        yield f"Its replacement has nowhere to go: {', '.join(refused)}."
    if found.verdict == UNKNOWN and outcome.lacking:
        yield f"Not known, for want of what was not read: {', '.join(outcome.lacking)}."


def _verdict(found: PodPlan) -> str:
    if found.verdict == KEPT:
        return f"It stays: {found.reason or found.gate}."
    if found.verdict in (NEVER, REFUSED):
        return f"It never goes: {found.reason or found.gate}."
    when = ""
    if found.start is not None:
        when = f", evicted after {_s(found.start)}"
        when += f", gone after {_s(found.gone)}" if found.gone is not None else ""
        if found.end is not None and found.end != found.gone:
            when += f", its replacement Ready after {_s(found.end)}"
    reason = f": {found.reason}" if found.reason else ""
    return f"{found.verdict}{when}{reason}."


def _s(seconds: float) -> str:
    return human_duration(round(seconds) * SECOND_NS)
