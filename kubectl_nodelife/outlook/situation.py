"""What a cluster's nodes are in, in a sentence: what happens and since when, what Kubernetes does
next, whom that hurts, and what one types now.

Made of the verdicts on nodes, the outlook on zones and the works in progress, which `status` and
the live page have: nothing is judged anew here.
"""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from typing import Any, Final

import msgspec

from kubectl_nodelife.controllers.nodelifecycle.controller import EVICTION_LOOP_PERIOD_NS
from kubectl_nodelife.controllers.nodelifecycle.zones import FULL, PARTIAL
from kubectl_nodelife.engine.cache import Cache
from kubectl_nodelife.engine.settings import Settings
from kubectl_nodelife.kube.names import counted, first_names
from kubectl_nodelife.kube.pod import Pod, is_daemon_pod, moves_off
from kubectl_nodelife.kube.times import SECOND_NS
from kubectl_nodelife.kube.wellknown import NO_EXECUTE
from kubectl_nodelife.outlook.eviction_forecast import LOST
from kubectl_nodelife.outlook.fates import Coming, Judged, Lane, lanes, since_ns, works_lanes
from kubectl_nodelife.outlook.node import NodeOutlook, Outlook
from kubectl_nodelife.outlook.node_verdict import (
    FINE,
    UNHEARD,
    WORST_FIRST,
    Option,
    in_words,
    ways_out,
)
from kubectl_nodelife.outlook.works import WorkInProgress
from kubectl_nodelife.outlook.zone import ZoneOutlook
from kubectl_nodelife.workloads.owners import workload_of

PEACE, OURS, WORSE, GONE, BLIND = "peace", "ours", "worse", "gone", "blind"
"""How bad it is: nothing; what people do; it may get worse; nodes are lost; not seen."""

SAME_SECONDS: Final = 0.5
"""An instant that moves by no more than that is not sent again."""

_LOST_KEYS = frozenset(taint.key for taint in LOST)
_MOST_NAMES: Final = 3
_MOST_COMING: Final = 4
_MOST_PODS: Final = 20_000
_STOPPED: Final = "no node is tainted there"
_STAYS: Final = "Nothing comes by itself while things stay as they are."


class Situation(msgspec.Struct, frozen=True, rename="camel"):
    """What happens in the cluster, what Kubernetes does next, whom that hurts, what one types.

    `since_s`: by the stream's clock, None: not known. `coming`: the soonest first; where it is
    empty, `uncoming` says why, "" in peace. `hurts`: "" for nobody. `advice`: what to do, or why
    there is nothing to do; `options`: commands, the first of which one types now. `lanes`: the same
    as a picture of time; `harmed`: workloads and Services on that line of time, the worst first.
    """

    level: str
    sentence: str
    since_s: float | None = None
    coming: list[Coming] = []
    hurts: str = ""
    advice: str = ""
    options: list[Option] = []
    lanes: list[Lane] = []
    harmed: list[Lane] = []
    uncoming: str = ""

    def shows_the_same(self, other: Situation) -> bool:
        """True if it is the same but for what instants move by within themselves."""
        mine, others = list[float](), list[float]()
        if _words(msgspec.to_builtins(self), mine) != _words(msgspec.to_builtins(other), others):
            return False
        return all(abs(a - b) <= SAME_SECONDS for a, b in zip(mine, others, strict=True))


def _words(value: Any, instants: list[float]) -> Any:
    """The value without its instants, which are put aside: its numbers are all instants."""
    if isinstance(value, float):
        instants.append(value)
        return float
    if isinstance(value, dict):
        return {key: _words(each, instants) for key, each in value.items()}
    return [_words(each, instants) for each in value] if isinstance(value, list) else value


class Hurt(msgspec.Struct, frozen=True):
    """Pods of lost and silent nodes that their taints delete. `all_of`: workloads of which no pod
    is elsewhere, `part_of`: the others, the worst first. `first_after_s`: from a taint to the first
    deletion. `stuck`: pods that are Terminating on nodes where no kubelet ends them."""

    pods: int = 0
    all_of: tuple[str, ...] = ()
    part_of: tuple[str, ...] = ()
    first_after_s: int | None = None
    stuck: int = 0

    def in_words(self) -> str:
        """Whom it hurts, "" for nobody."""
        clauses = []
        if self.pods:
            workloads = len(self.all_of) + len(self.part_of)
            clauses.append(f"{counted(self.pods, 'pod')} of {counted(workloads, 'workload')}")
        if self.all_of:
            have = "has" if len(self.all_of) == 1 else "have"
            names = first_names(self.all_of, _MOST_NAMES)
            clauses.append(f"{names} {have} no pod on any other node")
        if self.part_of:
            clauses.append(f"partly {first_names(self.part_of, _MOST_NAMES)}")
        if self.stuck:
            are = "is" if self.stuck == 1 else "are"
            clauses.append(
                f"{counted(self.stuck, 'pod')} {are} Terminating on nodes whose kubelet is silent, "
                "and nobody removes them"
            )
        return "; ".join(clauses)


