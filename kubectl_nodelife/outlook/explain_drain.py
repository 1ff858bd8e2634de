"""Explains what `kubectl drain` of its node does to a pod, and what stands in its way.

That is what replaces the pod and when, and which admission webhooks are asked before pods of a node
are evicted.
Imported by need: most explanations do without the drain planner.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from kubectl_nodelife.drain import notices
from kubectl_nodelife.drain.plan import plan_of_pod
from kubectl_nodelife.drain.results import KEPT, NEVER, REFUSED, UNKNOWN, PodPlan
from kubectl_nodelife.drain.snapshot import PlanSnapshot
from kubectl_nodelife.kube.lifecycle import Eviction
from kubectl_nodelife.kube.meta import KubeObject, Time, controller_of
from kubectl_nodelife.kube.names import first_names
from kubectl_nodelife.kube.pod import TERMINAL_PHASES, Pod, stays_on_its_node
from kubectl_nodelife.kube.times import SECOND_NS, format_time, human_duration, human_seconds
from kubectl_nodelife.outlook.explain import ExplainedQuestion, quoted
from kubectl_nodelife.sim.kubectl.options import DrainOptions
from kubectl_nodelife.workloads.admission import Admission
from kubectl_nodelife.workloads.owners import NEVER as NEVER_REPLACED
from kubectl_nodelife.workloads.owners import WHEN_GONE, replacement_of

_MOST = 8
_DONE = frozenset({"Completed", "Interrupted", "Canceled"})


def drain_sections(snapshot: PlanSnapshot, pod: Pod) -> Iterator[ExplainedQuestion]:
    """Who asks for the pod's eviction, what replaces it, and what a drain of its node would do."""
    if asked := list(_asked(snapshot, pod)):
        yield ExplainedQuestion("Who asks for its eviction?", asked)
    yield ExplainedQuestion("Who replaces it, and when?", list(_replacement(snapshot, pod)))
    node = pod.spec.node_name
    if node in snapshot.nodes:
        question = "What would a drain of its node do to it?"
        yield ExplainedQuestion(question, list(_drained(snapshot, pod)))
        yield webhook_section(snapshot, [pod])


def owner_chain(snapshot: PlanSnapshot, pod: Pod) -> list[str]:
    """`Kind/name` of the pod's controller, of that one's controller, and so on."""
    chain: list[str] = []
    holder: KubeObject | None = pod
    while holder is not None:
        owner = controller_of(holder.metadata)
        if owner is None or f"{owner.kind}/{owner.name}" in chain:
            break
        chain.append(f"{owner.kind}/{owner.name}")
        holder = snapshot.find(owner.kind, pod.namespace, owner.name)
    return chain


def _asked(snapshot: PlanSnapshot, pod: Pod) -> Iterator[str]:
    """The EvictionRequests that name the pod, and who answers them."""
    asked = notices.EvictionRequests(snapshot)
    for request in asked.requests(pod):
        who, name = request.spec.requester, f"EvictionRequest {request.name}"
        over = notices.ended(request.status.conditions)
        if over is not None:
            yield f"{name} of {who} is over: {over.type} ({over.reason}){quoted(over.message)}."
        elif not notices.is_wanted(request):
            yield f"{who} has withdrawn {name}."
        else:
            since = _at(request.metadata.creation_timestamp)
            yield f"{who} asks for it since {since}: {name}."
    for eviction in asked.going(pod):
        yield from _responders(eviction, snapshot.now_ns)
    if not asked.going(pod) and any(map(notices.is_wanted, asked.requests(pod))):
        yield "No Eviction was made of it: without the controllers of v1.38 nothing acts on it."


