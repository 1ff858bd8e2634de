"""How long things take where nothing that was read shows it: learnt from other pods, or assumed.

A pod's sample is the time from its PodScheduled condition to the last transition of its Ready
condition: the wait for a node is not part of it. Where that condition was not read, its creation
stands in. Both are whole seconds, so a sample is off by up to one. A pod that was restarted, or
whose condition moved long after its start, says nothing about a new pod and is left out. Where a
workload has no sample the rest of its namespace and then of the cluster stand in, and where there
is none at all, an assumption that the plan prints. A workload whose pods run and are not Ready,
every one of them, is assumed to stay so: the cause will affect their replacements too.

There are three sets of assumptions, and a plan is played three times. The middle set gives the
times that are shown and decides what is evicted; the fast and the slow one give the ends of the
estimate. The middle figures are those of a small cluster on a local network; kubelets are assumed
to use the whole grace period there, because that is the one figure that a pod's object has.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import islice
from typing import Final, NamedTuple

from kubectl_nodelife.kube.meta import controller_of
from kubectl_nodelife.kube.pod import TERMINAL_PHASES, Pod, is_starting
from kubectl_nodelife.kube.times import MILLISECOND_NS, MINUTE_NS, SECOND_NS
from kubectl_nodelife.sim.kubectl.conversation import SMALL_CLUSTER, RequestTimes
from kubectl_nodelife.sim.kubelet_state import KubeletTerms

LONGEST_SAMPLE_NS: Final = 20 * MINUTE_NS
_WITHIN_A_SECOND_NS: Final = SECOND_NS // 2
"""A sample of two times in the same second: no kubelet starts a container at once."""
_HOW_MANY: Final = 400
"""Samples taken from a namespace or the cluster: more add nothing new."""


class TimeToReady(NamedTuple):
    """From a pod's being bound to its being Ready: lowest, middle and highest; and where from."""

    low_ns: int
    middle_ns: int
    high_ns: int
    source: str


ASSUMED: Final = TimeToReady(
    1 * SECOND_NS, 20 * SECOND_NS, 60 * SECOND_NS, "assumed: nothing that was read shows it"
)


def sample(pod: Pod) -> int | None:
    """Nanoseconds from the binding to Ready, or None where the pod does not show it."""
    ready, bound = pod.status.condition("Ready"), pod.status.condition("PodScheduled")
    began = pod.metadata.creation_timestamp
    if bound is not None and bound.status == "True" and bound.last_transition_time is not None:
        began = bound.last_transition_time
    if ready is None or ready.status != "True" or ready.last_transition_time is None:
        return None
    if began is None:
        return None
    for status in pod.status.container_statuses or ():
        if status.restart_count:
            return None
    took = ready.last_transition_time - began
    return max(took, _WITHIN_A_SECOND_NS) if 0 <= took <= LONGEST_SAMPLE_NS else None


