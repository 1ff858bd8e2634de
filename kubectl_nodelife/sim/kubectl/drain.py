"""Plays `kubectl drain` in a virtual cluster: when each request is sent, what the API server does.

What kubectl does is in `conversation.py`. The rest is here, after pkg/cmd/drain/drain.go and
client-go: all nodes are read by name, each with a GET (`resource.Builder`, which has a client of
its own), and cordoned first, then drained one after another, and a node that fails does not stop
the next; requests queue at the client's own rate limit, and those that the server answers
with Retry-After are repeated below kubectl. Left out: dry runs and paging.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import copy
from dataclasses import dataclass, field
from typing import Any, Final, Generic, Protocol, TypeVar

from msgspec.structs import replace

from kubectl_nodelife.engine.actions import Action, SetPodCondition, of_pod
from kubectl_nodelife.engine.cache import Key
from kubectl_nodelife.engine.calls.call import NOT_FOUND, OK
from kubectl_nodelife.engine.calls.pod_calls import ASK_AGAIN, EVICTION_RETRY_NS, WAIT
from kubectl_nodelife.kube.meta import Time
from kubectl_nodelife.kube.pod import Pod, PodCondition
from kubectl_nodelife.kube.times import MILLISECOND_NS, MINUTE_NS, SECOND_NS, whole_seconds
from kubectl_nodelife.kube.wellknown import EVICTION_BY_EVICTION_API
from kubectl_nodelife.sim.api import CLUSTER, deletion, event_record
from kubectl_nodelife.sim.kubectl.conversation import (
    ACCEPTED,
    CONFLICT,
    LOOK_NS,
    MISSING,
    RETRIES,
    SMALL_CLUSTER,
    TIMED_OUT,
    Answer,
    DrainedPod,
    NodeRun,
    PodDeletion,
    RequestTimes,
    Say,
    client_bucket,
    noticed_ns,
    pending_nodes,
)
from kubectl_nodelife.sim.kubectl.options import DrainOptions, asked_daemon_set
from kubectl_nodelife.sim.timeline import SCRIPT
from kubectl_nodelife.sim.world import World
from kubectl_nodelife.workloads.admission import GATE_NAMESPACE
from kubectl_nodelife.workloads.budgets import EvictionRefused
from kubectl_nodelife.workloads.owners import OwnerLookup

FEW: Final = 4
"""How many pods can be read every second within kubectl's own rate limit."""
PLAYED_NS: Final = 10 * MINUTE_NS
"""Up to a deadline that is nearer, each request is played; for a later deadline, the instant at
which the process detects that it is over is computed."""
_APART_NS: Final = 15 * MILLISECOND_NS
"""How far apart the API server's back-off jitter puts requests that met in a conflict."""


class AskedPod(DrainedPod, Protocol):
    """A pod that kubectl has asked for; `refusal`: why it was last refused."""

    refusal: str


AskedT = TypeVar("AskedT", bound=AskedPod)


