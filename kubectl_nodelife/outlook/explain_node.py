"""Explains a node, what a taint does to its pods, its zone, and why a pod is still Terminating.

Of a node: its state, the times until its pods are evicted, its zone's rate, its pods; of a taint
that it might get: which pods go at once, later or never; of a zone: its state, the rule for it,
what would slow or stop it, what waits, what runs. In v1.16 without taints: the eviction's times,
its pace, and which pods it takes.
"""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Iterator, Sequence

from kubectl_nodelife.engine.cache import Cache
from kubectl_nodelife.engine.settings import Settings
from kubectl_nodelife.kube.names import counted, first_names, subject
from kubectl_nodelife.kube.node import Node, Taint
from kubectl_nodelife.kube.pod import Pod
from kubectl_nodelife.kube.taints import no_execute_taints
from kubectl_nodelife.kube.times import SECOND_NS, format_duration, human_duration
from kubectl_nodelife.kube.wellknown import (
    NO_EXECUTE,
    TAINT_NODE_NOT_READY,
    TAINT_NODE_OUT_OF_SERVICE,
    TAINT_NODE_UNREACHABLE,
)
from kubectl_nodelife.kubelet.reclaim import what_can_hold
from kubectl_nodelife.kubelet.releases import rules_for
from kubectl_nodelife.outlook.endpoints import endpoint_sections
from kubectl_nodelife.outlook.eviction_forecast import (
    LOST,
    ClassicEviction,
    EvictionForecast,
    eviction_forecast,
    is_left_out,
)
from kubectl_nodelife.outlook.explain import DelayTerm, ExplainedQuestion
from kubectl_nodelife.outlook.node import NodeOutlook, Outlook, TaintQueuePosition
from kubectl_nodelife.outlook.node_verdict import NodeVerdict, node_verdict
from kubectl_nodelife.outlook.zone import (
    LossByZone,
    ZoneAfterLoss,
    ZoneOutlook,
    zone_after,
    zone_brakes,
    zones,
)
from kubectl_nodelife.workloads.force_advice import force_advice, release_of
from kubectl_nodelife.workloads.node_readiness import NodeReadiness, node_readiness

_LONG_NS = 600 * SECOND_NS


_MOST_NAMES = 8
_OWN = (TAINT_NODE_NOT_READY, TAINT_NODE_UNREACHABLE)
_MOST = 12


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
        unknown = "Not known: no Lease of it was read, so its kubelet's last heartbeat is unknown."
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


def taint_sections(
    outlook: Outlook, of_node: NodeOutlook, taint: Taint, *, pods_read: bool
) -> Iterator[ExplainedQuestion]:
    """The effect of `kubectl taint node NODE TAINT` on its pods; taints that the node has stay."""
    node = of_node.node
    question = f"What would the taint {taint} do to its pods?"
    if not pods_read:
        yield ExplainedQuestion(question, ["Not known: no pods were read."])
        return
    if taint.effect != NO_EXECUTE:
        kept = "keeps" if taint.effect == "NoSchedule" else "makes the scheduler prefer to keep"
        sentence = f"Nothing: {taint.effect} {kept} new pods away and puts none out."
        yield ExplainedQuestion(question, [sentence])
        return
    if not outlook.settings.taint_manager:
        sentence = "Nothing: enable-taint-manager=false, so no controller acts on NoExecute taints."
        yield ExplainedQuestion(question, [sentence])
        return
    operators = outlook.settings.gate("TaintTolerationComparisonOperators")
    taints = (*no_execute_taints(node.spec.taints), taint)
    by_time: dict[EvictionForecast, list[Pod]] = {}
    for pod in of_node.pods:
        if pod.metadata.deletion_timestamp is None:
            forecast = eviction_forecast(pod, taints, comparison_operators=operators)
            by_time.setdefault(forecast, []).append(pod)
    yield ExplainedQuestion(question, list(_fates(by_time)) or ["Nothing: no pod runs on it."])
    yield ExplainedQuestion("What else is there to know?", list(_notes(of_node, taint)))


def _fates(by_time: dict[EvictionForecast, list[Pod]]) -> Iterator[str]:
    """The soonest first, those that stay last."""

    def place(forecast: EvictionForecast) -> tuple[bool, int, str]:
        seconds = forecast.after_seconds
        return seconds is None, seconds or 0, forecast.because

    for forecast in sorted(by_time, key=place):
        pods, seconds = by_time[forecast], forecast.after_seconds
        when = "Never" if seconds is None else f"In {human_duration(seconds * SECOND_NS)}"
        when = "Now" if seconds == 0 else when
        yield f"{when}, {len(pods)}: {_names(pods)}: {forecast.because}."


