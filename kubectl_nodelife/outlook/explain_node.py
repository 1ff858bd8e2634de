"""Explains a node: its state, the times until its pods are evicted, its zone's rate, its pods."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from kubectl_nodelife.engine.settings import Settings
from kubectl_nodelife.kube.duration import format_duration, human_duration
from kubectl_nodelife.kube.enumeration import counted
from kubectl_nodelife.kube.node import Taint
from kubectl_nodelife.kube.pod import Pod
from kubectl_nodelife.kube.taints import no_execute_taints
from kubectl_nodelife.kube.times import SECOND_NS
from kubectl_nodelife.outlook.eviction_forecast import LOST, EvictionForecast, eviction_forecast
from kubectl_nodelife.outlook.explain import DelayTerm, ExplainedQuestion
from kubectl_nodelife.outlook.explain_classic import how_it_works, pace, pod_fate, timeout_terms
from kubectl_nodelife.outlook.explain_endpoints import endpoint_sections
from kubectl_nodelife.outlook.node import NodeOutlook, Outlook, TaintQueuePosition
from kubectl_nodelife.outlook.node_verdict import NodeVerdict, node_verdict
from kubectl_nodelife.outlook.terminating import why_terminating
from kubectl_nodelife.outlook.zone import ZoneOutlook, zones
from kubectl_nodelife.outlook.zone_loss import LossByZone, ZoneAfterLoss, zone_brakes

_LONG_NS = 600 * SECOND_NS


def node_sections(
    outlook: Outlook, of_node: NodeOutlook, *, pods_read: bool = True, services_read: bool = False
) -> Iterator[ExplainedQuestion]:
    """The sections about one node. `pods_read`, `services_read`: if only to find none."""
    verdict = node_verdict(of_node, outlook.now_ns)
    yield ExplainedQuestion("What state is it in?", list(_state(outlook, of_node, verdict)))
    zone = next(z for z in zones(outlook.memory, outlook.settings) if z.key == of_node.zone)
    terms = eviction_terms(outlook, of_node, zone)
    if terms:
        yield ExplainedQuestion("When would its pods be evicted?", list(_when(of_node)), terms)
    elif of_node.ready == "True" and of_node.sign_age_ns is None and of_node.classic is None:
        unknown = "Not known: no Lease of it was read, so how long it has been silent is unknown."
        yield ExplainedQuestion("When would its pods be evicted?", [unknown])
    yield ExplainedQuestion(
        "How fast does its zone go, and why?", list(_zone(zone, of_node, outlook))
    )
    pods = list(_pods(outlook, of_node)) if pods_read else ["Not known: no pods were read."]
    yield ExplainedQuestion("What becomes of its pods?", pods)
    lost = of_node.ready in ("False", "Unknown")
    yield from endpoint_sections(
        outlook.cache, list(of_node.pods), lost=lost, services_read=services_read
    )


def eviction_terms(outlook: Outlook, of_node: NodeOutlook, zone: ZoneOutlook) -> list[DelayTerm]:
    """The delays that add up to the NoExecute taint; empty where it is there or not foreseeable."""
    settings = outlook.settings
    terms: list[DelayTerm] = []
    if of_node.classic is not None:
        if of_node.queued is not None:
            return [_turn_term(of_node.queued, zone)]
        terms += timeout_terms(of_node, of_node.classic, settings)
        return [*terms, _token_term(zone, _after(outlook, of_node))] if terms else []
    if of_node.ready in ("True", ""):
        left = of_node.unknown_in
        if left is None:
            return []
        flag = "node-monitor-grace-period" if of_node.ready else "node-startup-grace-period"
        grace = format_duration(of_node.grace_ns)
        age = ""
        if of_node.sign_age_ns is not None:
            sign = "lease renewed" if of_node.leases_count else "status posted"
            age = f", {sign} {_s(of_node.sign_age_ns)} ago"
        low = left.low_ns / SECOND_NS
        origin = f"{flag} {grace} ({settings.origins[flag]}){age}"
        terms.append(DelayTerm("grace period left, if no heartbeat comes", low, low, origin))
        terms.append(_pass_term(settings, "until a monitor pass notices"))
        if not settings.profile.has("decide_on_current"):
            terms.append(_pass_term(settings, "one more pass until it is queued", whole=True))
        terms.append(_token_term(zone, _after(outlook, of_node)))
    elif of_node.queued is not None:
        terms.append(_turn_term(of_node.queued, zone))
    return terms


def coming_taint(of_node: NodeOutlook) -> tuple[Taint, ...]:
    """The taint that a node gets: not-ready where its kubelet says so itself, else unreachable."""
    return LOST[1:] if of_node.ready == "False" else LOST[:1]


def _turn_term(queued: TaintQueuePosition, zone: ZoneOutlook) -> DelayTerm:
    if queued.turn is None:
        return DelayTerm("waiting for a token", None, None, "the zone's rate is 0")
    origin = f"number {queued.position + 1} in the queue at {zone.rate:g} nodes a second"
    low, high = queued.turn.low_ns / SECOND_NS, queued.turn.high_ns / SECOND_NS
    return DelayTerm("waiting for a token", low, high, origin)


def _pass_term(settings: Settings, what: str, *, whole: bool = False) -> DelayTerm:
    period_s = settings.node_monitor_period_ns / SECOND_NS
    origin = f"node-monitor-period {settings.flags['node-monitor-period']}"
    return DelayTerm(what, period_s if whole else 0.0, period_s, origin)


def _after(outlook: Outlook, of_node: NodeOutlook) -> ZoneAfterLoss:
    return LossByZone(outlook).of(of_node.node)


def _token_term(zone: ZoneOutlook, after: ZoneAfterLoss) -> DelayTerm:
    """The wait for the zone's limiter, at the rate that the zone has once this node counts as lost:
    the pass that finds it lost sets the rate before the node gets a token."""
    if after.rate <= 0:
        because = f"losing it {after.effect}" if after.lost else "the zone's rate is 0"
        return DelayTerm("waiting for a token", None, None, because)
    waiting = len(zone.queued)
    lost = " with this one lost" if after.lost else ""
    wait = f"{counted(waiting, 'node')} wait{'s' if waiting == 1 else ''}"
    origin = f"{wait}, {after.rate:g} nodes a second{lost}"
    low, high = waiting / after.rate, (waiting + 1) / after.rate
    return DelayTerm("waiting for a token", low, high, origin)


def _s(duration_ns: int) -> str:
    """A duration in seconds with at most one decimal; a long one as kubectl writes ages."""
    if duration_ns >= _LONG_NS:
        return human_duration(duration_ns)
    return f"{duration_ns / SECOND_NS:.1f}".removesuffix(".0") + "s"


def _state(outlook: Outlook, of_node: NodeOutlook, verdict: NodeVerdict) -> Iterator[str]:
    yield f"{verdict.state}: {verdict.because}".rstrip("?.") + "."
    if not of_node.leases_count:
        yield "Its Lease does not count: the gate NodeLease is off, only status posts do."
    elif of_node.lease_age_ns is not None:
        yield f"Its lease was renewed {_s(of_node.lease_age_ns)} before this moment."
    elif outlook.cache.heartbeats:
        yield "It has no Lease, so the age of its last sign of life is unknown."
    else:
        yield "No Lease was read, so the age of its last sign of life is unknown."
    if of_node.status_age_ns is not None:
        yield f"Its kubelet last posted a status {_s(of_node.status_age_ns)} before this moment."
    ready = of_node.node.ready()
    if ready is not None and ready.last_transition_time is not None:
        since = outlook.now_ns - ready.last_transition_time
        reason = f" ({ready.reason})" if ready.reason else ""
        lasted = human_duration(since)
        yield f"Ready is {ready.status}{reason} for {lasted}."
    if of_node.message:
        yield f"It says: {of_node.message}"
    if of_node.node.spec.taints:
        yield f"Its taints: {', '.join(str(t) for t in of_node.node.spec.taints)}."
    if of_node.node.spec.unschedulable:
        yield "It is cordoned."


def _when(of_node: NodeOutlook) -> Iterator[str]:
    if of_node.classic is not None:
        yield from how_it_works(of_node, of_node.classic)
    elif of_node.ready == "True":
        yield (
            "If its heartbeats stop now, these times add up to its NoExecute taint; then each pod "
            "has its own tolerationSeconds left. While heartbeats come, none of this happens."
            if of_node.sign_age_ns is not None and not of_node.late
            else "Unless a heartbeat comes, these times add up to its NoExecute taint; then each "
            "pod has its own tolerationSeconds left."
        )
    else:
        yield (
            "These times add up to its NoExecute taint; then each pod has its tolerationSeconds "
            "left."
        )


def _zone(zone: ZoneOutlook, of_node: NodeOutlook, outlook: Outlook) -> Iterator[str]:
    name = f"Zone {zone.name}" if zone.name else "The nodes without a zone label"
    yield f"{name}: {zone.state or 'no state'}, {zone.why}."
    if of_node.classic is not None:
        yield pace(zone.rate)
    elif zone.rate > 0:
        yield f"Nodes are tainted at {zone.rate:g} a second, one each {1 / zone.rate:g}s."
    else:
        yield "No node of it gets a NoExecute taint now; timers already running go on."
    if zone.queued:
        shown = ", ".join(zone.queued[:5]) + (", ..." if len(zone.queued) > 5 else "")
        yield f"Waiting in its queue: {len(zone.queued)} ({shown})."
    after = _after(outlook, of_node)
    if after.lost:
        yield f"Losing this node {after.effect}: {after.why}."
    yield f"Its brake: {zone_brakes(outlook, [zone])[zone.key].sentence}."
    settings = outlook.settings
    origin = settings.origins["unhealthy-zone-threshold"]
    yield (
        f"It would be PartialDisruption from 3 nodes and a share of {zone.threshold:g} not ready "
        f"on ({origin}); the number compared with large-cluster-size-threshold "
        f"{settings.large_cluster_size_threshold} is the zone's size, {zone.nodes}."
    )


def _pods(outlook: Outlook, of_node: NodeOutlook) -> Iterator[str]:
    if not of_node.pods:
        yield "No pod is bound to it."
        return
    taints = no_execute_taints(of_node.node.spec.taints)
    operators = outlook.settings.gate("TaintTolerationComparisonOperators")
    timers = {(t.namespace, t.name): t for t in of_node.timers}
    staying: list[str] = []
    for pod in of_node.pods:
        name = f"{pod.namespace}/{pod.name}"
        timer = timers.get(pod.key)
        if pod.metadata.deletion_timestamp is not None:
            yield f"{name} is Terminating: {why_terminating(outlook, of_node.node, pod)}"
        elif timer is not None:
            left = _s(max(0, timer.due_ns - outlook.now_ns))
            verdict = eviction_forecast(pod, taints, comparison_operators=operators)
            yield f"{name} is deleted in {left}: {verdict.because}, counted from the taint."
        elif of_node.classic is not None:
            staying.append(f"{name} {pod_fate(pod, outlook.cache, of_node, of_node.classic)}.")
        else:
            coming = taints or coming_taint(of_node)
            staying.append(_staying(pod, name, eviction_forecast(pod, coming)))
    if len(staying) > 12 and of_node.classic is None:
        yield from _counted(of_node.pods)
    else:
        yield from sorted(staying)


def _staying(pod: Pod, name: str, what: EvictionForecast) -> str:
    if what.after_seconds is None:
        return f"{name} stays, whatever happens to the node: {what.because}."
    after = "at once" if what.after_seconds == 0 else f"{what.after_seconds}s after the taint"
    return f"{name} would be deleted {after}: {what.because}."


def _counted(pods: Sequence[Pod]) -> Iterator[str]:
    """Many pods: how many go after how long, the shortest first."""
    after: dict[int | None, int] = {}
    for pod in pods:
        seconds = eviction_forecast(pod, LOST[:1]).after_seconds
        after[seconds] = after.get(seconds, 0) + 1
    for seconds, count in sorted(after.items(), key=lambda item: (item[0] is None, item[0] or 0)):
        if seconds is None:
            many = counted(count, "pod")
            yield f"{many} tolerating a lost node for ever would stay (DaemonSet pods do)."
        else:
            yield f"{counted(count, 'pod')} would be deleted {seconds}s after an unreachable taint."