class KubectlRequests(Generic[AskedT]):
    """The cluster as a kubectl process uses it: the virtual API server's answers to its requests,
    and a clock with an agenda, whose instants are nanoseconds since `origin_ns`.

    `owners`: where DaemonSets are looked up. `causes`: node -> the record that began its drain.
    """

    def __init__(
        self, world: World, owners: OwnerLookup, causes: dict[str, Action], origin_ns: int = 0
    ) -> None:
        self.owners = owners
        self._world = world
        self._api = world.api
        self._causes = causes
        self._origin_ns = origin_ns
        self._judged: dict[Key, Pod] = {}
        """Pods as they were when their evictions met a conflict."""

    @property
    def version(self) -> int:
        """Counts changes."""
        return self._api.changes

    def time_ns(self) -> int:
        """The present instant, nanoseconds since the epoch."""
        return self._api.now_ns

    @property
    def now_ns(self) -> int:
        """The present instant, by the clock."""
        return self._api.now_ns - self._origin_ns

    def at(self, instant_ns: int, call: Callable[..., None], *arguments: Any) -> None:
        """Make a call that changes something or may; one that lies in the past is made now."""
        self._world.agenda.add(self._instant(instant_ns), SCRIPT, _make, call, arguments)

    def ask_again_at(self, instant_ns: int, call: Callable[..., None], *arguments: Any) -> None:
        """Make a call that only repeats a request: alone it changes nothing, and may be put off."""
        self._world.agenda.ask(self._instant(instant_ns), call, *arguments)

    def alarm_at(self, instant_ns: int, call: Callable[..., None], *arguments: Any) -> None:
        """Make a call at that very instant, such as a deadline."""
        self._world.agenda.ask(self._instant(instant_ns), call, *arguments, waits=False)

    def _instant(self, instant_ns: int) -> int:
        at_ns, now_ns = self._origin_ns + instant_ns, self._api.now_ns
        return at_ns if at_ns > now_ns else now_ns

    def pods_on(self, node: str) -> list[AskedT]:
        """The pods that a list call for the node returns now."""
        raise NotImplementedError

    def to_cordon(self, names: Sequence[str]) -> list[str]:
        """Those of the nodes that are not cordoned yet."""
        nodes = self._api.store.nodes
        return [name for name in names if name in nodes and not nodes[name].spec.unschedulable]

    def cordon(self, *names: str) -> None:
        """Set spec.unschedulable."""
        for name in self.to_cordon(names):
            node = self._api.store.nodes[name]
            why, cause = "kubectl drain cordons all its nodes first", self._causes.get(name)
            done = self._api.note(event_record(node, "Cordoned", why, cause=cause))
            spec = replace(node.spec, unschedulable=True)
            self._api.put("Node", replace(node, spec=spec), done)

    def evict(self, target: AskedT, requested_grace: int | None, *, again: bool = False) -> Answer:
        """POST pods/eviction: admission is asked once, however often the API server itself tries
        `again` (`EvictionREST.Create`), and so is the pod: what it has become meanwhile does not
        count. The budgets decide, then the pod is marked and deleted.
        """
        pod = self._api.store.pods.get(target.pod.key)  # kubectl names no uid
        if pod is None:
            return MISSING
        refused = None if again else self._api.admission.refuses_eviction(pod)
        judged = self._judged.get(pod.key, pod) if again else pod
        answer = refused or self._world.disruption.evict(judged, again=again)
        if answer is None:
            self._judged[pod.key] = pod
            return CONFLICT
        if isinstance(answer, EvictionRefused):
            self._record_refusal(target, answer)
            return answer
        cause = self._set_disruption_target(pod)
        self._delete(pod, requested_grace, "kubectl drain evicts it", cause)
        return ACCEPTED

    def delete(self, target: AskedT, requested_grace: int | None) -> Answer:
        """DELETE of the pod (--disable-eviction)."""
        pod = self._api.store.pods.get(target.pod.key)  # kubectl names no uid
        if pod is None:
            return MISSING
        refused = self._api.admission.refuses_deletion(pod)
        if refused is not None:
            return refused
        self._delete(pod, requested_grace, "kubectl drain deletes it", self._cause_of(pod))
        return ACCEPTED

    def read_again(self, target: AskedT) -> None:
        """GET by name before another try: kubectl goes on with what has that name now.

        Follows `evictPods`, which takes the fresh pod whatever its uid and node
        (kubernetes#138229).
        """

    def _record_refusal(self, target: AskedT, refusal: EvictionRefused) -> None:
        """Write a record, unless the last try got the same refusal."""
        why = refusal.cause or refusal.message
        if why != target.refusal:
            target.refusal = why
            pod = target.pod
            because = f"{refusal.code}: {why}"
            refused = event_record(
                pod, "EvictionRefused", because, cause=self._cause_of(pod), warning=True
            )
            self._api.note(refused)

    def _set_disruption_target(self, pod: Pod) -> Action | None:
        marked = SetPodCondition(
            controller=CLUSTER,
            because="the Eviction API lets it go",
            cause=self._cause_of(pod),
            **of_pod(pod),
            condition=PodCondition(
                type="DisruptionTarget",
                status="True",
                reason=EVICTION_BY_EVICTION_API,
                message="Eviction API: evicting",
                last_transition_time=Time(whole_seconds(self._api.now_ns)),
            ),
        )
        self._api.note(marked)
        self._world.start(marked, self._api.now_ns)
        return marked

    def _delete(self, pod: Pod, grace: int | None, because: str, cause: Action | None) -> None:
        delete = deletion(pod, because, cause, grace)
        self._api.note(delete)
        self._world.start(delete, self._api.now_ns)

    def _cause_of(self, pod: Pod) -> Action | None:
        return self._causes.get(pod.spec.node_name)


