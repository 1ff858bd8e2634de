"""How a node leaves a run by the way it came, or by failing: given back, Failed, Held.

What is to be remembered of it is written into the run's document first; the PATCH of the node
follows once the document shows it, so that a leader that ends in between loses nothing.
"""

from __future__ import annotations

from typing import Final

from msgspec.structs import replace

from kubectl_nodelife.controllers.upgrade.automaton import NodeEvent, left_again
from kubectl_nodelife.controllers.upgrade.canary import delete_canary
from kubectl_nodelife.controllers.upgrade.marks import (
    CordonOwner,
    NodeMark,
    NodeState,
    is_uncordoned,
    shield_off,
    uncordon,
    unproven,
)
from kubectl_nodelife.controllers.upgrade.upgrade_pass import UpgradePass
from kubectl_nodelife.kube.node import Node

PROVEN: Final = "proven"


def give_back(p: UpgradePass, node: Node, mark: NodeMark, because: str, *, entry: bool) -> None:
    """End a drain: marks off, and the cordon if it is ours. `entry`: not again before a retry."""
    if entry and p.document.given_back.get(node.name) is None:
        p.edit(given_back={**p.next.given_back, node.name: because})
        return
    because = p.document.given_back.get(node.name) or because
    take_marks_off(p, node, mark, NodeEvent.GIVEN_BACK, because)


def take_marks_off(
    p: UpgradePass, node: Node, mark: NodeMark, event: NodeEvent, because: str
) -> None:
    """One PATCH: all marks but `outdated` off, and the cordon if it is ours."""
    annotations, labels = shield_off(mark)
    p.advance(
        node,
        mark,
        event,
        because,
        annotations=annotations,
        labels=labels,
        unschedulable=uncordon(node, mark),
        remove=(unproven(mark.run),),
    )


def end_proof(p: UpgradePass, node: Node, mark: NodeMark, fault: str) -> None:
    """A proof alone has ended; no mark of it stays. `fault`: why it failed, "" where it did not.

    The document keeps which nodes were proven, so that none is taken again.
    """
    name = node.name
    if fault and name not in p.document.failed:
        if name not in p.next.failed:
            p.edit(failed=(*p.next.failed, name))
        p.memory.failing.setdefault(name, fault)
    elif not fault and name not in p.document.given_back:
        p.edit(given_back={**p.next.given_back, name: PROVEN})
    elif fault:
        because = f"not proven: {p.memory.failing.get(name, fault)}"
        if mark.earlier is not None:
            taint = unproven(mark.run)
            p.advance(node, mark, left_again(mark.earlier), because, remove=(taint,))
        else:
            take_marks_off(p, node, mark, NodeEvent.PROOF_FAILED, because)
    else:
        still = ", and still cordoned" if node.spec.unschedulable else ""
        take_marks_off(p, node, mark, NodeEvent.PROOF_PASSED, f"{PROVEN}{still}")


def fail(p: UpgradePass, node: Node, mark: NodeMark, because: str) -> None:
    """The node was worked on and not proven: kept out of service, where that does no harm."""
    if p.document.proof_only:
        delete_canary(p, node, f"{node.name} is not proven")
        end_proof(p, node, mark, because)
        return
    if node.name not in p.document.failed:
        if node.name not in p.next.failed:
            p.edit(failed=(*p.next.failed, node.name))
            p.pause_after_failures(node.name, because)
        p.memory.failing.setdefault(node.name, because)
        return
    because = p.memory.failing.get(node.name, because)
    delete_canary(p, node, f"{node.name} failed")
    stays = _why_in_service(p, node, mark)
    cordons = not (stays or node.spec.unschedulable)
    if cordons:
        owner = CordonOwner.OURS
    elif node.spec.unschedulable and mark.cordon is CordonOwner.NONE:
        owner = CordonOwner.THEIRS
    else:
        owner = mark.cordon
    if stays:
        because = f"{because}; left in service: {stays}"
    p.advance(
        node,
        replace(mark, cordon=owner),
        NodeEvent.FAILED,
        because,
        unschedulable=True if cordons else None,
        remove=(unproven(mark.run),),
    )


def _why_in_service(p: UpgradePass, node: Node, mark: NodeMark) -> str:
    """Why a node that failed is not cordoned; "" where it is, or may be.

    It is read from what the node shows, so that another look, and another leader, say the same.
    """
    if node.spec.unschedulable:
        return ""
    if mark.state is NodeState.SETTLING and mark.cordon is CordonOwner.NONE:
        return "a newcomer that runs pods"
    if mark.state is NodeState.SOAKING and node.name not in p.fleet.unavailable:
        return "" if p.fleet.floor_holds_without(node.name) else "a cordon would break a floor"
    return ""


def hold(
    p: UpgradePass,
    node: Node,
    mark: NodeMark,
    because: str,
    *,
    cordon: CordonOwner | None = None,
) -> None:
    """Leave the node alone: another intervened, or what happened is unknown. A person decides.

    `cordon`: whose it is now, None: as the mark says. Where our cordon was taken off by another
    program or person, the next one is not ours either.
    """
    delete_canary(p, node, f"{node.name} is held")
    if p.document.proof_only:
        end_proof(p, node, mark, because)
        return
    owner = cordon or (CordonOwner.NONE if is_uncordoned(node, mark) else mark.cordon)
    p.advance(node, replace(mark, cordon=owner), NodeEvent.INTERVENED, because)


def leave_cordon(p: UpgradePass, node: Node, mark: NodeMark) -> None:
    """Another program or person put a cordon on the node: it is theirs, and stays."""
    theirs = replace(mark, cordon=CordonOwner.THEIRS)
    p.update_mark(node, theirs, "cordoned by another client, whose cordon stays")
