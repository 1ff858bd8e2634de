"""The run's Lease: acquired only from a holder that was watched and stayed silent, renewed, read;
the run's document and what people ask on it; and how a leader comes to its run.

A leader takes over only when a person starts it, so that an hour's sleep of a laptop does no harm.
Each change by a person is one PATCH under the version that was read, through the same gate and
journal as all writes of an act; where another was faster, it is decided anew on what it left.

The same order again, from any machine, goes on with the run, also with one that has ended and is
not cleared away; another selector, work or policy is refused. A mark of a run that the Lease does
not name holds its node, and no other: a kubelet may write its own Node.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import Any, Final

from msgspec.structs import replace

from kubectl_nodelife.acts.session import ActSession, Carrier
from kubectl_nodelife.controllers.upgrade import marks
from kubectl_nodelife.controllers.upgrade.document import (
    ANNOTATION_REQUEST,
    ANNOTATION_RUN,
    OVER,
    RunDocument,
    RunPhase,
    Step,
    UnreadableDocument,
    UpgradeRequest,
    Verb,
    document_of,
    encode_document,
    readable_request,
)
from kubectl_nodelife.controllers.upgrade.policy import (
    LEASE_NAME,
    UpgradePolicy,
    policy_digest,
    shown_policy,
)
from kubectl_nodelife.engine.actions import Changes, UpdateRun
from kubectl_nodelife.engine.calls import Get
from kubectl_nodelife.engine.calls.call import CONFLICT, NOT_FOUND
from kubectl_nodelife.engine.election import ElectionTerms
from kubectl_nodelife.errors import Failed, Refused
from kubectl_nodelife.kube import times
from kubectl_nodelife.kube.codec import decode
from kubectl_nodelife.kube.names import counted, first_names
from kubectl_nodelife.kube.node import Lease, Node
from kubectl_nodelife.kube.unreadable import InputError
from kubectl_nodelife.live.clock import steady_ns
from kubectl_nodelife.live.lease import LeaseKeeper

LEASE_DURATION_NS: Final = 60 * times.SECOND_NS
LOOK_SECONDS: Final = 2.0
_TRIES: Final = 5

OnLease = Callable[[Lease], None]


def election_terms(duration_ns: int) -> ElectionTerms:
    """Renewed four times in the Lease's duration; no write after two thirds of it."""
    quarter_ns = duration_ns // 4
    return ElectionTerms(
        duration_ns,
        duration_ns * 2 // 3,
        quarter_ns,
        quarter_ns,
        counts_reacquiring=True,
        recreates=False,
    )


class RunLease(LeaseKeeper):
    """The Lease of a run. `on_lease` receives each version of it that is seen."""

    def __init__(
        self, session: ActSession, namespace: str, duration_ns: int, on_lease: OnLease
    ) -> None:
        terms = election_terms(duration_ns)
        super().__init__(session.reader, session.now_ns, namespace, name=LEASE_NAME, terms=terms)
        self.why_wrong_cluster = session.checks.why_another
        self._on_lease = on_lease
        self._version = ""

    @property
    def epoch(self) -> int:
        """leaseTransitions of our last acquisition."""
        return self.election.transitions

    @property
    def deleted(self) -> bool:
        """True if it went while we held it."""
        return self.election.deleted

    @property
    def taken_by(self) -> str:
        """Its holder where that is another, else ""."""
        election = self.election
        return "" if election.holder in ("", election.identity) else election.holder

    async def acquire(self, show: Callable[[str], None]) -> None:
        """Get it, from a holder that does not renew it as we watch. Raises Refused where it does.

        `show` receives that, and for how long, we wait.
        """
        election, seen, tries = self.election, "", 0
        while not await self.attempt():
            raw, tries = election.raw, tries + 1
            if raw is None or not election.holder:  # another was a moment earlier, or 403
                if tries == _TRIES:
                    raise Refused(f"it cannot be had: {self.error or 'no answer'}", on=str(self))
                continue
            renewed = str(raw["spec"].get("renewTime"))
            if seen and renewed != seen:
                run = run_text(_decoded(raw), self._stamp_ns())
                raise Refused(
                    f"{election.holder} leads {run} and is alive",
                    on=str(self),
                    remedy="`kubectl nodelife upgrade status` shows it",
                )
            if not seen:
                seconds = raw["spec"].get("leaseDurationSeconds")
                show(
                    f"{election.holder} led the upgrade last: waiting {seconds}s to see "
                    "whether it still does"
                )
            seen = renewed
            await asyncio.sleep(min(1.0, election.terms.retry_period_ns / times.SECOND_NS))
        self._notify(election.raw)

    async def run(self) -> None:
        """Renew it in time and look at it in between, until cancelled or until another has it."""
        election, due_ns = self.election, 0
        while not self.deleted and not self.taken_by:
            await asyncio.sleep(min(LOOK_SECONDS, election.terms.retry_period_ns / times.SECOND_NS))
            if steady_ns() >= due_ns:
                if await self.attempt():
                    due_ns = steady_ns() + election.terms.retry_period_ns
                self._notify(election.raw)
                continue
            answer = await self._writer.call(Get("Lease", election.key))
            if answer.ok and answer.raw is not None:
                self._notify(answer.raw)
            elif answer.code == NOT_FOUND:
                due_ns = 0

    @contextlib.asynccontextmanager
    async def renewed(self) -> AsyncIterator[None]:
        """Keep it, which was acquired, while the block runs."""
        task = asyncio.get_running_loop().create_task(self.run())
        try:
            yield
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    def __str__(self) -> str:
        return f"lease {'/'.join(self.election.key)}"

    def _notify(self, raw: dict[str, Any] | None) -> None:
        version = str(raw["metadata"].get("resourceVersion")) if raw is not None else ""
        if raw is None or version == self._version:
            return
        if lease := _decoded(raw):
            self._version = version
            self._on_lease(lease)


