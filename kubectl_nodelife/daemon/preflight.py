"""The checks before the first write (enforce.md, section 3): a failed one is a line and exit code
5.

Each row is a function that raises Refused. They only read, apart from SelfSubjectAccessReviews and,
last of all, the Lease. The rows of `ClusterChecks` are those that one-off acts need as well: the
right cluster, the API groups, the rights, the kill switch, the clock, the transport.

The kill switch is the ConfigMap kube-system/nodelife-stop. All writers stop within five seconds,
regardless of who made it; a failure to read it counts as its being there. `KillSwitch` reads it
with a client of its own, which shares no rate limit; `change_kill_switch` makes and removes it.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, Final
from urllib.parse import urlsplit

from kubectl_nodelife.daemon import permissions
from kubectl_nodelife.daemon.enforce import manager
from kubectl_nodelife.daemon.flags import Orders, is_loopback
from kubectl_nodelife.daemon.intents import CLUSTER_MARK, Intents
from kubectl_nodelife.daemon.settings import UNREADABLE
from kubectl_nodelife.engine.calls import Answer, Request
from kubectl_nodelife.engine.calls.call import NOT_FOUND
from kubectl_nodelife.errors import NodelifeError, Refused, Unreachable
from kubectl_nodelife.kube.names import first_names
from kubectl_nodelife.kube.times import SECOND_NS
from kubectl_nodelife.live import manager_role
from kubectl_nodelife.live.clock import SKEW_WARNED_NS
from kubectl_nodelife.live.lease import LeaseKeeper
from kubectl_nodelife.live.target import Target
from kubectl_nodelife.live.writer import Writer, WritingSession

RIGHTS: Final = "the role of `kubectl nodelife rbac --mode enforce` lets it be read"
_AT_ONCE: Final = 8
_MOST_NAMED: Final = 5


class ClusterChecks:
    """Checks a cluster before anything is written to it."""

    def __init__(
        self, target: Target, writer: Writer, intents: Intents, kill_switch: KillSwitch
    ) -> None:
        self._target = target
        self._writer = writer
        self._intents = intents
        self._kill_switch = kill_switch

    async def right_cluster(self) -> None:
        """The uid of kube-system is that of the journal."""
        path = "/api/v1/namespaces/kube-system"
        namespace = await self.get(path, "Namespace", "the cluster's identity")
        uid = str((namespace.get("metadata") or {}).get("uid", ""))
        if not uid:
            raise Refused(
                "it does not say which cluster it is: namespace kube-system has no uid",
                on=self._target.server,
                remedy="talk to it without the proxy in between",
            )
        noted_uid = self._intents.mark(CLUSTER_MARK)
        if noted_uid and noted_uid != uid:
            raise Refused(
                f"another cluster is behind this address than the one that the journal is of "
                f"(kube-system has uid {uid}, not {noted_uid})",
                on=self._target.server,
                remedy=f"if that is meant, move {self._intents.path} aside",
            )
        self._intents.mark(CLUSTER_MARK, uid)

    async def why_another(self) -> str:
        """Why this is not, or not known to be, the cluster that the journal is of; "" where it is.
        Never raises.
        """
        try:
            await self.right_cluster()
        except NodelifeError as error:
            return str(error)
        return ""

    async def held_elsewhere(self, lease_namespace: str) -> None:
        """The enforcers' Lease is not held in another namespace. Raises Refused, Unreachable."""
        leases = await self.get(
            "/apis/coordination.k8s.io/v1/leases?"
            f"fieldSelector=metadata.name%3D{permissions.ENFORCE_LEASE}",
            "LeaseList",
            f"leases named {permissions.ENFORCE_LEASE}",
        )
        for lease in leases.get("items") or ():
            namespace = lease["metadata"]["namespace"]
            holder = (lease.get("spec") or {}).get("holderIdentity")
            if holder and namespace != lease_namespace:
                raise Refused(
                    f"{holder} enforces on this cluster",
                    on=f"lease {namespace}/{permissions.ENFORCE_LEASE}",
                    remedy=f"stop that one, or use --lease-namespace={namespace} with it",
                )

    async def why_not_take(self, lease_namespace: str) -> str:
        """Why the Lease there must not be taken now, "" where it may. Never raises."""
        try:
            await self.right_cluster()
            await self.held_elsewhere(lease_namespace)
        except NodelifeError as error:
            return str(error)
        return ""

    async def versions(self, groups: Iterable[str]) -> None:
        """The API groups, such as `policy/v1`, are served."""
        for group in groups:
            await self.get(
                f"/apis/{group}",
                "APIResourceList",
                f"API group {group}",
                "enforcing needs v1.22 or newer, and an account that may discover its API",
            )

    async def permission(
        self,
        wanted: Sequence[permissions.Right],
        remedy: str,
        say: Callable[[str], None] = lambda text: None,
    ) -> None:
        """Every one of these rights is there. `say` receives each that is missing, if many are."""
        from kubectl_nodelife.live.typed import TypedApi  # what only reads needs none of it

        gate, api = asyncio.Semaphore(_AT_ONCE), TypedApi(self._writer.send)

        async def is_allowed(right: permissions.Right) -> bool:
            async with gate:
                return await api.may(right._asdict())

        allowed = await asyncio.gather(*map(is_allowed, wanted))
        missing = [right for right, there in zip(wanted, allowed, strict=True) if not there]
        if missing:
            for right in missing if len(missing) > 1 else ():
                say(f"a right is missing: {right}; to ask again: {right.can_i()}")
            names = first_names([str(right) for right in missing], _MOST_NAMED, "; ")
            raise Refused(
                f"these rights are missing: {names}",
                on=self._target.user_name or "this user",
                remedy=remedy,
            )

    async def kill_switch_absent(self) -> None:
        """The ConfigMap that stops all writers is not there."""
        await self._kill_switch.look()
        if self._kill_switch.present:
            raise Refused(
                "it stops all writers of this cluster",
                on="configmap kube-system/nodelife-stop",
                remedy="kubectl nodelife daemon resume --everyone removes it",
            )
        if not self._kill_switch.absent_ns:
            raise Refused(
                f"it cannot be looked for ({self._kill_switch.error}), which counts as its being "
                "there",
                on="configmap kube-system/nodelife-stop",
                remedy=RIGHTS,
            )

    async def clock_agrees(self) -> None:
        """The server says what time it is, and all behind its address say the same.

        How far this machine's clock is off does not matter: all goes by the server's.
        """
        clock = self._writer.clock
        if clock.spread_ns > SKEW_WARNED_NS:
            raise Refused(
                f"its answers differ by {clock.spread_ns / SECOND_NS:.0f}s about the time, so that "
                "no age can be trusted",
                on=self._target.server,
                remedy="set the clocks of the API servers (NTP), then start again",
            )
        if not clock.known:
            raise Refused(
                "its answers have no Date, so that no age can be trusted",
                on=self._target.server,
                remedy="talk to it without the proxy in between",
            )

    async def get(self, path: str, kind: str, what: str, remedy: str = RIGHTS) -> dict[str, Any]:
        """A document of the API server, of that kind. Raises Refused, Unreachable."""
        answer = await self._writer.send(Request("GET", path, "", {}), kind)
        if answer.code == 0:
            raise Unreachable(f"does not answer: {answer.message}", on=self._target.server)
        if not answer.ok:
            word = "is not there" if answer.code == NOT_FOUND else "cannot be read"
            server = self._target.server
            raise Refused(f"{what} {word}: {answer.message}", on=server, remedy=remedy)
        return answer.raw or {}


