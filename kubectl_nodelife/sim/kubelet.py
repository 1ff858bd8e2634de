"""Simulated kubelets: heartbeats, node status, and the pods that start and stop on them.

A kubelet that is alive renews its node's Lease and posts its node's status on a schedule. Neither
is simulated one by one: the engine gets the schedule (`Heartbeats`) when it begins, changes or
ends, and only the posts that can change something are made (a first one, one with another
condition, one that undoes another client's write). Follows pkg/kubelet (kubelet_node_status.go,
status manager, pod workers) as far as the controllers can see it; no containers, probes, images or
volumes. The pod statuses that a kubelet caches, and its corrections of other clients' writes, are
its status manager's (`status_manager`). The reasons of a node's conditions are those of
pkg/kubelet/nodestatus/setters.go.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from copy import copy
from typing import Any, Self

from msgspec.structs import replace

from kubectl_nodelife.copy_on_write import fork_dict, made_later, unchanging
from kubectl_nodelife.engine.actions import (
    Action,
    SetNodeConditions,
    SetPodCondition,
    of_node,
    of_pod,
)
from kubectl_nodelife.engine.cache import Key
from kubectl_nodelife.engine.events import Heartbeats
from kubectl_nodelife.kube.meta import Time
from kubectl_nodelife.kube.node import Node, NodeCondition
from kubectl_nodelife.kube.pod import Pod
from kubectl_nodelife.kube.times import whole_seconds
from kubectl_nodelife.kube.wellknown import NAMESPACE_NODE_LEASE, SILENT_REASONS
from kubectl_nodelife.sim.api import CLUSTER, Api, ForkedWorld, WorldPart, deletion
from kubectl_nodelife.sim.events import ReportedCondition
from kubectl_nodelife.sim.kubelet_state import (
    LAST_REPORT,
    LATE_STOP_NS,
    REPORT,
    Ending,
    JoinedKubelets,
    Kubelet,
    KubeletClients,
    KubeletTerms,
    MachineFacts,
    RunningStatuses,
    Start,
    alike,
    deletion_times,
    may_be_overwritten,
    overwritten,
)
from kubectl_nodelife.sim.owners import delete_stopped
from kubectl_nodelife.sim.timeline import KUBELET, Agenda
from kubectl_nodelife.workloads.force_advice import finalizers_that_hold

# condition -> (status, reason) of a healthy kubelet
_HEALTHY = {
    "Ready": ("True", "KubeletReady"),
    "MemoryPressure": ("False", "KubeletHasSufficientMemory"),
    "DiskPressure": ("False", "KubeletHasNoDiskPressure"),
    "PIDPressure": ("False", "KubeletHasSufficientPID"),
}
# (condition, status) -> reason of a kubelet that is not healthy
_REASONS = {
    ("Ready", "False"): "KubeletNotReady",
    ("MemoryPressure", "True"): "KubeletHasInsufficientMemory",
    ("DiskPressure", "True"): "KubeletHasDiskPressure",
    ("PIDPressure", "True"): "KubeletHasInsufficientPID",
}


def reason_of(type_: str, status: str) -> str:
    """The reason that goes with a status; a made-up one for a condition that is not a kubelet's."""
    healthy = _HEALTHY.get(type_)
    if healthy is not None and healthy[0] == status:
        return healthy[1]
    return _REASONS.get((type_, status), f"{type_}Is{status}")


def own_conditions(node: Node) -> dict[str, NodeCondition]:
    """The conditions as the node's kubelet sees them: those that it posted before, and healthy ones
    where the monitor wrote over them. The kubelet of a node without Ready sees all of them healthy.
    """
    own = {}
    for type_, (status, reason) in _HEALTHY.items():
        shown = node.status.condition(type_)
        if shown is not None and shown.reason not in SILENT_REASONS:
            own[type_] = shown
        elif shown is not None or node.ready() is None:
            own[type_] = NodeCondition(type=type_, status=status, reason=reason)
    return own