def hurt_steps(outlook: Outlook, judged: Sequence[Judged]) -> Generator[None, None, Hurt]:
    """Whom the loss of these nodes hurts, a step a node; of the first `_MOST_PODS` pods."""
    share = _Share(outlook.cache)
    first_after_s: int | None = None
    stuck = seen = 0
    for of_node, verdict in judged:
        if verdict.state not in UNHEARD or seen > _MOST_PODS:
            continue
        for pod in outlook.cache.pods_on(of_node.node.name):
            seen += 1
            if pod.metadata.deletion_timestamp is not None:
                stuck += verdict.state != "silent" and not is_daemon_pod(pod)
                continue
            after_s = outlook.forecast(pod, LOST[:1]).after_seconds if moves_off(pod) else None
            if after_s is None:
                continue
            first_after_s = after_s if first_after_s is None else min(first_after_s, after_s)
            share.add(pod)
        yield
    return share.hurt(first_after_s, stuck)


def on_nodes_steps(cache: Cache, names: Sequence[str]) -> Generator[None, None, str]:
    """Who is on these nodes, in words, a step a node; "" for no node. Pods that have ended and
    those of DaemonSets and files do not count: nobody moves them.
    """
    share = _Share(cache)
    for name in names:
        for pod in cache.pods_on(name):
            if moves_off(pod):
                share.add(pod)
        yield
    on_them = share.hurt().in_words() or "no pods that move"
    return f"{counted(len(names), 'node')} with {on_them}" if names else ""


class _Share:
    """How many of the pods of each workload (namespace, kind, name) were added, and of how many."""

    def __init__(self, cache: Cache) -> None:
        self._cache = cache
        self._everywhere: dict[tuple[str, str, str], int] = {}
        self.here: Counter[tuple[str, str, str]] = Counter()

    def add(self, pod: Pod) -> None:
        """One more of its workload."""
        key, uid = workload_of(pod)
        self.here[key] += 1
        if key not in self._everywhere:
            self._everywhere[key] = len(self._cache.pods_of(uid)) if uid else 1

    def hurt(self, first_after_s: int | None = None, stuck: int = 0) -> Hurt:
        """Those of which no pod is elsewhere, and the others, the worst first."""
        here, of = self.here, self._everywhere
        worst = sorted(here, key=lambda key: (-here[key] / max(1, of[key]), key))
        named = {key: f"{key[0]}/{key[2]}" for key in worst}
        all_of = tuple(named[key] for key in worst if here[key] >= of[key])
        part_of = tuple(
            f"{named[key]} ({here[key]} of {of[key]} pods)" for key in worst if here[key] < of[key]
        )
        return Hurt(here.total(), all_of, part_of, first_after_s, stuck)


def situation(
    outlook: Outlook,
    judged: Sequence[Judged],
    of: Sequence[ZoneOutlook],
    hurt: Hurt,
    works: Sequence[WorkInProgress],
    instant: Callable[[int], float],
    unseen: str,
    harmed: list[Lane],
) -> Situation:
    """The situation of nodes that are not healthy. `instant`: an instant by the stream's clock;
    `unseen`: why the cluster is not seen now, "" where it is."""
    now_ns = outlook.now_ns
    trouble = [each for each in judged if each[1].state not in FINE]
    back = [each for each in judged if each[0].untaint_in is not None]
    happens = list(_happening(trouble, of)) + _are_back(back)
    if unseen:
        last = Situation(GONE, _joined(happens), hurts=hurt.in_words())
        return blind(unseen, instant(now_ns), last)
    if not happens:
        return _in_peace(works, outlook.cache)
    coming = sorted(_coming(outlook, judged, of, hurt), key=lambda each: each[1])
    silent = [each for each in trouble if each[1].state in UNHEARD]
    began_ns = since_ns(silent, now_ns)
    lost = any(verdict.state in UNHEARD - {"silent"} for _, verdict in trouble)
    return Situation(
        GONE if lost else WORSE if trouble else PEACE,
        f"{_joined(happens)}.",
        None if began_ns is None else instant(began_ns),
        [Coming(says, instant(low), instant(high)) for says, low, high in coming[:_MOST_COMING]],
        hurt.in_words() or _kept(back, now_ns),
        *_to_do(outlook.settings, trouble, of, hurt, bool(coming)),
        lanes=[
            *lanes(outlook, judged, {zone.key: zone for zone in of}, hurt.first_after_s, instant),
            *works_lanes(works),
        ],
        harmed=harmed,
        uncoming="" if coming else _STAYS,
    )


