"""`kubectl drain` as it runs: list, filter, evict all at once, retry every 5 s, look every second.

Follows kubectl pkg/cmd/drain/drain.go and pkg/drain/drain.go: all nodes are cordoned first, then
drained one after another; a node that fails does not stop the next. --timeout is per node, and on
the evict path it is noticed only before a try and while waiting. Requests stand in line at the
client's own rate limit. Left out: dry runs, paging, and what is printed.
"""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from typing import Final, Generic

from kubectl_nodelife.kube.meta import controller_of
from kubectl_nodelife.kube.selectors import matches
from kubectl_nodelife.kube.times import MILLISECOND_NS, SECOND_NS
from kubectl_nodelife.sim.kubectl.answers import ACCEPTED, CONFLICT, GATE_NAMESPACE, MISSING
from kubectl_nodelife.sim.kubectl.client import RETRIES, client_bucket, noticed_ns
from kubectl_nodelife.sim.kubectl.cluster import (
    SMALL_CLUSTER,
    ClusterForKubectl,
    PodT,
    RequestTimes,
)
from kubectl_nodelife.sim.kubectl.filters import (
    DELETE,
    REFUSE,
    decide,
    is_daemon_set,
    skips_deleted,
)
from kubectl_nodelife.sim.kubectl.options import DrainOptions
from kubectl_nodelife.sim.kubectl.progress import (
    FAILED,
    GONE,
    SKIPPED,
    TIMED_OUT,
    NodeRun,
    PodDeletion,
)
from kubectl_nodelife.workloads.eviction import EvictionRefused

RETRY_NS: Final = 5 * SECOND_NS
LOOK_NS: Final = 1 * SECOND_NS
FEW: Final = 4
"""So many pods can be looked at every second within kubectl's own rate limit."""
_APART_NS: Final = 15 * MILLISECOND_NS
"""How far the jitter of the API server's back-off sets requests apart that met in a conflict."""


