"""The run's Lease: acquired only from a holder that was watched and stayed silent, renewed, read.

The rules are `engine/election.py` with slower terms than enforce mode's: a leader takes over only
when a person starts it, so that an hour's sleep of a laptop does no harm. The Lease also holds the
run's document and what people ask of the leader, so that it is looked at every few seconds.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Final

from kubectl_nodelife.acts.session import ActSession
from kubectl_nodelife.controllers.upgrade.document import UnreadableDocument, document_of
from kubectl_nodelife.controllers.upgrade.policy import LEASE_NAME
from kubectl_nodelife.engine.calls import Get
from kubectl_nodelife.engine.calls.call import NOT_FOUND
from kubectl_nodelife.engine.election import ElectionTerms
from kubectl_nodelife.errors import Refused
from kubectl_nodelife.kube.decode import decode
from kubectl_nodelife.kube.errors import InputError
from kubectl_nodelife.kube.node import Lease
from kubectl_nodelife.kube.times import SECOND_NS, human_duration, parse_time
from kubectl_nodelife.live.clock import steady_ns
from kubectl_nodelife.live.lease import LeaseKeeper

NAME: Final = LEASE_NAME
LEASE_DURATION_NS: Final = 60 * SECOND_NS
LOOK_SECONDS: Final = 2.0
_TRIES: Final = 5

OnLease = Callable[[Lease], None]


def election_terms(duration_ns: int = LEASE_DURATION_NS) -> ElectionTerms:
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


class RunLease:
    """See the module. `on_lease` receives each version of the Lease that is seen."""

    def __init__(
        self, session: ActSession, namespace: str, duration_ns: int, on_lease: OnLease
    ) -> None:
        terms = election_terms(duration_ns)
        self.keeper = LeaseKeeper(session.reader, session.now_ns, namespace, name=NAME, terms=terms)
        self.keeper.why_wrong_cluster = session.checks.why_another
        self._reader = session.reader
        self._now_ns = session.now_ns
        self._on_lease = on_lease
        self._version = ""

    @property
    def epoch(self) -> int:
        """leaseTransitions of our last acquisition."""
        return self.keeper.election.transitions

    @property
    def deleted(self) -> bool:
        """True if it went while we held it."""
        return self.keeper.election.deleted

    @property
    def taken_by(self) -> str:
        """Its holder where that is another, else ""."""
        election = self.keeper.election
        return "" if election.holder in ("", election.identity) else election.holder

    async def acquire(self, show: Callable[[str], None]) -> None:
        """Get it, from a holder that does not renew it as we watch. Raises Refused where it does.

        `show` receives that, and for how long, we wait.
        """
        keeper, seen, tries = self.keeper, "", 0
        while not await keeper.attempt():
            raw, tries = keeper.election.raw, tries + 1
            if raw is None or not keeper.election.holder:  # another was a moment earlier, or 403
                if tries == _TRIES:
                    raise Refused(f"it cannot be had: {keeper.error or 'no answer'}", on=str(self))
                continue
            renewed = str(raw["spec"].get("renewTime"))
            if seen and renewed != seen:
                run = run_text(_decoded(raw), self._now_ns())
                raise Refused(
                    f"{keeper.election.holder} leads {run} and is alive",
                    on=str(self),
                    remedy="`kubectl nodelife upgrade status` shows it",
                )
            if not seen:
                seconds = raw["spec"].get("leaseDurationSeconds")
                show(
                    f"{keeper.election.holder} led the upgrade last: waiting {seconds}s to see "
                    "whether it still does"
                )
            seen = renewed
            await asyncio.sleep(min(1.0, keeper.election.terms.retry_period_ns / SECOND_NS))
        self._notify(keeper.election.raw)

    async def run(self) -> None:
        """Renew it in time and look at it in between, until cancelled or until another has it."""
        election = self.keeper.election
        due_ns = 0
        while not self.deleted and not self.taken_by:
            await asyncio.sleep(min(LOOK_SECONDS, election.terms.retry_period_ns / SECOND_NS))
            if steady_ns() >= due_ns:
                if await self.keeper.attempt():
                    due_ns = steady_ns() + election.terms.retry_period_ns
                self._notify(election.raw)
                continue
            answer = await self._reader.call(Get("Lease", election.key))
            if answer.ok and answer.raw is not None:
                self._notify(answer.raw)
            elif answer.code == NOT_FOUND:
                due_ns = 0

    async def release(self) -> None:
        """Give it up, so that the next one need not wait."""
        await self.keeper.release()

    def __str__(self) -> str:
        return f"lease {'/'.join(self.keeper.election.key)}"

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
    age_ns = max(0, now_ns - parse_time(run.started)) if run.started else 0
    return f"run {run.run} ({run.phase}, begun {human_duration(age_ns)} ago)"


def _decoded(raw: dict[str, Any]) -> Lease | None:
    try:
        lease = decode("Lease", raw)
    except InputError:
        return None
    return lease if isinstance(lease, Lease) else None
