"""The machines under the simulated kubelets: a reboot, a new kubelet, a node in another's place.

A machine that reboots is silent for a while and comes back with another bootID. Its pods'
containers run anew; pods that never restart have failed. A kubelet that is exchanged is silent for
some seconds, and its pods are not affected. The object of a replaced node is deleted; later another
one with the same labels registers, as kubelets do: not Ready, and with the taint that says so.
Follows pkg/kubelet/kubelet_node_status.go (`initialNode`, `tryRegisterWithAPIServer`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from kubectl_nodelife.engine.actions import Action, SetPodCondition, of_pod
from kubectl_nodelife.kube.meta import KubeObject, ObjectMeta
from kubectl_nodelife.kube.node import Node, NodeCondition, NodeMeta, NodeSpec, NodeStatus, Taint
from kubectl_nodelife.kube.pod import (
    TERMINAL_PHASES,
    ContainerState,
    ContainerStateRunning,
    ContainerStateWaiting,
    ContainerStatus,
    Pod,
    PodCondition,
    PodStatus,
    put_condition,
)
from kubectl_nodelife.kube.storage import CSINode
from kubectl_nodelife.kube.times import SECOND_NS, parse_duration, whole_seconds
from kubectl_nodelife.kube.wellknown import LABEL_HOSTNAME, NO_SCHEDULE, TAINT_NODE_NOT_READY
from kubectl_nodelife.sim.api import CLUSTER, Api, ForkedWorld, event_record, made_uid
from kubectl_nodelife.sim.events import ReportedCondition
from kubectl_nodelife.sim.kubelet import Kubelets
from kubectl_nodelife.sim.kubelet_state import MachineFacts
from kubectl_nodelife.sim.status_manager import StatusManagers
from kubectl_nodelife.sim.timeline import KUBELET, Agenda, Happening

KUBELET_RESTART_NS: Final = 10 * SECOND_NS
"""How long a kubelet is silent while its binary is exchanged."""

POD_START_NS: Final = 20 * SECOND_NS
"""How long after the machine's return its pods are ready, unless given otherwise."""

_BOOTS = 0xB008

Refit = Callable[[MachineFacts], MachineFacts]
"""Turns a machine's facts into those after an act."""


class Return(msgspec.Struct, frozen=True):
    """How a machine comes back.

    `refit`: what else is changed of it. `pods_after_ns`: when its pods are Ready, None: never.
    `ready`: whether its kubelet reports Ready. `drivers`: whether its CSI drivers register again.
    """

    refit: Refit = lambda facts: facts
    pods_after_ns: int | None = POD_START_NS
    ready: bool = True
    drivers: bool = True


class Reach(StrEnum):
    """The state of a machine: it works and can be reached, it is cut off, or it is off."""

    REACHED = "reached"
    CUT_OFF = "cut off"
    OFF = "off"


ReachListener = Callable[[str, Reach], None]