class KubectlDrain(Generic[PodT]):
    """One `kubectl drain NODE...` process in a world. `runs` holds the turns that it came to."""

    def __init__(
        self,
        cluster: ClusterForKubectl[PodT],
        options: DrainOptions,
        nodes: tuple[str, ...],
        times: RequestTimes = SMALL_CLUSTER,
        *,
        on_node: Callable[[NodeRun[PodT]], None] | None = None,
        on_end: Callable[[], None] | None = None,
    ) -> None:
        self._cluster = cluster
        self._clock = cluster.clock
        self._times = times
        self._options = options
        self._selector = options.selector() if options.pod_selector else None
        self._nodes = nodes
        self._on_node = on_node
        self._on_end = on_end
        self._core, self._policy, self._apps = (client_bucket() for _ in range(3))
        self._may_skip = options.skip_wait_seconds > 0
        self._conflicts: dict[int, int] = {}
        self.runs: list[NodeRun[PodT]] = []
        self.ended_ns: int | None = None

    def fork(
        self,
        cluster: ClusterForKubectl[PodT],
        listed: Callable[[PodT], PodT],
        on_node: Callable[[NodeRun[PodT]], None] | None,
        moved: dict[object, object],
    ) -> KubectlDrain[PodT]:
        """The same process in a fork of the cluster; what it has put down is the caller's to move.

        `listed`: a pod as it is there; `moved` notes what each turn and each of its targets became.
        """
        other = copy(self)
        other._cluster, other._clock, other._on_node = cluster, cluster.clock, on_node
        other._core, other._policy, other._apps = map(copy, (self._core, self._policy, self._apps))
        other._conflicts = dict(self._conflicts)
        other.runs = [run.fork(listed, moved) for run in self.runs]
        return other

    def start(self, at_ns: int, *, cordon: bool = True) -> None:
        """The command is called at that instant. `cordon` False: the nodes are cordoned already."""
        self._clock.at(at_ns + self._times.startup_ns, self._begin, cordon)

    def _begin(self, cordon: bool) -> None:
        now_ns = self._clock.now_ns + self._times.request_ns
        if cordon:
            for _ in self._cluster.to_cordon(self._nodes):
                now_ns = self._core.reserve(now_ns) + self._times.request_ns
            self._cluster.cordon(*self._nodes)
        self._clock.at(now_ns, self._next_node)

    def _next_node(self) -> None:
        now_ns = self._clock.now_ns
        if len(self.runs) == len(self._nodes):
            self.ended_ns = now_ns
            if self._on_end is not None:
                self._on_end()
            return
        run: NodeRun[PodT] = NodeRun(self._nodes[len(self.runs)], now_ns)
        self.runs.append(run)
        listed_ns = self._core.reserve(now_ns) + self._times.request_ns
        self._clock.at(listed_ns, self._listed, run)

    def _listed(self, run: NodeRun[PodT]) -> None:
        """The pods are listed: filter them, and begin."""
        now_ns = self._clock.now_ns
        owners, since_ns = self._cluster.owners, self._cluster.time_ns() - now_ns
        for actor in self._cluster.pods_on(run.name):
            if self._selector is not None and not matches(
                self._selector, actor.pod.metadata.labels
            ):
                continue
            decision = decide(actor.pod, self._options, owners, since_ns + now_ns)
            run.decisions.append((actor, decision))
            owner = controller_of(actor.pod.metadata)
            if owner is not None and is_daemon_set(owner):
                now_ns = self._apps.reserve(now_ns) + self._times.request_ns
        run.refused = any(decision.verb == REFUSE for _, decision in run.decisions)
        if not run.refused:
            chosen = (actor for actor, decision in run.decisions if decision.verb == DELETE)
            run.targets = [PodDeletion(actor) for actor in chosen]
            run.left = len(run.targets)
        if not run.targets:
            self._clock.at(now_ns, self._end_of, run)
        elif self._options.disable_eviction:
            self._clock.at(now_ns, self._delete, run, 0)
        else:
            self._clock.at(now_ns + self._times.request_ns, self._evict_all, run)

    def _end_of(self, run: NodeRun[PodT]) -> None:
        if run.end_ns is None:
            run.end_ns = self._clock.now_ns
            if self._on_node is not None:
                self._on_node(run)
            self._clock.at(run.end_ns, self._next_node)

    def _finish(self, run: NodeRun[PodT], target: PodDeletion[PodT], outcome: str) -> None:
        if target.outcome is not None:
            return
        target.outcome = outcome
        run.left -= 1
        if run.left == 0:
            self._end_of(run)

    # --- evicting --------------------------------------------------------------------------------

    def _evict_all(self, run: NodeRun[PodT]) -> None:
        if self._options.timeout_ns:
            run.deadline_ns = self._clock.now_ns + self._options.timeout_ns
            self._clock.alarm_at(run.deadline_ns, self._deadline, run)
        for target in run.targets:
            self._try(run, target)

    def _deadline(self, run: NodeRun[PodT]) -> None:
        """Whoever waits gives up now; whoever retries will see it before the next try."""
        for target in run.targets:
            if target.accepted_ns is not None:
                self._finish(run, target, TIMED_OUT)

    def _try(self, run: NodeRun[PodT], target: PodDeletion[PodT]) -> None:
        if target.outcome is not None:
            return
        if run.deadline_ns is not None and self._clock.now_ns >= run.deadline_ns:
            self._finish(run, target, TIMED_OUT)
            return
        target.answers = 0
        self._send(run, target)

    def _send(self, run: NodeRun[PodT], target: PodDeletion[PodT]) -> None:
        sent_ns = self._policy.reserve(self._clock.now_ns) + self._times.request_ns
        file = self._clock.at if target.refusal is None else self._clock.ask_again_at
        file(sent_ns, self._post, run, target, False)

    def _post(self, run: NodeRun[PodT], target: PodDeletion[PodT], again: bool) -> None:
        """The API server answers the eviction."""
        if target.outcome is not None:
            return
        now_ns = self._clock.now_ns
        answer = self._cluster.evict(target.actor, self._options.requested_grace, again=again)
        if answer is ACCEPTED:
            self._accepted(target)
            self._look(run, target)
        elif answer is MISSING:
            self._finish(run, target, GONE)
        elif answer is CONFLICT:
            met = self._conflicts[now_ns] = self._conflicts.get(now_ns, 0) + 1
            again_ns = now_ns + self._times.conflict_ns + met * _APART_NS
            self._clock.at(again_ns, self._post, run, target, True)
        elif isinstance(answer, EvictionRefused):
            self._refused(run, target, answer)

    def _accepted(self, target: PodDeletion[PodT]) -> None:
        target.accepted_ns = self._clock.now_ns
        deleted = target.actor.pod.metadata.deletion_timestamp
        if self._may_skip and deleted is not None:
            since_ns = self._cluster.time_ns() - self._clock.now_ns
            skipped_ns = deleted + (self._options.skip_wait_seconds + 1) * SECOND_NS
            self._clock.alarm_at(skipped_ns - since_ns, self._let_time_pass)

    def _let_time_pass(self) -> None:
        pass

    def _refused(
        self, run: NodeRun[PodT], target: PodDeletion[PodT], refusal: EvictionRefused
    ) -> None:
        now_ns = self._clock.now_ns
        target.refusal, target.version = refusal, self._cluster.version
        target.refused.append(now_ns)
        target.answers += 1
        if refusal.gate == GATE_NAMESPACE and target.actor.going:
            # Its eviction can never succeed, but it goes anyway: wait for that.
            self._look(run, target)
        elif refusal.retry_after_seconds and target.answers <= RETRIES:
            again_ns = now_ns + refusal.retry_after_seconds * SECOND_NS
            self._clock.ask_again_at(again_ns, self._send, run, target)
        elif refusal.code == 429 or refusal.gate == GATE_NAMESPACE:
            self._clock.ask_again_at(now_ns + RETRY_NS, self._read_again, run, target)
        else:
            self._finish(run, target, FAILED)

    def _read_again(self, run: NodeRun[PodT], target: PodDeletion[PodT]) -> None:
        if target.outcome is None:
            read_ns = self._core.reserve(self._clock.now_ns) + self._times.request_ns
            self._clock.ask_again_at(read_ns, self._try, run, target)

    def _look(self, run: NodeRun[PodT], target: PodDeletion[PodT]) -> None:
        """GET the pod that is on its way out: at once, and then every second."""
        if target.outcome is not None:
            return
        seen_ns = self._core.reserve(self._clock.now_ns) + self._times.request_ns
        goes_ns = target.actor.goes_ns
        if target.actor.gone or goes_ns is None or goes_ns <= seen_ns or self._may_skip:
            self._clock.ask_again_at(seen_ns, self._looked, run, target)
        else:
            # It will still be there when the answer is made: no need to wait for that.
            self._look_again(run, target, seen_ns)

    def _looked(self, run: NodeRun[PodT], target: PodDeletion[PodT]) -> None:
        if target.outcome is not None:
            return
        if target.actor.gone:
            self._finish(run, target, GONE)
        elif self._skips(target):
            self._finish(run, target, SKIPPED)
        else:
            self._look_again(run, target, self._clock.now_ns)

    def _look_again(self, run: NodeRun[PodT], target: PodDeletion[PodT], seen_ns: int) -> None:
        """At the ticker's next tick; a tick that came while a GET was under way is kept."""
        since_ns = target.accepted_ns if target.accepted_ns is not None else target.refused[-1]
        target.looks = max(target.looks + 1, (seen_ns - since_ns) // LOOK_NS)
        goes_ns = target.actor.goes_ns
        if run.left <= FEW and goes_ns is not None and not self._may_skip:
            # So few stand in line that none waits for another: the looks in between find nothing.
            target.looks = max(target.looks, (goes_ns - since_ns) // LOOK_NS)
        next_ns = max(seen_ns, since_ns + target.looks * LOOK_NS)
        self._clock.ask_again_at(next_ns, self._look, run, target)

    def _skips(self, target: PodDeletion[PodT]) -> bool:
        now_ns = self._cluster.time_ns()
        return skips_deleted(target.actor.pod, self._options.skip_wait_seconds, now_ns)

    # --- deleting --------------------------------------------------------------------------------

    def _delete(self, run: NodeRun[PodT], index: int) -> None:
        """--disable-eviction: one DELETE after another; the first hard error ends the node."""
        now_ns = self._clock.now_ns
        if index == len(run.targets):
            if self._options.timeout_ns:
                run.deadline_ns = now_ns + self._options.timeout_ns
                self._clock.alarm_at(run.deadline_ns, self._deadline, run)
            self._look_round(run, now_ns, 0)
            return
        sent_ns = self._core.reserve(now_ns) + self._times.request_ns
        self._clock.at(sent_ns, self._deleted, run, index)

    def _deleted(self, run: NodeRun[PodT], index: int) -> None:
        target = run.targets[index]
        answer = self._cluster.delete(target.actor, self._options.requested_grace)
        if isinstance(answer, EvictionRefused):
            target.refusal = answer
            target.refused.append(self._clock.now_ns)
            for other in run.targets:
                self._finish(run, other, FAILED)
            return
        self._accepted(target)
        self._delete(run, index + 1)

    def _look_round(self, run: NodeRun[PodT], since_ns: int, rounds: int) -> None:
        """GET every pod that is left, one after another, at once and then every second."""
        if run.end_ns is None:
            left = [target for target in run.targets if target.outcome is None]
            self._look_at(run, left, 0, since_ns, rounds)

    def _look_at(
        self,
        run: NodeRun[PodT],
        left: list[PodDeletion[PodT]],
        index: int,
        since_ns: int,
        rounds: int,
    ) -> None:
        now_ns = self._clock.now_ns
        if run.end_ns is not None:
            return
        if index == len(left):
            rounds = max(rounds + 1, (now_ns - since_ns) // LOOK_NS)
            next_ns = max(now_ns, since_ns + rounds * LOOK_NS)
            self._clock.ask_again_at(next_ns, self._look_round, run, since_ns, rounds)
            return
        seen_ns = self._core.reserve(now_ns) + self._times.request_ns
        self._clock.ask_again_at(seen_ns, self._seen, run, left, index, since_ns, rounds)

    def _seen(
        self,
        run: NodeRun[PodT],
        left: list[PodDeletion[PodT]],
        index: int,
        since_ns: int,
        rounds: int,
    ) -> None:
        target = left[index]
        if target.actor.gone:
            self._finish(run, target, GONE)
        elif self._skips(target):
            self._finish(run, target, SKIPPED)
        self._look_at(run, left, index + 1, since_ns, rounds)

    # --- the end of hope -------------------------------------------------------------------------

    def settled(self) -> bool:
        """Nothing moves in the world: whether this process will never get any further either.

        A turn with a deadline is brought to its end at once; the process then goes on.
        """
        run = self.runs[-1] if self.runs else None
        if self.ended_ns is not None:
            return True
        if run is None or run.end_ns is not None or run.left == 0:
            return False
        unfinished = [target for target in run.targets if target.outcome is None]
        if any(self._may_still_move(target) for target in unfinished):
            return False
        if run.deadline_ns is None:
            return True
        self._clock.at(self._given_up(run, unfinished), self._give_up, run)
        return False

    def _may_still_move(self, target: PodDeletion[PodT]) -> bool:
        waits = target.accepted_ns is not None or target.actor.going
        return (waits and self._may_skip) or not self._is_answered(target)

    def _is_answered(self, target: PodDeletion[PodT]) -> bool:
        if target.accepted_ns is not None or target.actor.going:
            return not target.actor.gone and not (self._may_skip and self._skips(target))
        return target.refusal is not None and target.version == self._cluster.version

    def answered(self) -> bool:
        """Whether whatever is asked again gets the answer it had, until something changes."""
        run = self.runs[-1] if self.runs else None
        if run is None or run.end_ns is not None:
            return True
        return all(self._is_answered(t) for t in run.targets if t.outcome is None)

    def _given_up(self, run: NodeRun[PodT], unfinished: list[PodDeletion[PodT]]) -> int:
        """When the last of them notices that the time is over."""
        assert run.deadline_ns is not None
        end_ns = max(run.deadline_ns, self._clock.now_ns)
        pause_ns = RETRY_NS + 2 * self._times.request_ns
        for target in unfinished:
            if target.accepted_ns is None and target.refusal is not None:
                last_ns, wait_s = target.refused[-1], target.refusal.retry_after_seconds
                noticed = noticed_ns(last_ns, run.deadline_ns, pause_ns, wait_s, target.answers)
                end_ns = max(end_ns, noticed)
        return end_ns

    def _give_up(self, run: NodeRun[PodT]) -> None:
        for target in run.targets:
            self._finish(run, target, TIMED_OUT)
