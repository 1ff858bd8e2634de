"""What must hold before the first write (enforce.md, section 3); else one line, and exit code 5.

Each row is a function that raises Refused. They only read, apart from SelfSubjectAccessReviews and,
last of all, the Lease.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection
from ipaddress import ip_address
from typing import Any, Final
from urllib.parse import urlsplit

import msgspec

from kubectl_nodelife.daemon.enforce.lookouts import KillSwitch, lease_spec, manager_lease
from kubectl_nodelife.daemon.intents import Intents
from kubectl_nodelife.daemon.permissions import LEASE_VERBS, rows
from kubectl_nodelife.engine.calls import Request
from kubectl_nodelife.engine.calls.call import NOT_FOUND
from kubectl_nodelife.errors import Refused, Unreachable
from kubectl_nodelife.live.lease import NAME, LeaseKeeper
from kubectl_nodelife.live.target import Target
from kubectl_nodelife.live.writer import Writer

CLUSTER_MARK: Final = "kube-system-uid"
GROUPS: Final = ("policy/v1", "coordination.k8s.io/v1", "apps/v1")
_REVIEWS: Final = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
_MANAGER_MARGIN_S: Final = 2.0
_LEASE_WAIT_S: Final = 19.0


class Orders(msgspec.Struct, frozen=True):
    """What the user ordered: which controllers enforce, and with which words of his own."""

    controllers: tuple[str, ...] = ()
    assume_stopped: tuple[str, ...] = ()
    begin: str = "join"
    caps: str = ""
    single_caps: tuple[str, ...] = ()
    max_writes: int | None = None
    lease_namespace: str = "kube-system"
    wait: bool = False
    insecure: bool = False
    yes: bool = False


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
    ) -> None:
        self._orders = orders
        self._target = target
        self._writer = writer
        self._intents = intents
        self._kill_switch = kill_switch
        self._keeper = keeper
        self._say = say

    async def run(self) -> None:
        """All rows. Raises Refused, Unreachable."""
        check_words(self._orders)
        check_transport(self._target, self._orders, self._say)
        steps: tuple[Callable[[], Awaitable[None]], ...] = (
            self.right_cluster,
            self.versions,
            self.permission,
            self.kill_switch_absent,
            self.clock_agrees,
            self.no_manager,
            self.leader,
        )
        for step in steps:
            await step()

    async def right_cluster(self) -> None:
        """The uid of kube-system is that of the journal."""
        found = await self._get("/api/v1/namespaces/kube-system", "the cluster's identity")
        uid = str((found.get("metadata") or {}).get("uid", ""))
        known = self._intents.mark(CLUSTER_MARK)
        if known and known != uid:
            raise Refused(
                f"another cluster is behind this address than the one that the journal is of "
                f"(kube-system has uid {uid}, not {known})",
                on=self._target.server,
                remedy=f"if that is meant, move {self._intents.path} aside",
            )
        self._intents.mark(CLUSTER_MARK, uid)

    async def versions(self) -> None:
        """The API groups that are written to are served."""
        for group in GROUPS:
            await self._get(f"/apis/{group}", f"API group {group}")

    async def permission(self) -> None:
        """Every verb that the named controllers can need is allowed."""
        wanted = [
            (group, resource, subresource, verb, "")
            for group, resource, subresource, verbs in rows(self._orders.controllers)
            for verb in verbs
        ]
        namespace = self._orders.lease_namespace
        wanted += [("coordination.k8s.io", "leases", "", verb, namespace) for verb in LEASE_VERBS]
        gate = asyncio.Semaphore(8)

        async def denied(row: tuple[str, str, str, str, str]) -> str:
            async with gate:
                return "" if await self._allowed(*row) else _words(row)

        missing = [text for text in await asyncio.gather(*map(denied, wanted)) if text]
        if missing:
            names = ",".join(self._orders.controllers)
            raise Refused(
                f"these rights are missing: {'; '.join(missing[:5])}"
                + (f" and {len(missing) - 5} more" if len(missing) > 5 else ""),
                on=self._target.user_name or "this user",
                remedy=f"kubectl nodelife rbac --mode enforce --enforce={names} prints the role",
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
                remedy="the role of `kubectl nodelife rbac --mode enforce` lets it be read",
            )

    async def clock_agrees(self) -> None:
        """The server says what time it is."""
        if not self._writer.clock.known:
            raise Refused(
                "its answers have no Date, so that no age can be trusted",
                on=self._target.server,
                remedy="talk to it without the proxy in between",
            )

    async def no_manager(self) -> None:
        """No kube-controller-manager runs the same controllers."""
        orders = self._orders
        if set(orders.controllers) <= set(orders.assume_stopped):
            return
        first = lease_spec(await manager_lease(self._writer))
        if not first:
            return
        await asyncio.sleep(float(first.get("leaseDurationSeconds") or 15) + _MANAGER_MARGIN_S)
        if lease_spec(await manager_lease(self._writer)) != first:
            unproven = sorted(set(orders.controllers) - set(orders.assume_stopped))
            raise Refused(
                f"a kube-controller-manager runs ({first.get('holderIdentity', '')}), and nothing "
                f"proves that it does not run {', '.join(unproven)}",
                on="lease kube-system/kube-controller-manager",
                remedy="stop these there (--controllers=*,-NAME), and say so with "
                f"--assume-stopped={','.join(unproven)}",
            )

    async def leader(self) -> None:
        """Nobody else holds our Lease, in whichever namespace."""
        found = await self._get(
            f"/apis/coordination.k8s.io/v1/leases?fieldSelector=metadata.name%3D{NAME}",
            f"leases named {NAME}",
        )
        for lease in found.get("items") or ():
            namespace = lease["metadata"]["namespace"]
            holder = (lease.get("spec") or {}).get("holderIdentity")
            if holder and namespace != self._orders.lease_namespace:
                raise Refused(
                    f"{holder} enforces on this cluster",
                    on=f"lease {namespace}/{NAME}",
                    remedy=f"stop that one, or use --lease-namespace={namespace} with it",
                )
        loop = asyncio.get_running_loop()
        gives_up = loop.time() + _LEASE_WAIT_S
        while not await self._keeper.attempt():
            if loop.time() > gives_up and not self._orders.wait:
                raise Refused(
                    f"{self._keeper.state().holder or self._keeper.error} holds it",
                    on=f"lease {self._orders.lease_namespace}/{NAME}",
                    remedy="stop that one, or wait for it with --wait",
                )
            await asyncio.sleep(1.0)

    async def _allowed(
        self, group: str, resource: str, subresource: str, verb: str, namespace: str
    ) -> bool:
        attributes = {"group": group, "resource": resource, "verb": verb}
        attributes |= {"subresource": subresource} if subresource else {}
        attributes |= {"namespace": namespace} if namespace else {}
        body = {
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SelfSubjectAccessReview",
            "spec": {"resourceAttributes": attributes},
        }
        request = Request("POST", _REVIEWS, "application/json", body)
        answer = await self._writer.send(request, "SelfSubjectAccessReview")
        if not answer.ok:
            raise Unreachable(f"cannot ask what is allowed: {answer.message}", on=_REVIEWS)
        return bool(((answer.raw or {}).get("status") or {}).get("allowed"))

    async def _get(self, path: str, what: str) -> dict[str, Any]:
        answer = await self._writer.send(Request("GET", path, "", {}), "")
        if answer.code == 0:
            raise Unreachable(f"does not answer: {answer.message}", on=self._target.server)
        if not answer.ok:
            word = "is not there" if answer.code == NOT_FOUND else "cannot be read"
            raise Refused(f"{what} {word}: {answer.message}", on=self._target.server)
        return answer.raw or {}


def check_words(orders: Orders) -> None:
    """--begin=restart strips taints at once, so it needs the user's word for every controller."""
    unsaid = sorted(set(orders.controllers) - set(orders.assume_stopped))
    if orders.begin == "restart" and unsaid:
        raise Refused(
            "--begin=restart acts at once, without watching for other writers first",
            on=", ".join(unsaid),
            remedy=f"say that nobody else runs them with --assume-stopped={','.join(unsaid)}",
        )


