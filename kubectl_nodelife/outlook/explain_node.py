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
from typing import Final

from kubectl_nodelife.engine.cache import Cache
from kubectl_nodelife.engine.settings import Settings
from kubectl_nodelife.kube import times, wellknown
from kubectl_nodelife.kube.names import counted, first_names, subject
from kubectl_nodelife.kube.node import Node, Taint
from kubectl_nodelife.kube.pod import TERMINAL_PHASES, Pod
from kubectl_nodelife.kube.taints import no_execute_taints
from kubectl_nodelife.kubelet.reclaim import what_can_hold
from kubectl_nodelife.kubelet.releases import rules_for
from kubectl_nodelife.outlook.endpoints import endpoint_sections
from kubectl_nodelife.outlook.eviction_forecast import (
    LOST,
    ClassicEviction,
    EvictionForecast,
    is_left_out,
    key_of,
)
from kubectl_nodelife.outlook.explain import DelayTerm, ExplainedQuestion, total, unless_of
from kubectl_nodelife.outlook.node import NodeOutlook, Outlook, renewed_ns
from kubectl_nodelife.outlook.node_verdict import (
    NextAction,
    NodeVerdict,
    Option,
    in_words,
    node_verdict,
    ways_out,
)
from kubectl_nodelife.outlook.taint_turns import TaintQueuePosition, ZoneAfterLoss
from kubectl_nodelife.outlook.zone import LossByZone, ZoneOutlook, not_counted, zone_brakes, zone_of
from kubectl_nodelife.workloads.force_advice import (
    NodeReadiness,
    force_advice,
    node_readiness,
    release_of,
)

_CLOSE_S = 0.15
_FEWEST_PARTIAL = 3
_MOST_NAMES = 8
_OWN = (wellknown.TAINT_NODE_NOT_READY, wellknown.TAINT_NODE_UNREACHABLE)
_MOST = 12


def node_sections(
    outlook: Outlook, of_node: NodeOutlook, *, pods_read: bool, services_read: bool
) -> Iterator[ExplainedQuestion]:
    """The sections about one node. `pods_read`, `services_read`: if only to find none."""
    verdict = node_verdict(of_node, outlook.now_ns)
    state = [*_state(outlook, of_node, verdict), *_volumes(of_node)]
    yield ExplainedQuestion("What state is it in?", state)
    zone = zone_of(outlook, of_node)
    terms = eviction_terms(outlook, of_node, zone)
    yield from _evictions(outlook, of_node, verdict, terms)
    speed = list(_zone(zone, of_node, outlook))
    yield ExplainedQuestion("How fast does its zone go, and why?", speed)
    pods = list(_pods(outlook, of_node)) if pods_read else ["Not known: no pods were read."]
    yield ExplainedQuestion("What becomes of its pods?", pods)
    if ways := ways_out(outlook.settings, of_node, verdict):
        yield ExplainedQuestion("What can you do?", [_WAIT, *map(_way, ways)])
    lost = of_node.ready in ("False", "Unknown")
    yield from endpoint_sections(
        outlook.cache, list(of_node.pods), lost=lost, services_read=services_read
    )


_WAIT: Final = "Wait: a node that is back keeps the pods that were not deleted yet."


def _way(option: Option) -> str:
    """A way out with its effect, and the command that plays it, which changes nothing."""
    return f"{option.command}, {option.effect}; to play it: kubectl nodelife what-if {option.acts}"


def _volumes(of_node: NodeOutlook) -> Iterator[str]:
    """A sentence on volumes of its pods that their CSI drivers call unhealthy (KEP-1432)."""
    unwell = [
        f"{pod.namespace}/{pod.name} ({volume.name}: {volume.health_conditions[0].status})"
        for pod in of_node.pods
        for volume in pod.status.volume_health
        if volume.health_conditions
    ]
    if unwell:
        yield f"Volumes of its pods are not healthy: {first_names(unwell, _MOST_NAMES)}."


