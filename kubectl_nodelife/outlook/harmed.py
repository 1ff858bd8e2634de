"""Whom lost and silent nodes harm: which workloads and Services have how many ready pods, how many
remain once those nodes are Unknown, and by when.

A node that becomes Unknown has its pods marked not ready, which takes them out of their Services
(`kube/service.py`). A workload's pods are told by their controller, a Service's by its selector.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Sequence
from typing import Final

import msgspec

from kubectl_nodelife.engine.cache import Cache, Key
from kubectl_nodelife.kube.meta import LabelSelector
from kubectl_nodelife.kube.pod import Pod, is_daemon_pod, is_mirror_pod
from kubectl_nodelife.kube.selectors import SelectorIndex
from kubectl_nodelife.kube.service import Service
from kubectl_nodelife.outlook.fates import Coming, Judged, Lane
from kubectl_nodelife.outlook.node_verdict import UNHEARD, NodeVerdict
from kubectl_nodelife.workloads.budget_ledger import is_healthy
from kubectl_nodelife.workloads.owners import is_active, workload_of

MOST_HARMED: Final = 12
_STEP: Final = 256
_SERVICE: Final = "Service"

_Named = tuple[str, str, str]
"""Kind ("" for any workload), namespace, name."""


class _Level(msgspec.Struct):
    """`lost`: pods on nodes in trouble; `ready`: those elsewhere. `low_ns`, `high_ns`: between
    which instants those are marked not ready that are not yet; None: all are."""

    lost: int = 0
    ready: int = 0
    low_ns: int | None = None
    high_ns: int | None = None

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
            if not (is_daemon_pod(pod) or is_mirror_pod(pod)):
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
    worst = sorted(levels.items(), key=lambda each: (_remains(each[1]), -each[1].lost, each[0]))
    return [_lane(named, level, instant) for named, level in worst[:MOST_HARMED]]


def _not_ready(verdict: NodeVerdict, now_ns: int) -> tuple[int, int] | None:
    """Between which instants a node's pods are marked not ready; None: they are."""
    upcoming = verdict.next
    if upcoming is None or (span := upcoming.span) is None:
        return None
    if upcoming.act != "SetNodeCondition":
        return None
    return now_ns + span.low_ns, now_ns + span.high_ns


def _remains(level: _Level) -> float:
    return level.ready / (level.ready + level.lost)


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