def check_transport(target: Target, orders: Orders, say: Say) -> None:
    """https with a verified certificate; else only to a loopback address."""
    url = urlsplit(target.server)
    local = _is_loopback(url.hostname or "")
    if url.scheme != "https":
        if local and orders.insecure:
            say("writes go over plain http, to this machine only")
            return
        raise Refused(
            "writes go over https only",
            on=target.server,
            remedy="--insecure-enforce allows plain http to a loopback address",
        )
    if target.cluster.insecure_skip_tls_verify:
        if not local and not orders.insecure:
            raise Refused(
                "the server's certificate is not verified",
                on=target.server,
                remedy="give its CA in the kubeconfig (certificate-authority)",
            )
        say("the server's certificate is not verified")


def _is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _words(row: tuple[str, str, str, str, str]) -> str:
    group, resource, subresource, verb, namespace = row
    name = f"{resource}/{subresource}" if subresource else resource
    inside = f" in {namespace}" if namespace else ""
    return f"{verb} {name}{'.' + group if group else ''}{inside}"


def check_settings(warnings: Collection[str]) -> None:
    """No --set contradicts what a visible manager runs with."""
    for warning in warnings:
        if ", but it runs with " in warning:
            raise Refused(
                warning, remedy="two controllers with different settings would undo one another"
            )
