"""Why a leader may not write: for now, or no more.

The guard holds single writes (`engine/guard.py`); here is what stops the leader as a whole.
"""

from __future__ import annotations

from kubectl_nodelife.acts.session import ActSession
from kubectl_nodelife.acts.upgrade.lease import RunLease
from kubectl_nodelife.engine.guard import HALF_OPEN_NS


def used_up(session: ActSession) -> str:
    """Why this leader writes no more, "" while it may: the run takes more than it can need."""
    total, sent = session.guard.caps.total, session.guard.sent
    if total is None or sent < total:
        return ""
    return (
        f"it has sent {sent} writes, twice what its plan needs: somebody undoes what it does; "
        "look at `upgrade status`, then start it again"
    )


def why_shut(session: ActSession, lease: RunLease) -> str:
    """Why nothing could be written now; "" where it could.

    Then nothing is decided either, and no node's clock runs: it fails none that nobody could prove.
    """
    if not lease.keeper.leads():
        return f"{lease} is not held"
    if session.kill_switch.present:
        return "the ConfigMap kube-system/nodelife-stop is there"
    if session.intents.error:
        return f"the journal cannot be written: {session.intents.error}"
    for breaker in session.guard.breakers.values():
        if session.now_ns() < breaker.since_ns + HALF_OPEN_NS:
            return breaker.because
    return ""
