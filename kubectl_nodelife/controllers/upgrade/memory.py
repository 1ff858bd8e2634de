"""What one leader knows: what its process tells it, the answers that it is handed, and its memory:
clocks, what it has seen of each node, and writes under way.

A new leader begins with an empty memory, and every clock with its full length; what it cannot know
for want of it (whether a command ran, which containers a node had before) is settled by the rules
of each state. Instants are ns of the leader's own clock.

Until the outcome of a write is known nothing more is decided on its object, and the object is read
with the write's effect laid over it: a node whose claim is on its way is unavailable already.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

import msgspec

from kubectl_nodelife.controllers.upgrade.claims import DrainVerdict, PodKey, UpgradeCandidate
from kubectl_nodelife.controllers.upgrade.marks import NodeMark
from kubectl_nodelife.engine.actions import Action, CreateForNode
from kubectl_nodelife.engine.cache import Cache
from kubectl_nodelife.engine.events import Outcome
from kubectl_nodelife.engine.settlement import is_newer, settle_action
from kubectl_nodelife.kube.meta import KubeObject
from kubectl_nodelife.kube.node import Node
from kubectl_nodelife.kube.pod import Pod
from kubectl_nodelife.kube.workload import DaemonSet


class HostState(msgspec.Struct, frozen=True, kw_only=True):
    """The leader's knowledge beside the cluster, at this moment.

    `clock_ahead_ns`: how far the API server's time is ahead of the engine's clock. `blind`: why
    nothing may be decided: a sleep or gap, a broken watch of Node, Lease or Pod, 5xx or 429 from
    the server; else "". `unread`: kinds that could not be read. `gate_command`: the last line of a
    `--gate` command that failed or was too slow, "" where it passed, None before its first end;
    `gate_runs` counts its ends. `pods_listed_ns`: node -> when a list of its pods was asked for of
    which the cache has since seen each; None: the cache is never behind the API server.
    """

    clock_ahead_ns: int = 0
    blind: str = ""
    unread: Collection[str] = ()
    gate_command: str | None = None
    gate_runs: int = 0
    pods_listed_ns: Mapping[str, int] | None = None


Leaving = Mapping[str, Collection[PodKey]]
"""The nodes that are out of service or on their way, with the pods that still leave them."""


class UpgradePorts(NamedTuple):
    """All that is passed in, answers first, which may come from a memory while nothing changed.

    `drain`: the drain planner's verdict on a node while others are being drained. `room`: why what
    leaves the node finds no room or leaves too little, "" where it fits, by the virtual scheduler.
    `daemon_sets`: those that should run a pod on the node. `zone_state`: the node lifecycle
    controller's, of a zone with so many nodes Ready and not; `counts_in_zone`: false of a node with
    `exclude-disruption`. `planned_addresses`: uid -> (InternalIP, provider id) at the plan.
    """

    drain: Callable[[Cache, str, Collection[str], int], DrainVerdict]
    room: Callable[[Cache, str, Collection[PodKey], Leaving, int], str]
    daemon_sets: Callable[[Cache, Node], Collection[DaemonSet]]
    zone_state: Callable[[int, int], str]
    counts_in_zone: Callable[[Node], bool]
    grace_period_ns: int
    zone_threshold: float = 0.55
    planned_addresses: Mapping[str, tuple[str, str]] = MappingProxyType({})


ObjectKey = tuple[str, tuple[str, str]]


class PendingWrites:
    """The writes under way, by object: one for each, with the version that it made, "" as long as
    that is not known. A write is under way until the cache shows it, or a later version, or it
    failed. `unanswered`: those without an outcome yet, by identity.
    """

    def __init__(self) -> None:
        self.unanswered: dict[int, Action] = {}
        self._by_target: dict[ObjectKey, tuple[Action, str]] = {}

    def sent(self, action: Action) -> None:
        """The action goes out now; what is no call is not followed."""
        if action.writes:
            self.unanswered[id(action)] = action
            self._by_target[action.target] = (action, "")

    def ended(self, outcome: Outcome) -> bool:
        """Take in the outcome of a write. False where nobody waits for it: it was answered before,
        or is another leader's, or of an epoch before this one.
        """
        action, obj = outcome.action, outcome.obj
        if self.unanswered.pop(id(action), None) is None:
            return False
        if self._by_target.get(action.target, (None, ""))[0] is action:
            del self._by_target[action.target]
            if outcome.done and obj is not None and (fresh := obj.metadata.resource_version):
                self._by_target[action.target] = (action, fresh)
        return True

    def settle(self, cache: Cache) -> None:
        """Forget what the cache shows by now."""
        for target, (action, fresh) in list(self._by_target.items()):
            if _is_shown(action, fresh, cache.get(*target)):
                del self._by_target[target]

    def names_of(self, kind: str) -> set[str]:
        """The names of all objects of the kind on which a write is under way."""
        return {key[1] for of_kind, key in self._by_target if of_kind == kind}

    def holds(self, kind: str, key: tuple[str, str]) -> bool:
        """True if a write on the object is under way."""
        return (kind, key) in self._by_target

    def laid_over(
        self, kind: str, key: tuple[str, str], obj: KubeObject | None, now_ns: int
    ) -> KubeObject | None:
        """The object with the effect of the write under way."""
        pending = self._by_target.get((kind, key))
        return obj if pending is None else pending[0].effect(obj, now_ns)


def _is_shown(action: Action, fresh: str, obj: KubeObject | None) -> bool:
    if obj is None:  # gone, or still to come
        return not isinstance(action, CreateForNode)
    if settle_action(action, obj) is not None:
        return True
    return bool(fresh) and (obj.metadata.resource_version == fresh or is_newer(obj, fresh))


class NodeProgress(msgspec.Struct):
    """The changes that were seen of a node in its present state, try and epoch: its `phase`.

    `armed_ns`: when its clock began. `renewals`: renewals of its Lease seen since then, the newest
    of them `renewed`. `ready_since_ns`: since when Ready=True without a break; `breaks`: how often
    it broke. `never_since_ns`: since when the planner says that the drain cannot end; `drained_ns`:
    when it ends at the latest, as the planner says.
    """

    phase: tuple[str, int, int]
    armed_ns: int
    renewals: int = 0
    renewed: tuple[int | None, int] | None = None
    ready_since_ns: int | None = None
    breaks: int = 0
    never_since_ns: int | None = None
    drained_ns: int = 0
    waits_for: str = ""

    def is_of(self, mark: NodeMark) -> bool:
        """True if it is the progress in the mark's state and try."""
        return self.phase == (mark.state, mark.try_, mark.epoch)


