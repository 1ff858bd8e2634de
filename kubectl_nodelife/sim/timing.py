"""How long things take, where nothing that was read shows it: three sets of assumptions.

A plan is played three times. The middle set gives the times that are shown and decides what is
evicted; the fast and the slow one give the ends of the estimate. The middle figures are those of a
small cluster on a local network; kubelets are assumed to use the whole grace period there, because
that is the one figure that a pod's object has.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from kubectl_nodelife.kube.pod import Pod
from kubectl_nodelife.kube.times import MILLISECOND_NS, MINUTE_NS, SECOND_NS
from kubectl_nodelife.sim.kubectl.conversation import RequestTimes
from kubectl_nodelife.sim.kubelet_state import KubeletTerms
from kubectl_nodelife.workloads.time_to_ready import TimesToReady, restarted_ns


class Timing(NamedTuple):
    """One set of assumptions; durations in nanoseconds.

    `startup_ns`: from the command's start to its first request · `request_ns`: one request ·
    `conflict_ns`: the Eviction API's wait after a write conflict (500 ms and up to 10 %) ·
    `controller_ns`: until a controller has reacted · `grace_percent`, `stop_extra_ns`: how much of
    its grace a pod takes, and the kubelet on top · `ready`: which of the learnt times to Ready is
    taken, 0 the lowest, 1 the middle, 2 the highest · `job_failures`: likewise how many failures
    before the play a Job's back-off counts, which no object has · `cut_ns`: how much is cut off an
    instant kept in whole seconds, None: as the clock of the play has it. When the command will be
    run is not known, so that the ends of the estimate cut off a whole second, or nothing.
    """

    name: str
    startup_ns: int
    request_ns: int
    conflict_ns: int
    controller_ns: int
    grace_percent: int
    stop_extra_ns: int
    ready: int
    job_failures: int
    cut_ns: int | None

    @property
    def requests(self) -> RequestTimes:
        """The part of it that concerns kubectl's requests."""
        return RequestTimes(self.startup_ns, self.request_ns, self.conflict_ns)


FAST: Final = Timing(
    name="fast",
    startup_ns=40 * MILLISECOND_NS,
    request_ns=2 * MILLISECOND_NS,
    conflict_ns=500 * MILLISECOND_NS,
    controller_ns=5 * MILLISECOND_NS,
    grace_percent=0,
    stop_extra_ns=50 * MILLISECOND_NS,
    ready=0,
    job_failures=0,
    cut_ns=999 * MILLISECOND_NS,
)
MIDDLE: Final = Timing(
    name="middle",
    startup_ns=60 * MILLISECOND_NS,
    request_ns=10 * MILLISECOND_NS,
    conflict_ns=525 * MILLISECOND_NS,
    controller_ns=30 * MILLISECOND_NS,
    grace_percent=100,
    stop_extra_ns=100 * MILLISECOND_NS,
    ready=1,
    job_failures=1,
    cut_ns=None,
)
SLOW: Final = Timing(
    name="slow",
    startup_ns=1 * SECOND_NS,
    request_ns=60 * MILLISECOND_NS,
    conflict_ns=550 * MILLISECOND_NS,
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
        return max(0, took.pick(self.timing.ready) - age_ns)

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
