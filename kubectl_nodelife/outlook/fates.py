"""Lanes of time: nodes in trouble that share a fate, and the workloads and Services that they harm.

Of nodes a lane says since when, and what comes to them between which instants: Unknown, tainted,
their pods leave; or back. Nodes of a zone with the same state and the same next act are one lane,
since among those that wait for a taint any may be the next. Made of verdicts and the play that
`status` has (`Foretold`); those of a course that is played or over (`folded`), of what came to each
node.

Of a workload or Service a lane says how many ready pods it has, how many remain once silent nodes
are Unknown, and by when: a node that becomes Unknown has its pods marked not ready, which takes
them out of their Services (`kube/service.py`). A workload's pods are told by their controller, a
Service's by its selector.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec

from kubectl_nodelife.controllers.nodelifecycle.controller import EVICTION_LOOP_PERIOD_NS
from kubectl_nodelife.engine.cache import Cache, Key
from kubectl_nodelife.kube.meta import LabelSelector
from kubectl_nodelife.kube.names import counted, first_names
from kubectl_nodelife.kube.node import zone_display
from kubectl_nodelife.kube.pod import Pod, stays_on_its_node
from kubectl_nodelife.kube.selectors import SelectorIndex
from kubectl_nodelife.kube.service import Service
from kubectl_nodelife.kube.times import SECOND_NS
from kubectl_nodelife.outlook.node import NodeOutlook, Outlook
from kubectl_nodelife.outlook.node_verdict import UNHEARD, WORST_FIRST, NodeVerdict
from kubectl_nodelife.outlook.zone import ZoneOutlook
from kubectl_nodelife.workloads.budgets import is_healthy
from kubectl_nodelife.workloads.owners import is_active, workload_of

if TYPE_CHECKING:
    from kubectl_nodelife.outlook.works import WorkInProgress  # of the page alone

MOST_LANES: Final = 12
MOST_WORKS: Final = 5
_MOST_NAMES: Final = 2

_STEPS: Final = {
    "SetNodeCondition": "Unknown",
    "AddTaint": "tainted",
    "RemoveTaint": "taint off",
}

Judged = tuple[NodeOutlook, NodeVerdict]

MOST_HARMED: Final = 12
_STEP: Final = 256
_SERVICE: Final = "Service"

_Named = tuple[str, str, str]
"""Kind ("" for any workload), namespace, name."""


class Coming(msgspec.Struct, frozen=True, rename="camel"):
    """What comes between two instants, by the stream's clock."""

    says: str
    low_s: float
    high_s: float


class Lane(msgspec.Struct, frozen=True, rename="camel"):
    """Nodes of one fate. `since_s`: since the oldest last sign of life, None: not known. `coming`:
    in the order in which it comes to a node. `stays`: what does not change by itself."""

    name: str
    state: str
    since_s: float | None
    coming: list[Coming]
    stays: str = ""


BACK: Final = "back"
PODS_LEAVE: Final = "pods leave"


class FateStep(NamedTuple):
    """What came to a node between two instants, in seconds: in a word, or as many pods leave."""

    says: str
    low_s: float
    high_s: float
    pods: int = 0


class Fate(NamedTuple):
    """The course of one node. `state`: how it ends; the others as of `Lane`."""

    node: str
    zone: str
    state: str
    since_s: float | None
    steps: tuple[FateStep, ...]
    stays: str = ""


def folded(fates: Iterable[Fate]) -> list[Lane]:
    """The lanes of a course, in its order: nodes of a zone to which the same came are one.

    `zone` of a `Fate` is as it is shown.
    """
    alike: dict[tuple[object, ...], list[Fate]] = {}
    for fate in fates:
        words = tuple((step.says, step.pods > 0) for step in fate.steps)
        key = (fate.zone, fate.state, fate.since_s is None, words, fate.stays)
        alike.setdefault(key, []).append(fate)
    return [_lane_of(members) for members in alike.values()]


def _lane_of(members: Sequence[Fate]) -> Lane:
    first = members[0]
    coming = []
    for steps in zip(*(fate.steps for fate in members), strict=True):
        pods = sum(step.pods for step in steps)
        says = _pods_leave(pods) if pods else steps[0].says
        low_s, high_s = min(step.low_s for step in steps), max(step.high_s for step in steps)
        coming.append(Coming(says, low_s, high_s))
    since = [fate.since_s for fate in members if fate.since_s is not None]
    name = several_nodes([fate.node for fate in members], first.zone)
    return Lane(name, first.state, min(since, default=None), coming, first.stays)


def _pods_leave(pods: int) -> str:
    return f"{counted(pods, 'pod')} {'leaves' if pods == 1 else 'leave'}"