class WorkProgress(msgspec.Struct):
    """This leader's knowledge of the work of one try. `begun`: the mark's `started` of the intent
    that this leader wrote; `sent`: the work was begun; `code`: with which exit code its command
    ended; `reported`: its end was recorded.
    """

    begun: str = ""
    sent: bool = False
    code: int | None = None
    reported: bool = False

    @property
    def runs(self) -> bool:
        """True if the command was begun, and has not ended."""
        return self.sent and self.code is None


class ProofProgress(msgspec.Struct):
    """The changes that were seen during a proof. `missing_taint`: a cordon was taken off and its
    taint was never there. `uid`: the canary's.
    """

    swapped_ns: int
    missing_taint: bool = False
    uid: str = ""
    seen_ns: int = 0
    ready_since_ns: int | None = None
    restarts: int = 0
    passed: bool = False
    deleted_ns: int | None = None
    refused: str = ""
    refused_ns: int = 0
    fault: str = ""


class NodeMemory(msgspec.Struct):
    """What this leader has seen of a node since it was claimed. `work`: by try; `containers`: those
    that its pods had before the work; `claim_seen_ns`: when its claim was seen; `failing`: why it
    fails, which the document need not say yet. None: nothing was seen of it.
    """

    progress: NodeProgress | None = None
    work: dict[int, WorkProgress] = {}
    proof: ProofProgress | None = None
    containers: frozenset[str] | None = None
    claim_seen_ns: int | None = None
    failing: str | None = None


class EvictedPod(msgspec.Struct):
    """A pod that we evicted at `at_ns`, by the API server's time at `clock_ns`. `owner_uid`: ""
    where nothing replaces it, or a Ready pod of its owner has. `others`: its owner's pods when none
    of them was found to take its place.
    """

    owner_uid: str
    at_ns: int
    clock_ns: int
    others: list[Pod] = []