def _evictions(
    outlook: Outlook, of_node: NodeOutlook, verdict: NodeVerdict, terms: list[DelayTerm]
) -> Iterator[ExplainedQuestion]:
    """When its pods go: those that wait, what is overdue, or what would come if it fell silent."""
    upcoming = verdict.next
    if upcoming is not None and upcoming.overdue_since_ns is not None:
        sentence = overdue_sentence(upcoming)
        yield ExplainedQuestion("When are its pods evicted?", [sentence], answer=sentence)
    elif of_node.timers:
        sentence = _waiting_pods(outlook, of_node)
        yield ExplainedQuestion("When are its pods evicted?", [sentence], answer=sentence)
    elif terms:
        answer = _foreseen(outlook, of_node, terms)
        question = "When would its pods be evicted?"
        yield ExplainedQuestion(question, list(_when(of_node)), terms, answer)
    elif of_node.ready == "True" and of_node.sign_age_ns is None and of_node.classic is None:
        unknown = "Not known: no Lease of it was read, so its kubelet's last heartbeat is unknown."
        if of_node.doubt:
            unknown = "Not known: how old its kubelet's last heartbeat is cannot be told."
        yield ExplainedQuestion("When would its pods be evicted?", [unknown])


def _waiting_pods(outlook: Outlook, of_node: NodeOutlook) -> str:
    first, count = of_node.timers[0], len(of_node.timers)
    in_time = times.precise_due(max(0, first.comes_ns - outlook.now_ns))
    last = times.precise_due(max(0, of_node.timers[-1].comes_ns - outlook.now_ns))
    many = of_node.leaving or f"{count} in all, the last one in {last}" * (count > 1)
    when = f"in {in_time}, unless {unless_of(of_node)}{'; ' if many else ''}{many}"
    return f"{first.namespace}/{first.name} is deleted {when}."


def _foreseen(outlook: Outlook, of_node: NodeOutlook, terms: list[DelayTerm]) -> str:
    """What comes, or would come if the node fell silent now, in one sentence."""
    low, high = total(terms)
    silent = of_node.ready == "True" and not of_node.late
    condition = "If its heartbeats stopped now, " if silent else "If no heartbeat comes, "
    condition = "" if of_node.ready in ("False", "Unknown") else condition
    would, its = ("would be", "it") if condition else ("is", "It")
    if of_node.classic is not None:
        return ""
    if low is None:
        never = "would never be" if condition else "is not"
        why = terms[-1].origin
        uncounted = "".join(f" {each}" for each in not_counted(outlook, of_node.zone))
        return f"{condition}{its} {never} tainted while things are as they are: {why}.{uncounted}"
    first = _first_to_go(outlook, of_node)
    return f"{condition}{its} {would} tainted in {_span(low, high)}{first}."


def _span(low: float, high: float | None) -> str:
    at_least = times.precise_due(round(low * times.SECOND_NS))
    if high is None:
        return f"{at_least} at the earliest"
    latest = times.precise_due(round(high * times.SECOND_NS))
    return at_least if low == high else f"{at_least} to {latest}"


def _first_to_go(outlook: Outlook, of_node: NodeOutlook) -> str:
    """The pod that the coming taint deletes first, and when."""
    coming = (*no_execute_taints(of_node.node.spec.taints), *coming_taint(of_node))
    after = [
        (seconds, f"{pod.namespace}/{pod.name}")
        for pod in of_node.pods
        if pod.metadata.deletion_timestamp is None
        and pod.status.phase not in TERMINAL_PHASES
        and (seconds := outlook.forecast(pod, coming).after_seconds) is not None
    ]
    if not after:
        return "; no pod on it would be deleted" if of_node.pods else ""
    seconds, name = min(after)
    when = f"{times.human_seconds(seconds)} later" if seconds else "at once"
    return f", and its first pod ({name}) deleted {when}"


def overdue_sentence(upcoming: NextAction) -> str:
    """What is to be said of a write that its controller does not make."""
    since = times.format_time(upcoming.overdue_since_ns or 0)
    ago = times.human_duration(upcoming.overdue_ns)
    return (
        f"Overdue: the {upcoming.words} was due at {since}, {ago} ago, and has not come. When it "
        "comes is not foreseen: its controller is disabled, stopped or stuck "
        "('kubectl nodelife diverge' says more)."
    )


def eviction_terms(outlook: Outlook, of_node: NodeOutlook, zone: ZoneOutlook) -> list[DelayTerm]:
    """The delays that add up to the NoExecute taint; empty where it is there or not foreseeable.

    Where a play of the present has it at another time, that counts, as one term.
    """
    terms = _terms_today(outlook, of_node, zone)
    if not terms or of_node.classic is not None or not outlook.plays:
        return terms
    played = outlook.foretell(falls_silent=of_node.node)
    if played is None:
        return terms
    low, high = total(terms)
    horizon_ns = played.until_ns - outlook.now_ns
    what = "until its NoExecute taint"
    tainted_ns = played.tainted_ns.get(of_node.node.name)
    if tainted_ns is None:
        if low is None or low * times.SECOND_NS > horizon_ns:
            return terms
        origin = f"in a play of {times.format_duration(horizon_ns)} from now it does not come: the"
        return [DelayTerm(what, None, None, f"{origin} zone's brake stops it before that")]
    after_s = (tainted_ns - outlook.now_ns) / times.SECOND_NS
    if low is not None and low - _CLOSE_S <= after_s <= (after_s if high is None else high) + 0.3:
        return terms
    period_s = outlook.settings.node_monitor_period_ns / times.SECOND_NS
    low, high = max(0.0, after_s - period_s), after_s + period_s
    return [DelayTerm(what, low, high, "read off a play of the present from now on")]