def run_text(lease: Lease | None, now_ns: int) -> str:
    """`run 1122-0915-3fa2 (Running, begun 3m ago)`; `the upgrade` where none can be read."""
    try:
        run = document_of(lease)
    except UnreadableDocument:
        run = None
    if run is None:
        return "the upgrade"
    age_ns = max(0, now_ns - times.parse_time(run.started)) if run.started else 0
    return f"run {run.run} ({run.phase}, begun {times.human_duration(age_ns)} ago)"


def _decoded(raw: dict[str, Any]) -> Lease | None:
    try:
        lease = decode("Lease", raw)
    except InputError:
        return None
    return lease if isinstance(lease, Lease) else None


Edit = Callable[[Lease], Changes | None]
"""The annotations that a Lease shall have; None for what it says already. Raises NodelifeError."""


async def read_lease(session: ActSession, namespace: str) -> Lease | None:
    """The run's Lease, None for none. Raises Failed."""
    answer = await session.reader.call(Get("Lease", (namespace, LEASE_NAME)))
    if answer.code == NOT_FOUND:
        return None
    if not answer.ok or not isinstance(answer.obj, Lease):
        raise Failed(f"cannot be read: {answer.message}", on=_name(namespace))
    return answer.obj


async def edit_run(
    session: ActSession, carrier: Carrier, namespace: str, edit: Edit, because: str
) -> Lease:
    """Bring the Lease to what `edit` says of it; the Lease as it is then. Raises NodelifeError."""
    for _ in range(_TRIES):
        lease = await read_lease(session, namespace)
        if lease is None:
            raise no_run(namespace)
        changes = edit(lease)
        if changes is None:
            return lease
        action = UpdateRun(
            controller=marks.CONTROLLER,
            because=because,
            namespace=namespace,
            name=LEASE_NAME,
            annotations=changes,
        )
        result = await carrier.carry_out(action, lease)
        if result.ok:
            return result.fresh if isinstance(result.fresh, Lease) else lease
        if result.code != CONFLICT:
            raise Failed(f"cannot be changed: {result.message}", on=_name(namespace))
    raise Failed("it was changed by others each time", on=_name(namespace))


def ask(request: UpgradeRequest, lease: Lease) -> Changes | None:
    """Ask something of the leader, instead of what is asked already; pause a run without one."""
    run = open_document(lease)
    if request.verb is Verb.PAUSE and not lease.spec.holder_identity:
        if run.phase is not RunPhase.RUNNING:
            return None
        paused = replace(run, phase=RunPhase.PAUSED, because=request.because)
        return {ANNOTATION_RUN: encode_document(paused)}
    return {ANNOTATION_REQUEST: encode_document(request)}


def begin(run: RunDocument, lease: Lease) -> Changes | None:
    """Put a new run's document there, where no other run is open."""
    there = document_or_refused(lease)
    if there is not None and there.phase not in OVER:
        raise Refused(f"run {there.run} is {there.phase}", on=_name(lease.namespace))
    return {ANNOTATION_RUN: encode_document(run), ANNOTATION_REQUEST: None}


