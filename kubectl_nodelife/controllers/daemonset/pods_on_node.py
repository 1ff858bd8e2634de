"""The pods of one set by node, and what the set should do on each node: make a pod, delete some, or
wait.

The decision follows `podsShouldBeOnNode` (`pkg/controller/daemon/daemon_controller.go`), first
match wins. Pure but for the backoff of failed pods, which upstream too advances while it decides.
Whether a pod is available and up to date follows `IsPodAvailable` (`pkg/api/v1/pod/util.go`) and
`IsPodUpdated` (`pkg/controller/daemon/util/daemonset_util.go`).

The backoff keeps a crash-looping daemon pod from being killed and made again at once. It follows
`flowcontrol.Backoff` (`client-go/util/flowcontrol/backoff.go`) as the DaemonSet controller uses it:
1 s, doubling, 15 min at most; an entry idle for twice the cap starts afresh. The key holds the
generation that status observed, so a changed template starts afresh too.

`DaemonPods` has the pods by the node that they are on or are meant for, and is updated with every
change. It follows `getDaemonPods` and `getNodesToDaemonPods`
(`pkg/controller/daemon/daemon_controller.go`), which build the map anew in every sync; a test holds
this index against that. Which pods (and revisions) are a set's, to keep, adopt, release or leave
alone, follows `BaseControllerRefManager.ClaimObject` (`pkg/controller/controller_ref_manager.go`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from copy import copy
from dataclasses import dataclass, field
from enum import Enum

from kubectl_nodelife.controllers.daemonset.behaviour import Behaviour
from kubectl_nodelife.controllers.daemonset.placement import PlacementDecision
from kubectl_nodelife.controllers.daemonset.template import NoTargetNodeError, get_target_node_name
from kubectl_nodelife.copy_on_write import copy_of_dict, fork_dict
from kubectl_nodelife.kube.meta import KubeObject, controller_of
from kubectl_nodelife.kube.pod import TERMINAL_PHASES, Pod
from kubectl_nodelife.kube.selectors import matches
from kubectl_nodelife.kube.times import MILLISECOND_NS, SECOND_NS
from kubectl_nodelife.kube.wellknown import (
    LABEL_CONTROLLER_REVISION_HASH,
    LABEL_POD_TEMPLATE_GENERATION,
)
from kubectl_nodelife.kube.workload import DaemonSet

FAILED_DAEMON_POD = "FailedDaemonPod"
SUCCEEDED_DAEMON_POD = "SucceededDaemonPod"

BACKOFF_INITIAL_NS = 1 * SECOND_NS
BACKOFF_MAX_NS = 15 * 60 * SECOND_NS
BACKOFF_GC_INTERVAL_NS = 60 * SECOND_NS

WHOLE_SECOND_NS = SECOND_NS - 1
"""How much later an instant may have been that is kept in whole seconds."""
FAILURE_SEEN_NS = 2 * SECOND_NS
"""A pod's failure, kept in whole seconds, reaches the controller within that time."""


@dataclass(frozen=True)
class PodToDelete:
    """A pod that must go, and why."""

    pod: Pod
    because: str


@dataclass
class NodeDecision:
    """The decision on one node. `events` are (type, reason, message) on the set."""

    create_because: str = ""
    delete: list[PodToDelete] = field(default_factory=list)
    events: list[tuple[str, str, str]] = field(default_factory=list)
    failed_pods: int = 0
    requeue_at_ns: int | None = None
    suspend: bool = False


@dataclass(frozen=True)
class NodeQuestion:
    """All that the decision depends on, besides the node's verdict and pods."""

    daemon_set: DaemonSet
    revision_hash: str
    surge_allowed: bool
    rules: Behaviour
    backoff: FailedPodsBackoff
    now: int


def pod_age_key(pod: Pod) -> tuple[bool, int, str]:
    """Sort key for "the oldest": bound pods first, then by creation time, then by name."""
    created = pod.metadata.creation_timestamp
    return (not pod.spec.node_name, -1 if created is None else created, pod.name)