def _terms_today(outlook: Outlook, of_node: NodeOutlook, zone: ZoneOutlook) -> list[DelayTerm]:
    """The delays as the zone's queue and rate are today."""
    settings = outlook.settings
    terms: list[DelayTerm] = []
    if of_node.classic is not None:
        if of_node.queued is not None:
            return [_turn_term(of_node.queued, zone)]
        terms += _timeout_terms(of_node, of_node.classic, settings)
        return [*terms, _token_term(zone, _after(outlook, of_node))] if terms else []
    if of_node.ready in ("True", ""):
        unknown_in = of_node.unknown_in
        if unknown_in is None:
            return []
        flag = "node-monitor-grace-period" if of_node.ready else "node-startup-grace-period"
        grace = times.format_duration(of_node.grace_ns)
        age = ""
        if of_node.sign_age_ns is not None:
            sign = "lease renewed" if of_node.leases_count else "status posted"
            age = f", {sign} {times.precise_duration(of_node.sign_age_ns)} ago"
        low = unknown_in.low_ns / times.SECOND_NS
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
    origin = f"{queued.in_words()} at {zone.rate:g} nodes a second"
    ends = queued.turn.low_ns / times.SECOND_NS, queued.turn.high_ns / times.SECOND_NS
    return DelayTerm("waiting for a token", *ends, origin)


def _pass_term(settings: Settings, what: str, *, whole: bool = False) -> DelayTerm:
    period_s = settings.node_monitor_period_ns / times.SECOND_NS
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
    waiting, lost = len(zone.queued), " with this one lost" if after.lost else ""
    wait = f"{counted(waiting, 'node')} wait{'s' if waiting == 1 else ''}"
    origin = f"{wait}, {after.rate:g} nodes a second{lost}"
    ends = waiting / after.rate, (waiting + 1) / after.rate
    return DelayTerm("waiting for a token", *ends, origin)


def _state(outlook: Outlook, of_node: NodeOutlook, verdict: NodeVerdict) -> Iterator[str]:
    yield f"{in_words(verdict.state)}: {verdict.because}".rstrip("?.") + "."
    if not of_node.leases_count:
        yield "Its Lease does not count: the gate NodeLease is off, only status posts do."
    elif of_node.lease_age_ns is not None:
        age = times.precise_duration(of_node.lease_age_ns)
        yield f"Its lease was renewed {age} before this moment."
    elif not of_node.doubt:
        lacks = "It has no Lease" if outlook.cache.heartbeats else "No Lease was read"
        yield f"{lacks}, so the age of its last sign of life is unknown."
    if of_node.status_age_ns is not None:
        posted = times.precise_duration(of_node.status_age_ns)
        yield f"Its kubelet last posted a status {posted} before this moment."
    ready = of_node.node.ready()
    if ready is not None and ready.last_transition_time is not None:
        reason = f" ({ready.reason})" if ready.reason else ""
        lasted = times.human_duration(outlook.now_ns - ready.last_transition_time)
        yield f"Ready is {ready.status}{reason} for {lasted}."
    if of_node.message:
        yield f"It says: {of_node.message}"
    if of_node.broken:
        yield f"What is broken there: {'; '.join(of_node.broken)}."
    if of_node.node.spec.taints:
        yield f"Its taints: {', '.join(str(t) for t in of_node.node.spec.taints)}."
    if of_node.node.spec.unschedulable:
        yield "It is cordoned."


def _when(of_node: NodeOutlook) -> Iterator[str]:
    if of_node.classic is not None:
        yield how_it_works(of_node, of_node.classic)
    elif of_node.ready == "True":
        beats = of_node.sign_age_ns is not None and not of_node.late
        condition = "If its heartbeats stop now" if beats else "Unless a heartbeat comes"
        none = " While heartbeats come, none of this happens." * beats
        left = "then each pod has its own tolerationSeconds left"
        yield f"{condition}, these times add up to its NoExecute taint; {left}.{none}"
    else:
        left = "then each pod has its tolerationSeconds left"
        yield f"These times add up to its NoExecute taint; {left}."


