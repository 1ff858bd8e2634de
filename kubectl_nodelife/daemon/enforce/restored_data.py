"""Finds by its reads that the cluster's data were restored from a backup while all connections stay
open.

etcd's revision is lower then than what the API server's watches wait for: they stay open and say
nothing, maybe for hours, and lists from its cache show the world before. What is read from etcd
itself (a GET without a version, the answer to a write) shows an object of a lower version than the
watch has, which cannot be else: so all is listed anew, and a person must say that it goes on.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from kubectl_nodelife.engine.cache import Cache
from kubectl_nodelife.engine.settlement import is_newer
from kubectl_nodelife.kube.meta import KubeObject

_WATCHED: Final = ("Node", "Pod", "Lease", "DaemonSet", "ControllerRevision")


class RestoredData:
    """Notices that the cluster's data were restored from a backup.

    `on_restored` is called with why.
    """

    def __init__(self, cache: Cache, on_restored: Callable[[str], None]) -> None:
        self._cache = cache
        self._on_restored = on_restored

    def known(self, kind: str, key: tuple[str, str]) -> KubeObject | None:
        """What the watch has shown of it: to be asked before the request is sent."""
        return self._cache.get(kind, key) if kind in _WATCHED else None

    def judge(self, read: KubeObject, known: KubeObject | None) -> None:
        """Compare what was read with what was known before."""
        if known is None or not is_newer(known, read.metadata.resource_version):
            return
        kind, name = type(read).__name__, read.metadata.name
        self._on_restored(
            f"{kind} {name} is read in version {read.metadata.resource_version}, and the watch "
            f"has shown {known.metadata.resource_version}: the cluster's data were restored"
        )
