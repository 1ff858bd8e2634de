"""The cluster as a `kubectl drain` process uses it: requests, the API server's answers to an
eviction or a deletion, a clock, the pods it watches.

Below it is what client-go does: a rate limit, and retries of its own. It follows client-go
rest/config.go (DefaultQPS, DefaultBurst), rest/with_retry.go and util/flowcontrol. `kubectl drain`
sets no limits of its own, so a node with more than ten pods is evicted at five a second, and the
GETs of many waiting pods queue up behind one another. An answer with Retry-After reaches kubectl
only after ten repetitions; --timeout does not end these.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple, Protocol, TypeVar

from kubectl_nodelife.engine.workqueue import TokenBucket
from kubectl_nodelife.kube.pod import Pod
from kubectl_nodelife.kube.times import MILLISECOND_NS, SECOND_NS
from kubectl_nodelife.workloads.budgets import EvictionRefused
from kubectl_nodelife.workloads.owners import OwnerLookup


class Accepted(NamedTuple):
    """The eviction or deletion was accepted."""


class Missing(NamedTuple):
    """404: the pod is gone."""


class Conflict(NamedTuple):
    """The API server itself tries again in a moment: another eviction wrote to the budget."""


ACCEPTED = Accepted()
MISSING = Missing()
CONFLICT = Conflict()
Answer = Accepted | Missing | Conflict | EvictionRefused


class RequestTimes(NamedTuple):
    """How long kubectl waits for the API server, in nanoseconds.

    `startup_ns`: from the command's start to its first request. `request_ns`: one request.
    `conflict_ns`: the Eviction API's wait after a write conflict (500 ms and up to 10 %).
    """

    startup_ns: int
    request_ns: int
    conflict_ns: int


SMALL_CLUSTER: Final = RequestTimes(
    startup_ns=60 * MILLISECOND_NS,
    request_ns=10 * MILLISECOND_NS,
    conflict_ns=525 * MILLISECOND_NS,
)
"""Of a small cluster on a local network."""


class Clock(Protocol):
    """A virtual clock with an agenda. Instants are nanoseconds since an origin of its own."""

    @property
    def now_ns(self) -> int:
        """The present instant."""

    def at(self, instant_ns: int, call: Callable[..., None], *arguments: Any) -> None:
        """Make a call that changes something or may; one that lies in the past is made now."""

    def ask_again_at(self, instant_ns: int, call: Callable[..., None], *arguments: Any) -> None:
        """Make a call that only repeats a request: alone it changes nothing."""

    def alarm_at(self, instant_ns: int, call: Callable[..., None], *arguments: Any) -> None:
        """Make a call at that very instant, such as a deadline."""


class DrainedPod(Protocol):
    """A pod that was listed. A later one of the same name is another pod."""

    @property
    def pod(self) -> Pod:
        """The object as it is, or as it last was."""

    @property
    def going(self) -> bool:
        """True if it is marked deleted."""

    @property
    def gone(self) -> bool:
        """True if the object is gone."""

    @property
    def goes_ns(self) -> int | None:
        """When a marked pod's object will be gone, None where that is not known."""


PodT = TypeVar("PodT", bound=DrainedPod)


class ClusterForKubectl(Protocol[PodT]):
    """The cluster. `version` grows whenever something changes that may let an eviction through."""

    @property
    def version(self) -> int:
        """Counts changes."""

    @property
    def clock(self) -> Clock:
        """The virtual clock."""

    @property
    def owners(self) -> OwnerLookup:
        """Where DaemonSets are looked up."""

    def time_ns(self) -> int:
        """The present instant, nanoseconds since the epoch."""

    def to_cordon(self, names: Sequence[str]) -> Sequence[str]:
        """Those of the nodes that are not cordoned yet."""

    def cordon(self, *names: str) -> None:
        """Set spec.unschedulable."""

    def pods_on(self, node: str) -> list[PodT]:
        """The pods that a list call for the node returns now."""

    def read_again(self, target: PodT) -> None:
        """GET by name before another try: kubectl goes on with what has that name now.

        Follows `evictPods`, which takes the fresh pod whatever its uid and node
        (kubernetes#138229).
        """

    def evict(self, target: PodT, requested_grace: int | None, *, again: bool = False) -> Answer:
        """POST pods/eviction. `again`: the API server's own second try after a conflict."""

    def delete(self, target: PodT, requested_grace: int | None) -> Answer:
        """DELETE of the pod."""


QPS: Final = 5
BURST: Final = 10
RETRIES: Final = 10
"""How often a request that is answered with Retry-After is repeated."""


def client_bucket() -> TokenBucket:
    """The rate limit of one of kubectl's clients."""
    return TokenBucket(QPS, BURST)


def noticed_ns(
    last_ns: int, deadline_ns: int, pause_ns: int, retry_after_seconds: int, answers: int
) -> int:
    """When kubectl, refused at `last_ns` and ever after, detects that its deadline is over.

    It checks before every try, `pause_ns` after the answer to the one before; the client repeats
    a try `RETRIES` times where the server sends Retry-After, and `answers` have come so far.
    """
    wait_ns = retry_after_seconds * SECOND_NS
    first_ns = last_ns + wait_ns * (RETRIES + 1 - answers) + pause_ns
    period_ns = wait_ns * RETRIES + pause_ns
    return first_ns + max(0, -((first_ns - deadline_ns) // period_ns)) * period_ns