def _zone(zone: ZoneOutlook, of_node: NodeOutlook, outlook: Outlook) -> Iterator[str]:
    name = f"Zone {zone.name}" if zone.name else "The nodes without a zone label"
    yield f"{name}: {zone.state or 'no state'}, {zone.coming_and_why(outlook.now_ns)}."
    yield from not_counted(outlook, zone.key)
    if of_node.classic is not None:
        speed = "No node of it has its pods evicted now."
        if zone.rate > 0:
            each = f"one node each {1 / zone.rate:g}s"
            speed = f"The pods of {zone.rate:g} nodes a second are evicted, {each}."
        yield speed
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
    if zone.nodes < _FEWEST_PARTIAL:
        few = counted(zone.nodes, "node")
        yield f"It has {few}, and PartialDisruption takes 3 that are not ready: it never is that."
        return
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
    timers = {key_of(timer): timer for timer in of_node.timers}
    staying: list[str] = []
    forecasts: list[EvictionForecast] = []
    for pod in of_node.pods:
        name = f"{pod.namespace}/{pod.name}"
        timer = timers.get(pod.key)
        if pod.metadata.deletion_timestamp is not None:
            yield f"{name} is Terminating: {why_terminating(outlook, of_node.node, pod)}"
        elif timer is not None:
            left = times.precise_due(max(0, timer.comes_ns - outlook.now_ns))
            verdict = outlook.forecast(pod, taints)
            yield f"{name} is deleted in {left}: {verdict.because}, counted from the taint."
        elif of_node.classic is not None:
            effect = eviction_effect(pod, outlook.cache, of_node, of_node.classic)
            staying.append(f"{name} {effect}.")
        else:
            forecasts.append(outlook.forecast(pod, taints or coming_taint(of_node)))
            staying.append(_staying(name, forecasts[-1]))
    if len(forecasts) > 12:
        yield from _counted(forecasts, taints, coming_taint(of_node)[0].key)
    else:
        yield from sorted(staying)


def _staying(name: str, what: EvictionForecast) -> str:
    if what.after_seconds is None:
        return f"{name} stays, whatever happens to the node: {what.because}."
    span = times.human_seconds(what.after_seconds)
    after = f"{span} after the taint" if what.after_seconds else "at once"
    return f"{name} would be deleted {after}: {what.because}."


def _counted(
    forecasts: Sequence[EvictionForecast], taints: Sequence[Taint], coming: str
) -> Iterator[str]:
    """Many pods that stay now: how many go after how long, the shortest first. `coming`: the key of
    the taint that decides where the node has none of `taints`.
    """
    lost = "its taints" if taints else "a lost node"
    after = "the taint" if taints else f"the taint {coming}"
    counts = Counter(forecast.after_seconds for forecast in forecasts)
    for seconds, count in sorted(counts.items(), key=lambda item: (item[0] is None, item[0] or 0)):
        says = f"tolerating {lost} for ever would stay (DaemonSet pods do)"
        if seconds is not None:
            says = f"would be deleted {times.human_seconds(seconds)} after {after}"
        yield f"{counted(count, 'pod')} {says}."


def taint_sections(
    outlook: Outlook, of_node: NodeOutlook, taint: Taint, *, pods_read: bool
) -> Iterator[ExplainedQuestion]:
    """The effect of `kubectl taint node NODE TAINT` on its pods; taints that the node has stay."""
    node = of_node.node
    question, nothing = f"What would the taint {taint} do to its pods?", ""
    if not pods_read:
        nothing = "Not known: no pods were read."
    elif taint.effect != wellknown.NO_EXECUTE:
        keeps = "keeps" if taint.effect == "NoSchedule" else "makes the scheduler prefer to keep"
        nothing = f"Nothing: {taint.effect} {keeps} new pods away and puts none out."
    elif not outlook.settings.taint_manager:
        nothing = "Nothing: enable-taint-manager=false, so no controller acts on NoExecute taints."
    if nothing:
        yield ExplainedQuestion(question, [nothing])
        return
    taints = (*no_execute_taints(node.spec.taints), taint)
    by_time: dict[EvictionForecast, list[Pod]] = {}
    for pod in of_node.pods:
        if pod.metadata.deletion_timestamp is None:
            by_time.setdefault(outlook.forecast(pod, taints), []).append(pod)
    yield ExplainedQuestion(question, list(_fates(by_time)) or ["Nothing: no pod runs on it."])
    yield ExplainedQuestion("What else is there to know?", list(_notes(of_node, taint)))


