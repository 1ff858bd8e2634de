"""The checks before the first write (enforce.md, section 3): a failed one is a line and exit code
5.

Each row is a function that raises Refused. They only read, apart from SelfSubjectAccessReviews and,
last of all, the Lease. `cluster_checks` has the rows that one-off acts need as well.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Sequence
from typing import Any, Final

from kubectl_nodelife.daemon.cluster_checks import RIGHTS, ClusterChecks, check_transport
from kubectl_nodelife.daemon.enforce.kill_switch import KillSwitch
from kubectl_nodelife.daemon.enforce.manager import (
    contradictions,
    control_plane_pods,
    lease_spec,
    manager_lease,
    unknown_flags,
    unproven,
)
from kubectl_nodelife.daemon.flags import Orders
from kubectl_nodelife.daemon.intents import Intents
from kubectl_nodelife.daemon.manager_role import (
    MAY_NOT,
    REMEDY,
    ROLE_PATH,
    lets_read_leases,
    release_reads_leases,
)
from kubectl_nodelife.daemon.permissions import (
    ENFORCE_LEASE,
    ENFORCE_LEASE_ROWS,
    KILL_SWITCH,
    NAMESPACE_SYSTEM,
    rows,
)
from kubectl_nodelife.daemon.settings import UNREADABLE
from kubectl_nodelife.engine.calls import Request
from kubectl_nodelife.engine.calls.call import NOT_FOUND
from kubectl_nodelife.errors import Refused
from kubectl_nodelife.live.lease import LeaseKeeper
from kubectl_nodelife.live.target import Target
from kubectl_nodelife.live.writer import Writer

GROUPS: Final = ("policy/v1", "coordination.k8s.io/v1", "apps/v1")
_MANAGER_MARGIN_S: Final = 2.0
_LEASE_WAIT_S: Final = 19.0


Say = Callable[[str], None]


class Preflight:
    """One run of all rows, in order."""

    def __init__(
        self,
        orders: Orders,
        target: Target,
        writer: Writer,
        intents: Intents,
        kill_switch: KillSwitch,
        keeper: LeaseKeeper,
        say: Say,
        assignments: Sequence[str] = (),
    ) -> None:
        """`assignments`: the user's --set, FLAG=VALUE each."""
        self._assignments = assignments
        self._orders = orders
        self._target = target
        self._writer = writer
        self._checks = ClusterChecks(target, writer, intents, kill_switch)
        self._keeper = keeper
        self._say = say

    async def run(self) -> None:
        """All rows. Raises Refused, Unreachable."""
        check_words(self._orders)
        check_transport(self._target, self._say, insecure=self._orders.insecure)
        steps: tuple[Callable[[], Awaitable[None]], ...] = (
            self.right_cluster,
            self.versions,
            self.permission,
            self.kill_switch_absent,
            self.clock_agrees,
            self.settings_agree,
            self.no_manager,
            self.manager_reads_leases,
            self.leader,
        )
        for step in steps:
            await step()

    async def right_cluster(self) -> None:
        """The uid of kube-system is that of the journal."""
        await self._checks.right_cluster()

    async def versions(self) -> None:
        """The API groups that are written to are served."""
        await self._checks.versions(GROUPS)

    async def permission(self) -> None:
        """Every verb that the named controllers can need is allowed."""
        wanted = [right for row in rows(self._orders.controllers) for right in row.rights()]
        for row in ENFORCE_LEASE_ROWS:
            wanted += row.rights(self._orders.lease_namespace)
        wanted += KILL_SWITCH.rights(NAMESPACE_SYSTEM)
        names = ",".join(self._orders.controllers)
        await self._checks.permission(
            wanted, f"kubectl nodelife rbac --mode enforce --enforce={names} prints the role"
        )

    async def kill_switch_absent(self) -> None:
        """The ConfigMap that stops all writers is not there."""
        await self._checks.kill_switch_absent()

    async def clock_agrees(self) -> None:
        """The server says what time it is."""
        await self._checks.clock_agrees()

    async def settings_agree(self) -> None:
        """The flags of a visible control plane are known, and no --set contradicts them."""
        pods = await control_plane_pods(self._writer)
        for unknown in unknown_flags(pods):
            raise Refused(
                unknown,
                on="the kube-controller-manager",
                remedy="give it a value that can be read, or look for a newer kubectl-nodelife: "
                "two controllers with different settings would undo one another",
            )
        check_settings(list(contradictions(pods, self._assignments)))

    async def no_manager(self) -> None:
        """No kube-controller-manager runs the same controllers."""
        orders = self._orders
        if set(orders.controllers) <= set(orders.assume_stopped):
            return
        first = await self._manager_lease()
        if not first:
            return
        await asyncio.sleep(float(first.get("leaseDurationSeconds") or 15) + _MANAGER_MARGIN_S)
        if await self._manager_lease() != first:
            holder = str(first.get("holderIdentity") or "")
            args = (orders.controllers, orders.assume_stopped, holder)
            left = await unproven(self._writer, *args)
            if not left:
                return
            raise Refused(
                f"a kube-controller-manager runs ({holder}), and nothing proves that it does not "
                f"run {', '.join(left)}",
                on="lease kube-system/kube-controller-manager",
                remedy="stop these there (--controllers=*,-NAME), and say so with "
                f"--assume-stopped={','.join(left)}",
            )

    async def manager_reads_leases(self) -> None:
        """A manager that takes over again could call nodes lost. Warns; another's right is not
        ours to insist on.
        """
        writer = self._writer
        version = (await writer.send(Request("GET", "/version", "", {}), "")).raw or {}
        if release_reads_leases(str(version.get("gitVersion", ""))):
            role = (await writer.send(Request("GET", ROLE_PATH, "", {}), "ClusterRole")).raw
            if role and not lets_read_leases(role):
                self._say(f"{MAY_NOT}; {REMEDY}")

    async def _manager_lease(self) -> dict[str, Any]:
        """The spec of a manager's Lease, {} where there is none."""
        answer = await manager_lease(self._writer)
        if not answer.ok and answer.code != NOT_FOUND:
            raise Refused(
                f"it cannot be read, so whether one runs is unknown: {answer.message}",
                on="lease kube-system/kube-controller-manager",
                remedy=RIGHTS,
            )
        return lease_spec(answer)

    def _not_leading(self) -> Refused:
        on = f"lease {self._orders.lease_namespace}/{ENFORCE_LEASE}"
        holder = self._keeper.state().holder
        if holder:
            return Refused(
                f"{holder} holds it", on=on, remedy="stop that one, or wait for it with --wait"
            )
        return Refused(
            f"it cannot be had: {self._keeper.error}",
            on=on,
            remedy="name a namespace that is there with --lease-namespace",
        )

    async def leader(self) -> None:
        """Our Lease is not held by another, in any namespace. With --wait it may be held: it is
        tried for from then on, and meanwhile the daemon watches and answers.
        """
        await self._checks.held_elsewhere(self._orders.lease_namespace)
        if self._orders.wait:
            if not await self._keeper.attempt():
                self._say(f"enforces nothing yet: {self._not_leading()}")
            return
        loop = asyncio.get_running_loop()
        gives_up = loop.time() + _LEASE_WAIT_S
        while not await self._keeper.attempt():
            if loop.time() > gives_up:
                raise self._not_leading()
            await asyncio.sleep(1.0)


def check_words(orders: Orders) -> None:
    """--begin=restart strips taints at once, so it needs the user's word for every controller."""
    unsaid = sorted(set(orders.controllers) - set(orders.assume_stopped))
    if orders.begin == "restart" and unsaid:
        raise Refused(
            "--begin=restart acts at once, without watching for other writers first",
            on=", ".join(unsaid),
            remedy=f"vouch that nothing else runs them with --assume-stopped={','.join(unsaid)}",
        )


def check_settings(warnings: Collection[str]) -> None:
    """No --set contradicts what a visible manager runs with, and all of that can be read."""
    for warning in warnings:
        if ", but it runs with " in warning or warning.startswith(UNREADABLE):
            raise Refused(
                warning, remedy="two controllers with different settings would undo one another"
            )