def check_transport(target: Target, say: Callable[[str], None], *, insecure: bool) -> None:
    """https with a verified certificate; else only to a loopback address."""
    url = urlsplit(target.server)
    local = is_loopback(url.hostname or "")
    if url.scheme != "https":
        if local and insecure:
            say("writes go over plain http, to this machine only")
            return
        raise Refused(
            "writes go over https only",
            on=target.server,
            remedy="--insecure-enforce allows plain http to a loopback address",
        )
    if target.cluster.insecure_skip_tls_verify:
        if not local and not insecure:
            raise Refused(
                "the server's certificate is not verified",
                on=target.server,
                remedy="give its CA in the kubeconfig (certificate-authority)",
            )
        say("the server's certificate is not verified")


GROUPS: Final = ("policy/v1", "coordination.k8s.io/v1", "apps/v1")
_MANAGER_MARGIN_S: Final = 2.0
_LEASE_WAIT_S: Final = 19.0


Say = Callable[[str], None]


class Preflight(ClusterChecks):
    """One run of all rows, in order, before a daemon enforces."""

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
        super().__init__(target, writer, intents, kill_switch)
        self._assignments = assignments
        self._orders = orders
        self._keeper = keeper
        self._say = say

    async def run(self) -> None:
        """All rows. Raises Refused, Unreachable."""
        check_words(self._orders)
        check_transport(self._target, self._say, insecure=self._orders.insecure)
        steps: tuple[Callable[[], Awaitable[None]], ...] = (
            self.right_cluster,
            lambda: self.versions(GROUPS),
            self.rights,
            self.kill_switch_absent,
            self.clock_agrees,
            self.settings_agree,
            self.no_manager,
            self.manager_reads_leases,
            self.leader,
        )
        for step in steps:
            await step()

    async def rights(self) -> None:
        """Every verb that the named controllers can need is allowed."""
        wanted = [
            right for row in permissions.rows(self._orders.controllers) for right in row.rights()
        ]
        for row in permissions.ENFORCE_LEASE_ROWS:
            wanted += row.rights(self._orders.lease_namespace)
        wanted += permissions.KILL_SWITCH.rights(permissions.NAMESPACE_SYSTEM)
        names = ",".join(self._orders.controllers)
        await self.permission(
            wanted, f"kubectl nodelife rbac --mode enforce --enforce={names} prints the role"
        )

    async def settings_agree(self) -> None:
        """The flags of a visible control plane are known, and no --set contradicts them."""
        pods = await manager.control_plane_pods(self._writer)
        for unknown in manager.unknown_flags(pods):
            raise Refused(
                unknown,
                on="the kube-controller-manager",
                remedy="give it a value that can be read, or look for a newer kubectl-nodelife: "
                "two controllers with different settings would undo one another",
            )
        check_settings(list(manager.contradictions(pods, self._assignments)))

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
            running = await manager.unproven(self._writer, *args)
            if not running:
                return
            raise Refused(
                f"a kube-controller-manager runs ({holder}), and nothing proves that it does not "
                f"run {', '.join(running)}",
                on="lease kube-system/kube-controller-manager",
                remedy="stop these there (--controllers=*,-NAME), and say so with "
                f"--assume-stopped={','.join(running)}",
            )

    async def manager_reads_leases(self) -> None:
        """A manager that takes over again could call nodes lost. Warns; another's right is not
        ours to insist on.
        """
        writer = self._writer
        version = (await writer.send(Request("GET", "/version", "", {}), "")).raw or {}
        if manager_role.release_reads_leases(str(version.get("gitVersion", ""))):
            role = (
                await writer.send(Request("GET", manager_role.ROLE_PATH, "", {}), "ClusterRole")
            ).raw
            if role and not manager_role.lets_read_leases(role):
                self._say(f"{manager_role.MAY_NOT}; {manager_role.REMEDY}")

    async def _manager_lease(self) -> dict[str, Any]:
        """The spec of a manager's Lease, {} where there is none."""
        answer = await manager.manager_lease(self._writer)
        if not answer.ok and answer.code != NOT_FOUND:
            raise Refused(
                f"it cannot be read, so whether one runs is unknown: {answer.message}",
                on="lease kube-system/kube-controller-manager",
                remedy=RIGHTS,
            )
        return manager.lease_spec(answer)

    def _not_leading(self) -> Refused:
        on = f"lease {self._orders.lease_namespace}/{permissions.ENFORCE_LEASE}"
        holder = self._keeper.election.holder
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
        await self.held_elsewhere(self._orders.lease_namespace)
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