def pods_should_be_on_node(
    question: NodeQuestion, node_name: str, verdict: PlacementDecision, pods: Sequence[Pod] | None
) -> NodeDecision:
    """The decision for one node; `pods` None: the node has no entry in the map of pods.

    An entry without pods can come from the surge rules only; it counts as an entry, as upstream.
    """
    decision = NodeDecision()
    if verdict.want_to_run and not verdict.should_run:
        decision.suspend = True
    elif verdict.should_run and pods is None:
        decision.create_because = f"{verdict.text}, and it has no pod of the set"
    elif verdict.should_continue_running:
        running = _running_pods(question, node_name, pods or (), decision)
        if question.surge_allowed:
            _decide_with_surge(question, verdict, running, decision)
        else:
            _keep_the_oldest(running, decision)
    elif pods is not None:
        again = question.rules.unfit_terminating_deleted_again
        for pod in pods:
            if again or pod.metadata.deletion_timestamp is None:
                decision.delete.append(PodToDelete(pod, f"{verdict.text}: its pod must go"))
    return decision


def _running_pods(
    question: NodeQuestion, node_name: str, pods: Sequence[Pod], decision: NodeDecision
) -> list[Pod]:
    """The pods that neither terminate nor are finished; finished ones are put up for deletion."""
    running = []
    for pod in pods:
        if pod.metadata.deletion_timestamp is not None:
            continue
        if pod.status.phase == "Failed":
            _decide_on_failed_pod(question, node_name, pod, decision)
        elif pod.status.phase == "Succeeded" and question.rules.succeeded_pods_deleted:
            message = (
                f"Found succeeded daemon pod {pod.namespace}/{pod.name} on node {node_name},"
                " will try to delete it"
            )
            decision.events.append(("Normal", SUCCEEDED_DAEMON_POD, message))
            decision.delete.append(PodToDelete(pod, f"the pod on {node_name} has succeeded"))
        else:
            running.append(pod)
    return running


def _decide_on_failed_pod(
    question: NodeQuestion, node_name: str, pod: Pod, decision: NodeDecision
) -> None:
    """Delete it, or leave it while its node is in backoff.

    The set comes back after the *whole* delay, counted from now, not after what is left of it:
    `enqueueDaemonSetAfter(ds, failedPodsBackoff.Get(backoffKey))`.
    """
    decision.failed_pods += 1
    because = f"the pod on {node_name} has failed"
    if question.rules.failed_pods_back_off:
        key = failed_pods_backoff_key(question.daemon_set, node_name)
        if question.backoff.in_backoff_since_update(key, question.now):
            at_ns = question.now + question.backoff.get(key)
            earlier = decision.requeue_at_ns
            decision.requeue_at_ns = at_ns if earlier is None else min(earlier, at_ns)
            return
        delay_s = question.backoff.next(key, question.now) / 1e9
        because += f"; the next failure there waits {delay_s:g}s"
    message = (
        f"Found failed daemon pod {pod.namespace}/{pod.name} on node {node_name},"
        " will try to kill it"
    )
    decision.events.append(("Warning", FAILED_DAEMON_POD, message))
    decision.delete.append(PodToDelete(pod, because))


def _keep_the_oldest(running: list[Pod], decision: NodeDecision) -> None:
    if len(running) > 1:
        oldest, *rest = sorted(running, key=pod_age_key)
        for pod in rest:
            decision.delete.append(
                PodToDelete(pod, f"one pod a node is enough; {oldest.name} is older")
            )


def _decide_with_surge(
    question: NodeQuestion, verdict: PlacementDecision, running: list[Pod], decision: NodeDecision
) -> None:
    """Section "surge allowed": two pods, one of each version, may stand side by side."""
    if len(running) <= 1:
        if not running and verdict.should_run:
            decision.create_because = f"{verdict.text}, and no pod of the set runs there"
        return
    newest: Pod | None = None
    old: Pod | None = None
    for pod in sorted(running, key=pod_age_key):
        labels = pod.metadata.labels or {}
        if labels.get(LABEL_CONTROLLER_REVISION_HASH, "") == question.revision_hash:
            if newest is None:
                newest = pod
                continue
        elif old is None:
            old = pod
            continue
        decision.delete.append(PodToDelete(pod, "more pods on the node than one of each version"))
    if newest is None or old is None:
        return
    if not old.ready():
        because = f"the old pod is not Ready and {newest.name} takes its place"
        decision.delete.append(PodToDelete(old, because))
    elif is_pod_available(
        newest,
        question.daemon_set.spec.min_ready_seconds,
        question.now,
        question.rules.available_at_the_instant,
    ):
        decision.delete.append(PodToDelete(old, f"its successor {newest.name} is available"))


