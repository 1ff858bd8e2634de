"""Makes the `ClusterView` that the daemon's answers are made from: the cluster as it is shown now.

`status` is what the cluster shows, never what it would look like after our own plans; `changes` has
those. Clocks, queues and timers are the running controllers' own.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

from kubectl_nodelife.daemon.decisions import DecisionTask
from kubectl_nodelife.daemon.gate import KINDS, failing
from kubectl_nodelife.daemon.gate import warnings as kind_warnings
from kubectl_nodelife.daemon.journal import Journal
from kubectl_nodelife.engine.cache import Cache
from kubectl_nodelife.engine.overlay import Overlay
from kubectl_nodelife.errors import Failed, Unreachable
from kubectl_nodelife.kube import times
from kubectl_nodelife.kube.meta import KubeObject, controller_of
from kubectl_nodelife.kube.pod import Pod
from kubectl_nodelife.live.client import Client
from kubectl_nodelife.live.clock import SKEW_WARNED_NS, clock_warning
from kubectl_nodelife.live.listwatch import ListedOnce, list_once
from kubectl_nodelife.live.loop import sliced
from kubectl_nodelife.outlook.node import Outlook, join_controllers
from kubectl_nodelife.outlook.taint_turns import Foretold
from kubectl_nodelife.outlook.view import WARMING_UP, ClusterView
from kubectl_nodelife.workloads.pod_classes import PodSummary


class WatchedCluster(NamedTuple):
    """Which cluster the daemon watches, as answers say it."""

    identity: str
    context: str
    server: str


class ShownCache(Cache):
    """The engine's cache without what is only planned. Shares everything that is the same."""

    def __init__(self, cache: Cache, overlay: Overlay) -> None:
        super().__init__()
        self.quarantine = cache.quarantine
        self.objects = cache.objects
        self.nodes, self.pods = cache.nodes, cache.pods
        self.heartbeats = cache.heartbeats
        self._pods_by_node = cache._pods_by_node
        self._pods_by_owner = cache._pods_by_owner
        self._unsettled, self._unsettled_pods = cache._unsettled, cache._unsettled_pods
        self.pod_index = cache.pod_index
        self._shown_pods: dict[tuple[str, str], Pod | None] = {}
        self._more_on: dict[str, list[Pod]] = {}
        observed = overlay.observed()
        if not observed:
            return
        self.nodes = dict(cache.nodes)
        for (kind, key), obj in observed.items():
            if kind == "Node":
                self.set(kind, key, obj)
            elif kind == "Pod":
                pod = obj if isinstance(obj, Pod) else None
                self._shown_pods[key] = pod
                if pod is not None and cache.pods.get(key) is None:
                    self._more_on.setdefault(pod.spec.node_name, []).append(pod)
            else:
                if self.objects.get(kind) is cache.objects.get(kind):
                    self.objects = {**self.objects, kind: dict(self.objects.get(kind, {}))}
                self.set(kind, key, obj)

    def copy(self) -> Cache:
        """A plain cache of what the cluster shows."""
        return self._as_shown(super().copy())

    def fork(self) -> Cache:
        """As `copy`: what is shared goes on changing."""
        return self.copy()

    def fork_in_child(self) -> Cache:
        """A fork of what the cluster shows, for a process in which the engine does not go on."""
        return self._as_shown(super().fork_in_child())

    def _as_shown(self, other: Cache) -> Cache:
        for key, pod in self._shown_pods.items():
            other.set("Pod", key, pod)
        return other

    def all(self, kind: str) -> Iterable[KubeObject]:
        """All objects of a kind."""
        if kind != "Pod" or not self._shown_pods:
            return super().all(kind)
        return self._all_pods()

    def _all_pods(self) -> Iterator[Pod]:
        for key, pod in self.pods.items():
            shown = self._shown_pods.get(key, pod)
            if shown is not None:
                yield shown
        for pods in self._more_on.values():
            yield from pods

    def pod(self, namespace: str, name: str) -> Pod | None:
        """The pod, or None."""
        key = (namespace, name)
        return self._shown_pods[key] if key in self._shown_pods else self.pods.get(key)

    def count_on(self, node: str) -> int:
        """How many pods are bound to a node."""
        return len(self.pods_on(node)) if self._shown_pods else super().count_on(node)

    def pod_counts(self) -> dict[str, int]:
        """How many pods are bound to each node."""
        if not self._shown_pods:
            return super().pod_counts()
        counts = {node: self.count_on(node) for node in (*self._pods_by_node, *self._more_on)}
        return {node: count for node, count in counts.items() if count}

    def nodes_with_pods(self) -> Collection[str]:
        """Names of the nodes to which some pod is bound."""
        return self.pod_counts().keys() if self._shown_pods else super().nodes_with_pods()

    def pods_of(self, owner_uid: str) -> list[Pod]:
        """The pods whose controller has that uid."""
        pods = super().pods_of(owner_uid)
        if not self._shown_pods:
            return pods
        shown = [self._shown_pods.get(pod.key, pod) for pod in pods]
        gone = [pod for more in self._more_on.values() for pod in more]
        return [pod for pod in shown if pod is not None] + [
            pod for pod in gone if (c := controller_of(pod.metadata)) and c.uid == owner_uid
        ]

    def pods_on(self, node: str) -> list[Pod]:
        """The pods bound to a node."""
        pods = super().pods_on(node)
        if not self._shown_pods:
            return pods
        shown = [self._shown_pods.get(pod.key, pod) for pod in pods]
        return [pod for pod in shown if pod is not None] + self._more_on.get(node, [])


