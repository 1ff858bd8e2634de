"""The world of a DaemonSet vector: a cache, a controller, and an API that answers at once.

Creates and deletes take effect and are seen at once. The counts of a status are stored on the API
alone: in upstream's unit tests, from which most vectors come, the cached set never shows them, and
a few vectors (the failed pods' backoff, whose key holds observedGeneration) depend on that.
"""

import copy
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from msgspec.structs import replace

from kubectl_nodelife.controllers.daemonset.controller import DaemonSetController
from kubectl_nodelife.controllers.daemonset.history import compute_hash, get_patch, new_revision
from kubectl_nodelife.controllers.daemonset.memory import Step, SyncContext, TrackedSet
from kubectl_nodelife.controllers.daemonset.pods_on_node import FailedPodsBackoff
from kubectl_nodelife.controllers.daemonset.template import controller_reference
from kubectl_nodelife.engine import actions as dact
from kubectl_nodelife.engine.actions import Action, DeletePod, RecordEvent, Requeue
from kubectl_nodelife.engine.cache import Cache
from kubectl_nodelife.engine.events import Gone, Outcome, Put
from kubectl_nodelife.engine.settings import make_settings
from kubectl_nodelife.kube.meta import KubeObject
from kubectl_nodelife.kube.node import Node
from kubectl_nodelife.kube.pod import Pod
from kubectl_nodelife.kube.times import parse_time
from kubectl_nodelife.kube.workload import ControllerRevision, DaemonSet, DaemonSetStatus
from tests.conformance.checks import only
from tests.conformance.ds_objects import node_sets, pod_classes, pod_set
from tests.conformance.world import decode

Json = dict[str, Any]
Key = tuple[str, str]

MILLISECOND_NS = 1_000_000
COUNTED_EVENTS = frozenset(
    {"SelectingAll", "FailedPlacement", "FailedDaemonPod", "SucceededDaemonPod"}
)
API_KEYS = frozenset(
    {
        "getErrors",
        "podCreateError",
        "podCreateLimit",
        "statusUpdateError",
        "statusUpdateErrors",
    }
)
ALL_PROFILES = ("v1.11", "v1.16", "current")


def profiles_of(case: Json) -> tuple[str, ...]:
    """The profiles in which a vector must hold."""
    return ALL_PROFILES if case["profile"] == "any" else (case["profile"],)


@dataclass
class SyncReport:
    """What one sync did."""

    created: list[dact.CreatePod] = field(default_factory=list)
    create_calls: int = 0
    deleted: list[Pod] = field(default_factory=list)
    delete_calls: int = 0
    events: list[RecordEvent] = field(default_factory=list)
    error: str = ""
    status: DaemonSetStatus = field(default_factory=DaemonSetStatus)
    expectations_satisfied: bool = True


@dataclass(frozen=True)
class PartReport:
    """What some steps of a sync came to: what they left, or the error that ended them."""

    context: SyncContext
    error: str | None