def learn(pods: Iterable[Pod], source: str) -> TimeToReady | None:
    """The estimate from all pods together, or None where none of them gives a sample."""
    samples = sorted([took for pod in pods if (took := sample(pod)) is not None])
    if not samples:
        return None
    # Samples beyond twice the median are of lost and regained readiness, slow pulls, exceptions.
    median = samples[len(samples) // 2]
    usual = [s for s in samples if s <= 2 * median + 5 * SECOND_NS]
    middle = sum(usual) // len(usual) + 50 * MILLISECOND_NS
    low = max(100 * MILLISECOND_NS, usual[0] - SECOND_NS)
    return TimeToReady(low, middle, usual[-1] + SECOND_NS + 200 * MILLISECOND_NS, source)


def restarted_ns(pod: Pod) -> int | None:
    """When the last of the containers began that run and are not ready yet, ns since the epoch.

    None where the pod does not wait for that: it is Ready, or a container does not run.
    """
    if pod.status.phase != "Running" or pod.ready():
        return None
    began_ns = None
    for status in pod.status.container_statuses or ():
        if not status.ready:
            running = status.state.running
            if running is None or running.started_at is None:
                return None
            began_ns = max(began_ns or 0, running.started_at)
    return began_ns


def is_on_its_way(pod: Pod) -> bool:
    """True if the pod starts, or has containers that began and are to become ready. For how long
    that may be assumed is `LearntTerms.starts_after`."""
    if pod.status.phase != "Running":
        return is_starting(pod)
    for status in pod.status.container_statuses or ():
        if not status.ready:
            return restarted_ns(pod) is not None
    return False


def never_ready(pods: Iterable[Pod]) -> bool:
    """True if some of the workload's pods are past their start, and none of them is Ready."""
    tried = False
    for pod in pods:
        if pod.ready():
            return False
        going = pod.metadata.deletion_timestamp is not None
        if not going and pod.status.phase not in TERMINAL_PHASES and not is_starting(pod):
            tried = True
    return tried


PodsOf = Callable[[str], Iterable[Pod]]
"""The pods of the controller with that uid, or of the namespace with that name."""


class TimesToReady:
    """Times to Ready by workload, learnt when they are first asked for."""

    def __init__(self, of_owner: PodsOf, in_namespace: PodsOf, pods: Iterable[Pod]) -> None:
        """`pods`: those of the whole cluster."""
        self._of_owner = of_owner
        self._in_namespace = in_namespace
        self._pods = pods
        self._learnt: dict[str, TimeToReady | None] = {}
        self._fallback: dict[str, TimeToReady] = {}

    def time_to_ready(self, pod: Pod) -> TimeToReady | None:
        """For a replacement of `pod`, and for `pod` itself while it starts; None: never."""
        owner = controller_of(pod.metadata)
        if owner is None:
            return self._of_namespace(pod.namespace)
        if owner.uid not in self._learnt:
            pods = list(self._of_owner(owner.uid))
            learnt = learn(pods, f"{owner.kind} {owner.name}")
            if learnt is None and not never_ready(pods):
                learnt = self._of_namespace(pod.namespace)
            self._learnt[owner.uid] = learnt
        return self._learnt[owner.uid]

    def _of_namespace(self, namespace: str) -> TimeToReady:
        learnt = self._fallback.get(namespace)
        if learnt is None:
            pods = islice(self._in_namespace(namespace), _HOW_MANY)
            learnt = learn(pods, f"other pods of namespace {namespace}")
            if learnt is None:
                learnt = learn(islice(self._pods, _HOW_MANY), "other pods of the cluster")
            learnt = learnt or ASSUMED
            self._fallback[namespace] = learnt
        return learnt


class Timing(NamedTuple):
    """One set of assumptions; durations in nanoseconds.

    `requests`: of kubectl · `controller_ns`: until a controller has reacted · `grace_percent`,
    `stop_extra_ns`: how much of its grace a pod takes, and the kubelet on top · `ready`: which of
    the learnt times to Ready is taken, 0 the lowest, 1 the middle, 2 the highest · `job_failures`:
    likewise how many failures before the play a Job's back-off counts, which no object has ·
    `cut_ns`: how much is cut off an instant kept in whole seconds, None: as the clock of the play
    has it. When the command will be run is not known, so that the ends of the estimate cut off a
    whole second, or nothing.
    """

    name: str
    requests: RequestTimes
    controller_ns: int
    grace_percent: int
    stop_extra_ns: int
    ready: int
    job_failures: int
    cut_ns: int | None


FAST: Final = Timing(
    name="fast",
    requests=RequestTimes(40 * MILLISECOND_NS, 2 * MILLISECOND_NS, 500 * MILLISECOND_NS),
    controller_ns=5 * MILLISECOND_NS,
    grace_percent=0,
    stop_extra_ns=50 * MILLISECOND_NS,
    ready=0,
    job_failures=0,
    cut_ns=999 * MILLISECOND_NS,
)
MIDDLE: Final = Timing(
    name="middle",
    requests=SMALL_CLUSTER,
    controller_ns=30 * MILLISECOND_NS,
    grace_percent=100,
    stop_extra_ns=100 * MILLISECOND_NS,
    ready=1,
    job_failures=1,
    cut_ns=None,
)
SLOW: Final = Timing(
    name="slow",
    requests=RequestTimes(1 * SECOND_NS, 60 * MILLISECOND_NS, 550 * MILLISECOND_NS),
    controller_ns=500 * MILLISECOND_NS,
    grace_percent=100,
    stop_extra_ns=1500 * MILLISECOND_NS,
    ready=2,
    job_failures=2,
    cut_ns=0,
)

OVERDUE_NS: Final = 1 * MINUTE_NS
"""A pod that long past its grace does not go by itself any more."""


class LearntTerms(KubeletTerms, frozen=True, kw_only=True):
    """How kubelets behave that start and stop pods in the time that similar pods took.

    `start_ns`: t=0. `starting`: uids of the pods that are starting then, whose age counts.
    """

    times: TimesToReady
    timing: Timing
    start_ns: int
    starting: frozenset[str] = frozenset()

    def awaits(self, pod: Pod) -> bool:
        """True if the pod starts, or its containers have begun anew."""
        return pod.uid in self.starting

    def starts_after(self, pod: Pod) -> int | None:
        """As long as pods of its workload took, counted from its creation, or from when its last
        container began. None for one that should have been Ready long ago: nothing shows that it
        will be."""
        took, age_ns = self.times.time_to_ready(pod), 0
        if pod.metadata.uid in self.starting:
            began_ns = restarted_ns(pod) or pod.metadata.creation_timestamp
            age_ns = 0 if began_ns is None else max(0, self.start_ns - began_ns)
        if took is None or age_ns > took.high_ns:
            return None
        return max(0, took[:3][self.timing.ready] - age_ns)

    def gates_are_set(self) -> bool:
        """The times to Ready that were learnt include them."""
        return True

    def goes_on_for(self, pod: Pod, now_ns: int) -> int | None:
        """As `starts_after`: its age counts."""
        return self.starts_after(pod)

    def stops_after(self, pod: Pod, grace_ns: int) -> int | None:
        """The part of its grace period that the timing gives. None for one that should have been
        gone long ago: nothing shows that it will be."""
        deleted_ns = pod.metadata.deletion_timestamp
        if deleted_ns is not None and deleted_ns < self.start_ns - OVERDUE_NS:
            return None
        return grace_ns * self.timing.grace_percent // 100 + self.timing.stop_extra_ns