@dataclass(eq=False)
class Machines:
    """All machines of a world. `reach` has those that are off or cut off, by node."""

    api: Api
    agenda: Agenda
    kubelets: Kubelets
    managers: StatusManagers | None
    reach: dict[str, Reach] = field(default_factory=dict)
    _count: int = 0
    _listeners: list[ReachListener] = field(default_factory=list)

    def fork(self, world: ForkedWorld) -> Machines:
        """The same for a fork of the world, without listeners yet."""
        kubelets = world.agenda.own(self.kubelets)
        managers = world.agenda.own(self.managers) if self.managers is not None else None
        reach = dict(self.reach)
        return Machines(world.api, world.agenda, kubelets, managers, reach, self._count)

    def on_reach(self, listener: ReachListener) -> None:
        """Have `listener` called when a machine goes off, is cut off, or can be reached again."""
        self._listeners.append(listener)

    def forget_listeners(self) -> None:
        """Remove all listeners."""
        self._listeners.clear()

    def lose(self, name: str, for_ns: int | None, *, link: bool) -> None:
        """The machine, or with `link` only its connection, goes off; `for_ns` None: for good."""
        word = "LinkLost" if link else "MachineLost"
        why = "its machine is off: its containers and its kubelet have ended"
        if link:
            why = "its connection is cut: its kubelet does not report, its pods go on serving"
        done = self._silence(name, word, why, None)
        self._set_reach(name, Reach.CUT_OFF if link else Reach.OFF)
        if for_ns is None:
            return
        if link:
            self._after(for_ns, self._linked, name, done)
        else:
            back = Return(pods_after_ns=self.kubelets.terms.pod_start_ns)
            self._after(for_ns, self._booted, name, back, done)

    def _linked(self, name: str, cause: Action, at_ns: int) -> None:
        """The connection is back: the same kubelet renews and posts again."""
        self._set_reach(name, Reach.REACHED)
        about = self.api.store.nodes.get(name) or ("Node", "", name)
        why = "its connection is back: its kubelet renews its lease and posts its status"
        done = self.api.note(event_record(about, "LinkBack", why, cause=cause))
        self.kubelets.start(name, done, linked=True)

    def _set_reach(self, name: str, reach: Reach) -> None:
        if reach is Reach.REACHED:
            self.reach.pop(name, None)
        else:
            self.reach[name] = reach
        for listener in self._listeners:
            listener(name, reach)

    def reboot(self, name: str, down_ns: int, back: Return, cause: Action | None) -> None:
        """The machine goes down now, and is back after `down_ns`."""
        why = "the machine reboots: its kubelet does not report"
        done = self._silence(name, "Rebooting", why, cause)
        self._after(down_ns, self._booted, name, back, done)

    def update_kubelet(self, name: str, back: Return, cause: Action | None) -> None:
        """The kubelet is exchanged: it stops, and starts again with what `back` makes of it."""
        why = "the kubelet is exchanged: it does not report while it restarts"
        done = self._silence(name, "KubeletStopped", why, cause)
        self._after(KUBELET_RESTART_NS, self._started, name, back, done)

    def replace(
        self, name: str, newcomer: str, after_ns: int, back: Return, cause: Action | None
    ) -> None:
        """Delete the Node object; after `after_ns` another registers, with the same labels."""
        node = self.api.store.nodes.get(name)
        if node is None:
            return
        done = self._silence(name, "Replaced", "its machine is deleted", cause)
        self.api.drop("Node", ("", name), done)
        drivers = self.api.store.get("CSINode", ("", name))
        self.api.drop("CSINode", ("", name), done)
        self._after(after_ns, self._register, node, drivers, newcomer, back, done)

    def _after(self, delay_ns: int, happening: Happening, *arguments: Any) -> None:
        self.agenda.add(self.api.now_ns + delay_ns, KUBELET, happening, *arguments)

    def _silence(self, name: str, word: str, why: str, cause: Action | None) -> Action:
        about = self.api.store.nodes.get(name) or ("Node", "", name)
        done = self.api.note(event_record(about, word, why, cause=cause))
        self.kubelets.stop(name, done)
        return done

    def _booted(self, name: str, back: Return, cause: Action, at_ns: int) -> None:
        self._set_reach(name, Reach.REACHED)
        boot_id = self._next_uid()

        def booted(facts: MachineFacts) -> MachineFacts:
            return back.refit(replace(facts, node_info=replace(facts.node_info, boot_id=boot_id)))

        if self.managers is not None:
            self.managers.restart(name)
        self._started(name, replace(back, refit=booted), cause, at_ns)
        pods = [p for p in self.api.store.pods_on(name) if p.status.phase not in TERMINAL_PHASES]
        for pod in pods:
            if pod.status.phase == "Running":
                self._interrupt(pod, cause)
        if back.pods_after_ns is not None:
            self._after(back.pods_after_ns, self._run_pods, name, boot_id, cause)

    def _started(self, name: str, back: Return, cause: Action, at_ns: int) -> None:
        """The kubelet starts with what is on the machine now."""
        node = self.api.store.nodes.get(name)
        if node is None:
            return
        kubelets = self.kubelets
        kubelets.equip(name, back.refit(MachineFacts.of(node)))
        ready = ReportedCondition("True") if back.ready else _NO_NETWORK
        kubelets.report(name, {"Ready": ready}, cause)
        if not back.drivers:
            self._lose_drivers(name, cause)
        why = "the kubelet starts: it renews its lease and posts its status"
        kubelets.start(name, self.api.note(event_record(node, "KubeletStarted", why, cause=cause)))

    def _lose_drivers(self, name: str, cause: Action) -> None:
        csi_node = self.api.store.get("CSINode", ("", name))
        if isinstance(csi_node, CSINode):
            self.api.put("CSINode", CSINode(metadata=csi_node.metadata), cause)

    def _register(
        self,
        old: Node,
        drivers: KubeObject | None,
        name: str,
        back: Return,
        cause: Action,
        at_ns: int,
    ) -> None:
        """A kubelet registers its node, which is not Ready until its pods run."""
        now = whole_seconds(at_ns)
        ready = NodeCondition("Ready", "False", "KubeletNotReady", "", now, now)
        facts = back.refit(MachineFacts.of(old))
        info = replace(facts.node_info, boot_id=self._next_uid())
        node = Node(
            metadata=NodeMeta(
                name=name,
                uid=self._next_uid(),
                creation_timestamp=now,
                labels=_born_labels(old, name),
            ),
            spec=NodeSpec(taints=(*_lasting(old.spec.taints), _NOT_READY)),
            status=NodeStatus(
                conditions=(ready,),
                capacity=old.status.capacity,
                allocatable=facts.allocatable,
                node_info=info,
            ),
        )
        why = f"a new machine registers in place of {old.name}"
        done = self.api.note(event_record(node, "Registered", why, cause=cause))
        self.api.put("Node", node, done)
        self.kubelets.start(name, done)
        if back.ready:
            after_ns = back.pods_after_ns or 0
            drivers = drivers if back.drivers else None
            self._after(after_ns, self._becomes_ready, name, drivers, done)

    def _becomes_ready(
        self, name: str, drivers: KubeObject | None, cause: Action, at_ns: int
    ) -> None:
        """Its pods run: the network is there, and the CSI drivers of its model register."""
        if isinstance(drivers, CSINode):
            self.api.put(
                "CSINode", CSINode(metadata=ObjectMeta(name=name), spec=drivers.spec), cause
            )
        self.kubelets.report(name, {"Ready": ReportedCondition("True")}, cause)

    def _interrupt(self, pod: Pod, cause: Action) -> None:
        """The pod's containers ended with the machine."""
        if pod.spec.restart_policy == "Never":
            status = replace(pod.status, phase="Failed", reason="NodeShutdown")
        else:
            waiting = ContainerState(waiting=ContainerStateWaiting(reason="ContainerCreating"))
            status = replace(
                pod.status,
                container_statuses=tuple(
                    ContainerStatus(
                        name=container.name, ready=False, state=waiting, image=container.image
                    )
                    for container in pod.spec.containers
                ),
            )
        why = f"its containers ended with the machine of {pod.spec.node_name}"
        self._write(pod, status, "False", why, cause)

    def _run_pods(self, name: str, boot_id: str, cause: Action, at_ns: int) -> None:
        """The containers run again, unless the machine has gone down once more."""
        node = self.api.store.nodes.get(name)
        if node is None or node.status.node_info.boot_id != boot_id:
            return
        if not self.kubelets.alive(name):
            return
        for pod in self.api.store.pods_on(name):
            if pod.status.phase == "Running" and not pod.ready():
                self._run_again(pod, boot_id, cause)

    def _run_again(self, pod: Pod, boot_id: str, cause: Action) -> None:
        started = whole_seconds(self.api.now_ns)
        running = ContainerState(running=ContainerStateRunning(started_at=started))
        status = replace(
            pod.status,
            container_statuses=tuple(
                ContainerStatus(
                    name=container.name,
                    ready=True,
                    started=True,
                    state=running,
                    restart_count=1,
                    image=container.image,
                    container_id=f"containerd://{boot_id}-{pod.uid}-{container.name}",
                )
                for container in pod.spec.containers
            ),
        )
        why = f"its containers run again on {pod.spec.node_name}"
        self._write(pod, status, "True", why, cause)

    def _write(self, pod: Pod, status: PodStatus, ready: str, why: str, cause: Action) -> None:
        """Post the status, with Ready and ContainersReady as they are now."""
        now = whole_seconds(self.api.now_ns)
        reason = "" if ready == "True" else "ContainersNotReady"
        for type_ in ("ContainersReady", "Ready"):
            condition = PodCondition(
                type=type_, status=ready, reason=reason, last_transition_time=now
            )
            status = replace(status, conditions=put_condition(status.conditions, condition))
        done = self.api.note(
            SetPodCondition(
                controller=CLUSTER,
                because=why,
                cause=cause,
                **of_pod(pod),
                condition=condition,
                phase=status.phase if status.phase != pod.status.phase else "",
            )
        )
        self.kubelets.write(replace(pod, status=status), done)

    def _next_uid(self) -> str:
        self._count += 1
        return made_uid(self._count, _BOOTS)