def _responders(eviction: Eviction, now_ns: int) -> Iterator[str]:
    """Who is at work on an eviction, until when it is waited for, and who is asked then."""
    all_of_it = notices.responders_of(eviction)
    done = [f"{r.target.name} ({r.target.state})" for r in all_of_it if r.target.state in _DONE]
    later = [r.target.name for r in all_of_it if r.target.state == "Inactive"]
    if done:
        yield f"Asked before: {first_names(done, _MOST)}."
    then = f"{later[0]} is asked" if later else "nobody is left, and the requests fail"
    for target, status in (r for r in all_of_it if r.target.state == "Active"):
        heard_ns = notices.Responder(target, status).heartbeat_ns
        since = _at(status.start_time)
        yield f"{target.name} is at work on it since {since}{quoted(status.message)}."
        if status.expected_completion_time is not None:
            yield f"It expects to be done by {_at(status.expected_completion_time)}."
        if target.name == notices.IMPERATIVE:
            yield "It evicts as a drain does, within budgets, and tries again while it is refused."
        if heard_ns is not None:
            ago, end_ns = human_duration(now_ns - heard_ns), heard_ns + notices.HEARTBEAT_TIMEOUT_NS
            yield (
                f"Its last heartbeat was {ago} ago: without another until {format_time(end_ns)} "
                f"it counts as interrupted, and {then}."
            )
    if later:
        yield f"Asked after that, in this order: {first_names(later, _MOST)}."


def _at(time: Time | None) -> str:
    return "a time that is not known" if time is None else format_time(time)


def _replacement(snapshot: PlanSnapshot, pod: Pod) -> Iterator[str]:
    rule, owner = replacement_of(pod, snapshot), controller_of(pod.metadata)
    chain = owner_chain(snapshot, pod)
    who = chain[0] if chain else ""
    if len(chain) > 1:
        who += f" (of {chain[-1]})"
    if owner is not None and owner.kind == "Node":
        exists = f"node {owner.name} exists" if owner.name in snapshot.nodes else "if that is there"
        yield f"The kubelet of {owner.name}, from its manifest; {exists}."
        yield "Deleting this object ends no container: its kubelet makes the object anew."
        return
    if pod.status.phase in TERMINAL_PHASES:
        yield f"{_who_finished(pod)}."
        return
    if rule.when == NEVER_REPLACED:
        yield f"Nothing: {rule.why}."
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
        yield f"It counts as available {human_seconds(rule.min_ready_seconds)} after it is Ready."


def _who_finished(pod: Pod) -> str:
    """Who has replaced a pod that has finished, or will."""
    owner = controller_of(pod.metadata)
    if owner is None:
        return "Nothing: no controller owns it"
    if owner.kind in ("StatefulSet", "DaemonSet"):
        return f"{owner.kind} {owner.name} deletes it, and then makes the next"
    if owner.kind == "Job":
        return f"Job {owner.name}, by its own rules: the pod has finished"
    return f"{owner.kind} {owner.name} has: a pod that has finished does not count"


def _drained(snapshot: PlanSnapshot, pod: Pod) -> Iterator[str]:
    outcome = plan_of_pod(snapshot, pod, DrainOptions(ignore_daemonsets=True))
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
        yield f"Not known, because some kinds were not read: {', '.join(outcome.lacking)}."


def _verdict(plan: PodPlan) -> str:
    if plan.verdict == KEPT:
        return f"It stays: {plan.reason or plan.gate}."
    if plan.verdict in (NEVER, REFUSED):
        return f"It never goes: {plan.reason or plan.gate}."
    when = ""
    if plan.start is not None:
        when = f", evicted after {_s(plan.start)}"
        when += f", gone after {_s(plan.gone)}" if plan.gone is not None else ""
        if plan.end is not None and plan.end != plan.gone:
            when += f", its replacement Ready after {_s(plan.end)}"
    reason = f": {plan.reason}" if plan.reason else ""
    return f"{plan.verdict}{when}{reason}."


def _s(seconds: float) -> str:
    return human_duration(round(seconds) * SECOND_NS)


def webhook_section(snapshot: PlanSnapshot, pods: Sequence[Pod]) -> ExplainedQuestion:
    """The section about evictions of those of the pods that a drain evicts."""
    pods = [pod for pod in pods if not stays_on_its_node(pod)]
    kinds = ("ValidatingWebhookConfiguration", "MutatingWebhookConfiguration")
    unread = [kind for kind in kinds if not snapshot.was_read(kind)]
    webhooks = notices.eviction_webhooks(Admission(snapshot), pods)
    sentences = [webhook.sentence() for webhook in webhooks]
    if unread:
        sentences.append(f"Not all is known: no {' and no '.join(unread)} was read.")
    question = "Which webhooks are asked before an eviction here?"
    return ExplainedQuestion(question, sentences or ["None."])