def keep_summary(cache: Cache) -> Generator[None, None, None]:
    """Have the engine's cache keep what plays ask of all pods, and count what changed since it was
    asked for last, in small steps.
    """
    summary = cache.pod_index
    if not isinstance(summary, PodSummary) or summary.is_outgrown:
        unbound = (pod for pod in cache.unsettled_pods() if not pod.spec.node_name)
        summary = PodSummary(cache.nodes_with_pods(), unbound)
        cache.keep(summary)
    yield from summary.catch_up(cache.pods_on)


class NotReadYet(Unreachable):
    """The daemon has begun, and the first list of the nodes is not there yet."""


class Sources(NamedTuple):
    """What a daemon's answers, its page and its metrics are made from.

    `foretold`: what was read off the last play of the present. `warnings`: sentences on the daemon
    itself.
    """

    cluster: WatchedCluster
    client: Client
    decisions: DecisionTask
    journal: Journal
    foretold: Callable[[], Foretold | None] = lambda: None
    warnings: Callable[[], list[str]] = list

    def now_ns(self) -> int:
        """The instant, by the API server's clock."""
        return self.decisions.clock.now_ns()

    def view(self) -> ClusterView:
        """The cluster as it can be shown now. Raises NotReadYet while the nodes are not read, and
        Failed where they may not be.
        """
        decisions, now_ns = self.decisions, self.now_ns()
        if refusal := decisions.out_of_reach().get("Node"):
            raise Failed(refusal, on="the daemon", remedy="see 'kubectl nodelife rbac'")
        if "Node" not in decisions.read:
            raise NotReadYet(
                f"the daemon has not read the nodes yet ({_progress(decisions)})",
                on=self.cluster.server,
                remedy="try again in a moment, or look directly with --no-daemon",
            )
        shown_ns, blind = decisions.shown_ns(), bool(decisions.stands_still)
        warnings = [*_warnings(decisions, now_ns, self.blind()), *journal_warnings(self.journal)]
        return ClusterView(
            decisions.settings,
            shown_ns,
            running=_outlook(decisions, shown_ns, self.foretold()),
            source=_source(decisions, self.cluster, now_ns),
            moment={
                "time": times.format_micro_time(shown_ns),
                "origin": "when the cluster was last seen" if blind else "the API server's clock",
            },
            warnings=[*warnings, *self.warnings()],
            unread={k: decisions.feed.states[k].error for k in KINDS if k not in decisions.read},
        )

    def blind(self) -> list[str]:
        """Since when the cluster is not seen, and why; nothing while it is."""
        decisions = self.decisions
        if not decisions.stands_still:
            return []
        failures = "; ".join(failing(decisions.feed.states))
        why = decisions.gate.waiting() or failures or decisions.stands_still
        ago = times.human_duration(self.now_ns() - decisions.shown_ns())
        return [f"nothing is decided, all is shown as last seen, {ago} ago: {why}"]

    async def list_kinds(
        self, kinds: Sequence[str], fields: Mapping[str, str] = MappingProxyType({})
    ) -> ListedOnce:
        """List kinds that are not watched, with the daemon's own rights; some by a field selector
        (kind -> selector). Raises ApiError, Failed, Unreachable.
        """
        return await list_once(self.client, kinds, fields)

    async def keep_summary(self) -> None:
        """Bring what plays ask of all pods up to date."""
        await sliced(keep_summary(self.decisions.host.cache))


