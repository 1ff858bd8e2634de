"""Takes off what a run that is over, or that is not known any more, has left in the cluster.

The Lease is held meanwhile, so that no run can begin. Each node is read again before its one PATCH,
which goes under the version that was read; what was made for nodes is deleted under its uid.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

from kubectl_nodelife.acts.session import ActSession, Carrier, Show
from kubectl_nodelife.acts.upgrade.lease import (
    RunLease,
    document_or_refused,
    edit_run,
    end,
    read_lease,
)
from kubectl_nodelife.controllers.upgrade.document import OVER, RunPhase, Verb, readable_request
from kubectl_nodelife.controllers.upgrade.leaving import LeftObject, Leftover, leftovers
from kubectl_nodelife.engine.calls import Delete, Get
from kubectl_nodelife.engine.calls.call import CONFLICT, NOT_FOUND
from kubectl_nodelife.errors import Failed, Refused
from kubectl_nodelife.kube.node import Lease, Node

_TRIES: Final = 5


def check_over(lease: Lease | None) -> bool:
    """True if the last run was of `upgrade prove`. Raises Refused while a run is open, but for one
    that shall be aborted, which ends here if nobody leads it.
    """
    run, request = document_or_refused(lease), readable_request(lease)
    aborts = request is not None and request.verb is Verb.ABORT
    if run is not None and run.phase not in (*OVER, RunPhase.ABORTING) and not aborts:
        raise Refused(
            f"run {run.run} is {run.phase}", remedy="`kubectl nodelife upgrade abort` ends it first"
        )
    return run is not None and run.proof_only


@dataclass(slots=True)
class Cleaner:
    """Cleans up. `show` receives what was done, `warn` what could not be."""

    session: ActSession
    carrier: Carrier
    show: Show
    warn: Show
    release_failed: bool

    async def run(
        self, lease: RunLease, marks: Sequence[Leftover], objects: Sequence[LeftObject]
    ) -> bool:
        """Clean up; whether all of it could be. Raises NodelifeError."""
        proof_only = False
        await lease.acquire(self.show)
        async with lease.renewed():
            namespace = lease.election.key[0]
            if (run_lease := await read_lease(self.session, namespace)) is not None:
                proof_only = check_over(run_lease)
                names = tuple(sorted(one.node.name for one in marks if one.stays))
                edit = partial(end, names)
                await edit_run(self.session, self.carrier, namespace, edit, "the run is aborted")
            clean = True
            for leftover in marks:
                if leftover.patch is not None:
                    clean &= await self._clean_node(leftover.node.name, lease, proof_only)
            for obj in objects:
                result = await self.carrier.carry_out(obj.deletion, obj.obj)
                clean &= result.ok
                if result.ok:
                    self.show(f"{obj.name}: deleted")
                else:
                    self.warn(f"{obj.name}: {result.message or 'refused'}")
        if clean and not any(leftover.stays for leftover in marks):
            await self._delete_lease(lease)
        else:
            await lease.release()
        return clean

    async def _clean_node(self, name: str, lease: RunLease, proof_only: bool) -> bool:
        for _ in range(_TRIES):
            if not lease.leads():
                raise Refused(f"{lease} is not held any more", remedy="run the command again")
            answer = await self.session.reader.call(Get("Node", ("", name)))
            if answer.code == NOT_FOUND:
                return True
            if not isinstance(answer.obj, Node):
                raise Failed(f"cannot be read: {answer.message}", on=f"node {name}")
            leftover = next(
                leftovers([answer.obj], proof_only=proof_only, release_failed=self.release_failed),
                None,
            )
            if leftover is None or leftover.patch is None:
                return True
            result = await self.carrier.carry_out(leftover.patch, answer.obj)
            if result.ok:
                self.show(f"node/{name}: {leftover.because}")
                return True
            if result.code != CONFLICT:
                self.warn(f"node/{name}: {result.message}")
                return False
        self.warn(f"node/{name}: it was changed by others each time")
        return False

    async def _delete_lease(self, lease: RunLease) -> None:
        election = lease.election
        call = Delete("Lease", election.key, {"uid": election.uid})
        answer = await self.session.writer.call(call)
        if not answer.ok and answer.code != NOT_FOUND:
            self.warn(f"{lease}: {answer.message}")
            await lease.release()