def _kept(back: Sequence[Judged], now_ns: int) -> str:
    """Whom it hurts that nodes are back and still tainted, "" where none is."""
    ends = sum(
        timer.comes_ns <= now_ns + of_node.untaint_in.high_ns
        for of_node, _ in back
        if of_node.untaint_in is not None
        for timer in of_node.timers
    )
    if ends:
        return f"{counted(ends, 'pod')} whose time may be over before that"
    return "nobody more: pods that were not deleted yet stay" if back else ""


def blind(because: str, since_s: float, last: Situation | None) -> Situation:
    """The situation while the cluster is not seen. `last`: when it last was."""
    last = last or Situation(BLIND, "")
    then = last.sentence.rstrip(".")
    if then.startswith(("Zone ", "No zone ", "None of ", "Node ", "Nodes ")):  # no name of a node
        then = then[0].lower() + then[1:]
    checked = Option("kubectl nodelife daemon status", "says what the daemon reads, and what not")
    return Situation(
        BLIND,
        f"Not seen now: {because}. All is shown as it was then{': ' if then else ''}{then}.",
        since_s,
        hurts=last.hurts,
        advice="No node is called worse until news comes.",
        options=[checked],
        lanes=last.lanes,
        harmed=last.harmed,
        uncoming="What comes next is not known until news comes: lanes say what was expected then.",
    )


def _joined(happens: Sequence[str]) -> str:
    """As a sentence; a name is not written otherwise for beginning it."""
    text = "; ".join(happens[:_MOST_NAMES])
    return text[:1].upper() + text[1:] if text.startswith(("zone ", "no zone ")) else text


def _in_peace(works: Sequence[WorkInProgress], cache: Cache) -> Situation:
    """No node is in trouble; people may be at work."""
    if not works:
        says = f"None of {counted(len(cache.nodes), 'node')} is in trouble."
        return Situation(PEACE, says, advice="Nothing to do.")
    work = min(works, key=lambda each: each.kind == "DaemonSet")
    more = f"; {len(works) - 1} more in progress" if len(works) > 1 else ""
    name = f"{work.namespace}/{work.name}".removeprefix("/")
    what = {"Node": "is drained", "DaemonSet": "rolls out"}.get(work.kind, "are upgraded")
    kind = {"Node": "node ", "DaemonSet": "DaemonSet "}.get(work.kind, "")
    says = f"{kind}{name} {what}: {work.sentence}{more}."
    coming = [Coming("it ends", *work.expected)] if work.expected is not None else []
    waits = first_names([f"{w.what}: {w.because}" for w in work.waits], 1)
    advice = f"It waits for {waits}." if waits else "Nothing to do: it goes on by itself."
    shown = Option(work.command, "says what it still waits for")
    hurts = _still_to_move(cache, work.name) if work.kind == "Node" else ""
    return Situation(
        OURS,
        says[:1].upper() + says[1:],
        work.since_s,
        coming,
        hurts,
        advice,
        [shown],
        works_lanes(works),
        uncoming="" if coming else "No end of it is foreseen while things stay as they are.",
    )


def _still_to_move(cache: Cache, node: str) -> str:
    """Whose pods a drain of the node still evicts, "" for nobody's."""
    share = _Share(cache)
    for pod in cache.pods_on(node):
        if pod.metadata.deletion_timestamp is None and moves_off(pod):
            share.add(pod)
    return share.hurt().in_words()


