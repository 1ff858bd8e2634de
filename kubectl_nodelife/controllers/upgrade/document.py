"""The run's document and requests to its leader: what stands on no Node but on the run's Lease.
The document names no command and holds no manifest: anyone who may write a Lease shall not have
anything run on an operator's machine.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from enum import StrEnum
from typing import Any, Final, TypeVar

import msgspec

from kubectl_nodelife.controllers.upgrade.marks import NodeMark
from kubectl_nodelife.kube.codec import UNDECODABLE
from kubectl_nodelife.kube.node import Lease, Node

ANNOTATION_RUN: Final = "nodelife.dev/upgrade-run"
ANNOTATION_REQUEST: Final = "nodelife.dev/upgrade-request"
DOCUMENT_LIMIT: Final = 128 * 1024
ALL: Final = "all"
T = TypeVar("T")


class RunPhase(StrEnum):
    """The phases of a run. From Finished and Aborted on nothing is claimed."""

    RUNNING = "Running"
    PAUSED = "Paused"
    ABORTING = "Aborting"
    FINISHED = "Finished"
    ABORTED = "Aborted"


OVER: Final = frozenset({RunPhase.FINISHED, RunPhase.ABORTED})


class _OnLease(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True, kw_only=True):
    pass


class StepNode(_OnLease, frozen=True):
    """A node that the document names. `pool`: in whose turn it goes; `mark`: that of one that
    went."""

    uid: str = ""
    zone: str = ""
    pool: str = ""
    mark: NodeMark | None = None


NOT_BEGUN: Final = -1
"""The window before the first step of the first pool."""


class Step(_OnLease, frozen=True):
    """Where growth is in a pool. `window`: nodes that the step takes in all, 0 once growth is over.
    `nodes`: those that it claimed; once growth is over, those in flight at the last claim.
    """

    pool: str = ""
    k: int = 0
    window: int = NOT_BEGUN
    nodes: dict[str, StepNode] = {}


def gone_nodes(
    named: Mapping[str, StepNode], failed: Collection[str], nodes: Mapping[str, Node]
) -> dict[str, StepNode]:
    """The named nodes whose object went, and whose place no newcomer has taken yet."""
    return {
        name: entry
        for name, entry in sorted(named.items())
        if entry.mark is not None
        and name not in failed
        and (name not in nodes or nodes[name].uid != entry.uid)
    }


class Ask(StrEnum):
    """The requests that a person may have for a node that is Failed, Held or given back."""

    RETRY = "retry"
    ASSUME_DONE = "assume-done"
    SKIP = "skip"


class RunDocument(_OnLease, frozen=True):
    """The annotation `nodelife.dev/upgrade-run`.

    `policy`: digest of work and policy. `spec`: the policy as it may be shown. `base_counts`:
    number of nodes at the start by `NodeScope.key`. `given_back`: node -> why its drain was ended;
    these are not taken again before a retry. `failed`: names since the last resume. `asked`: what a
    person asked for a node and is still to be done. `proof_only`: of `upgrade prove`. `cut_off`: of
    `abort --now`. `left`: nodes that were Failed or Held at the end, or bore a forged mark.
    """

    run: str
    phase: RunPhase = RunPhase.RUNNING
    because: str = ""
    policy: str = ""
    spec: dict[str, Any] = {}
    started: str = ""
    base_counts: dict[str, int] = {}
    step: Step = Step()
    given_back: dict[str, str] = {}
    failed: tuple[str, ...] = ()
    asked: dict[str, Ask] = {}
    proof_only: bool = False
    cut_off: bool = False
    left: tuple[str, ...] = ()


class Verb(StrEnum):
    """The requests that a person may have for a run."""

    PAUSE = "pause"
    RESUME = "resume"
    ABORT = "abort"


class UpgradeRequest(_OnLease, frozen=True):
    """A person's request, in the annotation `nodelife.dev/upgrade-request`. `retry`, `assume_done`,
    `skip`: names, or `all`. `rebase`: take the present number of nodes as the base.
    """

    verb: Verb
    because: str = ""
    by: str = ""
    retry: tuple[str, ...] = ()
    assume_done: tuple[str, ...] = ()
    skip: tuple[str, ...] = ()
    rebase: bool = False
    now: bool = False


class UnreadableDocument(ValueError):
    """The Lease's annotation is there and is not what we write."""


def document_of(lease: Lease | None) -> RunDocument | None:
    """The run that the Lease records, None for none. Raises UnreadableDocument."""
    return _read(lease, ANNOTATION_RUN, RunDocument)


def request_on(lease: Lease | None) -> UpgradeRequest | None:
    """The request that stands on the Lease, None for none. Raises UnreadableDocument."""
    return _read(lease, ANNOTATION_REQUEST, UpgradeRequest)


def readable_request(lease: Lease | None) -> UpgradeRequest | None:
    """The request that stands on the Lease, None also where one is there that cannot be read."""
    try:
        return request_on(lease)
    except UnreadableDocument:
        return None


def encode_document(document: RunDocument | UpgradeRequest) -> str:
    """The annotation's text."""
    return msgspec.json.encode(document).decode()


def _read(lease: Lease | None, annotation: str, type_: type[T]) -> T | None:
    text = (lease.metadata.annotations or {}).get(annotation) if lease is not None else None
    try:
        return msgspec.json.decode(text, type=type_) if text else None
    except UNDECODABLE as error:
        raise UnreadableDocument(str(error)) from None