def go_on_by(policy: UpgradePolicy, lease: Lease) -> Changes | None:
    """Let an open run go on by this policy, and end a pause."""
    run, request = open_document(lease), readable_request(lease)
    if request is None or request.verb is not Verb.RESUME:
        request = UpgradeRequest(verb=Verb.RESUME)
    changed = replace(run, policy=policy_digest(policy), spec=shown_policy(policy))
    return {ANNOTATION_RUN: encode_document(changed), ANNOTATION_REQUEST: encode_document(request)}


def end(for_a_person: tuple[str, ...], lease: Lease) -> Changes | None:
    """Abort a run that nobody leads. `for_a_person`: the nodes that are left to one."""
    run, request = document_or_refused(lease), readable_request(lease)
    if run is None or run.phase in OVER:
        return None
    because = run.because if request is None else request.because
    ended = replace(run, phase=RunPhase.ABORTED, because=because, step=Step(), left=for_a_person)
    return {ANNOTATION_RUN: encode_document(ended), ANNOTATION_REQUEST: None}


def open_document(lease: Lease | None) -> RunDocument:
    """The run that is under way. Raises Refused where there is none."""
    run = document_or_refused(lease)
    if run is None or run.phase in OVER:
        raise no_run(lease.namespace if lease is not None else "kube-system", run)
    return run


def document_or_refused(lease: Lease | None) -> RunDocument | None:
    """The run's document. Raises Refused where it cannot be read."""
    try:
        return document_of(lease)
    except UnreadableDocument as error:
        raise Refused(
            f"the run's document cannot be read: {error}",
            on=_name(lease.namespace if lease is not None else ""),
            remedy=f"repair or remove its annotation {ANNOTATION_RUN}, then `upgrade clean`",
        ) from None


def no_run(namespace: str, last: RunDocument | None = None) -> Refused:
    """There is no run that could be gone on with."""
    was = f"; the last one, {last.run}, is {last.phase}" if last is not None else ""
    return Refused(
        f"no upgrade is under way{was}",
        on=_name(namespace),
        remedy="`kubectl nodelife upgrade start` begins one",
    )


def _name(namespace: str) -> str:
    return f"lease {namespace}/{LEASE_NAME}"


_MOST_NAMED = 5
_DIGEST = "sha256:"
_HIDDEN = {
    "work.digest": "the command or the Job",
    "gate": "the command of --gate",
    "canaryTemplate": "the pod of --canary-template",
}


def check_start(
    lease: Lease | None,
    nodes: Iterable[Node],
    policy: UpgradePolicy,
    now_ns: int,
    *,
    resumes: bool = False,
) -> str:
    """The run that `start` would go on with, "" for a new one. Raises Refused.

    `resumes`: of `--resume`, by which an open run goes on by another policy.
    """
    if resumes:
        _check_same_nodes(open_document(lease), policy)
    run = document_or_refused(lease)
    if run is None or run.phase in OVER:
        epoch = (lease.spec.lease_transitions or 0) if lease is not None else 0
        return _uncleared(run, nodes, policy, epoch) if run is not None else ""
    if run.proof_only:
        raise Refused(
            f"a proof is under way (run {run.run})", remedy="wait for its end, or `upgrade abort`"
        )
    if run.policy != policy_digest(policy) and not resumes:
        raise Refused(
            f"{run_text(lease, now_ns)} has another order: {differences(run, policy)}; "
            f"{(lease and lease.spec.holder_identity) or 'no process'} leads it",
            remedy="type the same order, or `--resume` to go on by this one, or `upgrade abort`",
        )
    return run.run


def _check_same_nodes(run: RunDocument, policy: UpgradePolicy) -> None:
    """Raises Refused for a policy of other nodes than the run's."""
    shown = shown_policy(policy)
    if any(shown.get(field) != run.spec.get(field) for field in ("nodes", "selector")):
        raise Refused(
            f"run {run.run} keeps its nodes: {differences(run, policy)}",
            remedy="`upgrade abort`, and start another",
        )