def since_ns(judged: Sequence[Judged], now_ns: int) -> int | None:
    """The oldest last sign of life of these nodes; None: of none it is known."""
    ages_ns = [age_ns for o, _ in judged if (age_ns := o.sign_age_ns) is not None]
    return now_ns - max(ages_ns) if ages_ns else None


def lanes(
    outlook: Outlook,
    judged: Sequence[Judged],
    zones: Mapping[str, ZoneOutlook],
    after_s: int | None,
    instant: Callable[[int], float],
) -> list[Lane]:
    """The lanes, the worst first. `zones`: by key; `after_s`: how long after a taint the first pods
    are deleted; `instant`: an instant by the stream's clock."""
    fates: dict[tuple[int, str, str], list[Judged]] = {}
    for each in judged:
        of_node, verdict = each
        act = verdict.next.act if verdict.next is not None else ""
        key = WORST_FIRST.index(verdict.state), of_node.zone, act
        fates.setdefault(key, []).append(each)
    rows = []
    for (state, zone, act), members in sorted(fates.items(), key=lambda item: item[0])[:MOST_LANES]:
        began_ns = since_ns(members, outlook.now_ns)
        comes = _comes(outlook, act, members, zones.get(zone), after_s)
        name = several_nodes((o.node.name for o, _ in members), zone_display(zone))
        since_s = None if began_ns is None else instant(began_ns)
        coming = [Coming(says, instant(low_ns), instant(high)) for says, low_ns, high in comes]
        rows.append(Lane(name, WORST_FIRST[state], since_s, coming, _stays(members)))
    return rows


def works_lanes(works: Sequence[WorkInProgress]) -> list[Lane]:
    """Lanes of the first works in progress: since when, when each ends, what it waits for."""
    return [
        Lane(
            f"{work.kind} {work.namespace}/{work.name}".replace(" /", " "),
            f"{work.done} of {work.total} done",
            work.since_s,
            [Coming("ends", *work.expected)] if work.expected is not None else [],
            first_names([f"waits for {wait.what}: {wait.because}" for wait in work.waits], 1),
        )
        for work in works[:MOST_WORKS]
    ]


def several_nodes(nodes: Iterable[str], zone: str) -> str:
    """The name of one node; of several how many there are, where, and the first ones."""
    names = sorted(nodes, key=_by_number)
    if len(names) == 1:
        return names[0]
    where = f" of {zone}" if zone else ""
    return f"{len(names)} nodes{where}: {first_names(names, _MOST_NAMES)}"


def _by_number(name: str) -> list[str | int]:
    """A key that puts a2 before a10."""
    return [int(part) if part.isdecimal() else part for part in re.split(r"([0-9]+)", name)]


def _stays(members: Sequence[Judged]) -> str:
    """What becomes of nodes to which nothing comes."""
    if any(verdict.span is not None for _, verdict in members):
        return ""
    pods = (pod for of_node, _ in members for pod in of_node.pods)
    leaving = sum(pod.metadata.deletion_timestamp is not None for pod in pods)
    if leaving:
        return f"{counted(leaving, 'pod')} Terminating, which nobody removes"
    held = any(verdict.next is not None for _, verdict in members)
    return "held: not while things stay as they are" if held else ""


def _comes(
    outlook: Outlook,
    act: str,
    members: Sequence[Judged],
    zone: ZoneOutlook | None,
    after_s: int | None,
) -> Iterator[tuple[str, int, int]]:
    """(in a word, between which two instants) of each step of the nodes' fate."""
    spans = [span for _, verdict in members if (span := verdict.span) is not None]
    if not spans:
        return
    now_ns = outlook.now_ns
    low_ns = now_ns + min(span.low_ns for span in spans)
    high_ns = now_ns + max(span.high_ns for span in spans)
    if act == "DeletePod":
        timers = [timer.comes_ns for of_node, _ in members for timer in of_node.timers]
        last_ns = max(timers, default=high_ns)
        yield _pods_leave(len(timers)), low_ns, max(low_ns, last_ns)
        return
    yield _STEPS.get(act, act), low_ns, high_ns
    taints = (low_ns, high_ns) if act == "AddTaint" else None
    if act == "SetNodeCondition" and (
        taints := _tainted(outlook, zone, len(members), (low_ns, high_ns))
    ):
        yield "tainted", *taints
    if taints is not None and after_s is not None:
        after_ns = after_s * SECOND_NS
        yield PODS_LEAVE, taints[0] + after_ns, taints[1] + after_ns


def _tainted(
    outlook: Outlook, zone: ZoneOutlook | None, nodes: int, unknown: tuple[int, int]
) -> tuple[int, int] | None:
    """Between which instants nodes are tainted that become Unknown between two; None where that is
    not played."""
    if zone is None:
        return None
    taints_ns = zone.foretold.taints_ns
    if outlook.foretold is not None and taints_ns:
        spans = [outlook.foretold.taint_span(at_ns, outlook.now_ns) for at_ns in taints_ns]
        return spans[0].low_ns, spans[-1].high_ns
    if zone.foretold.states or not zone.rate or zone.queued:
        return None
    waits_ns = nodes * round(SECOND_NS / zone.rate)
    return unknown[0], unknown[1] + waits_ns + EVICTION_LOOP_PERIOD_NS


