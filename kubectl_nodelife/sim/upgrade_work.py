"""Plays an upgrade's work on the machines of the virtual cluster, with its faults.

A command or a Job is not run: after the time that the scenario gives it, its machine reboots, gets
another kubelet, or is replaced by a new one, and shows whatever the target asks for. A command that
ends reports to its leader; work that no leader starts (`--wait`, `--replace`) begins when the
node's label says Working.
"""

from __future__ import annotations

import random
import re
from collections import Counter
from collections.abc import Callable
from functools import partial
from itertools import count
from typing import Final

from msgspec.structs import replace

from kubectl_nodelife.controllers.upgrade import policy
from kubectl_nodelife.controllers.upgrade.marks import LABEL_RUN, LABEL_STATE, NodeState
from kubectl_nodelife.controllers.upgrade.newcomers import is_ordinary
from kubectl_nodelife.engine.actions import Action, StartWork, StopWork
from kubectl_nodelife.kube.meta import KubeObject, controller_of
from kubectl_nodelife.kube.node import Node
from kubectl_nodelife.kube.pod import Pod, Quantities
from kubectl_nodelife.kube.times import SECOND_NS
from kubectl_nodelife.kube.workload import Condition, Job
from kubectl_nodelife.sim import events
from kubectl_nodelife.sim.api import event_record
from kubectl_nodelife.sim.kubelet_state import MachineFacts
from kubectl_nodelife.sim.machines import KUBELET_RESTART_NS, Return
from kubectl_nodelife.sim.timeline import KUBELET
from kubectl_nodelife.sim.world import World

FLAP_NS: Final = 15 * SECOND_NS
FLAP_COUNT: Final = 5
_VERSION: Final = re.compile(r"v(\d+)\.(\d+)")


