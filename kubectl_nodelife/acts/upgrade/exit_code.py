"""With which exit code a leader ends, and when there is nothing left for it to do.

0: the run has finished; 1: it is paused by failures, or ended with nodes that failed or are Held;
130: it was interrupted, and what was in work has come to its end.
"""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterator, Mapping

from kubectl_nodelife.controllers.upgrade.document import OVER, RunDocument, RunPhase
from kubectl_nodelife.controllers.upgrade.marks import (
    IN_FLIGHT,
    NodeMark,
    UnreadableMark,
    mark_of,
)
from kubectl_nodelife.errors import EXIT_FAILED, EXIT_INTERRUPTED
from kubectl_nodelife.kube.node import Node


def exit_code(
    run: RunDocument,
    nodes: Mapping[str, Node],
    *,
    is_cleared: bool,
    interrupted: bool,
    tolerated: int,
    hands_off: Collection[str] = (),
) -> int | None:
    """The exit code; None while there is something to do.

    `is_cleared`: the run has ended, and what goes with its end is gone. `tolerated`: failures.
    `hands_off`: nodes that the leader leaves alone; a kubelet may write its own mark, and what it
    says there to be in work holds up no end.
    """
    marks = list(_marks(run, {name: n for name, n in nodes.items() if name not in hands_off}))
    if run.phase in OVER:
        if not is_cleared:
            return None
        if run.phase is RunPhase.ABORTED and interrupted:
            return EXIT_INTERRUPTED
        return EXIT_FAILED if run.left or run.failed else 0
    is_busy = any(mark.state in IN_FLIGHT for mark in marks) or _is_awaited(run, nodes)
    if run.phase is not RunPhase.PAUSED or is_busy:
        return None
    if interrupted:
        return EXIT_INTERRUPTED
    return EXIT_FAILED if len(run.failed) > tolerated else None


def _marks(run: RunDocument, nodes: Mapping[str, Node]) -> Iterator[NodeMark]:
    for node in nodes.values():
        with contextlib.suppress(UnreadableMark):
            mark = mark_of(node)
            if mark is not None and mark.run == run.run:
                yield mark


def _is_awaited(run: RunDocument, nodes: Mapping[str, Node]) -> bool:
    """True if a newcomer is still to come in the place of a node that went."""
    for name, entry in run.step.nodes.items():
        node = nodes.get(name)
        is_gone = node is None or node.uid != entry.uid
        if is_gone and entry.mark is not None and name not in run.failed:
            return True
    return False
