"""The cluster as a `kubectl drain` process asks for it: requests, the API server's answers to an
eviction or a deletion, a clock, the pods it watches.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple, Protocol, TypeVar

from kubectl_nodelife.kube.pod import Pod
from kubectl_nodelife.kube.times import MILLISECOND_NS
from kubectl_nodelife.workloads.eviction import EvictionRefused
from kubectl_nodelife.workloads.scales import OwnerLookup

GATE_NAMESPACE: Final = "namespace-terminating"
"""The gate of a refusal because the pod's namespace is being deleted."""


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
        """Make a call that only asks again: if nothing else is left to happen, nothing will."""

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

    def evict(self, target: PodT, requested_grace: int | None, *, again: bool = False) -> Answer:
        """POST pods/eviction. `again`: the API server's own second try after a conflict."""

    def delete(self, target: PodT, requested_grace: int | None) -> Answer:
        """DELETE of the pod."""