def _fates(by_time: dict[EvictionForecast, list[Pod]]) -> Iterator[str]:
    """The soonest first, those that stay last."""

    def place(forecast: EvictionForecast) -> tuple[bool, int, str]:
        seconds = forecast.after_seconds
        return seconds is None, seconds or 0, forecast.because

    for forecast in sorted(by_time, key=place):
        pods, seconds = by_time[forecast], forecast.after_seconds
        many = counted(len(pods), "pod")
        loses = f"In {times.human_duration((seconds or 0) * times.SECOND_NS)} it loses {many}"
        if not seconds:
            stay = f"{many} {'stays' if len(pods) == 1 else 'stay'}"
            loses = stay if seconds is None else f"It loses {many} at once"
        yield f"{loses}: {_names(pods)}: {forecast.because}."


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
    if taint.key == wellknown.TAINT_NODE_OUT_OF_SERVICE:
        yield (
            "This taint says that the machine is off: pod-gc then deletes its Terminating pods by "
            "force, and volumes are detached. Set it on no machine that may run."
        )
    yield "The time of each pod is fixed when the taint is seen; only taking it off stops that."
    command = f"kubectl taint {subject('node', name)} {shlex.quote(str(taint))}"
    yield f"To do it: {command}; to undo it: the same with - at its end."


def _names(pods: Sequence[Pod]) -> str:
    return first_names(sorted(f"{pod.namespace}/{pod.name}" for pod in pods), _MOST_NAMES)


def _timeout_terms(
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
    low, high = classic.left.low_ns / times.SECOND_NS, classic.left.high_ns / times.SECOND_NS
    yield DelayTerm(what, low, low, origin)
    period = f"node-monitor-period {settings.flags['node-monitor-period']}"
    yield DelayTerm("until a monitor pass queues the node", 0.0, high - low, period)


def how_it_works(of_node: NodeOutlook, classic: ClassicEviction) -> str:
    """How pods are evicted without taints, in words, and what the times that follow mean."""
    silent = "If its heartbeats stop now, these" if of_node.ready == "True" else "These"
    return (
        f"{silent} times add up to the eviction of its pods. This release is set up to evict "
        f"without taints: pod-eviction-timeout {times.format_duration(classic.timeout_ns)} counts "
        "from the moment Ready turned False, or from the last sign of life where it is Unknown; "
        "tolerations are ignored, and all pods of the node go in one turn."
    )


def eviction_effect(pod: Pod, cache: Cache, of_node: NodeOutlook, classic: ClassicEviction) -> str:
    """The effect of the eviction on one pod that is not Terminating, to stand after its name."""
    if is_left_out(pod, cache):
        return "stays, whatever happens to the node: a DaemonSet selects it"
    if classic.evicted:
        return "came after the node's turn: v1.16 does not evict a node twice"
    deleted = "would be deleted" if of_node.ready in ("True", "") else "is deleted"
    return f"{deleted} with the others when the node's turn comes, whatever it tolerates"


def is_known_absent(outlook: Outlook, node: str) -> bool:
    """True if nodes were read, and this one was not among them."""
    cache = outlook.cache
    return bool(cache.nodes) and not cache.is_quarantined("Node", ("", node))


def why_terminating(outlook: Outlook, node: Node | None, pod: Pod) -> str:
    """One sentence, with the numbers; what to do is what `audit` and `drain-plan` say of it."""
    ends = pod.metadata.deletion_timestamp
    assert ends is not None
    over_ns = outlook.now_ns - ends
    if over_ns < 0:
        left = times.human_duration(-over_ns)
        return f"its grace period ends in {left}."
    over = f"its grace period was over {times.human_duration(over_ns)} ago"
    name = pod.spec.node_name
    of_node = NodeReadiness(name=name, exists=False)
    if node is None and name and not is_known_absent(outlook, name):
        return f"{over}; whether its node {name} exists is not known: no list of nodes was read."
    if node is not None:
        of_node = node_readiness(node, renewed_ns(outlook.cache, node.name, outlook.now_ns))
    advice = force_advice(pod, of_node, release_of(outlook.settings), outlook.now_ns)
    why = ""
    if pod.metadata.finalizers and "forcing does not help" not in advice.sentence:
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
    if node is None or ends is None or outlook.now_ns < ends or not node.is_ready:
        return []
    return [
        f"{resource.capitalize()} can hold it: {state}."
        for resource, state in what_can_hold(pod, rules_for(outlook.settings.profile))
    ]