def posted(
    shown: Iterable[NodeCondition], seen: Mapping[str, NodeCondition], now: Time
) -> tuple[tuple[NodeCondition, ...], tuple[NodeCondition, ...]]:
    """(all conditions after a post, those of them whose status the post changes).

    Conditions that are not the kubelet's stay as they are.
    """
    conditions, changed = [], []
    missing = dict(seen)
    for old in shown:
        own = missing.pop(old.type, None)
        if own is None:
            conditions.append(old)
            continue
        since = old.last_transition_time if old.status == own.status else now
        new = NodeCondition(old.type, own.status, own.reason, own.message, now, since)
        conditions.append(new)
        if old.status != own.status:
            changed.append(new)
    for own in missing.values():
        new = replace(own, last_heartbeat_time=now, last_transition_time=now)
        conditions.append(new)
        changed.append(new)
    return tuple(conditions), tuple(changed)


class Kubelets(WorldPart):
    """All kubelets of the cluster, by node name. One outlives its Node object. `silent`: the names
    of those that are not alive; `last_renewals`: between which instants each that fell silent
    had renewed its Lease last before it did so first, ns; None: not since t=0.
    """

    def __init__(
        self, api: Api, agenda: Agenda, terms: KubeletTerms, clients: KubeletClients
    ) -> None:
        self.clients = clients
        super().__init__(api, agenda)
        self.terms = terms
        self.writes = False
        self._on_start: list[Callable[[str], None]] = []
        self._on_run: list[Callable[[Pod], bool]] = []
        self._on_stop: list[Callable[[Pod, Action | None], bool]] = []
        self._kubelets: dict[str, Kubelet] = {}
        self.silent: set[str] = set()
        self.last_renewals: dict[str, tuple[int, int] | None] = {}
        self._endings: dict[Key, Ending] = {}
        self._starting: dict[Key, Start] = {}
        self._running = RunningStatuses()
        self._ips = 0

    def fork(self, world: ForkedWorld) -> Self:
        """The same for a fork of the world; its own callbacks are yet to be set (`ask_as`)."""
        other = super().fork(world)
        self._kubelets, other._kubelets = fork_dict(self._kubelets, Kubelet.copy)
        other.silent, other.last_renewals = set(self.silent), dict(self.last_renewals)
        self._endings, other._endings = fork_dict(self._endings)
        self._starting, other._starting = fork_dict(self._starting)
        other._running = copy(self._running)
        other.clients = self.clients.fork()
        return other

    def ask_as(self, of_this_world: Callable[[Any], Any]) -> None:
        """In a fork: call its own parts from now on."""
        for name in ("_on_start", "_on_run", "_on_stop"):
            setattr(self, name, [of_this_world(asked) for asked in getattr(self, name)])

    def behave(self, terms: KubeletTerms) -> None:
        """From now on they behave so; what starts and stops already takes the time that it would
        have taken. Before the first tick.
        """
        self.terms = terms
        if not (self._endings or self._starting):
            return
        self._agenda.forget(self, self._finish, self._run)
        pods = self._api.store.pods
        for key in list(self._endings):
            self._end(pods[key], None)
        for key in list(self._starting):
            del self._starting[key]
            self._go_on(pods[key])

    def begin(self, joined: JoinedKubelets | None = None) -> None:
        """Take over the nodes and pods that are there at t=0: the ready nodes' kubelets start.

        `joined`: the kubelets that are joined instead, which go on as they were; the others of the
        nodes are silent.
        """
        if joined is None:
            self._start_all()
        else:
            self._join_all(joined)
        for pod in self._api.store.unsettled_pods():
            if pod.metadata.deletion_timestamp is not None:
                self._end(pod, None)
            elif joined is not None and pod.spec.node_name and self.terms.awaits(pod):
                self._go_on(pod)
        self._api.on_node(self._node_changed)
        self._api.on_pod(self._pod_changed)

    def _start_all(self) -> None:
        first_ns = self._api.now_ns + (self.terms.lease_renew_phase_ns or 0)
        alive, since_ns = [], first_ns - self.terms.renew_every_ns
        for node in self._api.store.nodes.values():
            kubelet = self._kubelets[node.name] = self._make(node.name, own_conditions(node))
            if node.is_ready:
                given = self._api.store.get("Lease", (NAMESPACE_NODE_LEASE, node.name)) is not None
                renewed = not given and since_ns <= self._api.now_ns
                self._schedule(kubelet, first_ns, None, renewed_before=renewed)
                alive.append(node.name)
        self._agenda.add(first_ns, KUBELET, self._first_posts, tuple(alive))

    def _join_all(self, joined: JoinedKubelets) -> None:
        """Where a node shows other conditions than its kubelet sees, that posts them with its next
        heartbeat. Each is made when it is first looked at, of its node as it is now.
        """
        nodes, every_ns = dict(unchanging(self._api.store.nodes)), self.terms.renew_every_ns

        def of_node(node: Node) -> Kubelet:
            own = own_conditions(node)
            return Kubelet.joined(node.name, own, every_ns, joined.get(node.name))

        made = made_later(nodes, of_node, Kubelet.copy)
        self._kubelets, self.silent = made, nodes.keys() - joined.every_ns.keys()
        for name in joined:
            node = nodes.get(name)
            if node is None:
                made[name] = Kubelet.joined(name, {}, every_ns, joined[name])
            elif may_be_overwritten(node) and overwritten(made[name].conditions, node):
                self._agenda.add(joined[name].first_ns, KUBELET, self._first_posts, (name,))

    def announce(self, joined: JoinedKubelets) -> None:
        """Those that are joined go on: the first list shows their schedules already."""
        store, post_every_ns = self._api.store, self.terms.post_every_ns
        store.follow_all(
            joined.every_ns,
            lambda name: joined[name].announced(name, post_every_ns),
            self._api.now_ns,
        )

    def _of(self, name: str, conditions: dict[str, NodeCondition]) -> Kubelet:
        """The kubelet of that name; a new one is silent, and sees these conditions."""
        kubelet = self._kubelets.get(name)
        if kubelet is None:
            kubelet = self._kubelets[name] = self._make(name, conditions)
        return kubelet

    def _make(self, name: str, conditions: dict[str, NodeCondition]) -> Kubelet:
        self.silent.add(name)
        return Kubelet(name, conditions, self.terms.renew_every_ns)

    def gone_at(self, pod: Pod) -> int | None:
        """When a pod that is being stopped will be gone, ns; None where that is not known."""
        ending = self._endings.get(pod.key)
        return ending.at_ns if ending is not None and ending.uid == pod.metadata.uid else None

    def alive(self, node: str) -> bool:
        """True if the node's kubelet is alive."""
        return node not in self.silent and node in self._kubelets

    def alive_since(self, node: str) -> int | None:
        """The instant of the kubelet's first heartbeat, ns; None where it is silent."""
        kubelet = self._kubelets.get(node)
        return kubelet.first_ns if kubelet is not None and kubelet.alive else None

    def attend(
        self,
        on_start: Callable[[str], None] | None = None,
        on_run: Callable[[Pod], bool] | None = None,
        on_stop: Callable[[Pod, Action | None], bool] | None = None,
        *,
        first: bool = False,
    ) -> None:
        """Have `on_start` called with each node whose kubelet reports again; `on_run` before a pod
        runs and `on_stop` when a deleted pod's time is over: if they return True, they handle it.
        `first`: `on_run` is called before the earlier ones."""
        self._on_start += [on_start] if on_start else []
        at = 0 if first else len(self._on_run)
        self._on_run[at:at] = [on_run] if on_run else []
        self._on_stop += [on_stop] if on_stop else []

    def forget_listeners(self) -> None:
        """Remove all callbacks."""
        for listeners in (self._on_start, self._on_run, self._on_stop):
            listeners.clear()

    def write(self, pod: Pod, cause: Action | None) -> None:
        """Write a pod in a kubelet's name; `writes` shows that to its status manager."""
        self.writes = True
        try:
            self._api.put("Pod", pod, cause)
        finally:
            self.writes = False

    def start_pod(self, pod: Pod, cause: Action | None) -> None:
        """Start the pod's containers; the time that takes counts from now."""
        self._await(pod, Start(pod.uid, 0, cause))

    def no_longer_starts(self, pod: Pod) -> None:
        """The pod's containers run or have ended: it is not started any more."""
        start = self._starting.get(pod.key)
        if start is not None and start.uid == pod.uid:
            del self._starting[pod.key]

    def stop(self, node: str, cause: Action | None) -> None:
        """The kubelet falls silent: no renewal from this instant on, this instant included."""
        kubelet = self._kubelets.get(node)
        if kubelet is None or not kubelet.alive:
            return
        kubelet.alive = False
        self.silent.add(node)
        self.last_renewals.setdefault(node, kubelet.last_renewal(self._api.now_ns))
        self._publish_heartbeats(kubelet, self._api.now_ns, cause)

    def start(self, node: str, cause: Action | None, *, linked: bool = False) -> None:
        """The kubelet starts (again): it renews and posts now, and takes care of its pods.

        `linked`: it has worked on without its connection. It learns only now what was deleted
        meanwhile, and gives it the whole grace period, as `calculateEffectiveGracePeriod` of
        pkg/kubelet/pod_workers.go counts no time since the deletion.
        """
        kubelet = self._of(node, own_conditions(Node()))
        self._schedule(kubelet, self._api.now_ns, cause)
        self._post(kubelet, cause)
        for pod in self._api.store.pods_on(node):
            ending = self._endings.get(pod.key)
            if ending is not None and linked and not ending.noticed:
                self._end(pod, ending.cause, noticed_now=True)
            elif ending is not None:
                late = ending.at_ns <= self._api.now_ns
                at_ns = self._api.now_ns + LATE_STOP_NS if late else ending.at_ns
                self._agenda.add(at_ns, KUBELET, self._finish, pod.key, ending)
            elif pod.key in self._starting:
                self._run_soon(pod, self._starting[pod.key])
        for listener in self._on_start:
            listener(node)

    def equip(self, node: str, facts: MachineFacts) -> None:
        """From its next post on the kubelet reports this of its machine."""
        self._kubelets[node].facts = facts

    def report(
        self, node: str, conditions: Mapping[str, ReportedCondition], cause: Action | None
    ) -> None:
        """From now on the kubelet sees these conditions; if alive, it posts a change at once."""
        kubelet = self._of(node, own_conditions(Node()))
        changed = False
        for type_, reported in conditions.items():
            reason = reported.reason or reason_of(type_, reported.status)
            new = NodeCondition(type_, reported.status, reason, reported.message)
            seen = kubelet.conditions.get(type_)
            plain = not reported.reason and not reported.message
            if seen is None or seen.status != reported.status or not (plain or alike(seen, new)):
                kubelet.conditions[type_] = new
                changed = True
        if kubelet.alive and changed:
            self._next_post(kubelet, self._api.now_ns, cause)
            self._post(kubelet, cause)

    def post_for_real(self, node: str) -> None:
        """Make the node's next scheduled status post, though it changes nothing but its time, since
        a controller that failed to act on the node tries again when it changes.
        """
        kubelet = self._kubelets.get(node)
        if kubelet is not None and kubelet.alive:
            due_ns = self._post_due(kubelet)
            self._agenda.add(due_ns, KUBELET, self._post_again, node, kubelet.first_ns)

    def _post_again(self, node: str, first_ns: int, at_ns: int) -> None:
        kubelet = self._kubelets[node]
        if kubelet.alive and kubelet.first_ns == first_ns:
            self._post(kubelet, None)

    def _schedule(
        self,
        kubelet: Kubelet,
        first_ns: int,
        cause: Action | None,
        *,
        renewed_before: bool = False,
    ) -> None:
        kubelet.alive, kubelet.renewed_before = True, renewed_before
        self.silent.discard(kubelet.name)
        kubelet.first_ns = first_ns
        self._next_post(kubelet, first_ns, cause)

    def _next_post(self, kubelet: Kubelet, after_ns: int, cause: Action | None) -> None:
        """Count the report interval anew from a post at `after_ns`."""
        kubelet.post_ns = after_ns + self.terms.post_every_ns
        self._publish_heartbeats(kubelet, None, cause)

    def publish_all(self, stop_ns: int | None) -> None:
        """Tell the controllers the schedule of each that is alive; `stop_ns`: from when on they do
        not see its heartbeats.
        """
        for kubelet in self._kubelets.values():
            if kubelet.alive:
                self._api.pending.append(self._heartbeats(kubelet, stop_ns, None))

    def _publish_heartbeats(
        self, kubelet: Kubelet, stop_ns: int | None, cause: Action | None
    ) -> None:
        self._api.put_heartbeats(self._heartbeats(kubelet, stop_ns, cause))

    def _heartbeats(
        self, kubelet: Kubelet, stop_ns: int | None, cause: Action | None
    ) -> Heartbeats:
        before_ns = kubelet.every_ns if kubelet.renewed_before else 0
        return Heartbeats(
            kubelet.name,
            kubelet.first_ns - before_ns,
            kubelet.every_ns,
            stop_ns,
            kubelet.post_ns,
            self.terms.post_every_ns,
            cause,
        )

    def _first_posts(self, nodes: Iterable[str], at_ns: int) -> None:
        for node in nodes:
            kubelet = self._kubelets[node]
            if kubelet.alive and kubelet.first_ns == at_ns:
                if kubelet.post_ns < at_ns + self.terms.post_every_ns:  # it posted a change before
                    self._next_post(kubelet, at_ns, None)
                self._post(kubelet, None)

    def _post(self, kubelet: Kubelet, cause: Action | None) -> None:
        """Write the kubelet's conditions over those of the Node object, if there is one."""
        node = self._api.store.nodes.get(kubelet.name)
        if node is None:
            return
        now = whole_seconds(self._api.now_ns)
        conditions, changed = posted(node.status.conditions, kubelet.conditions, now)
        if changed:
            cause = self._api.note(
                SetNodeConditions(
                    controller=CLUSTER,
                    because="the kubelet posts its node's status",
                    cause=cause,
                    **of_node(node),
                    conditions=changed,
                )
            )
        status = replace(node.status, conditions=conditions)
        if kubelet.facts is not None:
            status = kubelet.facts.written(status)
        self._api.put("Node", replace(node, status=status), cause)

    def _node_changed(self, old: Node | None, new: Node | None, cause: Action | None) -> None:
        if new is None:
            return
        if old is None:
            kubelet = self._of(new.name, {})
            kubelet.conditions, kubelet.facts = own_conditions(new), None
            if new.is_ready:
                self.start(new.name, cause)
                return
        kubelet = self._kubelets[new.name]
        if kubelet.alive and overwritten(kubelet.conditions, new):
            self._agenda.add(self._post_due(kubelet), KUBELET, self._undo, kubelet.name)

    def _post_due(self, kubelet: Kubelet) -> int:
        """The next scheduled post after now."""
        every_ns = self.terms.post_every_ns
        missed = (self._api.now_ns - kubelet.post_ns) // every_ns + 1
        return kubelet.post_ns + max(0, missed) * every_ns

    def _undo(self, name: str, at_ns: int) -> None:
        """A scheduled post that changes something: the Node shows other conditions than the kubelet
        sees.
        """
        kubelet, node = self._kubelets[name], self._api.store.nodes.get(name)
        if kubelet.alive and node is not None and overwritten(kubelet.conditions, node):
            self._post(kubelet, None)

    def _pod_changed(self, old: Pod | None, new: Pod | None, cause: Action | None) -> None:
        if new is None:
            assert old is not None
            key, uid = old.key, old.metadata.uid
            for awaited in (self._endings, self._starting):
                entry = awaited.get(key)
                if entry is not None and entry.uid == uid:  # not a successor of its name
                    del awaited[key]
            return
        if not new.spec.node_name:
            return
        meta = new.metadata
        if meta.deletion_timestamp is not None:
            if old is None or deletion_times(old) != deletion_times(new):
                self._end(new, cause)
        elif (old is None or not old.spec.node_name) and new.status.phase in ("", "Pending"):
            self._await(new, Start(meta.uid, 0, cause))

    def _end(self, pod: Pod, cause: Action | None, *, noticed_now: bool = False) -> None:
        """A pod was deleted, gracefully: its kubelet stops it after the time it takes."""
        if not pod.spec.node_name:
            return
        key = pod.key
        grace_ns, asked_ns = deletion_times(pod)
        if noticed_now or cause is not None:  # deletionTimestamp has whole seconds only
            asked_ns = self._api.now_ns
        self._starting.pop(key, None)
        after_ns = self.terms.stops_after(pod, grace_ns)
        if after_ns is None:
            self._endings.pop(key, None)
            return
        at_ns, lives = asked_ns + after_ns, self.alive(pod.spec.node_name)
        if lives and at_ns <= self._api.now_ns:
            at_ns = self._api.now_ns + LATE_STOP_NS
        ending = self._endings[key] = Ending(pod.metadata.uid, at_ns, cause, lives)
        if lives:
            self._agenda.add(at_ns, KUBELET, self._finish, key, ending)

    def _awaiting(self, awaited: Mapping[Key, object], key: Key, entry: object) -> Pod | None:
        """The pod of that entry, if it still waits for it and its kubelet is alive."""
        pod = self._api.store.pods.get(key) if awaited.get(key) is entry else None
        return pod if pod is not None and self.alive(pod.spec.node_name) else None

    def _finish(self, key: Key, ending: Ending, at_ns: int) -> None:
        """The pod has stopped: its kubelet deletes the object, unless a finalizer holds it."""
        pod = self._awaiting(self._endings, key, ending)
        if pod is None or finalizers_that_hold(pod):
            return
        if self._on_stop and any(ends_it(pod, ending.cause) for ends_it in self._on_stop):
            return
        written_ns = self.clients.request(pod.spec.node_name, at_ns, LAST_REPORT)
        self._agenda.at(written_ns, at_ns, KUBELET, self._remove, key, ending)

    def _remove(self, key: Key, ending: Ending, at_ns: int) -> None:
        pod = self._awaiting(self._endings, key, ending)
        if pod is None:
            return
        because = f"the kubelet of {pod.spec.node_name} has stopped the pod"
        delete_stopped(self._api, pod, deletion(pod, because, ending.cause, 0))

    def _await(self, pod: Pod, start: Start) -> None:
        """The pod runs after its start time, counted from when its kubelet is alive."""
        if self.alive(pod.spec.node_name):
            self._run_soon(pod, start)
        else:
            self._starting[pod.key] = start

    def _go_on(self, pod: Pod) -> None:
        """For a pod that was starting before t=0, part of the start time is over."""
        start = Start(pod.uid, 0, None)
        if self.alive(pod.spec.node_name):
            self._run_after(pod, start, self.terms.goes_on_for(pod, self._api.now_ns))
        else:
            self._starting[pod.key] = start

    def _run_soon(self, pod: Pod, start: Start) -> None:
        self._run_after(pod, start, self.terms.starts_after(pod))

    def _run_after(self, pod: Pod, start: Start, after_ns: int | None) -> None:
        if after_ns is not None:
            key, at_ns = pod.key, self._api.now_ns + after_ns
            start = self._starting[key] = Start(start.uid, at_ns, start.cause)
            self._agenda.add(at_ns, KUBELET, self._run, key, start)

    def _run(self, key: Key, start: Start, at_ns: int) -> None:
        """The pod's containers run: it becomes Ready."""
        pod = self._awaiting(self._starting, key, start)
        if pod is None:
            return
        if self._on_run and any(reports_it(pod) for reports_it in self._on_run):
            del self._starting[key]
            return
        written_ns = self.clients.request(pod.spec.node_name, at_ns, REPORT)
        self._agenda.at(written_ns, at_ns, KUBELET, self._report_running, key, start)

    def _report_running(self, key: Key, start: Start, at_ns: int) -> None:
        pod = self._awaiting(self._starting, key, start)
        if pod is None:
            return
        del self._starting[key]
        status = self._running.of(pod.status, start.at_ns)
        if not status.pod_ip:
            status = replace(status, pod_ip=self._next_ip())
        ready = status.condition("Ready")
        assert ready is not None
        done = self._api.note(
            SetPodCondition(
                controller=CLUSTER,
                because=f"the containers run on {pod.spec.node_name}",
                cause=start.cause,
                **of_pod(pod),
                condition=ready,
                phase="Running",
            )
        )
        self.write(replace(pod, status=status), done)

    def _next_ip(self) -> str:
        self._ips += 1
        return f"10.{self._ips >> 16 & 255}.{self._ips >> 8 & 255}.{self._ips & 255}"