class KnownCost(NamedTuple):
    """The planner's verdict, good before `until_ns`; `why_not`: why the policy forbids a drain."""

    until_ns: int
    drain: DrainVerdict
    why_not: str


class UpgradeMemory:
    """All that one leader remembers. A new leader, and a new epoch, begin with a new one."""

    def __init__(self, began_ns: int) -> None:
        self.began_ns = began_ns
        self.pending = PendingWrites()
        self.nodes: dict[str, NodeMemory] = {}
        self.addresses: dict[str, tuple[str, str]] = {}
        """uid -> (InternalIP, provider id) at the plan, else as they were first seen."""
        self.marks: dict[str, tuple[str, str | None]] = {}
        self.sent_marks: dict[str, set[str | None]] = {}
        self.refused: dict[ObjectKey, tuple[int, str]] = {}
        """Until when nothing is tried on an object again, and what was said."""
        self.being_deleted: dict[str, tuple[str, tuple[str, ...]]] = {}
        """(uid, scopes) of nodes that another program is about to delete."""
        self.shrunk_by: list[str] = []
        self.shrunk_to: dict[str, int] = {}
        """The base counts that the document gets once these nodes have left."""
        self.foreign: dict[str, str] = {}
        self.costs: dict[str, KnownCost] = {}
        self.candidates: dict[str, UpgradeCandidate | str] = {}
        """The candidate that each node is, or why it is none."""
        self.candidates_by: tuple[Any, ...] = ()
        """The other facts that they were judged by."""
        self.looked_at: set[str] = set()
        """Nodes that were looked at anew since the candidates were judged."""
        self.replacements: set[str] = set()
        self.evicted: dict[PodKey, EvictedPod] = {}
        """Of the last half hour, in the order in which they were evicted."""
        self.proven: set[str] = set()
        self.last_marks: dict[str, tuple[str, NodeMark]] = {}
        self.written_marks: dict[str, tuple[str, NodeMark]] = {}
        """(uid, mark) of our last PATCH of each node, which a watch need not have shown yet."""
        self.cordon_tainted: set[str] = set()
        self.cordon_taint_lost_ns: dict[str, int] = {}
        self.lowest: dict[str, tuple[int, str]] = {}  # of each scope, and when
        self.gates: dict[str, str] = {}
        self.gate_clear_ns: dict[str, int] = {}
        self.gate_passes: tuple[int, int] = (0, 0)
        self.soak: tuple[Hashable, int] | None = None  # the step that soaks, and since when
        self.without_room: dict[str, str] = {}
        """Nodes that are tried last because their pods find no room, and why."""
        self.room_asked_ns = 0
        self.tail: tuple[str, int] | None = None

    def of(self, name: str) -> NodeMemory:
        """What was seen of the node; begun where there is nothing."""
        return self.nodes.setdefault(name, NodeMemory())

    def progress(self, name: str, mark: NodeMark, now_ns: int) -> NodeProgress:
        """The node's progress in the mark's state, try and epoch; begun anew where one changed."""
        node = self.of(name)
        if node.progress is None or not node.progress.is_of(mark):
            node.progress = NodeProgress((mark.state, mark.try_, mark.epoch), now_ns)
        return node.progress

    def progress_of(self, name: str) -> NodeProgress | None:
        """The node's progress so far; None where none has begun."""
        return self.nodes[name].progress if name in self.nodes else None

    def work_of(self, name: str, try_: int) -> WorkProgress:
        """The knowledge of that try of the node's work; begun where there is none."""
        return self.of(name).work.setdefault(try_, WorkProgress())

    def intend(self, name: str, try_: int, stamp: str) -> None:
        """This leader writes an intent, with that stamp, and has not begun the try's work yet."""
        self.of(name).work[try_] = WorkProgress(begun=stamp)

    def proof_of(self, name: str, now_ns: int) -> ProofProgress:
        """The progress of the node's proof; begun at `now_ns` where there is none."""
        node = self.of(name)
        if node.proof is None:
            node.proof = ProofProgress(now_ns)
        return node.proof

    def forget(self, name: str) -> None:
        """The node is none of ours any more."""
        self.nodes.pop(name, None)
        self.costs.pop(name, None)
