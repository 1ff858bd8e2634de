"""Judges each write of several daemons, as it arrives, by who holds the Lease.

The daemons are told apart by the user that the kubeconfig of each impersonates.
"""

import json
import time
from collections import defaultdict
from pathlib import Path
from typing import Any

from aiohttp import web
from aiohttp.typedefs import Handler

from kubectl_nodelife.sandbox.server import read_path
from kubectl_nodelife.sandbox.tls import Sandbox
from tests.enforce.audit import AuditLog
from tests.enforce.observer import LEASE, NO_EFFECT_ON_PODS
from tests.hostile.enforce_soak import Audited


class Holders:
    """Stands before the server. `wrote`: when whose writes came, on the monotonic clock. `broken`:
    those of one who did not hold the Lease.
    """

    def __init__(self) -> None:
        self.wrote: dict[str, list[float]] = defaultdict(list)
        self.broken: list[str] = []
        self._identities: dict[str, str] = {}
        self._audited = Audited()
        self._served: Any = None

    def watch(self, served: Sandbox) -> AuditLog:
        """The cluster that is written to; its audit log."""
        self._served = served
        self._audited.log = AuditLog(served.cluster.api.served, time.time_ns)
        return self._audited.log

    @web.middleware
    async def middleware(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """aiohttp's."""
        who = request.headers.get("Impersonate-User", "")
        if request.method != "GET" and who and not request.path.startswith("/apis/authorization"):
            resource = read_path(request.method, request.path, {}).target.resource.plural
            if resource == "leases":
                spec = json.loads(await request.read()).get("spec") or {}
                if identity := spec.get("holderIdentity"):
                    self._identities[identity] = who
            elif resource not in NO_EFFECT_ON_PODS:
                self.wrote[who].append(time.monotonic())
                if (holder := self.holder()) != who:
                    self.broken.append(f"{who} {request.method} {request.path}: held by {holder}")
        answer: web.StreamResponse = await self._audited.middleware(request, handler)
        return answer

    def holder(self) -> str:
        """Who holds the Lease, by the server's own store; "" for nobody."""
        leases = self._served.cluster.api.served.collections["Lease"].entries
        entry = leases.get(("kube-system", LEASE))
        spec = entry.document()["spec"] if entry is not None else {}
        return self._identities.get(spec.get("holderIdentity") or "", "")


def impersonating(kubeconfig: str, who: str, folder: Path) -> str:
    """A kubeconfig of that user's own."""
    document = json.loads(Path(kubeconfig).read_text())
    document["users"][0]["user"]["as"] = who
    path = folder / f"{who}.kubeconfig"
    path.write_text(json.dumps(document))
    return str(path)