def available_from(pod: Pod, min_ready_seconds: int) -> int | None:
    """The instant (ns) from which a pod counts as available; 0: always; None: not known yet.

    None: the pod is not Ready, or its Ready condition lacks the time of its transition. In releases
    before 1.34 the pod is available only after that instant, from 1.34 on at it.
    """
    condition = pod.status.condition("Ready")
    if condition is None or condition.status != "True":
        return None
    if min_ready_seconds == 0:
        return 0
    if condition.last_transition_time is None:
        return None
    return condition.last_transition_time + min_ready_seconds * SECOND_NS


def is_pod_available(pod: Pod, min_ready_seconds: int, now: int, at_the_instant: bool) -> bool:
    """True if a pod is Ready and has been for minReadySeconds at `now` (ns)."""
    since = available_from(pod, min_ready_seconds)
    return since is not None and is_past(since, now, at_the_instant)


def is_past(since: int, now: int, at_the_instant: bool) -> bool:
    """True if what holds from `since` on (0: always) holds at `now`."""
    return since == 0 or since < now or (at_the_instant and since == now)


def is_pod_updated(
    labels: dict[str, str] | None,
    revision_hash: str,
    generation: int | None,
    generation_label_counts: bool,
) -> bool:
    """True if a pod with these labels is of the current template. Follows `IsPodUpdated`.

    `generation` is what the set's annotation says; from 1.10 to 1.23 it was compared in vain.
    """
    labels = labels or {}
    if revision_hash and labels.get(LABEL_CONTROLLER_REVISION_HASH) == revision_hash:
        return True
    if not generation_label_counts or generation is None:
        return False
    return labels.get(LABEL_POD_TEMPLATE_GENERATION) == str(generation)


@dataclass
class BackoffEntry:
    """One key's present delay and when it was last advanced."""

    delay_ns: int
    last_update_ns: int


def failed_pods_backoff_key(daemon_set: DaemonSet, node_name: str) -> str:
    """`uid/observedGeneration/node`. Follows `failedPodsBackoffKey`."""
    return f"{daemon_set.uid}/{daemon_set.status.observed_generation}/{node_name}"


def _failed_by(pod: Pod) -> int | None:
    """The latest instant at which the controller can have seen first that the pod has failed."""
    statuses, ready = pod.status.container_statuses or (), pod.status.condition("Ready")
    ends = [s.state.terminated.finished_at for s in statuses if s.state.terminated is not None]
    ends.append(None if ready is None else ready.last_transition_time)
    read = [end for end in ends if end is not None]
    return max(read) + FAILURE_SEEN_NS if read else None


