"""Plays the events of a scenario: what users, and kubelets that it directs, do to the cluster.

Everything that is done is recorded under the controller name `cluster`, and is the cause of what
follows.
"""

from __future__ import annotations

from collections.abc import Iterable
from copy import copy
from typing import cast

from msgspec.structs import replace

from kubectl_nodelife.engine.actions import Action, AddTaints, RemoveTaints, of_node
from kubectl_nodelife.engine.settings import NEWEST, Profile, parse_profile
from kubectl_nodelife.kube.codec import encode, mended, merge_patch
from kubectl_nodelife.kube.kinds import kind_of
from kubectl_nodelife.kube.load import decode
from kubectl_nodelife.kube.meta import KubeObject, MicroTime
from kubectl_nodelife.kube.node import Lease, LeaseMeta, LeaseSpec, Node
from kubectl_nodelife.kube.pod import Pod
from kubectl_nodelife.kube.selectors import matches
from kubectl_nodelife.kube.taints import add_or_update_taints, remove_taints
from kubectl_nodelife.kube.times import whole_seconds
from kubectl_nodelife.kube.wellknown import NAMESPACE_NODE_LEASE
from kubectl_nodelife.kube.workload import Namespace, NamespaceStatus
from kubectl_nodelife.sim import api
from kubectl_nodelife.sim.drained import kubectl_of
from kubectl_nodelife.sim.events import (
    ApplyEvent,
    ConnectionEvent,
    ContainerEvent,
    CordonEvent,
    DeleteEvent,
    DrainEvent,
    KubeletEvent,
    LeaseTouchEvent,
    LeaseViewEvent,
    LoseEvent,
    ResourcesEvent,
    ScenarioEvent,
    TaintEvent,
    Targets,
    UpgradeCommandEvent,
    UpgradeEvent,
)
from kubectl_nodelife.sim.timeline import OWNER, SCRIPT, NotForkableError
from kubectl_nodelife.sim.upgrade_run import VirtualUpgrades
from kubectl_nodelife.sim.world import World

LEASE_SECONDS = 40
"""leaseDurationSeconds of a kubelet by default."""

_WHY = "the scenario says so"
_CONTROLLERS = ("Controllers", "", "kube-controller-manager")
_NEWEST = parse_profile(NEWEST)
_SHOWN_AT_ONCE = (TaintEvent, CordonEvent, ApplyEvent)
"""Events that change objects for which controllers that join do nothing any more."""