def with_version(version: str) -> Refit:
    """A kubelet of that version."""

    def refit(facts: MachineFacts) -> MachineFacts:
        return replace(facts, node_info=replace(facts.node_info, kubelet_version=version))

    return refit


def read_reboot(text: str) -> tuple[int, Return] | None:
    """(ns that the machine is down, how it comes back) of `20s[,kubeletVersion=V]`; None where the
    text says something else.
    """
    down, comma, rest = text.partition(",")
    name, _, version = rest.partition("=")
    if comma and (name != "kubeletVersion" or not version):
        return None
    try:
        down_ns = parse_duration(down)
    except ValueError:
        return None
    if down_ns <= 0:
        return None
    return down_ns, Return(refit=with_version(version)) if version else Return()


_NO_NETWORK = ReportedCondition(
    "False",
    "KubeletNotReady",
    "container runtime network not ready: NetworkReady=false reason:NetworkPluginNotReady"
    " message:Network plugin returns error: cni plugin not initialized",
)
_NOT_READY = Taint(key=TAINT_NODE_NOT_READY, effect=NO_SCHEDULE)


_OF_THIS_NODE = ("node.kubernetes.io/", "nodelife.dev/", "remediation.medik8s.io/")
"""Prefixes of marks that are a node's own: its pool's next node registers without them."""


def _born_labels(old: Node, name: str) -> dict[str, str]:
    labels = {
        k: v for k, v in (old.metadata.labels or {}).items() if not k.startswith(_OF_THIS_NODE)
    }
    if LABEL_HOSTNAME in labels:
        labels[LABEL_HOSTNAME] = name
    return labels


def _lasting(taints: tuple[Taint, ...]) -> tuple[Taint, ...]:
    return tuple(t for t in taints if not t.key.startswith(_OF_THIS_NODE))
