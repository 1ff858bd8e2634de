"""What the API server fills into an object that an action creates."""

from __future__ import annotations

import hashlib
from typing import Any

from msgspec.structs import replace

from kubectl_nodelife.kube.decode import convert
from kubectl_nodelife.kube.pod import Pod
from kubectl_nodelife.kube.times import whole_seconds


def created_uid(kind: str, namespace: str, name: str, now_ns: int) -> str:
    """A uid for an object that only we know of, the same in every run."""
    digest = hashlib.sha256(f"{kind}/{namespace}/{name}/{now_ns}".encode()).hexdigest()
    return "-".join((digest[:8], digest[8:12], digest[12:16], digest[16:20], digest[20:32]))


def created_object(obj: Any, kind: str, now_ns: int) -> Any:
    """The object with what the API server fills in at creation."""
    meta = obj.metadata
    created = whole_seconds(now_ns)
    uid = meta.uid or created_uid(kind, meta.namespace, meta.name, now_ns)
    return replace(obj, metadata=replace(meta, uid=uid, creation_timestamp=created))


def created_pod(manifest: dict[str, Any], now_ns: int) -> Pod:
    """The pod of a manifest as it is shown right after its creation: Pending."""
    pod = convert(manifest, Pod, "", "")
    pod = replace(pod, status=replace(pod.status, phase="Pending"))
    created: Pod = created_object(pod, "Pod", now_ns)
    return created
