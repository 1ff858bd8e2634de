"""What passes between the upgrade controller and the process that leads a run with it.

A leader, of a live run or of one in the virtual cluster, does this beside what every host of an
engine does:

1. It makes one `UpgradeController` and one `LeaderEngine` for each epoch in which it leads. Clocks
   and what it has seen a controller alone remembers; all else it reads from the nodes' annotations
   and the run's document. What this process began in an older epoch, such as before a laptop slept,
   it is given first (`take_over`).
2. The engine's clock is one that cannot be set and that counts suspend. With each decision the
   leader says what it knows beside the cluster (`HostState`).
3. It carries the actions out in their order, each under the version of the object in the cache, and
   passes `StartWork` and `StopWork` to what runs commands, whose reports go to `work_report`.
   Outcomes of writes come back as events, of those that were done, too.
4. The run's document and the requests of people are on its Lease in the cache, as the leader puts
   it there when it reads or writes it.
5. It ends when `superseded` says why, without another write, or when `is_over` says that the run
   has ended and all is cleared away that goes with it.

`upgrade prove` is a run whose document says `proof_only`, with the work `nothing`, over the nodes
that it names.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from types import MappingProxyType
from typing import Final, NamedTuple

import msgspec

from kubectl_nodelife.engine.cache import Cache
from kubectl_nodelife.kube.node import Node
from kubectl_nodelife.kube.workload import DaemonSet

PodKey = tuple[str, str]

READS: Final = (
    *("Node", "Lease", "Pod", "DaemonSet", "CSINode", "VolumeAttachment", "Job", "Namespace"),
    *("PodDisruptionBudget", "ReplicaSet", "Deployment", "StatefulSet", "ReplicationController"),
    *("HorizontalPodAutoscaler", "PersistentVolumeClaim", "PersistentVolume", "StorageClass"),
    *("Service", "EndpointSlice", "ValidatingWebhookConfiguration"),
    *("MutatingWebhookConfiguration", "ValidatingAdmissionPolicy"),
    "ValidatingAdmissionPolicyBinding",
)
"""The kinds that the controller and its ports read, those first without which it is blind."""


class HostState(msgspec.Struct, frozen=True, kw_only=True):
    """The leader's knowledge beside the cluster, at this moment.

    `blind`: why nothing may be decided ("" where all is seen): the leader's first grace period, a
    sleep or gap, a broken watch of Node, Lease or Pod, 5xx or 429 from the server. `unread`: kinds
    that could not be read, such as CSINode. `gate_command`: the last line of a `--gate` command
    that failed or was too slow, "" where it passed, None before its first end; `gate_runs` counts
    its ends. `clock_ahead_ns`: how far the API server's time is ahead of the engine's clock.
    `pods_listed_ns`: node -> when, by the engine's clock, a list of its pods was asked for of which
    the cache has since seen each; None: the cache is never behind the API server.
    """

    clock_ahead_ns: int = 0
    blind: str = ""
    unread: Collection[str] = ()
    gate_command: str | None = None
    gate_runs: int = 0
    pods_listed_ns: Mapping[str, int] | None = None


NO_END: Final = frozenset({"never", "refused"})
"""Verdicts of drains that never end."""


class DrainVerdict(NamedTuple):
    """The drain planner's verdict on a node, with `drain-timeout` and the nodes Draining now.

    `verdict`: ready, slow, unknown, never or refused (`drain/results.py`); `sentence`: why, with
    the cheapest fix. `waits`: a budget is at zero now and refills. `low_seconds`, `high_seconds`:
    how long the drain takes. `moving`: the pods that leave; `evictable`: those of them that the
    plan lets go now. `is_short`: a budget spares fewer now than leave the node, whatever the
    verdict.
    """

    verdict: str
    sentence: str = ""
    waits: bool = False
    low_seconds: float = 0.0
    high_seconds: float = 0.0
    moving: tuple[PodKey, ...] = ()
    evictable: tuple[PodKey, ...] = ()
    is_short: bool = False


Leaving = Mapping[str, Collection[PodKey]]
"""The nodes that are out of service or on their way, with the pods that still leave them."""


class UpgradePorts(NamedTuple):
    """All that is passed in, answers first, which may come from a memory while nothing changed.

    `drain`: the drain planner's verdict on a node while others are being drained. `room`: why what
    leaves the node finds no room or leaves too little, "" where it fits, by the virtual scheduler.
    `daemon_sets`: those that should run a pod on the node. `zone_state`: Normal,
    PartialDisruption or FullDisruption of a zone with so many nodes Ready and not, as the
    node lifecycle controller has it; `counts_in_zone`: false of a node with `exclude-disruption`.

    `zone_threshold`: `unhealthy-zone-threshold`; `grace_period_ns`: the node monitor's grace
    period. `planned_claims`: uid -> (InternalIP, provider id) of each node at the plan.
    """

    drain: Callable[[Cache, str, Collection[str], int], DrainVerdict]
    room: Callable[[Cache, str, Collection[PodKey], Leaving, int], str]
    daemon_sets: Callable[[Cache, Node], Collection[DaemonSet]]
    zone_state: Callable[[int, int], str]
    counts_in_zone: Callable[[Node], bool]
    grace_period_ns: int
    zone_threshold: float = 0.55
    planned_claims: Mapping[str, tuple[str, str]] = MappingProxyType({})


class WorkReport(NamedTuple):
    """The state of a command on a node. `code` None: it runs; `try_`: which try it is of."""

    try_: int
    code: int | None = None
    message: str = ""
