"""Judges the plans that a daemon left open when it ended by what the cluster shows now.

The journal keeps each open plan as data (`engine.actions.data`), so that the plan itself says
whether an object shows it. Rows of journals older than that hold no data, and end as superseded.
"""

from __future__ import annotations

import msgspec

from kubectl_nodelife.daemon.changes import ChangeRecord
from kubectl_nodelife.engine.actions import Action
from kubectl_nodelife.engine.actions.data import decode_action
from kubectl_nodelife.engine.overlay import CONFIRMED, SUPERSEDED, Overlay
from kubectl_nodelife.engine.settlement import settle_action

_RESTARTED = "the daemon was restarted, and no longer plans it"


def outcome_of(change: ChangeRecord, overlay: Overlay) -> tuple[str, str]:
    """(outcome, why) of an open plan that was not made again."""
    action = planned_action(change)
    if action is None:
        return SUPERSEDED, _RESTARTED
    shown = overlay.shown(*action.target)
    if shown is not None:
        return settle_action(action, shown) or (SUPERSEDED, _RESTARTED)
    if action.deletes:
        return CONFIRMED, f"{change.kind} {change.name} is gone"
    return SUPERSEDED, _RESTARTED


def planned_action(change: ChangeRecord) -> Action | None:
    """The action of an open plan; None where the journal does not hold it."""
    if not change.data:
        return None
    try:
        return decode_action(change.data).action
    except msgspec.MsgspecError:
        return None