class _Level(msgspec.Struct):
    """`lost`: pods on nodes in trouble; `ready`: those elsewhere. `low_ns`, `high_ns`: between
    which instants those are marked not ready that are not yet; None: all are."""

    lost: int = 0
    ready: int = 0
    low_ns: int | None = None
    high_ns: int | None = None

    @property
    def remains(self) -> float:
        """Which share of its pods is ready."""
        return self.ready / (self.ready + self.lost)

    def lose(self, within: tuple[int, int] | None) -> None:
        """One more pod is lost, between these instants; None: it is."""
        self.lost += 1
        if within is not None:
            self.low_ns = within[0] if self.low_ns is None else min(self.low_ns, within[0])
            self.high_ns = max(self.high_ns or 0, within[1])


def harmed_steps(
    cache: Cache,
    now_ns: int,
    judged: Sequence[Judged],
    services: Iterable[Service],
    instant: Callable[[int], float],
) -> Generator[None, None, list[Lane]]:
    """The workloads and Services that lose the largest share, as lanes; a step a few pods.

    `instant`: an instant, ns since the epoch, by the stream's clock.
    """
    lost = {o.node.name: _not_ready(v, now_ns) for o, v in judged if v.state in UNHEARD}
    levels, sent_to = dict[_Named, _Level](), _Selected(services)
    uids: dict[_Named, str] = {}
    for number, name in enumerate(lost):
        for pod in cache.pods_on(name):
            if not is_active(pod):
                continue
            harmed: list[_Named] = [(_SERVICE, *key) for key in sent_to.services(pod)]
            if not stays_on_its_node(pod):
                (namespace, _, workload), uid = workload_of(pod)
                harmed.append(("", namespace, workload))
                uids[harmed[-1]] = uid
            for each in harmed:
                levels.setdefault(each, _Level()).lose(lost[name])
        if number % 16 == 0:
            yield
    for number, (named, uid) in enumerate(uids.items()):
        others = (pod for pod in cache.pods_of(uid) if pod.spec.node_name not in lost)
        levels[named].ready = sum(is_healthy(pod) for pod in others)
        if number % _STEP == 0:
            yield
    spaces = {named[1] for named in levels if named[0] == _SERVICE}
    for number, (key, pod) in enumerate(list(cache.pods.items()) if spaces else ()):
        if key[0] in spaces and pod.spec.node_name not in lost and is_healthy(pod):
            for service in sent_to.services(pod):
                if level := levels.get((_SERVICE, *service)):
                    level.ready += 1
        if number % _STEP == 0:
            yield
    worst = sorted(levels.items(), key=lambda each: (each[1].remains, -each[1].lost, each[0]))
    return [_lane(named, level, instant) for named, level in worst[:MOST_HARMED]]


def _not_ready(verdict: NodeVerdict, now_ns: int) -> tuple[int, int] | None:
    """Between which instants a node's pods are marked not ready; None: they are."""
    span = verdict.span
    if verdict.next is None or span is None or verdict.next.act != "SetNodeCondition":
        return None
    return now_ns + span.low_ns, now_ns + span.high_ns


def _lane(named: _Named, level: _Level, instant: Callable[[int], float]) -> Lane:
    kind, namespace, name = named
    of = level.ready + level.lost
    remain = f"{level.ready} of {of} ready"
    coming = []
    if level.low_ns is not None and level.high_ns is not None:
        coming.append(Coming(remain, instant(level.low_ns), instant(level.high_ns)))
    lane_name = f"{kind} {namespace}/{name}".strip()
    return Lane(lane_name, f"{of} → {level.ready}", None, coming, "" if coming else remain)


class _Selected:
    """Which Services send traffic to a pod; pods that share their labels are looked up once."""

    def __init__(self, services: Iterable[Service]) -> None:
        self._index: SelectorIndex[Key] = SelectorIndex()
        for service in services:
            if service.spec.selector and not service.spec.publish_not_ready_addresses:
                selector = LabelSelector(match_labels=service.spec.selector)
                self._index.add(service.namespace, selector, service.key)
        self._found: dict[tuple[str, int], tuple[object, list[Key]]] = {}

    def services(self, pod: Pod) -> list[Key]:
        """Their keys. The labels are kept with them, so that their id stays theirs."""
        labels = pod.metadata.labels
        shared = (pod.namespace, id(labels))
        if shared not in self._found:
            self._found[shared] = labels, self._index.find(pod.namespace, labels)
        return self._found[shared][1]