def _notes(of_node: NodeOutlook, taint: Taint) -> Iterator[str]:
    name = of_node.node.name
    yield (
        "Budgets are ignored: the pods are deleted, not evicted through the Eviction API. A drain "
        "asks the budgets: see 'kubectl nodelife drain-plan'."
    )
    if of_node.timers:
        yield f"{len(of_node.timers)} of its pods are on their way out already, by another taint."
    if taint.key in _OWN and of_node.ready == "True":
        yield (
            "The node is Ready, so that the node lifecycle controller takes this taint off at its "
            "next pass, and the timers with it."
        )
    if taint.key == TAINT_NODE_OUT_OF_SERVICE:
        yield (
            "This taint says that the machine is off: pod-gc then deletes its Terminating pods by "
            "force, and volumes are detached. Set it on no machine that may run."
        )
    yield "The time of each pod is fixed when the taint is seen; only taking it off stops that."
    command = f"kubectl taint {subject('node', name)} {shlex.quote(str(taint))}"
    yield f"To do it: {command}; to undo it: the same with - at its end."


def _names(pods: Sequence[Pod]) -> str:
    return first_names(sorted(f"{pod.namespace}/{pod.name}" for pod in pods), _MOST_NAMES)


def find_zone(outlook: Outlook, name: str) -> ZoneOutlook | None:
    """The zone of that name; the last part of it will do where only one zone ends so."""
    known = zones(outlook.memory, outlook.settings)
    exact = [z for z in known if name in (z.name, z.name or "none", f"<{z.name or 'none'}>")]
    found = exact or [z for z in known if z.name.rpartition("/")[2] == name]
    return found[0] if len(found) == 1 else None


def zone_names(outlook: Outlook) -> list[str]:
    """The names of all zones; that of the nodes without a zone label is `none`."""
    return [z.name or "none" for z in zones(outlook.memory, outlook.settings)]


def zone_sections(outlook: Outlook, zone: ZoneOutlook) -> Iterator[ExplainedQuestion]:
    """The sections about one zone."""
    nodes = [outlook.node(n) for n in outlook.cache.nodes.values()]
    nodes = sorted((n for n in nodes if n.zone == zone.key), key=lambda n: n.node.name)
    yield ExplainedQuestion(
        "What state is it in, and why?", list(_zone_state(outlook, zone, nodes))
    )
    yield ExplainedQuestion("What would slow or stop it?", list(_brake(outlook, zone)))
    waiting = list(_queue(zone, nodes))
    if waiting:
        yield ExplainedQuestion("Which nodes wait for their taint, and how long?", waiting)
    running = list(_running(outlook, nodes))
    if running:
        yield ExplainedQuestion("Which deletions run on, whatever its brake?", running)


def _zone_state(outlook: Outlook, zone: ZoneOutlook, nodes: list[NodeOutlook]) -> Iterator[str]:
    yield f"{zone.state or 'No state'}: {zone.why}."
    if zone.rate > 0:
        yield f"Nodes are tainted at {zone.rate:g} a second, one each {1 / zone.rate:g}s."
    else:
        yield "No node of it gets a NoExecute taint now."
    states = Counter(node_verdict(n, outlook.now_ns).state for n in nodes)
    counted = ", ".join(f"{count} {state}" for state, count in states.most_common())
    yield f"Its nodes: {counted or 'none'}."
    if len(nodes) != zone.nodes:
        yield (
            f"{len(nodes) - zone.nodes} of its {len(nodes)} nodes do not count: they are labelled "
            "to be left out of the statistics."
        )


def _brake(outlook: Outlook, zone: ZoneOutlook) -> Iterator[str]:
    brake = zone_brakes(outlook, [zone])[zone.key]
    yield f"{brake.sentence[0].upper()}{brake.sentence[1:]}."
    ready = zone.nodes - zone.not_ready
    if ready and brake.after is not None and brake.after.lost != ready:
        after = zone_after(outlook.memory, outlook.settings, zone.key, ready)
        yield f"Losing all of it {after.effect}: {after.why}."


def _queue(zone: ZoneOutlook, nodes: list[NodeOutlook]) -> Iterator[str]:
    waiting = [(n.queued, n.node.name) for n in nodes if n.queued is not None]
    for place, name in sorted(waiting, key=lambda each: each[0].position)[:_MOST]:
        turn = place.turn
        if turn is None:
            yield f"{name}: not at the zone's rate 0."
            continue
        low, high = turn.low_ns / SECOND_NS, turn.high_ns / SECOND_NS
        yield f"{name}: its turn comes in {low:.0f} to {high:.0f}s, at {zone.rate:g} a second."


def _is_terminating(outlook: Outlook, key: tuple[str, str]) -> bool:
    pod = outlook.cache.pods.get(key)
    return pod is not None and pod.metadata.deletion_timestamp is not None


