"""How many requests a second each controller of kube-controller-manager makes, and how long a
monitor pass over lost nodes takes at that pace.

`--kube-api-qps` and `--kube-api-burst` are the token bucket of each controller's client: one for
each clientset that `NewClient` of cmd/kube-controller-manager/app makes (client-go's flowcontrol).
The simulated cluster spends the tokens one by one (`sim/clients.py`); here is the arithmetic for
sentences about an outage that has not happened.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Final, NamedTuple

import msgspec

from kubectl_nodelife.engine.settings import Settings
from kubectl_nodelife.kube.times import SECOND_NS

FLAG: Final = "kube-api-qps"
_WORKERS: Final = 8
_NO_SCHEDULE_REQUESTS: Final = 2
_DEFAULT: Final = "default"
_EVENT: Final = -1

_MOST_ONE_BY_ONE: Final = 3000
"""Of more pods each is reckoned to go by itself: a daemon has no time for the turns of each."""


class ClientLimits(NamedTuple):
    """Requests a second, and how many at once after a quiet time."""

    qps: float
    burst: int


SCHEDULER: Final = ClientLimits(50.0, 100)
"""`clientConnection` of kube-scheduler's configuration by default, in every release."""

KUBELET: Final = ClientLimits(50.0, 100)
KUBELET_BEFORE: Final = ClientLimits(5.0, 10)
"""kubeAPIQPS and kubeAPIBurst by default, since 1.27 (kubernetes#116121) and before."""

ENFORCED_QPS: Final = 200.0
ENFORCED_BURST: Final = 400
"""Of each controller's client of our daemon in enforce mode."""

FASTER_QPS: Final = 100.0
"""What people set who set it: a forecast reaches up to there where the flag was not seen."""


class Pace(msgspec.Struct, frozen=True):
    """Requests a second of each controller's client, and how many at once after a quiet time.

    `shared`: taint-eviction and node-lifecycle have one client, as before they were apart.
    `reads_pods`: taint-eviction reads a pod before it deletes it, as since it marks it.
    `reads_leases`: a node's Lease is read before the node is called lost. `workers`: how many nodes
    a monitor pass looks at side by side. `origin`: of the flag.
    """

    qps: float
    burst: int
    shared: bool = False
    reads_pods: bool = True
    reads_leases: bool = False
    workers: int = _WORKERS
    origin: str = ""

    @property
    def is_seen(self) -> bool:
        """True if the flag was seen or given; else the running one may be higher."""
        return not self.origin.startswith(_DEFAULT)

    @property
    def sentence(self) -> str:
        """The pace, and where it is known from."""
        seen = self.origin if self.is_seen else "default; not seen"
        return f"kube-controller-manager's clients make {self.qps:g} requests a second ({seen})"

    @property
    def evictions_a_second(self) -> float:
        """How many pods taint-eviction deletes a second: of each the DELETE and an Event, and where
        it marks them a read and the mark."""
        return self.qps / (4 if self.reads_pods else 2)

    @property
    def requests_a_deletion(self) -> int:
        """Of one pod, beside its Event."""
        return 3 if self.reads_pods else 1

    def deletions_ns(self, turns: Sequence[tuple[int, int]], *, idle: bool = True) -> list[int]:
        """When taint-eviction deletes pods, at the pace of its client.

        `turns`: of each pod when its time is over, the first one first, and how many requests it
        has to go; pods whose time is over together take turns, and beside them one sends Events.
        `idle`: the client has all its tokens then; else none.
        """
        between_ns = SECOND_NS / self.qps
        burst_ns = self.burst * between_ns
        if len(turns) > _MOST_ONE_BY_ONE:
            return _one_after_another(turns, between_ns, burst_ns if idle else 0.0)
        free_ns = 0.0 if idle or not turns else turns[0][0] + burst_ns
        ends_ns = [at_ns for at_ns, _ in turns]
        granted: deque[tuple[float, int, int]] = deque()
        events, next_turn = 0, 0
        while granted or next_turn < len(turns):
            asks: list[tuple[int, int]] = []
            if not granted or (next_turn < len(turns) and turns[next_turn][0] <= granted[0][0]):
                at_ns, pods = turns[next_turn]
                asks.append((next_turn, pods))
                if not events:
                    asks.append((_EVENT, 1))
                events, next_turn = events + 1, next_turn + 1
                now_ns = float(at_ns)
            else:
                now_ns, index, pods = granted.popleft()
                if index == _EVENT:
                    events -= 1
                    asks += [(_EVENT, 1)] if events else []
                elif pods > 1:
                    asks.append((index, pods - 1))
                else:
                    ends_ns[index] = round(now_ns)
            for index, pods in asks:
                free_ns = max(free_ns, now_ns) + between_ns
                granted.append((max(now_ns, free_ns - burst_ns), index, pods))
        return ends_ns

    def at(self, qps: float) -> Pace:
        """The same clients at another pace, with a burst that grows alike."""
        return msgspec.structs.replace(self, qps=qps, burst=round(self.burst * qps / self.qps))

    def pass_ns(self, nodes: int, pods: int) -> int:
        """How long a pass takes that finds these nodes lost, with so many pods on them.

        Of each node its status, of each pod its mark; beside the workers others write NoSchedule
        taints, two requests each, and one sends Events.
        """
        waits = max(0, self.requests_of_pass(nodes, pods) - self.burst)
        return round(waits / self.qps * SECOND_NS)

    def requests_of_pass(self, nodes: int, pods: int) -> int:
        """How many requests the client makes while such a pass lasts."""
        requests = nodes * (2 if self.reads_leases else 1) + pods
        requests += min(_NO_SCHEDULE_REQUESTS * nodes, requests)
        return requests + requests // max(1, min(nodes, self.workers))

    def tainted_in(self, pass_ns: int, rate: float, nodes: int) -> int:
        """How many of the nodes may be tainted before a pass of that length ends, at that rate."""
        if pass_ns <= 0 or rate <= 0:
            return 0
        return min(nodes, 1 + int(rate * pass_ns / SECOND_NS))


def _one_after_another(
    turns: Sequence[tuple[int, int]], between_ns: float, burst_ns: float
) -> list[int]:
    """When the requests of each pod are made if those of one come after those of the one before."""
    ends_ns, done_ns = list[int](), float(turns[0][0]) - burst_ns
    for at_ns, pods in turns:
        done_ns = max(done_ns, at_ns - burst_ns) + pods * between_ns
        ends_ns.append(round(max(at_ns, done_ns)))
    return ends_ns


def pace_of(settings: Settings) -> Pace | None:
    """The pace that the flags give; None: no limit, as with a negative kube-api-qps."""
    qps, burst = settings.kube_api_qps, settings.kube_api_burst
    if qps < 0:
        return None
    return Pace(
        qps,
        burst,
        shared=not (
            settings.profile.has("separate_taint_eviction")
            and settings.gates.get("SeparateTaintEvictionController", True)
        ),
        reads_pods=settings.gate("PodDisruptionConditions"),
        reads_leases=settings.profile.has("lease_circuit_breaker"),
        workers=_WORKERS if settings.profile.has("monitor_workers") else 1,
        origin=settings.origins.get(FLAG, ""),
    )
