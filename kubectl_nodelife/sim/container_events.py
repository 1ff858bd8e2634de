"""Passes a scenario's events of containers and of a pod's remaining resources to a kubelet.

Each event is a call of the kubelet's other parts to its status manager (`sim/status_manager`): the
prober's SetContainerReadiness and SetContainerStartup, a pod sync's SetPodStatus, TerminatePod. For
the pods concerned every step is recorded: the version that was made, why none was, what the sender
does.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from copy import copy

from msgspec.structs import replace

from kubectl_nodelife.engine.actions import Action
from kubectl_nodelife.engine.events import ConditionsChange
from kubectl_nodelife.kube.pod import (
    Container,
    ContainerStatus,
    Pod,
    PodCondition,
    PodStatus,
    is_mirror_pod,
    put_condition,
)
from kubectl_nodelife.kubelet.conditions import need_to_reconcile_pod_readiness
from kubectl_nodelife.kubelet.containers import (
    ContainerStep,
    generated,
    illegal_transition,
    stepped,
    with_container_statuses,
)
from kubectl_nodelife.kubelet.machine import MAX_WAITING_REQUESTS
from kubectl_nodelife.kubelet.reclaim import RUNNING_CONTAINERS, containers_are_stopped
from kubectl_nodelife.kubelet.status import with_conditions_of_others
from kubectl_nodelife.sim.api import ForkedWorld, event_record
from kubectl_nodelife.sim.events import ContainerEvent, PodTargets, ResourcesEvent
from kubectl_nodelife.sim.status_manager import StatusManager, StatusManagers


class ContainerEvents:
    """Plays these events on the status managers."""

    def __init__(self, managers: StatusManagers) -> None:
        self._managers = managers
        self._api = managers.api
        self._kubelets = managers.kubelets
        self._failing: list[ContainerEvent] = []
        self._kubelets.attend(on_run=self._runs, on_stop=self._stops)
        self._api.on_pod(self._pod_changed)
        self._api.on_pod_conditions(self._conditions_changed)

    def fork(self, world: ForkedWorld) -> ContainerEvents:
        """The same for a fork of the world."""
        other = copy(self)
        managers = other._managers = world.agenda.own(self._managers)
        other._api, other._kubelets = managers.api, managers.kubelets
        other._failing = list(self._failing)
        return other

    def play(self, event: ContainerEvent) -> None:
        """Play a container event on the existing pods; one with a failing start also applies to
        later pods, until the same targets' containers run."""
        if event.step is not None:
            self._failing = [e for e in self._failing if e.targets != event.targets]
            if event.step.state == "waiting":
                self._failing.append(event)
        for pod in self._pods(event.targets):
            self._play(event, pod)

    def leave(self, event: ResourcesEvent) -> None:
        """Change the resources of pods that their node still holds, as the event says."""
        for pod in self._pods(event.targets):
            self._know(pod)
            manager = self._managers.of(pod.spec.node_name)
            before = manager.left.get(pod.uid, ())
            manager.left[pod.uid] = event.left
            if before != event.left:
                words = ", ".join(event.left) or "nothing"
                why = f"the node holds of the pod beyond its end: {words}"
                cause = self._api.note(event_record(pod, "ResourcesLeft", why))
                if pod.uid in manager.stopped:
                    self._go_on(manager, pod, cause)

    def fill_channel(self, node: str, full: bool) -> None:
        """Set the channel to a kubelet's sender full, or free again."""
        manager = self._managers.of(node)
        manager.machine.request_room = 0 if full else MAX_WAITING_REQUESTS
        if not self._managers.rules.request_per_change:
            why = "the channel of this release is a signal with one place: nothing can be lost"
        elif full:
            why = f"all {MAX_WAITING_REQUESTS} places are taken: changes wait for the batch"
        else:
            why = "there is room again: changes are sent at once"
        word = "StatusChannelFull" if full else "StatusChannelFree"
        self._api.note(event_record(("Node", "", node), word, why))

    def _pods(self, targets: PodTargets) -> list[Pod]:
        pods = [pod for pod in self._api.store.pods.values() if targets.match(pod)]
        for name in set(targets.names) - {pod.name for pod in pods}:
            why = "the scenario names this pod, which does not exist now"
            self._api.note(
                event_record(("Pod", targets.namespace, name), "NotFound", why, warning=True)
            )
        return [pod for pod in pods if pod.spec.node_name]

    def _know(self, pod: Pod) -> Pod:
        """The pod as its machine has it; its cached status then has container statuses."""
        manager = self._managers.of(pod.spec.node_name)
        own = self._managers.know(pod)
        cached = manager.machine.statuses[own.uid]
        whole = with_container_statuses(replace(own, status=cached.status), self._api.now_ns)
        manager.machine.statuses[own.uid] = replace(cached, status=whole)
        manager.watched.update((own.uid, pod.uid))
        return own

    def _play(self, event: ContainerEvent, pod: Pod) -> None:
        own = self._know(pod)
        names = _named(event, own)
        if not names:
            why = f"the pod has no container {event.container}"
            self._api.note(event_record(pod, "StatusIgnored", why, warning=True))
            return
        if event.step is not None:
            if event.step.state != "waiting":
                self._kubelets.no_longer_starts(pod)
            self._set_pod_status(pod, own, names, event.step, None)
            return
        for name in names:
            self._probed(pod, own, name, event)

    def _probed(self, pod: Pod, own: Pod, name: str, event: ContainerEvent) -> None:
        """SetContainerReadiness, SetContainerStartup."""
        machine = self._managers.of(pod.spec.node_name).machine
        now_ns = self._api.now_ns
        container_id = _status_of(machine.statuses[own.uid].status, name).container_id
        if event.ready is not None:
            changed = machine.set_container_readiness(own.uid, container_id, event.ready, now_ns)
            what = f"container {name} is {'' if event.ready else 'not '}ready"
        else:
            started = bool(event.started)
            changed = machine.set_container_startup(own.uid, container_id, started, now_ns)
            what = f"container {name} has {'' if started else 'not '}started"
        self._report_change(pod, own, changed, what, f"{what}, as the kubelet has it already", None)

    def _set_pod_status(
        self,
        pod: Pod,
        own: Pod,
        names: list[str],
        step: ContainerStep,
        cause: Action | None,
        *,
        is_terminal: bool = False,
    ) -> None:
        """SetPodStatus, after a pod sync that found these containers in another state. What others
        wrote counts, as to the pod's readiness gates.
        """
        machine = self._managers.of(pod.spec.node_name).machine
        # A sync has the pod as the API shows it, but a static pod as its file has it.
        synced, now_ns = own if is_mirror_pod(pod) else pod, self._api.now_ns
        before = with_conditions_of_others(
            machine.statuses[own.uid].status, synced.status, machine.rules
        )
        status = generated(
            own.spec,
            stepped(own, before, names, step, now_ns),
            machine.rules,
            is_terminal=is_terminal,
        )
        what = f"container {', '.join(names)} is {step.state}" + (
            f" ({step.reason})" if step.reason else ""
        )
        why = illegal_transition(before, status, own.spec, machine.rules)
        if why is not None:
            note = event_record(pod, "StatusRefused", f"the update is aborted: {why}", warning=True)
            self._api.note(note)
            return
        changed = machine.set_pod_status(synced, status, now_ns)
        stored = _status_of(machine.statuses[own.uid].status, names[0]).state.terminated
        given = len(step.message.encode())
        remaining = len(stored.message.encode()) if stored is not None else 0
        if remaining < given:
            what += f", its message cut from {given} bytes to {remaining}"
        self._report_change(pod, own, changed, what, f"{what}: the same status", cause)

    def _report_change(
        self, pod: Pod, own: Pod, changed: bool, what: str, ignored: str, cause: Action | None
    ) -> None:
        machine = self._managers.of(pod.spec.node_name).machine
        if not changed:
            self._api.note(
                event_record(pod, "StatusIgnored", f"no new version: {ignored}", cause=cause)
            )
            return
        version = machine.statuses[own.uid].version
        because = f"{what}: version {version}"
        note = self._api.note(event_record(pod, "StatusChanged", because, cause=cause))
        if not machine.wakes_sender():
            why = f"the channel is full: version {version} waits for the batch"
            self._api.note(event_record(pod, "StatusDeferred", why, cause=note))
        elif not self._kubelets.alive(pod.spec.node_name):
            why = f"the kubelet is cut off: version {version} waits"
            self._api.note(event_record(pod, "StatusDeferred", why, cause=note))
        sentence = f"the kubelet of {pod.spec.node_name} reports version {version}: {what}"
        self._managers.accepted(pod, own.uid, sentence, note)

    def _runs(self, pod: Pod) -> bool:
        """True if the start of the pod's containers is played here: its status manager has the
        pod already, the pod has readiness gates, calls of its kubelet fail, or an event keeps it
        from starting."""
        failing = next((e for e in reversed(self._failing) if e.targets.match(pod)), None)
        if failing is not None and failing.step is not None:
            own = self._know(pod)
            self._set_pod_status(pod, own, _named(failing, own), failing.step, None)
            return True
        ordinary = not (pod.spec.readiness_gates or self._managers.fails(pod.spec.node_name))
        if ordinary and not self._managers.knows(pod):
            return False
        if self._kubelets.terms.gates_are_set():
            pod = self._gates_set(pod)
        self._report_running(pod, None)
        return True

    def _report_running(self, pod: Pod, cause: Action | None) -> None:
        own = self._know(pod)
        names = [container.name for container in own.spec.containers]
        self._set_pod_status(pod, own, names, ContainerStep("running"), cause)

    def _gates_set(self, pod: Pod) -> Pod:
        """The pod once the controllers of its readiness gates have set them."""
        conditions = pod.status.conditions
        for gate in pod.spec.readiness_gates:
            condition = PodCondition(type=gate.condition_type, status="True")
            conditions = put_condition(conditions, condition)
        if conditions is not pod.status.conditions:
            pod = replace(pod, status=replace(pod.status, conditions=conditions))
            self._api.put("Pod", pod, None)
        return pod

    def _pod_changed(self, old: Pod | None, new: Pod | None, cause: Action | None) -> None:
        """Another client wrote a pod's status: its readiness gates make the kubelet sync it at
        once. Follows `HandlePodReconcile`.
        """
        if old is None or new is None or not new.spec.readiness_gates or self._kubelets.writes:
            return
        if new.status is old.status or not self._kubelets.alive(new.spec.node_name):
            return
        if new.status.phase == "Running" and need_to_reconcile_pod_readiness(
            new, self._managers.rules
        ):
            self._report_running(new, cause)

    def _conditions_changed(self, changes: Sequence[ConditionsChange]) -> None:
        for change in changes:
            self._pod_changed(*change)

    def _stops(self, pod: Pod, cause: Action | None) -> bool:
        """True if the end of the pod is played here, as for all pods with recorded steps, and on
        a kubelet whose calls fail."""
        manager = self._managers.of(pod.spec.node_name)
        if is_mirror_pod(pod) or not (pod.uid in manager.watched or manager.failing):
            return False
        if pod.uid not in manager.stopped:
            manager.stopped.add(pod.uid)
            self._go_on(manager, pod, cause)
        return True

    def _go_on(self, manager: StatusManager, pod: Pod, cause: Action | None) -> None:
        """Call TerminatePod as soon as nothing holds it back; then the batch checks whether the
        object can be deleted."""
        own = self._know(pod)
        machine = manager.machine
        machine.observe(pod)
        waits = RUNNING_CONTAINERS in manager.left.get(pod.uid, ())
        if machine.rules.delete_when_finished and not waits:
            if not containers_are_stopped(machine.statuses[own.uid].status):
                names = [container.name for container in own.spec.containers]
                step = ContainerStep("terminated")
                self._set_pod_status(pod, own, names, step, cause, is_terminal=True)
            waits = bool(manager.holds(pod.uid, machine.statuses[own.uid].status))
        if not waits and not machine.statuses[own.uid].is_finished:
            changed = machine.terminate_pod(pod, self._api.now_ns)
            self._report_change(pod, own, changed, "the kubelet is done with the pod", "", cause)
        if pod.key in self._api.store.pods:
            self._managers.record_holds(manager, pod)
            self._managers.wake(pod.spec.node_name)


def _named(event: ContainerEvent, pod: Pod) -> list[str]:
    """The containers that the event names, or all regular ones."""
    containers: Iterator[Container] = iter((*pod.spec.containers, *pod.spec.init_containers))
    if not event.container:
        return [container.name for container in pod.spec.containers]
    return [c.name for c in containers if c.name == event.container]


def _status_of(status: PodStatus, name: str) -> ContainerStatus:
    """The status of a container; an empty one where there is none."""
    statuses = (*(status.container_statuses or ()), *(status.init_container_statuses or ()))
    return next((s for s in statuses if s.name == name), ContainerStatus())