class Script:
    """The events of a scenario, to be played on a world."""

    def __init__(
        self,
        world: World,
        events: Iterable[ScenarioEvent],
        profile: Profile = _NEWEST,
        *,
        joins: bool = False,
    ) -> None:
        """`profile`: the release of kubectl that drains; `joins`: the controllers join, and take
        what they see then for done work."""
        self._world, self._joins = world, joins
        self._profile = profile
        self.upgrades: VirtualUpgrades | None = None
        self._api = world.api
        world.join(self)
        self.add(events)

    def add(self, events: Iterable[ScenarioEvent]) -> None:
        """Play these too; each one's `at_ns` counts from now."""
        waits = self._joins and not self._world.begun
        for event in events:
            shows = waits and not event.at_ns and isinstance(event.what, _SHOWN_AT_ONCE)
            play = self._play_once_joined if shows else self._play
            self._world.agenda.add(self._api.now_ns + event.at_ns, SCRIPT, play, event)

    def _play_once_joined(self, event: ScenarioEvent, at_ns: int) -> None:
        """Controllers that join at this instant have the event still to come: what it changes is no
        done work."""
        self._world.agenda.add(at_ns, OWNER, self._play, event)

    def fork(self, world: World) -> Script:
        """The rest of the events, played on a fork of the world. Raises NotForkableError."""
        if self.upgrades is not None:
            raise NotForkableError("an upgrade's leaders are no part of the world")
        other = copy(self)
        other._world, other._api = world, world.api
        return other

    def _play(self, event: ScenarioEvent, at_ns: int) -> None:
        match event.what:
            case KubeletEvent() as kubelet:
                self._kubelet(kubelet)
            case TaintEvent() as taint:
                for node in self._nodes(taint.targets):
                    self._taint(node, taint)
            case CordonEvent() as cordon:
                for node in self._nodes(cordon.targets):
                    self._cordon(node, cordon.unschedulable)
            case DrainEvent() as drain:
                if nodes := self._nodes(drain.targets):
                    kubectl_of(self._world).start(nodes, drain.options.of_release(self._profile))
            case ConnectionEvent() as connection:
                self._connect(connection)
            case LeaseViewEvent() as view:
                self._see_leases(view.stale)
            case LeaseTouchEvent() as touch:
                for name in self._named(touch.targets):
                    self._touch_lease(name)
            case LoseEvent() as lose:
                for node in self._nodes(lose.targets):
                    self._world.machines.lose(node.name, lose.for_ns, link=lose.link)
            case ApplyEvent() as apply:
                self._apply(apply)
            case DeleteEvent() as gone:
                self._delete(gone)
            case ContainerEvent() as container if self._world.container_events is not None:
                self._world.container_events.play(container)
            case ResourcesEvent() as resources if self._world.container_events is not None:
                self._world.container_events.leave(resources)
            case UpgradeEvent() as upgrade:
                self._upgrades_at(event).begin(upgrade)
            case UpgradeCommandEvent() as command:
                self._upgrades_at(event).command(command)

    def _upgrades_at(self, event: ScenarioEvent) -> VirtualUpgrades:
        """The part that plays upgrades. Raises BadInput where there is none."""
        if self.upgrades is None:
            raise event.place.fault("upgrades cannot be played here", "play it with simulate")
        return self.upgrades

    def _connect(self, event: ConnectionEvent) -> None:
        """The controllers lose their connection to the API server, or regain it."""
        reason = "ConnectionLost" if event.lost else "ConnectionRestored"
        why = (
            "the controllers lose the API server: they receive nothing, and their writes fail"
            if event.lost
            else "the controllers reach the API server again and list everything anew"
        )
        self._api.note(api.event_record(_CONTROLLERS, reason, why))
        if event.lost:
            self._world.cut_off()
        else:
            self._world.reconnect()

    def _see_leases(self, stale: bool) -> None:
        """The controllers' watch of Leases stands still, or goes on."""
        reason = "LeasesStale" if stale else "LeasesCurrent"
        why = (
            "the controllers' watch of Leases stands still: they see no renewal from now on"
            if stale
            else "the controllers' watch of Leases shows again what there is"
        )
        record = api.event_record(_CONTROLLERS, reason, why)
        self._world.leases.stand_still(stale, self._api.note(record))

    def _named(self, targets: Targets) -> list[str]:
        """The names of the nodes, whether or not they exist now."""
        if targets.selector is not None:
            return [node.name for node in self._nodes(targets)]
        return list(targets.nodes)

    def _touch_lease(self, node: str) -> None:
        lease = self._lease(node)
        if lease is None:
            why = "the scenario touches the Lease of this node, which has none now"
            self._api.note(api.event_record(("Node", "", node), "NotFound", why, warning=True))
        else:
            self._put_lease(lease, "Touched")

    def _lease(self, node: str) -> Lease | None:
        """The Lease of a node as the API server has it, with the renewals of its kubelet."""
        key = (NAMESPACE_NODE_LEASE, node)
        heartbeat = self._api.store.heartbeat(node)
        renewal = heartbeat.renewal(self._api.now_ns) if heartbeat is not None else None
        if renewal is None:
            return None
        lease = cast("Lease | None", self._api.store.get("Lease", key))
        if lease is None:
            meta = LeaseMeta(name=node, namespace=NAMESPACE_NODE_LEASE)
            lease = self._api.fill_in(Lease(metadata=meta, spec=LeaseSpec(node, LEASE_SECONDS)))
        renewed = MicroTime(renewal[0]) if renewal[0] is not None else None
        return replace(lease, spec=replace(lease.spec, renew_time=renewed))

    def _put_lease(self, lease: Lease, reason: str) -> None:
        """Write a node's Lease: each write has a version of its own."""
        meta = replace(lease.metadata, resource_version=str(self._api.now_ns))
        lease = replace(lease, metadata=meta)
        self._api.put("Lease", lease, self._api.note(api.event_record(lease, reason, _WHY)))

    def _nodes(self, targets: Targets) -> list[Node]:
        """The nodes that exist now; for one that does not, a record is written."""
        nodes = self._api.store.nodes
        if targets.selector is not None:
            return [n for n in nodes.values() if matches(targets.selector, n.metadata.labels)]
        for name in targets.nodes:
            if name not in nodes:
                why = "the scenario names this node, which does not exist now"
                self._api.note(api.event_record(("Node", "", name), "NotFound", why, warning=True))
        return [nodes[name] for name in targets.nodes if name in nodes]

    def _kubelet(self, event: KubeletEvent) -> None:
        kubelets = self._world.kubelets
        for name in self._named(event.targets):  # a kubelet outlives its Node object
            cause: Action | None = None
            about = self._api.store.nodes.get(name) or ("Node", "", name)
            if event.heartbeats == "stop":
                why = "the kubelet stops reporting: no Lease renewals, no status"
                cause = self._api.note(api.event_record(about, "HeartbeatsStopped", why))
            elif event.heartbeats == "start":
                why = "the kubelet starts: it renews its lease and posts its status"
                cause = self._api.note(api.event_record(about, "HeartbeatsStarted", why))
            self._surround(name, event)
            if event.conditions:
                kubelets.report(name, event.conditions, cause)
            if event.heartbeats == "stop":
                kubelets.stop(name, cause)
            elif event.heartbeats == "start":
                kubelets.start(name, cause)

    def _surround(self, name: str, event: KubeletEvent) -> None:
        """Change the surroundings of the kubelet's status manager, as the event says."""
        managers, events = self._world.managers, self._world.container_events
        if managers is None or events is None:
            return
        if event.failing_calls is not None:
            managers.of(name).failing = frozenset(event.failing_calls)
            words = ", ".join(event.failing_calls)
            why = f"its API calls fail: {words}" if words else "its API calls succeed again"
            self._api.note(api.event_record(("Node", "", name), "StatusCalls", why))
        if event.status_channel:
            events.fill_channel(name, event.status_channel == "full")

    def _taint(self, node: Node, event: TaintEvent) -> None:
        added = add_or_update_taints(node.spec.taints, event.add)
        left = remove_taints(added, event.remove)
        cause: Action | None = None
        for kind, fewer in ((AddTaints, node.spec.taints), (RemoveTaints, left)):
            if fewer is not added:
                cause = self._api.note(
                    kind(
                        controller=api.CLUSTER,
                        because=_WHY,
                        **of_node(node),
                        taints=tuple(taint for taint in added if taint not in fewer),
                    )
                )
        if cause is not None:
            self._api.put("Node", replace(node, spec=replace(node.spec, taints=left)), cause)

    def _cordon(self, node: Node, unschedulable: bool) -> None:
        if node.spec.unschedulable == unschedulable:
            return
        reason = "Cordoned" if unschedulable else "Uncordoned"
        cause = self._api.note(api.event_record(node, reason, _WHY))
        spec = replace(node.spec, unschedulable=unschedulable)
        self._api.put("Node", replace(node, spec=spec), cause)

    def _apply(self, event: ApplyEvent) -> None:
        kind = event.kind.name
        old = self._api.store.get(kind, (event.namespace, event.name))
        if is_heartbeat := kind == "Lease" and event.namespace == NAMESPACE_NODE_LEASE:
            old = self._lease(event.name) or old
        if old is None:
            self._create(event)
            return
        new = decode(kind, merge_patch(encode(old), event.document))
        new = api.as_updated(old, _named(new, old))
        if isinstance(new, Pod) and replace(new, status=cast(Pod, old).status) != old:
            new = self._api.default_tolerations.admit(new)
        if new != old and is_heartbeat:
            self._put_lease(cast(Lease, new), "Patched")
        elif new != old and self._takes(new):
            cause = self._api.note(api.event_record(new, "Patched", _WHY))
            self._api.update(kind, old, new, cause)

    def _takes(self, obj: KubeObject) -> bool:
        """True if the API server accepts the object; if not, a record is written."""
        why = api.refusal(obj)
        if why:
            self._api.note(api.event_record(obj, "Refused", why, warning=True))
        return not why

    def _create(self, event: ApplyEvent) -> None:
        kind = event.kind.name
        version = event.document.get("apiVersion", "")
        obj = decode(kind, mended(version, event.kind, event.document))
        if event.kind.namespaced and not obj.namespace:
            obj = replace(obj, metadata=replace(obj.metadata, namespace=event.namespace))
        obj = self._api.fill_in(api.as_created(obj))
        refused = self._api.admission.refuses_creation(kind, *obj.key)
        if refused is not None:
            self._api.note(api.event_record(obj, "Refused", refused.message, warning=True))
        if refused is not None or not self._takes(obj):
            return
        if isinstance(obj, Pod):
            pod = self._world.scheduler.bind(self._api.default_tolerations.admit(obj))
            self._api.put(kind, pod, self._api.note(api.creation(pod, _WHY)))
        else:
            self._api.put(kind, obj, self._api.note(api.event_record(obj, "Created", _WHY)))

    def _delete(self, event: DeleteEvent) -> None:
        kind, key = event.kind.name, (event.namespace, event.name)
        is_heartbeat = kind == "Lease" and event.namespace == NAMESPACE_NODE_LEASE
        if is_heartbeat and (lease := self._lease(event.name)) is not None:
            self._api.store.set("Lease", key, lease)
        obj = self._api.store.get(kind, key)
        if obj is None:
            why = "the scenario deletes this object, which does not exist now"
            self._api.note(api.event_record((kind, *key), "NotFound", why, warning=True))
        elif isinstance(obj, Pod):
            self._delete_pod(obj, _WHY, None)
        elif isinstance(obj, Namespace):
            self._terminate(obj)
        else:
            cause = self._api.note(api.event_record(obj, "Deleted", _WHY))
            self._api.drop(kind, key, cause)
            self._collect_garbage(obj, cause)

    def _terminate(self, namespace: Namespace) -> None:
        """A namespace that is deleted stays, Terminating, until its content is gone."""
        if namespace.metadata.deletion_timestamp is None:
            deleted = whole_seconds(self._api.now_ns)
            meta = replace(namespace.metadata, deletion_timestamp=deleted)
            going = replace(namespace, metadata=meta, status=NamespaceStatus("Terminating"))
            cause = self._api.note(api.event_record(namespace, "Deleted", _WHY))
            self._api.put("Namespace", going, cause)

    def _delete_pod(self, pod: Pod, because: str, cause: Action | None) -> None:
        delete = api.deletion(pod, because, cause)
        self._api.note(delete)
        self._world.start(delete, self._api.now_ns)

    def _collect_garbage(self, owner: KubeObject, cause: Action) -> None:
        """Delete the dependents of the deleted owner."""
        if not owner.uid or isinstance(owner, Node):
            return
        because = f"its owner, {kind_of(owner)} {owner.name}, is gone"
        for pod in self._api.store.pods_of(owner.uid):
            self._delete_pod(pod, because, cause)
        for kind in ("ReplicaSet", "ControllerRevision", "Job"):
            for obj in list(self._api.store.all(kind)):
                if any(o.uid == owner.uid for o in obj.metadata.owner_references):
                    done = self._api.note(api.event_record(obj, "Deleted", because, cause=cause))
                    self._api.drop(kind, obj.key, done)
                    self._collect_garbage(obj, done)


def _named(new: KubeObject, old: KubeObject) -> KubeObject:
    """The new object with the fields of the old one that no patch can change."""
    meta = replace(
        new.metadata,
        name=old.name,
        namespace=old.namespace,
        uid=old.uid,
        creation_timestamp=old.metadata.creation_timestamp,
        deletion_timestamp=old.metadata.deletion_timestamp,
        deletion_grace_period_seconds=old.metadata.deletion_grace_period_seconds,
    )
    return replace(new, metadata=meta)