def _happening(trouble: Sequence[Judged], of: Sequence[ZoneOutlook]) -> Iterator[str]:
    """Zones first, then the nodes that no zone's words are about, the worst first."""
    told: set[str] = set()
    dark = [zone for zone in of if zone.nodes and zone.not_ready == zone.nodes]
    if len(dark) > 1 and len(dark) == sum(zone.nodes > 0 for zone in of):
        told = {zone.key for zone in of}
        yield "no zone has a ready node: Kubernetes taints nothing, and takes its taints off"
    for zone in of:
        silent = sum(v.state == "silent" and o.zone == zone.key for o, v in trouble)
        name = f"zone {zone.name or '<none>'}"
        if zone.key in told:
            continue
        lost = f"{zone.not_ready} of {zone.nodes} nodes are not ready"
        if zone.state == FULL and zone.not_ready:
            yield f"{name} is dark: {lost}"
        elif zone.state == PARTIAL and zone.not_ready:
            goes = f"goes on at {zone.rate:g} nodes a second" if zone.rate else "is stopped there"
            yield f"{name}: {lost}, tainting {goes}"
        elif silent > 1 and (zone.foretold.states or silent + zone.not_ready == zone.nodes):
            yield f"{name}: {silent} of {zone.nodes} nodes are silent"
        else:
            continue
        told.add(zone.key)
    states: dict[str, list[str]] = {}
    for outlook, verdict in trouble:
        if outlook.zone not in told:
            states.setdefault(verdict.state, []).append(outlook.node.name)
    for state in sorted(states, key=WORST_FIRST.index):
        names, word = states[state], in_words(state)
        several = f"{len(names)} nodes are {word} ({first_names(names, _MOST_NAMES)})"
        yield several if len(names) > 1 else f"{names[0]} is {word}"


def _are_back(back: Sequence[Judged]) -> list[str]:
    names = [outlook.node.name for outlook, _ in back]
    are, off = ("is", "its taint") if len(names) == 1 else ("are", "their taints")
    shown = first_names(names, _MOST_NAMES)
    return [f"{shown} {are} back: Kubernetes takes {off} off in its next pass"] * bool(names)


def _coming(
    outlook: Outlook, judged: Sequence[Judged], of: Sequence[ZoneOutlook], hurt: Hurt
) -> Iterator[tuple[str, int, int]]:
    """What comes: (in words, between which two instants). One of each kind of act and zone."""
    now_ns = outlook.now_ns
    groups: dict[tuple[str, str], list[tuple[int, int, Judged]]] = {}
    for each in judged:
        upcoming, span = each[1].next, each[1].span
        if upcoming is not None and span is not None:
            members = groups.setdefault((upcoming.act, each[0].zone), [])
            members.append((span.low_ns, span.high_ns, each))
    by_key = {zone.key: zone for zone in of}
    for (kind, key), members in groups.items():
        low, high, first = min(members, key=lambda member: member[:2])
        zone = by_key.get(key)
        if kind == "AddTaint" and zone is not None and len(members) > 1:
            low = max(low, _not_before(outlook, judged, key))
            high = max(low, min(high, _one_more(outlook, zone, low)))
        yield _act(kind, members, first), now_ns + low, now_ns + high
    for zone in of:
        for step in zone.foretold.states:
            goes = f"one node is tainted each {1 / step.rate:g} s" if step.rate else _STOPPED
            words = f"zone {zone.name or '<none>'} becomes {step.state}: {goes}"
            yield words, step.low_ns, step.high_ns
    yield from _after_taints(outlook, of, groups.keys(), hurt)


def _not_before(outlook: Outlook, judged: Sequence[Judged], zone: str) -> int:
    """How long, ns from now, no other node of the zone is tainted, since one just was."""
    rate = outlook.settings.node_eviction_rate
    added_ns = [
        int(taint.time_added)
        for of_node, _ in judged
        if of_node.zone == zone
        for taint in of_node.node.spec.taints
        if taint.effect == NO_EXECUTE and taint.key in _LOST_KEYS and taint.time_added is not None
    ]
    if not added_ns or rate <= 0:
        return 0
    return max(0, max(added_ns) + round(SECOND_NS / rate) - SECOND_NS - outlook.now_ns)


def _one_more(outlook: Outlook, zone: ZoneOutlook, low_ns: int) -> int:
    """By when, ns from now, the first of those that wait is tainted: which one is chance."""
    foretold = outlook.foretold
    if foretold is not None and zone.foretold.taints_ns:
        first = foretold.taint_span(zone.foretold.taints_ns[0], outlook.now_ns)
        return max(low_ns, first.high_ns - outlook.now_ns)
    per_node_ns = round(SECOND_NS / zone.rate) if zone.rate else 0
    return low_ns + per_node_ns + EVICTION_LOOP_PERIOD_NS


