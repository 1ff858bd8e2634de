"""The conversation of `kubectl drain` with the API server about one node, without I/O.

Follows k8s.io/kubectl, pkg/drain/drain.go and filters.go (v1.36), and of pkg/cmd/drain/drain.go
what is printed. `NodeRun` is given the result of each request and its instant, and returns what
follows: which pods go, whether another try may be made, when the next GET is due, when a pod or
the whole turn is over, and each line that kubectl prints. It sends nothing and has no clock:
`drain.py` plays it on virtual time, `acts/node_drain.py` on a real cluster.

Below kubectl is what client-go does
(rest/config.go DefaultQPS and DefaultBurst, rest/with_retry.go, util/flowcontrol): a rate limit,
and repetitions of its own. `kubectl drain` sets no limits, so a node with more than ten pods is
evicted at five a second, and the GETs of many waiting pods queue up behind one another. An answer
with Retry-After reaches kubectl only after ten repetitions; --timeout does not end these.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from copy import copy
from dataclasses import dataclass, field
from typing import Final, Generic, NamedTuple, Protocol, TypeVar

from kubectl_nodelife.engine.calls.pod_calls import ASK_AGAIN, FAIL, WAIT, after_eviction
from kubectl_nodelife.engine.calls.pod_calls import GONE as NOT_THERE
from kubectl_nodelife.engine.workqueue import TokenBucket
from kubectl_nodelife.kube.pod import Pod
from kubectl_nodelife.kube.selectors import matches
from kubectl_nodelife.kube.times import MILLISECOND_NS, SECOND_NS, format_duration
from kubectl_nodelife.sim.kubectl.options import (
    DELETE,
    REFUSE,
    Decision,
    DrainOptions,
    decide,
    refusals,
    skips_deleted,
    warnings,
)
from kubectl_nodelife.workloads.budgets import EvictionRefused
from kubectl_nodelife.workloads.owners import OwnerLookup

ACCEPTED: Final = "accepted"
MISSING: Final = "missing"
CONFLICT: Final = "conflict"
Answer = str | EvictionRefused
"""Of an eviction or a deletion: it is ACCEPTED; the pod is MISSING (404); a CONFLICT, since another
eviction wrote to the budget, and the API server itself tries again in a moment; or the refusal."""


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


LOOK_NS: Final = 1 * SECOND_NS
"""The interval of `waitForDelete`."""

# How a target ended.
GONE: Final = "gone"
SKIPPED: Final = "skipped"
FAILED: Final = "failed"
TIMED_OUT: Final = "timed-out"

DEADLINE_EXCEEDED: Final = "context deadline exceeded"

Say = Callable[[str, bool], None]
"""Takes a line that kubectl prints, and whether it is one of stderr."""


@dataclass(slots=True, eq=False)
class PodDeletion(Generic[PodT]):
    """One pod that kubectl set out to evict or delete.

    `outcome` is None while it goes on. `accepted_ns`: when the eviction or deletion was accepted;
    `waits_ns`: since when kubectl waits for the object to be gone. `refused`: when it was refused,
    `refusal`: the last of these; `answers`: how many of them to the request that is under way.
    `message`: why it failed.
    """

    actor: PodT
    accepted_ns: int | None = None
    waits_ns: int | None = None
    outcome: str | None = None
    refusal: EvictionRefused | None = None
    refused: list[int] = field(default_factory=list)
    answers: int = 0
    version: int = -1
    looks: int = 0
    message: str = ""

    def fork(self, actor: PodT) -> PodDeletion[PodT]:
        """The same in a fork of the cluster; `actor` is its pod there."""
        other = copy(self)
        other.actor, other.refused = actor, list(self.refused)
        return other


@dataclass(slots=True, eq=False)
class NodeRun(Generic[PodT]):
    """One node's turn of `kubectl drain`: its filters, then an eviction or deletion of each pod.

    `decisions`: the filters' decision on each pod that was listed. `refused`: one of them objected
    and nothing was touched. `left`: how many targets are not finished. `deadline_ns`: when
    --timeout is over, None before it runs. `end_ns` is None for a turn that never ends. `dry_run`:
    nothing that is sent is done. `say`: takes each line that kubectl prints.
    """

    name: str
    options: DrainOptions
    start_ns: int = 0
    say: Say | None = None
    dry_run: bool = field(default=False, kw_only=True)
    decisions: list[tuple[PodT, Decision]] = field(default_factory=list)
    refused: bool = False
    targets: list[PodDeletion[PodT]] = field(default_factory=list)
    left: int = 0
    deadline_ns: int | None = None
    end_ns: int | None = None

    def fork(self, listed: Callable[[PodT], PodT], moved: dict[object, object]) -> NodeRun[PodT]:
        """The same in a fork of the cluster; `moved` notes what this and its targets became."""
        other = copy(self)
        pods = {actor: listed(actor) for actor, _ in self.decisions}
        other.decisions = [(pods[actor], decision) for actor, decision in self.decisions]
        other.targets = [target.fork(pods[target.actor]) for target in self.targets]
        moved.update(zip(self.targets, other.targets, strict=True))
        moved[self] = other
        return other

    @property
    def suffix(self) -> str:
        """What a dry run adds to its lines."""
        return " (server dry run)" if self.dry_run else ""

    @property
    def waits(self) -> bool:
        """True if kubectl waits for pods to be gone; in a dry run there would be no end to that."""
        if self.dry_run and not (self.options.disable_eviction and self.options.waits_in_dry_run):
            return False
        return any(t.waits_ns is not None and t.outcome is None for t in self.targets)

    @property
    def drained(self) -> bool:
        """True if kubectl says `node/NAME drained`."""
        ended = self.end_ns is not None and not self.refused
        return ended and all(t.outcome in (GONE, SKIPPED) for t in self.targets)

    # --- which pods ------------------------------------------------------------------------------

    def listed(self, pods: Iterable[PodT], owners: OwnerLookup, time_ns: int) -> None:
        """Take the node's pods and their owners, as kubectl read them at `time_ns` since the epoch.

        All pods go that the filters let go; where a filter refuses one, none is touched.
        """
        options = self.options
        selector = options.selector() if options.pod_selector else None
        for actor in pods:
            pod = actor.pod
            if selector is None or matches(selector, pod.metadata.labels):
                self.decisions.append((actor, decide(pod, options, owners, time_ns)))
        self.refused = any(decision.verb == REFUSE for _, decision in self.decisions)
        if self.refused:
            return
        chosen = (actor for actor, decision in self.decisions if decision.verb == DELETE)
        self.targets = [PodDeletion(actor) for actor in chosen]
        self.left = len(self.targets)
        if self.say is not None:
            warned = warnings((actor.pod, decision) for actor, decision in self.decisions)
            if warned:
                self.say(f"Warning: {warned}", True)

    # --- evicting and deleting -------------------------------------------------------------------

    def start_timeout(self, now_ns: int) -> None:
        """--timeout runs from here: before the first eviction, or after the last DELETE."""
        if self.options.timeout_ns:
            self.deadline_ns = now_ns + self.options.timeout_ns

    def is_overdue(self, now_ns: int) -> bool:
        """True if --timeout is over."""
        return self.deadline_ns is not None and now_ns >= self.deadline_ns

    def may_try(self, target: PodDeletion[PodT], now_ns: int) -> bool:
        """True if another eviction may be sent. An expired --timeout is detected here."""
        if target.outcome is not None:
            return False
        if self.say is not None:
            pod = target.actor.pod
            self.say(f"evicting pod {pod.namespace}/{pod.name}{self.suffix}", False)
        if self.is_overdue(now_ns):
            self.finish(target, TIMED_OUT)
            return False
        return True

    def evicted(
        self,
        target: PodDeletion[PodT],
        code: int,
        message: str,
        now_ns: int,
        *,
        terminating: bool = False,
    ) -> str:
        """The next step after the answer to an eviction, as `after_eviction` returns it."""
        then = after_eviction(code, terminating=terminating, going=target.actor.going)
        if then == WAIT:
            target.waits_ns = now_ns
            if not terminating:
                target.accepted_ns = now_ns
        elif then == ASK_AGAIN:
            self.say_refusal(target, message, terminating=terminating)
        elif then == NOT_THERE:
            self.finish(target, GONE)
        else:
            assert then == FAIL
            self.finish(target, FAILED, message)
        return then

    def say_refusal(
        self, target: PodDeletion[PodT], message: str, *, terminating: bool = False
    ) -> None:
        """Print that the eviction will be asked for again."""
        if self.say is None:
            return
        pod = target.actor.pod
        what = f'pods/"{pod.name}" -n "{pod.namespace}"'
        if terminating:
            what = f'pod "{pod.name}" from terminating namespace "{pod.namespace}"'
        self.say(f"error when evicting {what} (will retry after 5s): {message}", True)

    def deleted(self, target: PodDeletion[PodT], code: int, message: str, now_ns: int) -> bool:
        """Take the answer to a DELETE; True if the next one follows. A hard error ends the node."""
        if after_eviction(code, terminating=False, going=False) not in (WAIT, NOT_THERE):
            for other in self.targets:
                self.finish(other, FAILED, message if other is target else "")
            return False
        target.accepted_ns = target.waits_ns = now_ns
        return True

    # --- waiting ---------------------------------------------------------------------------------

    def seen(self, target: PodDeletion[PodT], time_ns: int) -> bool:
        """Take the pod as read at `time_ns` since the epoch. True if the wait for it is over."""
        if target.actor.gone:
            self.finish(target, GONE)
        elif self.skips(target, time_ns):
            self.finish(target, SKIPPED)
        return target.outcome is not None

    def skips(self, target: PodDeletion[PodT], time_ns: int) -> bool:
        """True if --skip-wait-for-delete-timeout ends the wait for the pod."""
        return skips_deleted(target.actor.pod, self.options.skip_wait_seconds, time_ns)

    def next_look_ns(self, target: PodDeletion[PodT], seen_ns: int, at_least: int = 0) -> int:
        """At the ticker's next tick; one that came while a GET was under way is kept.

        `at_least`: a tick before which nothing can have changed.
        """
        since_ns = target.waits_ns
        assert since_ns is not None
        looks, by_now = target.looks + 1, (seen_ns - since_ns) // LOOK_NS
        looks = looks if looks > by_now else by_now
        looks = target.looks = looks if looks > at_least else at_least
        next_ns = since_ns + looks * LOOK_NS
        return next_ns if next_ns > seen_ns else seen_ns

    def expire(self) -> None:
        """--timeout is over. Waits for pods end; retries detect it before the next try."""
        for target in self.targets:
            if target.waits_ns is not None:
                self.finish(target, TIMED_OUT)

    def finish(self, target: PodDeletion[PodT], outcome: str, message: str = "") -> None:
        """Finish the pod. Once all are finished, `left` is 0."""
        if target.outcome is not None:
            return
        target.outcome, target.message = outcome, message
        self.left -= 1
        if self.say is None or target.waits_ns is None:
            return
        pod, verb = target.actor.pod, "deleted" if self.options.disable_eviction else "evicted"
        if outcome == GONE:
            self.say(f"pod/{pod.name} {verb}", False)
        elif outcome == SKIPPED:
            seconds = self.options.skip_wait_seconds
            older = f"has DeletionTimestamp older than {seconds} seconds, skipping"
            self.say(f'pod "{pod.name}" {older}', False)

    # --- the end ---------------------------------------------------------------------------------

    def errors(self) -> list[str]:
        """Why the node is not drained, each reason once; empty where it is."""
        if self.refused:
            return refusals((actor.pod, decision) for actor, decision in self.decisions)
        failed = (t for t in self.targets if t.outcome in (FAILED, TIMED_OUT))
        return [why for why in dict.fromkeys(self._error_of(target) for target in failed) if why]

    def _error_of(self, target: PodDeletion[PodT]) -> str:
        pod, timed_out = target.actor.pod, target.outcome == TIMED_OUT
        if self.options.disable_eviction:
            return DEADLINE_EXCEEDED if timed_out else target.message
        if target.waits_ns is not None:
            why = DEADLINE_EXCEEDED if timed_out else target.message
            where = f'"{pod.name}" in namespace "{pod.namespace}"'
            return f"error when waiting for pod {where} to terminate: {why}"
        why = target.message
        if timed_out:
            why = f"global timeout reached: {format_duration(self.options.timeout_ns)}"
        return f'error when evicting pods/"{pod.name}" -n "{pod.namespace}": {why}'

    def say_end(self) -> None:
        """Print whether the node is drained, and if not, why and which pods are left."""
        if self.say is None:
            return
        if errors := self.errors():
            self.say_left(errors)
            self.say(unable(self.name, aggregate(errors)), True)
        else:
            self.say(f"node/{self.name} drained{self.suffix}", False)

    def say_left(self, errors: list[str]) -> None:
        """Print which pods are left after these errors."""
        remaining = [t.actor.pod for t in self.targets if not t.actor.gone]
        if self.say is None or not remaining:
            return
        line = f'There are pending pods in node "{self.name}" when an error occurred: '
        self.say(line + aggregate(errors), True)
        for pod in sorted(remaining, key=lambda pod: pod.key):
            self.say(f"pod/{pod.name}", True)


def aggregate(errors: list[str]) -> str:
    """Several errors as one, as apimachinery's `NewAggregate` words them."""
    return errors[0] if len(errors) == 1 else f"[{', '.join(errors)}]"


def unable(node: str, error: str) -> str:
    """The message that a node is not drained."""
    return f'error: unable to drain node "{node}" due to error: {error}, continuing command...'


def pending_nodes(names: Iterable[str]) -> list[str]:
    """The lines of stderr about the nodes that are not drained once all had their turn."""
    lines = [f" {name}" for name in names]
    return ["There are pending nodes to be drained:", *lines] if lines else []
