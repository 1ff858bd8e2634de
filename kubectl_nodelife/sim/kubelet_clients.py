"""The API clients of simulated kubelets: each has one, with the token bucket of its release.

Follows `kubeAPIQPS` and `kubeAPIBurst` of the kubelet's configuration. Heartbeats have a client of
their own without a limit. Left out on purpose: Events, which have a third client, and the requests
for tokens, secrets and volumes of pods that start.
"""

from __future__ import annotations

from copy import copy
from typing import Final

from kubectl_nodelife.copy_on_write import fork_dict
from kubectl_nodelife.engine.pace import KUBELET, KUBELET_BEFORE, ClientLimits
from kubectl_nodelife.engine.profiles import Profile
from kubectl_nodelife.engine.workqueue import TokenBucket
from kubectl_nodelife.kubelet.releases import rules_for

REPORT: Final = 2
LAST_REPORT: Final = 3
"""Requests of a report: the pod is read, then its status is patched; of the last one it is deleted
besides. Follows `syncPod` of the kubelet's status manager.
"""


class KubeletClients:
    """Those of all kubelets, by node name."""

    def __init__(self, limits: ClientLimits | None) -> None:
        """`limits`: of each; None: none."""
        self._limits = limits
        self._buckets: dict[str, TokenBucket] = {}

    @classmethod
    def of(cls, profile: Profile) -> KubeletClients:
        """With the limits of that release by default."""
        return cls(KUBELET if rules_for(profile).fifty_requests else KUBELET_BEFORE)

    def fork(self) -> KubeletClients:
        """The same for a fork of the world."""
        other = copy(self)
        self._buckets, other._buckets = fork_dict(self._buckets, copy)
        return other

    def next_token(self, node: str, now_ns: int) -> int:
        """When the node's kubelet may make its next request, ns."""
        bucket = self._bucket(node)
        at_ns = bucket.next_accept(now_ns) if bucket is not None else None
        return now_ns if at_ns is None else at_ns

    def request(self, node: str, now_ns: int, requests: int = 1) -> int:
        """The kubelet makes so many requests, one after another: when it makes the last one, ns."""
        bucket, at_ns = self._bucket(node), now_ns
        if bucket is not None:
            for _ in range(requests):
                at_ns = bucket.reserve(now_ns)
        return at_ns

    def _bucket(self, node: str) -> TokenBucket | None:
        bucket = self._buckets.get(node)
        if bucket is None and self._limits is not None:
            bucket = self._buckets[node] = TokenBucket(*self._limits)
        return bucket