def journal_warnings(journal: Journal) -> list[str]:
    """Sentences on what is wrong with the journal."""
    sentences = [journal.warning] if journal.warning else []
    if journal.error:
        sentences.append(
            f"the journal cannot be written ({journal.error}): {journal.waiting()} changes are "
            "kept in memory, and lost if the daemon ends"
        )
    if journal.dropped:
        sentences.append(
            f"{journal.dropped} changes were dropped, because memory has a limit as well"
        )
    return sentences


def _outlook(decisions: DecisionTask, now_ns: int, foretold: Foretold | None) -> Outlook:
    run = decisions.host
    shown = ShownCache(run.cache, run.overlay)
    shown.known_to = run.settled_controllers()
    if run.lifecycle is not None:
        running = (run.lifecycle, run.eviction)
        return Outlook(shown, decisions.settings, *running, now_ns, last_foretold=foretold)
    return join_controllers(shown, decisions.settings, now_ns)[0]


def _source(decisions: DecisionTask, cluster: WatchedCluster, now_ns: int) -> dict[str, Any]:
    source: dict[str, Any] = {
        "kind": "daemon",
        "context": cluster.context or None,
        "server": cluster.server,
        "synced": decisions.synced.is_set(),
        "age": times.in_seconds(max(0, now_ns - decisions.last_news_ns)),
        "cold": decisions.is_cold(now_ns),
    }
    if decisions.is_cold(now_ns):
        source["coldUntil"] = times.format_micro_time(decisions.cold_until_ns)
        source["firstLook"] = decisions.is_first_look
    if decisions.stands_still:
        source["standsStill"] = decisions.stands_still
    return source


def _warnings(decisions: DecisionTask, now_ns: int, blind: list[str]) -> list[str]:
    lines = []
    if not decisions.synced.is_set():
        lines.append(f"still reading: {_progress(decisions)}; what depends on it is not evaluated")
    lines += blind
    if decisions.is_cold(now_ns) and decisions.synced.is_set():
        remaining = times.format_duration(
            (decisions.cold_until_ns - now_ns) // times.SECOND_NS * times.SECOND_NS
        )
        lines.append(
            f"{WARMING_UP}{decisions.cold_because}; no node is called lost before "
            f"{remaining} more have been watched"
        )
    skew_ns = decisions.clock.skew_ns()
    if abs(skew_ns) > SKEW_WARNED_NS:
        lines.append(clock_warning(skew_ns))
    quarantine = decisions.host.cache.quarantine
    said = "\n".join(lines)
    kinds = [w for w in kind_warnings(decisions.feed.states) if w not in said]
    return [*lines, *kinds, *quarantine.lines()]


def _progress(decisions: DecisionTask) -> str:
    kinds: dict[str, list[str]] = {}
    for kind in decisions.unread():
        kinds.setdefault(decisions.feed.states[kind].error or "listing", []).append(kind)
    parts = [f"{', '.join(names)}: {what}" for what, names in kinds.items()]
    return "; ".join(parts) or "everything is read, the controllers begin"