def _make(call: Callable[..., None], arguments: tuple[Any, ...], at_ns: int) -> None:
    call(*arguments)


@dataclass(eq=False)
class KubectlDrain(Generic[AskedT]):
    """One `kubectl drain NODE...` process in a world. `say`: takes each line that kubectl prints;
    `runs` holds the turns that have begun.
    """

    cluster: KubectlRequests[AskedT]
    options: DrainOptions
    nodes: tuple[str, ...]
    times: RequestTimes = SMALL_CLUSTER
    on_node: Callable[[NodeRun[AskedT]], None] | None = None
    on_end: Callable[[], None] | None = None
    say: Say | None = None
    runs: list[NodeRun[AskedT]] = field(default_factory=list)
    ended_ns: int | None = None

    def __post_init__(self) -> None:
        self._core, self._policy, self._apps = (client_bucket() for _ in range(3))
        self._may_skip = self.options.skip_wait_seconds > 0
        self._conflicts: dict[int, int] = {}

    def fork(
        self,
        cluster: KubectlRequests[AskedT],
        listed: Callable[[AskedT], AskedT],
        on_node: Callable[[NodeRun[AskedT]], None] | None,
        moved: dict[object, object],
    ) -> KubectlDrain[AskedT]:
        """The same process in a fork of the cluster; the caller moves the calls that are due.

        `listed`: a pod as it is there; `moved` maps each turn and each of its targets to its copy.
        """
        other = copy(self)
        other.cluster, other.on_node = cluster, on_node
        other._core, other._policy, other._apps = map(copy, (self._core, self._policy, self._apps))
        other._conflicts = dict(self._conflicts)
        other.runs = [run.fork(listed, moved) for run in self.runs]
        return other

    def start(self, at_ns: int, *, cordon: bool = True) -> None:
        """The command is run at that instant. `cordon` False: the nodes are cordoned already."""
        self.cluster.at(at_ns + self.times.startup_ns, self._begin, cordon)

    def _begin(self, cordon: bool) -> None:
        now_ns, reads = self.cluster.now_ns, client_bucket()
        for _ in self.nodes:
            now_ns = reads.reserve(now_ns) + self.times.request_ns
        if cordon:
            to_cordon = self.cluster.to_cordon(self.nodes)
            for _ in to_cordon:
                now_ns = self._core.reserve(now_ns) + self.times.request_ns
            if self.say is not None:
                for name in self.nodes:
                    already = "" if name in to_cordon else "already "
                    self.say(f"node/{name} {already}cordoned", False)
            self.cluster.cordon(*self.nodes)
        self.cluster.at(now_ns, self._next_node)

    def _next_node(self) -> None:
        now_ns = self.cluster.now_ns
        if len(self.runs) == len(self.nodes):
            self.ended_ns = now_ns
            self._say_end()
            if self.on_end is not None:
                self.on_end()
            return
        name = self.nodes[len(self.runs)]
        run: NodeRun[AskedT] = NodeRun(name, self.options, now_ns, self.say)
        self.runs.append(run)
        listed_ns = self._core.reserve(now_ns) + self.times.request_ns
        self.cluster.at(listed_ns, self._listed, run)

    def _say_end(self) -> None:
        """Print the last lines: the nodes that are not drained, and why, each error on a line."""
        if self.say is None:
            return
        failed = [run for run in self.runs if not run.drained]
        errors = [error for run in failed for error in run.errors()]
        for line in (*pending_nodes(run.name for run in failed), *errors):
            self.say(line, True)

    def _listed(self, run: NodeRun[AskedT]) -> None:
        """The pods are listed: filter them, and begin."""
        now_ns = self.cluster.now_ns
        run.listed(self.cluster.pods_on(run.name), self.cluster.owners, self.cluster.time_ns())
        for actor, _ in run.decisions:
            if asked_daemon_set(actor.pod, self.options):
                now_ns = self._apps.reserve(now_ns) + self.times.request_ns
        if not run.targets:
            self.cluster.at(now_ns, self._end_of, run)
        elif self.options.disable_eviction:
            self.cluster.at(now_ns, self._delete, run, 0)
        else:
            self.cluster.at(now_ns + self.times.request_ns, self._evict_all, run)

    def _end_of(self, run: NodeRun[AskedT]) -> None:
        if run.end_ns is None:
            run.end_ns = self.cluster.now_ns
            run.say_end()
            if self.on_node is not None:
                self.on_node(run)
            self.cluster.at(run.end_ns, self._next_node)

    # --- evicting --------------------------------------------------------------------------------

    def _evict_all(self, run: NodeRun[AskedT]) -> None:
        self._start_timeout(run)
        for target in run.targets:
            self._try(run, target)

    def _start_timeout(self, run: NodeRun[AskedT]) -> None:
        run.start_timeout(self.cluster.now_ns)
        if run.deadline_ns is not None:
            self.cluster.alarm_at(run.deadline_ns, self._deadline, run)

    def _deadline(self, run: NodeRun[AskedT]) -> None:
        run.expire()
        self._end_if_over(run)

    def _end_if_over(self, run: NodeRun[AskedT]) -> None:
        if run.left == 0:
            self._end_of(run)

    def _try(self, run: NodeRun[AskedT], target: PodDeletion[AskedT]) -> None:
        if target.refusal is not None:
            self.cluster.read_again(target.actor)
        if run.may_try(target, self.cluster.now_ns):
            target.answers = 0
            self._send(run, target)
        elif run.left == 0:
            self._end_of(run)

    def _send(self, run: NodeRun[AskedT], target: PodDeletion[AskedT]) -> None:
        sent_ns = self._policy.reserve(self.cluster.now_ns) + self.times.request_ns
        file = self.cluster.at if target.refusal is None else self.cluster.ask_again_at
        file(sent_ns, self._post, run, target, False)

    def _post(self, run: NodeRun[AskedT], target: PodDeletion[AskedT], again: bool) -> None:
        """The API server answers the eviction."""
        if target.outcome is not None:
            return
        now_ns = self.cluster.now_ns
        answer = self.cluster.evict(target.actor, self.options.requested_grace, again=again)
        if answer == CONFLICT:
            met = self._conflicts[now_ns] = self._conflicts.get(now_ns, 0) + 1
            again_ns = now_ns + self.times.conflict_ns + met * _APART_NS
            self.cluster.at(again_ns, self._post, run, target, True)
        elif isinstance(answer, EvictionRefused):
            self._refused(run, target, answer)
        elif run.evicted(target, OK if answer == ACCEPTED else NOT_FOUND, "", now_ns) == WAIT:
            self._accepted(target)
            self._look(run, target)
        else:
            self._end_if_over(run)

    def _accepted(self, target: PodDeletion[AskedT]) -> None:
        deleted = target.actor.pod.metadata.deletion_timestamp
        if self._may_skip and deleted is not None:
            since_ns = self.cluster.time_ns() - self.cluster.now_ns
            skipped_ns = deleted + (self.options.skip_wait_seconds + 1) * SECOND_NS
            self.cluster.alarm_at(skipped_ns - since_ns, self._let_time_pass)

    def _let_time_pass(self) -> None:
        pass

    def _refused(
        self, run: NodeRun[AskedT], target: PodDeletion[AskedT], refusal: EvictionRefused
    ) -> None:
        now_ns = self.cluster.now_ns
        target.refusal, target.version = refusal, self.cluster.version
        target.refused.append(now_ns)
        target.answers += 1
        if refusal.retry_after_seconds and target.answers <= RETRIES:
            again_ns = now_ns + refusal.retry_after_seconds * SECOND_NS
            self.cluster.ask_again_at(again_ns, self._send, run, target)
            return
        terminating = refusal.gate == GATE_NAMESPACE
        then = run.evicted(target, refusal.code, refusal.message, now_ns, terminating=terminating)
        if then == WAIT:
            self._look(run, target)
        elif then == ASK_AGAIN:
            self.cluster.ask_again_at(now_ns + EVICTION_RETRY_NS, self._read_again, run, target)
        else:
            self._end_if_over(run)

    def _read_again(self, run: NodeRun[AskedT], target: PodDeletion[AskedT]) -> None:
        if target.outcome is None:
            read_ns = self._core.reserve(self.cluster.now_ns) + self.times.request_ns
            self.cluster.ask_again_at(read_ns, self._try, run, target)

    def _look(self, run: NodeRun[AskedT], target: PodDeletion[AskedT]) -> None:
        """GET the pod that is being deleted: at once, and then every second."""
        if target.outcome is not None:
            return
        seen_ns = self._core.reserve(self.cluster.now_ns) + self.times.request_ns
        goes_ns = target.actor.goes_ns
        if goes_ns is None or goes_ns <= seen_ns or self._may_skip or run.is_overdue(seen_ns):
            self.cluster.ask_again_at(seen_ns, self._looked, run, target)
        else:
            # It will still be there when the answer is made: no need to wait for that.
            self._look_again(run, target, seen_ns)

    def _looked(self, run: NodeRun[AskedT], target: PodDeletion[AskedT]) -> None:
        if target.outcome is not None:
            return
        over = run.seen(target, self.cluster.time_ns())
        if not over and run.is_overdue(self.cluster.now_ns):  # it was accepted after the --timeout
            run.finish(target, TIMED_OUT)
            over = True
        if over:
            self._end_if_over(run)
        else:
            self._look_again(run, target, self.cluster.now_ns)

    def _look_again(self, run: NodeRun[AskedT], target: PodDeletion[AskedT], seen_ns: int) -> None:
        since_ns, goes_ns, at_least = target.waits_ns, target.actor.goes_ns, 0
        assert since_ns is not None
        if run.left <= FEW and goes_ns is not None and not self._may_skip:
            # So few requests queue that none delays another: the GETs in between find nothing.
            at_least = (goes_ns - since_ns) // LOOK_NS
        next_ns = run.next_look_ns(target, seen_ns, at_least)
        self.cluster.ask_again_at(next_ns, self._look, run, target)

    # --- deleting --------------------------------------------------------------------------------

    def _delete(self, run: NodeRun[AskedT], index: int) -> None:
        """--disable-eviction: one DELETE after another; the first hard error ends the node."""
        now_ns = self.cluster.now_ns
        if index == len(run.targets):
            self._start_timeout(run)
            self._look_round(run, now_ns, 0)
            return
        sent_ns = self._core.reserve(now_ns) + self.times.request_ns
        self.cluster.at(sent_ns, self._deleted, run, index)

    def _deleted(self, run: NodeRun[AskedT], index: int) -> None:
        target = run.targets[index]
        answer = self.cluster.delete(target.actor, self.options.requested_grace)
        now_ns, code, message = self.cluster.now_ns, OK, ""
        if isinstance(answer, EvictionRefused):
            target.refusal, code, message = answer, answer.code, answer.message
            target.refused.append(now_ns)
        if run.deleted(target, code, message, now_ns):
            self._accepted(target)
            self._delete(run, index + 1)
        else:
            self._end_of(run)

    def _look_round(self, run: NodeRun[AskedT], since_ns: int, rounds: int) -> None:
        """GET every pod that is left, one after another, at once and then every second."""
        if run.end_ns is None:
            remaining = [target for target in run.targets if target.outcome is None]
            self._look_at(run, remaining, 0, since_ns, rounds)

    def _look_at(
        self,
        run: NodeRun[AskedT],
        remaining: list[PodDeletion[AskedT]],
        index: int,
        since_ns: int,
        rounds: int,
    ) -> None:
        now_ns = self.cluster.now_ns
        if run.end_ns is not None:
            return
        if index == len(remaining):
            rounds = max(rounds + 1, (now_ns - since_ns) // LOOK_NS)
            next_ns = max(now_ns, since_ns + rounds * LOOK_NS)
            self.cluster.ask_again_at(next_ns, self._look_round, run, since_ns, rounds)
            return
        seen_ns = self._core.reserve(now_ns) + self.times.request_ns
        self.cluster.ask_again_at(seen_ns, self._seen, run, remaining, index, since_ns, rounds)

    def _seen(
        self,
        run: NodeRun[AskedT],
        remaining: list[PodDeletion[AskedT]],
        index: int,
        since_ns: int,
        rounds: int,
    ) -> None:
        run.seen(remaining[index], self.cluster.time_ns())
        self._end_if_over(run)
        self._look_at(run, remaining, index + 1, since_ns, rounds)

    # --- no further progress ---------------------------------------------------------------------

    def settled(self) -> bool:
        """Called when nothing is left to happen: True if this process makes no progress either.

        A turn with a deadline that is far away is ended at once; the process then goes on.
        """
        run = self.runs[-1] if self.runs else None
        if self.ended_ns is not None:
            return True
        if run is None or run.end_ns is not None or run.left == 0:
            return False
        unfinished = [target for target in run.targets if target.outcome is None]
        if any(self._may_still_move(run, target) for target in unfinished):
            return False
        if run.deadline_ns is None:
            return True
        if run.deadline_ns - self.cluster.now_ns <= PLAYED_NS:
            return False
        self.cluster.at(self._given_up(run, unfinished), self._give_up, run)
        return False

    def _may_still_move(self, run: NodeRun[AskedT], target: PodDeletion[AskedT]) -> bool:
        waits = target.waits_ns is not None
        return (waits and self._may_skip) or not self._is_answered(run, target)

    def _is_answered(self, run: NodeRun[AskedT], target: PodDeletion[AskedT]) -> bool:
        if target.waits_ns is not None:
            skips = self._may_skip and run.skips(target, self.cluster.time_ns())
            return not (target.actor.gone or skips)
        return target.refusal is not None and target.version == self.cluster.version

    def answered(self) -> bool:
        """True if every repeated request gets the same answer, until something changes."""
        run = self.runs[-1] if self.runs else None
        if run is None or run.end_ns is not None:
            return True
        return all(self._is_answered(run, t) for t in run.targets if t.outcome is None)

    def _given_up(self, run: NodeRun[AskedT], unfinished: list[PodDeletion[AskedT]]) -> int:
        """When the last of them detects that the time is over."""
        assert run.deadline_ns is not None
        end_ns = max(run.deadline_ns, self.cluster.now_ns)
        pause_ns = EVICTION_RETRY_NS + 2 * self.times.request_ns
        for target in unfinished:
            if target.accepted_ns is None and target.refusal is not None:
                last_ns, wait_s = target.refused[-1], target.refusal.retry_after_seconds
                noticed = noticed_ns(last_ns, run.deadline_ns, pause_ns, wait_s, target.answers)
                end_ns = max(end_ns, noticed)
        return end_ns

    def _give_up(self, run: NodeRun[AskedT]) -> None:
        for target in run.targets:
            run.finish(target, TIMED_OUT)
        self._end_of(run)