async def open_run(
    session: ActSession,
    carrier: Carrier,
    nodes: Iterable[Node],
    policy: UpgradePolicy,
    *,
    proof_only: bool = False,
    resumes: bool = False,
) -> RunDocument:
    """The run to lead, now that the Lease is ours: begun, or gone on with. Raises NodelifeError."""
    namespace = policy.lease_namespace
    lease = await read_lease(session, namespace)
    there, now_ns = document_or_refused(lease), session.now_ns()
    if proof_only:
        if there is not None and there.phase not in OVER:
            raise Refused(
                f"run {there.run} is {there.phase}",
                remedy="`upgrade abort` ends it, without a leader `upgrade clean` as well; for a "
                "node of an upgrade: `upgrade resume --assume-done NODE`",
            )
    elif check_start(lease, nodes, policy, now_ns, resumes=resumes) and there is not None:
        if not resumes:
            return there
        edit = partial(go_on_by, policy)
        return open_document(await edit_run(session, carrier, namespace, edit, "the run goes on"))
    run = RunDocument(  # such as `1122-0915-3fa2`, fit for a label's value and a part of a name
        run=f"{times.to_datetime(now_ns):%m%d-%H%M}-{secrets.token_hex(2)}",
        policy=policy_digest(policy),
        spec=shown_policy(policy),
        started=times.format_time(now_ns),
        proof_only=proof_only,
    )
    await edit_run(session, carrier, namespace, partial(begin, run), "a run begins")
    return run


def _uncleared(run: RunDocument, nodes: Iterable[Node], policy: UpgradePolicy, epoch: int) -> str:
    """The run, where its leader stopped after its end and before its marks were off; else "".

    `epoch`: that of its last leader; a mark of a greater one is none of its own. Raises Refused
    where it cannot be gone on with by that policy.
    """
    marked = [node.name for node in nodes if _goes_at_the_end(node, run.run, epoch)]
    if not marked:
        return ""
    if run.phase is RunPhase.FINISHED and run.policy == policy_digest(policy):
        return run.run
    raise Refused(
        f"run {run.run} is {run.phase}, and its marks are still on {len(marked)} nodes: "
        f"{first_names(marked, _MOST_NAMED, ', ')}",
        remedy="`kubectl nodelife upgrade clean` takes them off",
    )


def _goes_at_the_end(node: Node, run: str, epoch: int) -> bool:
    """True if it carries what the end of a run takes off."""
    mark = marks.readable_mark(node)
    if mark is not None and mark.run == run:
        is_left = mark.state in (marks.NodeState.FAILED, marks.NodeState.HELD)
        return not is_left and not marks.is_beyond_epoch(mark, run, epoch)
    return marks.outdated(run) in node.spec.taints


def foreign_marks(nodes: Iterable[Node], last: RunDocument | None) -> str:
    """A warning about nodes with marks of runs that the Lease does not know; "" for none. Nothing
    is done on such a node. It is counted as it shows: cordoned, it is unavailable.
    """
    run_of: dict[str, str] = {}
    for node in nodes:
        try:
            mark = marks.mark_of(node)
        except marks.UnreadableMark:
            run_of[node.name] = "?"
            continue
        if mark is not None and (last is None or mark.run != last.run):
            run_of[node.name] = mark.run
    if not run_of:
        return ""
    runs = ", ".join(sorted(set(run_of.values())))
    return (
        f"{counted(len(run_of), 'node')} with marks of run {runs}, which the Lease does not know: "
        f"{first_names(sorted(run_of), _MOST_NAMED, ', ')}; left alone. "
        "`kubectl nodelife upgrade clean` shows them and takes them off"
    )


def differences(run: RunDocument, policy: UpgradePolicy) -> str:
    """Which fields of the policy differ from the run's, with both values, in words."""
    wanted, there = dict(_fields(shown_policy(policy))), dict(_fields(run.spec))
    texts = []
    for key in sorted(wanted.keys() | there.keys()):
        theirs, ours = there.get(key), wanted.get(key)
        if theirs == ours:
            continue
        if f"{theirs or ours}".startswith(_DIGEST):
            texts.append(f"{_HIDDEN.get(key, key)} differs")
        else:
            texts.append(f"{key} is {_shown(theirs)} there, {_shown(ours)} here")
    return "; ".join(texts)


def _fields(mapping: Mapping[str, Any], before: str = "") -> Iterator[tuple[str, Any]]:
    """Each field with its path, such as `work.mode`."""
    for key, value in mapping.items():
        if isinstance(value, dict):
            yield from _fields(value, f"{before}{key}.")
        else:
            yield f"{before}{key}", value


def _shown(value: Any) -> str:
    if isinstance(value, (list, tuple)):
        value = ", ".join(map(str, value))
    return "none" if value in (None, "", {}) else str(value)