def _after_taints(
    outlook: Outlook, of: Sequence[ZoneOutlook], acts: Iterable[tuple[str, str]], hurt: Hurt
) -> Iterator[tuple[str, int, int]]:
    """The first taint of zones whose nodes do not wait for it yet, and the first pods after it."""
    foretold = outlook.foretold
    for zone in of:
        if not zone.foretold.taints_ns or ("DeletePod", zone.key) in acts or foretold is None:
            continue
        first = foretold.taint_span(zone.foretold.taints_ns[0], outlook.now_ns)
        if ("AddTaint", zone.key) not in acts:
            many = counted(len(zone.foretold.taints_ns), "node")
            yield f"the first of {many} of zone {zone.name} is tainted", first.low_ns, first.high_ns
        if hurt.first_after_s is not None:
            after_ns = hurt.first_after_s * SECOND_NS
            yield "the first pods are deleted", first.low_ns + after_ns, first.high_ns + after_ns


def _act(kind: str, members: Sequence[tuple[int, int, Judged]], first: Judged) -> str:
    """The soonest act of its kind in a zone, and how many more of them come."""
    outlook, verdict = first
    name, many = outlook.node.name, len(members)
    assert verdict.next is not None
    if kind == "SetNodeCondition":
        more = "" if many == 1 else f", the first of {many} nodes"
        return f"{name} becomes Unknown{more}"
    if kind == "AddTaint":
        if many == 1:
            return f"{name} gets its NoExecute taint"
        return f"the next of {many} nodes is tainted (which one is chance)"
    if kind == "DeletePod":
        pods = sum(len(member[2][0].timers) for member in members)
        more = f", the first of {pods} pods on {counted(many, 'node')}" if pods > 1 else ""
        return f"pod {verdict.next.about} on {name} is deleted{more}"
    if kind == "RemoveTaint":
        taints = f"taint of {name} is" if many == 1 else f"taints of {many} nodes are"
        return f"the NoExecute {taints} taken off"
    return f"{verdict.next.words} on {name}" + (f" and {many - 1} more" if many > 1 else "")


def _to_do(
    settings: Settings,
    trouble: Sequence[Judged],
    of: Sequence[ZoneOutlook],
    hurt: Hurt,
    comes: bool,
) -> tuple[str, list[Option]]:
    """What to do, and the commands."""
    if not trouble:
        return "Nothing to do: Kubernetes takes the taints off by itself.", []
    many = Counter(of_node.zone for of_node, _ in trouble)
    outlook, verdict = min(trouble, key=lambda each: (-many[each[0].zone], *each[1].urgency[::-1]))
    several = many[outlook.zone] > 1
    zone = next((zone for zone in of if zone.key == outlook.zone), None)
    what = f"node {shlex.quote(outlook.node.name)}"
    if several and zone is not None and zone.name:
        what = f"zone {shlex.quote(zone.name)}"
    why = Option(f"kubectl nodelife explain {what}", "says why, and what follows when")
    lose = Option(f"kubectl nodelife what-if lose {what}", "plays what is lost if it stays away")
    if verdict.state == "silent":
        kubelets = "their kubelets report" if several else "its kubelet reports"
        return f"Nothing is lost if {kubelets} again before that.", [why, lose]
    if verdict.state == "pressure":
        return "The kubelet evicts pods itself until the pressure is gone.", [why]
    by_hand = ways_out(settings, outlook, verdict) if not several else []
    if hurt.stuck and not comes:
        whether = Option(why.command, "says whether they may be, and what to verify first")
        forced = "Terminating pods go when the node is back, or once they are forced away."
        return forced, [whether, *by_hand]
    if zone is not None and zone.state == PARTIAL and not zone.rate:
        return _braked([of_node for of_node, _ in trouble if of_node.zone == zone.key]), [why]
    if comes:
        keeps = "a node that is back before keeps them"
        return f"Pods move by themselves at that time; {keeps}.", [why, lose, *by_hand]
    return "A node that is back goes on as before.", [why, *by_hand]


def _braked(lost: Sequence[NodeOutlook]) -> str:
    """What a zone's brake keeps. It stops taints only: pods of nodes tainted before go on."""
    running = [of_node for of_node in lost if of_node.timers]
    if not running:
        return "Nothing to do: while so many nodes there are not ready, no pod is deleted for it."
    many = sum(len(of_node.timers) for of_node in running)
    pods, go = counted(many, "pod"), "goes" if many == 1 else "go"
    return (
        "No more nodes are tainted while so many there are not ready, so that their pods stay; "
        f"{pods} on {counted(len(running), 'node')} tainted before still {go}."
    )
