"""Changes of the run's Lease by people: the document of a new run, and what is asked of a leader.

Each is one PATCH under the version that was read, through the same gate and journal as all writes
of an act; where another was faster, it is decided anew on what it left.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from msgspec.structs import replace

from kubectl_nodelife.acts.carrier import Carrier
from kubectl_nodelife.acts.session import ActSession
from kubectl_nodelife.acts.upgrade.lease import NAME
from kubectl_nodelife.controllers.upgrade.document import (
    ANNOTATION_REQUEST,
    ANNOTATION_RUN,
    OVER,
    RunDocument,
    RunPhase,
    UnreadableDocument,
    UpgradeRequest,
    Verb,
    document_of,
    encode_document,
)
from kubectl_nodelife.controllers.upgrade.policy import UpgradePolicy, spec_digest, spec_with
from kubectl_nodelife.engine.actions import Changes, UpdateRun
from kubectl_nodelife.engine.calls import Get
from kubectl_nodelife.engine.calls.call import CONFLICT, NOT_FOUND
from kubectl_nodelife.errors import Failed, Refused
from kubectl_nodelife.kube.node import Lease

UPGRADE: Final = "upgrade"
_TRIES: Final = 5

Edit = Callable[[Lease], Changes | None]
"""The annotations that a Lease shall have; None for what it says already. Raises NodelifeError."""


async def read_lease(session: ActSession, namespace: str) -> Lease | None:
    """The run's Lease, None for none. Raises Failed."""
    answer = await session.reader.call(Get("Lease", (namespace, NAME)))
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
            controller=UPGRADE,
            because=because,
            namespace=namespace,
            name=NAME,
            annotations=changes,
        )
        result = await carrier.carry_out(action, lease)
        if result.ok:
            return result.fresh if isinstance(result.fresh, Lease) else lease
        if result.code != CONFLICT:
            raise Failed(f"cannot be changed: {result.message}", on=_name(namespace))
    raise Failed("it was changed by others each time", on=_name(namespace))


def asking(request: UpgradeRequest) -> Edit:
    """An edit that asks something of the leader. An order that waits already is replaced."""

    def edit(lease: Lease) -> Changes | None:
        open_document(lease)
        return {ANNOTATION_REQUEST: encode_document(request)}

    return edit


def pausing(because: str) -> Edit:
    """An edit that pauses a run without a leader."""

    def edit(lease: Lease) -> Changes | None:
        run = open_document(lease)
        if run.phase is not RunPhase.RUNNING:
            return None
        paused = replace(run, phase=RunPhase.PAUSED, because=because)
        return {ANNOTATION_RUN: encode_document(paused)}

    return edit


def beginning(run: RunDocument) -> Edit:
    """An edit that puts a new run's document there, where no other run is open."""

    def edit(lease: Lease) -> Changes | None:
        known = document_or_refused(lease)
        if known is not None and known.phase not in OVER:
            raise Refused(f"run {known.run} is {known.phase}", on=_name(lease.namespace))
        return {ANNOTATION_RUN: encode_document(run), ANNOTATION_REQUEST: None}

    return edit


def with_policy(policy: UpgradePolicy, given: Mapping[str, Any]) -> Edit:
    """An edit by which an open run goes on with another policy. `given`: what was given of it."""

    def edit(lease: Lease) -> Changes | None:
        run = open_document(lease)
        spec = spec_with(run.spec, policy, given)
        if run.policy == spec_digest(spec):
            return None
        changed = replace(run, policy=spec_digest(spec), spec=spec)
        return {ANNOTATION_RUN: encode_document(changed)}

    return edit


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
            remedy=f"mend or remove its annotation {ANNOTATION_RUN}, then `upgrade clean`",
        ) from None


def no_run(namespace: str, last: RunDocument | None = None) -> Refused:
    """There is no run that could be gone on with."""
    was = f"; the last one, {last.run}, is {last.phase}" if last is not None else ""
    return Refused(
        f"no upgrade is under way{was}",
        on=_name(namespace),
        remedy="`kubectl nodelife upgrade start` begins one",
    )


def pause_request(because: str, by: str) -> UpgradeRequest:
    """The request of `pause` and of the first Ctrl-C."""
    return UpgradeRequest(verb=Verb.PAUSE, because=because, by=by)


def _name(namespace: str) -> str:
    return f"lease {namespace}/{NAME}"