def _running(outlook: Outlook, nodes: list[NodeOutlook]) -> Iterator[str]:
    timers = sorted(
        (t.due_ns, f"{t.namespace}/{t.name}", n.node.name)
        for n in nodes
        for t in n.timers
        if not _is_terminating(outlook, (t.namespace, t.name))
    )
    for due_ns, pod, node in timers[:_MOST]:
        left = max(0, due_ns - outlook.now_ns) / SECOND_NS
        yield f"{pod} on {node} is deleted in {left:.0f}s."
    if len(timers) > _MOST:
        yield f"{counted(len(timers) - _MOST, 'more pod')} will be deleted later."


def timeout_terms(
    of_node: NodeOutlook, classic: ClassicEviction, settings: Settings
) -> Iterator[DelayTerm]:
    """The rest of pod-eviction-timeout, by the clock that counts; nothing once it is over."""
    if classic.left is None:
        return
    flag = "pod-eviction-timeout"
    origin = f"{flag} {settings.flags[flag]} ({settings.origins[flag]}), since {classic.clock}"
    what = f"{flag} left"
    if of_node.ready in ("True", ""):
        what += ", if no heartbeat comes"
    low, high = classic.left.low_ns / SECOND_NS, classic.left.high_ns / SECOND_NS
    yield DelayTerm(what, low, low, origin)
    period = f"node-monitor-period {settings.flags['node-monitor-period']}"
    yield DelayTerm("until a monitor pass queues the node", 0.0, high - low, period)


def how_it_works(of_node: NodeOutlook, classic: ClassicEviction) -> Iterator[str]:
    """How pods are evicted without taints, in words, and what the times that follow mean."""
    silent = "If its heartbeats stop now, these" if of_node.ready == "True" else "These"
    yield (
        f"{silent} times add up to the eviction of its pods. This release is set up to evict "
        f"without taints: pod-eviction-timeout {format_duration(classic.timeout_ns)} counts from "
        "the moment Ready turned False, or from the last sign of life where it is Unknown; "
        "tolerations are ignored, and all pods of the node go in one turn."
    )


def pod_fate(pod: Pod, cache: Cache, of_node: NodeOutlook, classic: ClassicEviction) -> str:
    """The effect of the eviction on one pod that is not Terminating, to stand after its name."""
    if is_left_out(pod, cache):
        return "stays, whatever happens to the node: a DaemonSet selects it"
    if classic.evicted:
        return "came after the node's turn: v1.16 does not evict a node twice"
    if of_node.ready in ("True", ""):
        return "would be deleted with the others when the node's turn comes, whatever it tolerates"
    return "is deleted with the others when the node's turn comes, whatever it tolerates"


def pace(rate: float) -> str:
    """How fast the zone's queue goes on."""
    if rate > 0:
        return f"The pods of {rate:g} nodes a second are evicted, one node each {1 / rate:g}s."
    return "No node of it has its pods evicted now."


def why_terminating(outlook: Outlook, node: Node | None, pod: Pod) -> str:
    """One sentence, with the numbers; what to do is what `audit` and `drain-plan` say of it."""
    ends = pod.metadata.deletion_timestamp
    assert ends is not None
    over_ns = outlook.now_ns - ends
    if over_ns < 0:
        left = human_duration(-over_ns)
        return f"its grace period ends in {left}."
    over = f"its grace period was over {human_duration(over_ns)} ago"
    of_node = NodeReadiness(name=pod.spec.node_name, exists=False)
    if node is not None:
        heartbeat = outlook.cache.heartbeats.get(node.name)
        renewal = heartbeat.renewal(outlook.now_ns) if heartbeat is not None else None
        of_node = node_readiness(node, renewal[0] if renewal is not None else None)
    advice = force_advice(pod, of_node, release_of(outlook.settings), outlook.now_ns)
    why = ""
    if pod.metadata.finalizers:
        why = f"the finalizers {', '.join(pod.metadata.finalizers)} hold it; "
    elif node is not None:
        why = f"only its kubelet can finish that, and its node is Ready={of_node.ready}; "
    return f"{over}; {why}{advice.sentence}."


def what_can_hold_it(outlook: Outlook, node: Node | None, pod: Pod) -> list[str]:
    """The resources that the kubelet of a Ready node must see gone before it lets the object go,
    and what is known of each; empty while the grace period lasts, or where no kubelet can answer.

    Follows `PodResourcesAreReclaimed` up to 1.26, `SyncTerminatedPod` later (`kubelet/reclaim`).
    """
    ends = pod.metadata.deletion_timestamp
    if node is None or ends is None or outlook.now_ns < ends:
        return []
    if not node.is_ready:
        return []
    rules = rules_for(outlook.settings.profile)
    return [
        f"{resource.capitalize()} can hold it: {known}."
        for resource, known in what_can_hold(pod, rules)
    ]