_CONFIGMAPS: Final = "/api/v1/namespaces/kube-system/configmaps"
KILL_SWITCH_PATH: Final = f"{_CONFIGMAPS}/{permissions.STOP}"
LOOK_SECONDS: Final = 2.0
_READ_SECONDS: Final = 5.0


class KillSwitch:
    """`absent_ns`: when it was last known not to be there, by a clock that nobody can set.

    A machine may be halted together with its clocks: where the API server's says that more time has
    passed, that counts.
    """

    def __init__(
        self, writer: Writer, now_ns: Callable[[], int], server_ns: Callable[[], int] | None = None
    ) -> None:
        """`server_ns`: the API server's clock, None where another part looks at it."""
        self.absent_ns = 0
        self._absent_by_server_ns = 0
        self._server_ns = server_ns or now_ns
        self.present = False
        self.error = ""
        self._writer = writer
        self._now_ns = now_ns

    def surely_absent_ns(self) -> int:
        """`absent_ns`, or earlier by what the server's clock has gone on more since then."""
        more_ns = self._server_ns() - self._absent_by_server_ns - (self._now_ns() - self.absent_ns)
        return self.absent_ns - max(0, more_ns)

    async def look(self) -> None:
        """Look once."""
        asked_ns, server_ns = self._now_ns(), self._server_ns()
        request = Request("GET", KILL_SWITCH_PATH, "", {})
        answer = await self._writer.send(request, "ConfigMap", timeout_s=_READ_SECONDS, retry=False)
        if answer.code == NOT_FOUND:
            self.absent_ns, self.present, self.error = asked_ns, False, ""
            self._absent_by_server_ns = server_ns
        elif answer.ok:
            self.present = True
        else:
            self.error = answer.message

    async def run(self) -> None:
        """Look every two seconds until cancelled."""
        while True:
            await self.look()
            await asyncio.sleep(LOOK_SECONDS)


async def change_kill_switch(target: Target, environ: Mapping[str, str], *, make: bool) -> Answer:
    """One request, and its answer."""
    writer = Writer(WritingSession(target, environ), "kill-switch", time.time_ns)
    if make:
        body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": permissions.STOP}}
        request = Request("POST", _CONFIGMAPS, "application/json", body)
    else:
        request = Request("DELETE", KILL_SWITCH_PATH, "application/json", {})
    try:
        return await writer.send(request, "ConfigMap")
    finally:
        await writer.close()
