"""How a leader comes to its run: a new one, or one that another leader has left.

The same order again, from any machine, goes on with the run, also with one that has ended and is
not cleared away; another selector, work or policy is refused. A mark of a run that the Lease does
not name holds its node, and no other: a kubelet may write its own Node.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from kubectl_nodelife.acts.carrier import Carrier
from kubectl_nodelife.acts.session import ActSession
from kubectl_nodelife.acts.upgrade.lease import run_text
from kubectl_nodelife.acts.upgrade.run_edits import (
    beginning,
    document_or_refused,
    edit_run,
    read_lease,
)
from kubectl_nodelife.controllers.upgrade.document import OVER, RunDocument, RunPhase
from kubectl_nodelife.controllers.upgrade.marks import (
    NodeState,
    UnreadableMark,
    is_beyond_epoch,
    mark_of,
    outdated,
)
from kubectl_nodelife.controllers.upgrade.policy import (
    PAUSE_IMAGE,
    UpgradePolicy,
    policy_digest,
    shown_policy,
)
from kubectl_nodelife.errors import BadInput, Refused
from kubectl_nodelife.kube.names import counted, first_names
from kubectl_nodelife.kube.node import Lease, Node
from kubectl_nodelife.kube.times import format_time, to_datetime

_MOST_NAMED = 5
_DIGEST = "sha256:"
_HIDDEN = {
    "work.digest": "the command or the Job",
    "gate": "the command of --gate",
    "canaryTemplate": "the pod of --canary-template",
}


def new_run_id(now_ns: int) -> str:
    """Such as `1122-0915-3fa2`: fit for a label's value and for a part of a name."""
    return f"{to_datetime(now_ns):%m%d-%H%M}-{secrets.token_hex(2)}"


def check_start(
    lease: Lease | None, nodes: Iterable[Node], policy: UpgradePolicy, now_ns: int
) -> str:
    """The run that `start` would go on with, "" for a new one. Raises Refused."""
    run, nodes = document_or_refused(lease), list(nodes)
    if run is None or run.phase in OVER:
        epoch = (lease.spec.lease_transitions or 0) if lease is not None else 0
        return _uncleared(run, nodes, policy, epoch) if run is not None else ""
    if run.proof_only:
        raise Refused(
            f"a proof is under way (run {run.run})", remedy="wait for its end, or `upgrade abort`"
        )
    if run.policy != policy_digest(policy):
        raise Refused(
            f"{run_text(lease, now_ns)} has another order: {differences(run, policy)}; "
            f"{(lease and lease.spec.holder_identity) or 'no process'} leads it",
            remedy="type the same order, or `upgrade resume` with what shall change, or `abort`",
        )
    return run.run


async def open_run(
    session: ActSession,
    carrier: Carrier,
    nodes: Iterable[Node],
    policy: UpgradePolicy,
    *,
    proof_only: bool = False,
) -> RunDocument:
    """The run to lead, now that the Lease is ours: begun, or gone on with. Raises NodelifeError."""
    namespace = policy.lease_namespace
    lease = await read_lease(session, namespace)
    known = document_or_refused(lease)
    if not proof_only and check_start(lease, nodes, policy, session.now_ns()):
        assert known is not None
        return known
    if proof_only and known is not None and known.phase not in OVER:
        raise Refused(
            f"run {known.run} is {known.phase}",
            remedy="`upgrade abort` ends a proof without a leader; for a node of an upgrade: "
            "`upgrade resume --assume-done NODE`",
        )
    now_ns = session.now_ns()
    run = RunDocument(
        run=new_run_id(now_ns),
        policy=policy_digest(policy),
        spec=shown_policy(policy),
        started=format_time(now_ns),
        proof_only=proof_only,
    )
    await edit_run(session, carrier, namespace, beginning(run), "a run begins")
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
    try:
        mark = mark_of(node)
    except UnreadableMark:
        mark = None
    if mark is not None and mark.run == run:
        is_left = mark.state in (NodeState.FAILED, NodeState.HELD)
        return not is_left and not is_beyond_epoch(mark, run, epoch)
    return outdated(run) in node.spec.taints


def strangers(nodes: Iterable[Node], last: RunDocument | None) -> str:
    """A warning about nodes with marks of runs that the Lease does not know; "" for none.

    Nothing is done on such a node. It is counted as it shows: cordoned, it is unavailable.
    """
    found: dict[str, str] = {}
    for node in nodes:
        try:
            mark = mark_of(node)
        except UnreadableMark:
            found[node.name] = "?"
            continue
        if mark is not None and (last is None or mark.run != last.run):
            found[node.name] = mark.run
    if not found:
        return ""
    runs = ", ".join(sorted(set(found.values())))
    return (
        f"{counted(len(found), 'node')} with marks of run {runs}, which the Lease does not know: "
        f"{first_names(sorted(found), _MOST_NAMED, ', ')}; left alone. "
        "`kubectl nodelife upgrade clean` shows them and takes them off"
    )


def differences(run: RunDocument, policy: UpgradePolicy) -> str:
    """Which fields of the policy differ from the run's, with both values, in words."""
    wanted, there = dict(_fields(shown_policy(policy))), dict(_fields(run.spec))
    found = []
    for key in sorted(wanted.keys() | there.keys()):
        theirs, ours = there.get(key), wanted.get(key)
        if theirs == ours:
            continue
        if f"{theirs or ours}".startswith(_DIGEST):
            found.append(f"{_HIDDEN.get(key, key)} differs")
        else:
            found.append(f"{key} is {_shown(theirs)} there, {_shown(ours)} here")
    return "; ".join(found)


def order_text(policy: UpgradePolicy) -> str:
    """The fields of a policy that differ from the defaults; a Lease's writer may have set them."""
    default = dict(_fields(shown_policy(UpgradePolicy())))
    found = [
        f"{key} {_shown(value)}"
        for key, value in _fields(shown_policy(policy))
        if value != default.get(key) and not f"{value}".startswith(_DIGEST)
    ]
    return ", ".join(found)


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


def check_image(policy: UpgradePolicy, given: Mapping[str, Any], run: str) -> None:
    """Raises BadInput where only the run's document names the canary's image, and it is not the one
    that is used where none is named: the right to write a Lease shall not decide what runs on
    nodes.
    """
    if policy.canary_image != PAUSE_IMAGE and "canaryImage" not in given:
        raise BadInput(
            f"run {run} names {policy.canary_image!r} on its Lease, where any writer of the Lease "
            "can put it",
            on="--canary-image",
            remedy="give the image again",
        )