class FailedPodsBackoff:
    """Delays by key, with an exponential cap."""

    def __init__(self, initial_ns: int = BACKOFF_INITIAL_NS, max_ns: int = BACKOFF_MAX_NS) -> None:
        self.initial_ns = initial_ns
        self.max_ns = max_ns
        self._entries: dict[str, BackoffEntry] = {}
        self._collected_ns = 0

    def fork(self) -> FailedPodsBackoff:
        """Another one with the same delays."""
        other = copy(self)
        self._entries, other._entries = fork_dict(self._entries)
        return other

    def entry(self, key: str) -> BackoffEntry | None:
        """The key's entry, or None where it never failed or was forgotten."""
        return self._entries.get(key)

    def get(self, key: str) -> int:
        """The key's delay in nanoseconds, 0 where it has none. Follows `Get`."""
        entry = self._entries.get(key)
        return entry.delay_ns if entry is not None else 0

    def in_backoff_since_update(self, key: str, now: int) -> bool:
        """True if less than its delay is past since the key's last failure.

        Follows `IsInBackOffSinceUpdate`: at exactly the end of the delay the key is free.
        """
        entry = self._entries.get(key)
        if entry is None or self._expired(entry, now):
            return False
        return now - entry.last_update_ns < entry.delay_ns

    def next(self, key: str, now: int) -> int:
        """Advance the key and return its new delay in nanoseconds. Follows `Next`."""
        entry = self._entries.get(key)
        if entry is None or self._expired(entry, now):
            delay = self.initial_ns
        else:
            delay = min(2 * entry.delay_ns, self.max_ns)
        self._entries[key] = BackoffEntry(delay, now)
        return delay

    def assume_longest(self, daemon_set: DaemonSet, node_name: str, pod: Pod, now: int) -> int:
        """Take in the longest back-off that a running controller may have of the pod's node, which
        is in its memory alone; returns until when it may leave the failed pod there, `now` if not
        at all.

        The key advanced for the last time before this pod was made, and each delay was waited for
        since the set was made. A pod that failed within its delay is looked at again after the
        whole delay, counted from its failure (`podsShouldBeOnNode`).
        """
        pod_made, set_made = pod.metadata.creation_timestamp, daemon_set.metadata.creation_timestamp
        if pod_made is None or set_made is None:
            return now
        last_update = min(now, pod_made + WHOLE_SECOND_NS)
        delay = self._longest(last_update - set_made)
        last_in_backoff = last_update + delay - 1
        comes_back = now
        if pod.status.phase == "Failed":
            failed = _failed_by(pod)
            if failed is None:
                failed = now
            elif failed - FAILURE_SEEN_NS > last_in_backoff:
                return now
            comes_back = max(now, min(failed, now, last_in_backoff) + delay)
            if comes_back > now:
                last_update = max(last_update, now + MILLISECOND_NS - delay)  # not by our join
        if now < last_update + delay:
            key = failed_pods_backoff_key(daemon_set, node_name)
            self._entries[key] = BackoffEntry(delay, last_update)
        return comes_back

    def _longest(self, passed: int) -> int:
        """The longest delay of a key so many ns after its set was made."""
        delay, waited = self.initial_ns, 0
        while delay < self.max_ns and waited + delay <= passed:
            waited += delay
            delay = min(2 * delay, self.max_ns)
        return delay

    def collect(self, now: int) -> None:
        """Drop entries idle for more than twice the cap, at most once a minute. Follows `GC`."""
        if now - self._collected_ns < BACKOFF_GC_INTERVAL_NS:
            return
        self._collected_ns = now
        self._entries = {k: e for k, e in self._entries.items() if not self._expired(e, now)}

    def _expired(self, entry: BackoffEntry, now: int) -> bool:
        return now - entry.last_update_ns > 2 * self.max_ns


Key = tuple[str, str]


def is_left_out(pod: Pod, rules: Behaviour) -> bool:
    """True if a claimed pod does not count any more: finished, and terminating besides."""
    return (
        rules.finished_terminating_left_out
        and pod.metadata.deletion_timestamp is not None
        and pod.status.phase in TERMINAL_PHASES
    )