class World:
    """One vector in one profile."""

    def __init__(self, case: Json, profile: str) -> None:
        given = case["given"]
        self.given = given
        self.profile = profile
        self.now = int(parse_time(given.get("clock", "1970-01-01T00:00:00Z")))
        self.gates: dict[str, bool] = dict(given.get("featureGates", {}))
        self.cache = Cache()
        self.api = dict(given.get("api", {}))
        only(self.api, API_KEYS, "key of api")
        self.stored_status: dict[Key, DaemonSetStatus] = {}
        self.api_only: dict[Key, ControllerRevision] = {}
        self.created_pods: list[dact.CreatePod] = []
        self.actions: list[Action] = []
        self.status_calls = self.get_calls = 0
        self.observe = True
        millis = given.get("backoff")
        self.backoff = (
            FailedPodsBackoff(
                millis["baseMillis"] * MILLISECOND_NS, millis["maxMillis"] * MILLISECOND_NS
            )
            if millis
            else FailedPodsBackoff()
        )
        self._fill(given)
        self.controller = self._new_controller()
        preset = given.get("expectations")
        if preset:
            self.controller.expectations.expect(
                self.key, preset["adds"], preset["deletes"], self.now
            )

    # --- what is there ---------------------------------------------------------------------------

    def _fill(self, given: Json) -> None:
        raw_sets = [*given.get("daemonSets", [])]
        for name in ("daemonSet", "otherDaemonSet"):
            if name in given:
                raw_sets.append(given[name])
        self.sets = [decode(raw, DaemonSet) for raw in raw_sets]
        self.hash = ""
        if self.sets:
            main = decode(given["daemonSet"], DaemonSet) if "daemonSet" in given else self.sets[0]
            self.key = main.key
            self.hash = compute_hash(main.spec.template, main.status.collision_count)
        for daemon_set in self.sets:
            self.put(daemon_set)
            self.stored_status[daemon_set.key] = daemon_set.status
        for raw in (*given.get("nodes", []), *node_sets(given.get("nodeSets", []))):
            self.put(decode(raw, Node))
        if "node" in given:
            self.put(decode(given["node"], Node))
        for raw in (*given.get("pods", []), *given.get("podsOnNode", [])):
            self.put_pod(raw)
        for shorthand in given.get("podSets", []):
            for raw in pod_set(shorthand, self.key[0]):
                self.put_pod(raw)
        if given.get("podClasses"):
            for raw in pod_classes(given["podClasses"], self.daemon_set, list(self.cache.nodes)):
                self.put_pod(raw)
        for raw in given.get("controllerRevisions", []):
            self.put(decode(raw, ControllerRevision))
        for name in ("foreignRevisionAtNextName", "apiOnlyRevisionAtNextName"):
            if name in given:
                self._revision_at_next_name(given[name], seen=name.startswith("foreign"))

    def _revision_at_next_name(self, wanted: Json, seen: bool) -> None:
        daemon_set = self.daemon_set
        template = copy.deepcopy(daemon_set.spec.template)
        template["spec"]["containers"][0]["image"] = wanted["dataImage"]
        revision = replace(new_revision(daemon_set, wanted["revision"]), data=get_patch(template))
        owned = replace(revision.metadata, owner_references=(controller_reference(daemon_set),))
        revision = replace(revision, metadata=owned)
        if seen:
            self.put(revision)
        else:
            self.api_only[revision.key] = revision

    def pod(self, raw: Json) -> Pod:
        """A vector's pod, with the hashes that its labels stand for."""
        raw = copy.deepcopy(raw)
        labels = raw["metadata"].get("labels") or {}
        label = labels.get("controller-revision-hash")
        if label in ("$current", "$old"):
            value = self.hash if label == "$current" else "another-hash"
            labels["controller-revision-hash"] = value
        return decode(raw, Pod)

    def put(self, obj: KubeObject) -> None:
        """Place an object in the cache before the controller starts."""
        self.cache.apply(Put(type(obj).__name__, obj), self.now)

    def put_pod(self, raw: Json) -> None:
        """Place a pod in the cache before the controller starts."""
        self.put(self.pod(raw))

    def _new_controller(self) -> DaemonSetController:
        gates = {name: on for name, on in self.gates.items() if self.profile == "v1.11"}
        text = ",".join(f"{name}={str(on).lower()}" for name, on in gates.items())
        settings = make_settings(self.profile, {"feature-gates": text})
        controller = DaemonSetController(settings, self.backoff)
        list(controller.start(self.cache, self.now))
        clear_queue(controller)
        return controller

    def set_gate(self, name: str, on: bool) -> None:
        """Switch a gate: the controller starts anew with it."""
        self.gates[name] = on
        self.controller = self._new_controller()

    @property
    def daemon_set(self) -> DaemonSet:
        """The vector's set as the cache shows it."""
        found = self.cache.get("DaemonSet", self.key)
        assert isinstance(found, DaemonSet)
        return found

    @property
    def tracked(self) -> TrackedSet:
        """The set as the controller knows it."""
        return self.controller.index.by_key[self.key]

    def context(self) -> SyncContext:
        """What a sync of the set would work with."""
        return self.controller.context(self.tracked, self.cache, self.now)

    def own_pods(self) -> list[Pod]:
        """The set's pods, by name."""
        pods = self.cache.pods_of(self.daemon_set.uid)
        return sorted(pods, key=lambda pod: pod.name)

    # --- what happens ----------------------------------------------------------------------------

    def see(self, event: Put | Gone) -> list[Action | Requeue]:
        """The cache takes in an event and the controller is told; returns what it does about it."""
        change = self.cache.apply(event, self.now)
        if change is None:
            return []
        return list(self.controller.changed(change, self.cache, self.now))

    def see_quietly(self, event: Put | Gone) -> None:
        """As `see`, for what was there before the event in question: nothing is enqueued."""
        queue, nodes = self.controller.queue, self.controller.handlers.nodes
        before = (dict(queue.ready), dict(queue.delayed), set(queue.rate_limited), dict(nodes))
        self.see(event)
        queue.ready, queue.delayed, queue.rate_limited = before[:3]
        self.controller.handlers.nodes = before[3]

    def drive(self, step: Step) -> PartReport:
        """Drive a step of a sync, and those that follow from it, by themselves."""
        report = SyncReport()
        context = self.context()
        context.then(step)
        answers: list[Outcome] = []
        while batch := context.advance(answers):
            outcomes = [self._attempt(action, report) for action in batch]
            answers = [outcome for outcome in outcomes if outcome is not None]
        return PartReport(context, context.error or None)

    def _attempt(self, action: Action, report: SyncReport) -> Outcome | None:
        """One call of some steps; the failure, if it failed."""
        self.actions.append(action)
        refusal = self._refusal(action, report)
        if refusal is None and not isinstance(action, RecordEvent | dact.UpdateDaemonSetStatus):
            kind, key = action.target
            changed = action.effect(self.cache.get(kind, key), self.now)
            self.see(Gone(kind, key) if changed is None else Put(kind, changed))
        return refusal

    def sync(self, observe: bool = True, keep_expectations: bool = False) -> SyncReport:
        """One sync of the set, from beginning to end."""
        if not keep_expectations:
            self.controller.expectations.delete(self.key)
        self.observe = observe
        report = SyncReport()
        self.controller.errors.pop(self.key, None)
        self.run(self.controller.sync(self.key, self.cache, self.now), report)
        assert self.key not in self.controller._running or not observe
        report.error = self.controller.errors.get(self.key, "")
        report.status = self.stored_status.get(self.key, DaemonSetStatus())
        satisfied = self.controller.expectations.satisfied(self.key, self.now)
        report.expectations_satisfied = satisfied
        clear_queue(self.controller)
        return report

    def run(self, actions: Iterable[Action | Requeue], report: SyncReport) -> None:
        """Carry actions out, and those that follow from them."""
        todo = deque(actions)
        while todo:
            action = todo.popleft()
            if isinstance(action, Action):
                self.actions.append(action)
                todo.extend(self._carry_out(action, report))

    def _carry_out(self, action: Action, report: SyncReport) -> list[Action | Requeue]:
        if isinstance(action, RecordEvent):
            report.events.append(action)
            return []
        refusal = self._refusal(action, report)
        if refusal is not None:
            return list(self.controller.outcome(refusal, self.cache, self.now))
        if isinstance(action, dact.UpdateDaemonSetStatus):
            present = self.daemon_set
            changed = action.effect(present, self.now)
            assert isinstance(changed, DaemonSet)
            self.stored_status[action.target[1]] = changed.status
            return self.see(Put("DaemonSet", present))
        kind, key = action.target
        if isinstance(action, dact.CreatePod):
            report.created.append(action)
            self.created_pods.append(action)
            if not self.observe:
                return []
        present = self.cache.get(kind, key)
        if isinstance(action, DeletePod):
            assert isinstance(present, Pod)
            report.deleted.append(present)
            return self.see(Gone(kind, key))
        changed = action.effect(present, self.now)
        return self.see(Gone(kind, key) if changed is None else Put(kind, changed))

    def _refusal(self, action: Action, report: SyncReport) -> Outcome | None:
        """The failure that the vector injects, or that the API has by itself."""
        api = self.api
        if isinstance(action, dact.CreatePod):
            report.create_calls += 1
            limit = api.get("podCreateLimit")
            if api.get("podCreateError"):
                return Outcome(action, 500, api["podCreateError"])
            if limit is not None and len(report.created) >= limit:
                return Outcome(action, 500, "fake error")
        elif isinstance(action, DeletePod):
            report.delete_calls += 1
        elif isinstance(action, dact.UpdateDaemonSetStatus):
            return self._status_refusal(action)
        elif isinstance(action, dact.RaiseCollisionCount):
            return self._collision_refusal(action)
        elif isinstance(action, dact.AdoptObject):
            return self._adoption_refusal(action)
        elif isinstance(action, dact.CreateControllerRevision):
            hidden = self.api_only.get(action.target[1])
            if hidden is not None:
                self.see(Put("ControllerRevision", hidden))
                return Outcome(action, 409, "already exists")
        return None

    def _status_refusal(self, action: dact.UpdateDaemonSetStatus) -> Outcome | None:
        api = self.api
        if action.reread:
            self.get_calls += 1
            if self.get_calls <= api.get("getErrors", 0):
                return Outcome(action, 500, "fake get error")
        self.status_calls += 1
        if api.get("statusUpdateError"):
            return Outcome(action, 500, api["statusUpdateError"])
        if self.status_calls <= api.get("statusUpdateErrors", 0):
            return Outcome(action, 500, "fake update error")
        return None

    def _uncached_set(self) -> DaemonSet:
        """The set as a GET shows it, which may be newer than the cache."""
        raw = self.given.get("daemonSetInApi")
        return decode(raw, DaemonSet) if raw else self.daemon_set

    def _adoption_refusal(self, action: dact.AdoptObject) -> Outcome | None:
        """Follows `RecheckDeletionTimestamp` and the uid check of `getDaemonPods`."""
        fresh = self._uncached_set()
        if fresh.uid != action.owner.uid:
            return Outcome(action, 409, f"original DaemonSet is gone: got uid {fresh.uid}")
        if fresh.metadata.deletion_timestamp is not None:
            return Outcome(action, 409, f"{fresh.name} has just been deleted")
        return None

    def _collision_refusal(self, action: dact.RaiseCollisionCount) -> Outcome | None:
        fresh = self._uncached_set()
        if action.check and fresh.status.collision_count != action.seen:
            return Outcome(action, 409, "found a stale collision count")
        return None


def clear_queue(controller: DaemonSetController) -> None:
    """Forget what waits."""
    controller.queue.ready.clear()
    controller.queue.delayed.clear()
    controller.queue.rate_limited.clear()
    controller.handlers.nodes.clear()
