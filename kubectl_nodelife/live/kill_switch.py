"""Makes and removes the ConfigMap that stops all writers of a cluster, whoever's they are."""

from __future__ import annotations

import time
from collections.abc import Mapping

from kubectl_nodelife.engine.calls import Answer, Request
from kubectl_nodelife.live.target import Target
from kubectl_nodelife.live.writer import Writer, WritingSession

_CONFIGMAPS = "/api/v1/namespaces/kube-system/configmaps"
_NAME = "nodelife-stop"


async def change_kill_switch(target: Target, environ: Mapping[str, str], *, make: bool) -> Answer:
    """One request, and its answer."""
    writer = Writer(WritingSession(target, environ), "kill-switch", time.time_ns)
    if make:
        body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": _NAME}}
        request = Request("POST", _CONFIGMAPS, "application/json", body)
    else:
        request = Request("DELETE", f"{_CONFIGMAPS}/{_NAME}", "application/json", {})
    try:
        return await writer.send(request, "ConfigMap")
    finally:
        await writer.close()