class DaemonPods:
    """Claimed pods by node, those to adopt or release, and the hashes that claimed pods carry."""

    def __init__(self, daemon_set: DaemonSet, rules: Behaviour) -> None:
        self._set = daemon_set
        self._rules = rules
        self.by_node: dict[str, dict[Key, Pod]] = {}
        self.to_adopt: dict[Key, Pod] = {}
        self.to_release: dict[Key, Pod] = {}
        self.hashes: dict[str, int] = {}

    def fork(self) -> DaemonPods:
        """Another map of the same pods."""
        other = copy(self)
        self.by_node, other.by_node = fork_dict(self.by_node, copy_of_dict)
        self.to_adopt, other.to_adopt = fork_dict(self.to_adopt)
        self.to_release, other.to_release = fork_dict(self.to_release)
        other.hashes = dict(self.hashes)
        return other

    def hash_of_all(self, count: int) -> str | None:
        """The hash that all pods of the set carry, of which there are so many; None: they may carry
        several, or not all of them are claimed.
        """
        hashes = {label: pods for label, pods in self.hashes.items() if pods}
        others = self.to_adopt or self.to_release
        return next(iter(hashes)) if not others and list(hashes.values()) == [count] else None

    def fill(self, pods: Iterable[Pod]) -> None:
        """Take in pods that the set controls, many at once."""
        matching: dict[str, str] | None = None
        for pod in pods:
            labels = pod.metadata.labels
            if labels is matching or claim_object(self._set, pod) is Claim.KEEP:
                matching = labels
                self._keep(pod, 1)
            else:
                for _ in self.observe(None, pod):
                    pass

    def observe(self, old: Pod | None, new: Pod | None) -> Iterator[str]:
        """Take in a change of one pod; yields the nodes whose pods of the set are others now."""
        if old is not None and new is not None and self._has_new_status(old, new):
            yield new.spec.node_name
            return
        nodes = {
            self._drop(old) if old is not None else "",
            self._add(new) if new is not None else "",
        }
        yield from nodes - {""}

    def _has_new_status(self, old: Pod, new: Pod) -> bool:
        """True if the pod is in the map and nothing but its status is new; it is taken in then."""
        if old.metadata is not new.metadata or old.spec is not new.spec:
            return False
        pods = self.by_node.get(new.spec.node_name)
        key = new.key
        if pods is None or key not in pods or new.metadata.deletion_timestamp is not None:
            return False
        del pods[key]
        pods[key] = new
        return True

    def on_node(self, node: str) -> list[Pod] | None:
        """The set's pods on a node that count, by name, or None where the map has no entry."""
        pods = self.by_node.get(node)
        return None if pods is None else [pod for _, pod in sorted(pods.items())]

    def claimed(self) -> Iterator[Pod]:
        """All pods in the map."""
        for pods in self.by_node.values():
            yield from pods.values()

    def live_hashes(self) -> set[str]:
        """The hash labels that claimed pods carry, finished terminating pods among them."""
        return {label for label, count in self.hashes.items() if count > 0}

    def _add(self, pod: Pod) -> str:
        claim = claim_object(self._set, pod)
        if claim is Claim.KEEP:
            return self._keep(pod, 1)
        if claim is Claim.ADOPT:
            self.to_adopt[pod.key] = pod
        elif claim is Claim.RELEASE:
            self.to_release[pod.key] = pod
        return ""

    def _drop(self, pod: Pod) -> str:
        self.to_adopt.pop(pod.key, None)
        self.to_release.pop(pod.key, None)
        if claim_object(self._set, pod) is Claim.KEEP:
            return self._keep(pod, -1)
        return ""

    def _keep(self, pod: Pod, count: int) -> str:
        """Put a claimed pod into the map, or take it out; its node, "" where it has none."""
        node = pod.spec.node_name
        if not node:
            try:
                node = get_target_node_name(pod)
            except NoTargetNodeError:
                return ""
        meta = pod.metadata
        label = (meta.labels or {}).get(LABEL_CONTROLLER_REVISION_HASH)
        if label:
            self.hashes[label] = self.hashes.get(label, 0) + count
        if meta.deletion_timestamp is not None and is_left_out(pod, self._rules):
            return ""
        key = (meta.namespace, meta.name)
        pods = self.by_node.get(node)
        if count > 0:
            if pods is None:
                self.by_node[node] = {key: pod}
            else:
                pods[key] = pod
        elif pods is not None and pods.pop(key, None) is not None and not pods:
            del self.by_node[node]
        return node


class Claim(Enum):
    """The four ways in which a set treats an object that may be its own."""

    KEEP = "ours already"
    ADOPT = "an orphan that matches"
    RELEASE = "ours, but it no longer matches"
    IGNORE = "not ours"


def claim_object(daemon_set: DaemonSet, obj: KubeObject) -> Claim:
    """How the set stands to an object of its namespace."""
    owner = controller_of(obj.metadata)
    deleting = daemon_set.metadata.deletion_timestamp is not None
    if owner is not None:
        if owner.uid != daemon_set.uid:
            return Claim.IGNORE
        if matches(daemon_set.spec.selector, obj.metadata.labels):
            return Claim.KEEP
        return Claim.IGNORE if deleting else Claim.RELEASE
    if deleting or not matches(daemon_set.spec.selector, obj.metadata.labels):
        return Claim.IGNORE
    return Claim.IGNORE if obj.metadata.deletion_timestamp is not None else Claim.ADOPT