class VirtualWork:
    """The work of one run."""

    def __init__(self, world: World, event: events.UpgradeEvent) -> None:
        self._world = world
        self._api = world.api
        self._policy: policy.UpgradePolicy = event.policy
        self._terms = event.work
        self._faults = event.faults
        self._worked: Counter[str] = Counter()
        self._tries: Counter[str] = Counter()
        self._drained: Counter[str] = Counter()
        world.kubelets.attend(on_run=self._hangs, on_stop=self._never_ends)
        self._api.on_node(self._node_changed)
        if self._policy.work.mode is policy.WorkMode.JOB:
            self._api.on_object(self._job_changed)

    def start(self, action: StartWork, on_end: Callable[[StartWork], None]) -> None:
        """The leader runs its command on the node; `on_end` is called at its end."""
        self._begin(action.node, action, partial(on_end, action))

    def stop(self, action: StopWork) -> None:
        """The leader ends its command: what it has not changed yet stays as it is."""
        self._worked[action.node] += 1

    def _node_changed(self, old: Node | None, new: Node | None, cause: Action | None) -> None:
        before, after = _state_of(old), _state_of(new)
        if new is None or before == after:
            return
        if after == NodeState.DRAINING:
            self._drained[new.name] += 1
        elif after == NodeState.WORKING:
            mode = self._policy.work.mode
            none_starts = mode is policy.WorkMode.REPLACE and not self._policy.work.command
            if mode is policy.WorkMode.WAIT or none_starts:
                self._begin(new.name, cause, lambda: None)

    def _job_changed(self, kind: str, old: KubeObject | None, new: KubeObject | None) -> None:
        """The Job controller and its pod, in short: the Job is complete when the work is done."""
        if isinstance(new, Job) and old is None and LABEL_RUN in (new.metadata.labels or {}):
            node = next((o.name for o in new.metadata.owner_references if o.kind == "Node"), "")
            self._begin(node, None, partial(self._complete, new.key, new.uid))

    def _complete(self, key: tuple[str, str], uid: str) -> None:
        job = self._api.store.get("Job", key)
        if isinstance(job, Job) and job.uid == uid:
            complete = Condition(type="Complete", status="True")
            status = replace(job.status, succeeded=1, conditions=(complete,))
            self._api.put("Job", replace(job, status=status))

    # --- one try

    def _begin(self, name: str, cause: Action | None, done: Callable[[], None]) -> None:
        self._tries[name] += 1
        self._worked[name] = number = self._worked[name] + 1
        how = self._fault_of(name, self._tries)
        if why := self._changes_nothing(name, how):
            self._note(name, "FaultWithoutEffect", why, cause, warning=True)
        terms = self._terms
        lasts_ns = self._lasts_ns(name)
        if terms.mode == events.REPLACE and how != events.NO_EFFECT:
            self._replace(name, lasts_ns, how, cause)
            done()
            return
        down_ns = (
            min(terms.down_ns, lasts_ns) if terms.mode == events.REBOOT else KUBELET_RESTART_NS
        )

        def change(at_ns: int) -> None:
            if self._worked[name] == number:
                self._change(name, down_ns, how, cause)

        def end(at_ns: int) -> None:
            if self._worked[name] == number:
                done()

        self._after(max(0, lasts_ns - down_ns), change)
        self._after(max(lasts_ns, down_ns), end)

    def _changes_nothing(self, name: str, how: str) -> str:
        """Why a fault of the scenario cannot be noticed on that node; "" where it can."""
        if how == events.NO_DRIVERS and self._api.store.get("CSINode", ("", name)) is None:
            return f"{events.NO_DRIVERS} changes nothing: the node has no CSINode object; add one"
        if how == events.NO_EFFECT and not self._policy.target:
            why = "the policy has no target to hold the node against"
            return f"{events.NO_EFFECT} is not noticed: {why}"
        return ""

    def _lasts_ns(self, name: str) -> int:
        terms = self._terms
        if not terms.jitter_ns:
            return terms.duration_ns
        chance = random.Random(f"{terms.seed}/{name}/{self._tries[name]}")
        more_ns = chance.randint(-terms.jitter_ns, terms.jitter_ns) // SECOND_NS * SECOND_NS
        return max(SECOND_NS, terms.duration_ns + more_ns)

    def _change(self, name: str, down_ns: int, how: str, cause: Action | None) -> None:
        """Change the machine as the work does at its end."""
        if how == events.NO_EFFECT:
            return
        if how == events.NEVER_RETURNS:
            why = "its machine goes down, and never comes back"
            self._world.kubelets.stop(name, self._note(name, "Lost", why, cause))
            return
        back = self._return(how)
        if self._terms.mode == events.REBOOT:
            self._world.machines.reboot(name, down_ns, back, cause)
        else:
            self._world.machines.update_kubelet(name, back, cause)
        self._after(down_ns, partial(self._show_target, name, cause))
        if how == events.FLAPS:
            self._flap(name, down_ns, cause)

    def _note(
        self, name: str, reason: str, why: str, cause: Action | None, *, warning: bool = False
    ) -> Action:
        about = self._api.store.nodes.get(name) or ("Node", "", name)
        return self._api.note(event_record(about, reason, why, cause=cause, warning=warning))

    def _replace(self, name: str, lasts_ns: int, how: str, cause: Action | None) -> None:
        back = self._return(how)
        if how == events.NEVER_RETURNS:
            lasts_ns = 1 << 62
        names = (f"{name}-{number}" for number in count(self._tries[name] + 1))
        newcomer = next(each for each in names if each not in self._api.store.nodes)
        self._world.machines.replace(name, newcomer, lasts_ns, back, cause)
        self._after(lasts_ns, partial(self._show_target, newcomer, cause))
        if how == events.FLAPS:
            self._flap(newcomer, lasts_ns + self._terms.daemon_pods_ns, cause)

    def _return(self, how: str) -> Return:
        return Return(
            refit=partial(self._refit, how),
            pods_after_ns=None if how == events.NO_NETWORK else self._terms.daemon_pods_ns,
            ready=how != events.NO_NETWORK,
            drivers=how != events.NO_DRIVERS,
        )

    def _refit(self, how: str, facts: MachineFacts) -> MachineFacts:
        """The machine with what the target asks for, and without what the fault takes."""
        info = facts.node_info
        version = self._terms.kubelet_version
        if not version and self._terms.mode not in (events.REBOOT, events.REPLACE):
            version = next_minor(info.kubelet_version)
        if version:
            info = replace(info, kubelet_version=version)
        for target in self._policy.target:
            if target.kind == "nodeInfo" and target.value != policy.BOOT_ID_CHANGED:
                info = replace(info, **{policy.NODE_INFO_FIELDS[target.key]: target.value})
        allocatable = _less(facts.allocatable) if how == events.LESS_GPU else facts.allocatable
        return MachineFacts(info, allocatable)

    def _show_target(self, name: str, cause: Action | None, at_ns: int) -> None:
        """Labels, annotations and conditions that the target asks for."""
        node = self._api.store.nodes.get(name)
        if node is None:
            return
        meta = node.metadata
        labels, annotations = dict(meta.labels or {}), dict(meta.annotations or {})
        conditions = {}
        for target in self._policy.target:
            if target.kind == "condition":
                conditions[target.key] = events.ReportedCondition(target.value)
            elif target.kind != "nodeInfo":
                (labels if target.kind == "label" else annotations)[target.key] = target.value
        if labels != (meta.labels or {}) or annotations != (meta.annotations or {}):
            meta = replace(meta, labels=labels, annotations=annotations)
            self._api.put("Node", replace(node, metadata=meta), cause)
        if conditions:
            self._world.kubelets.report(name, conditions, cause)

    def _flap(self, name: str, from_ns: int, cause: Action | None) -> None:
        """The kubelet reports not Ready, and Ready again, repeatedly."""
        for number in range(FLAP_COUNT):
            for half, status in ((1, "False"), (2, "True")):
                after_ns = from_ns + (2 * number + half) * FLAP_NS
                self._after(after_ns, partial(self._report_ready, name, status, cause))

    def _report_ready(self, name: str, ready: str, cause: Action | None, at_ns: int) -> None:
        if self._world.kubelets.alive(name):
            self._world.kubelets.report(name, {"Ready": events.ReportedCondition(ready)}, cause)

    def _after(self, delay_ns: int, happening: Callable[[int], None]) -> None:
        self._world.agenda.add(self._api.now_ns + delay_ns, KUBELET, happening)

    # --- faults

    def _fault_of(self, name: str, counted: Counter[str], among: str = "") -> str:
        """The fault that hits the node now, "" for none."""
        for fault in self._faults:
            if name in fault.nodes and _hits(fault, counted[name]) and among in ("", fault.how):
                return fault.how
        return ""

    def _hangs(self, pod: Pod) -> bool:
        """True if the pod is a canary whose containers are never created."""
        owner = controller_of(pod.metadata)
        if owner is None or owner.kind != "Node" or LABEL_RUN not in (pod.metadata.labels or {}):
            return False
        return bool(self._fault_of(pod.spec.node_name, self._tries, events.CANARY_HANGS))

    def _never_ends(self, pod: Pod, cause: Action | None) -> bool:
        """True if the pod is one that its kubelet cannot stop."""
        fault = self._fault_of(pod.spec.node_name, self._drained, events.DRAIN_NEVER)
        return bool(fault) and is_ordinary(pod)


_PLAIN: Final = frozenset({"cpu", "memory", "pods", "ephemeral-storage"})


def next_minor(version: str) -> str:
    """The minor version that follows, v1.36.0 after v1.35.4; what is no version is the first."""
    match = _VERSION.match(version)
    return f"v{match[1]}.{int(match[2]) + 1}.0" if match else "v1.0.0"


def _hits(fault: events.WorkFault, count: int) -> bool:
    return not fault.times or count <= fault.times


def _state_of(node: Node | None) -> str:
    return (node.metadata.labels or {}).get(LABEL_STATE, "") if node is not None else ""


def _less(allocatable: Quantities | None) -> Quantities | None:
    """Without its extended resources; half of its memory's share where it has none."""
    if allocatable is None:
        return None
    extended = [key for key in allocatable if key not in _PLAIN]
    return {**allocatable, **dict.fromkeys(extended or ["cpu"], "0")}
