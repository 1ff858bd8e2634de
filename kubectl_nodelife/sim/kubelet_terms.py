"""How the simulated kubelets of a scenario behave: intervals, and flags of the kubelet."""

from __future__ import annotations

import msgspec
from msgspec.structs import replace

from kubectl_nodelife.kube.pod import Pod
from kubectl_nodelife.kube.times import MINUTE_NS, SECOND_NS
from kubectl_nodelife.workloads.time_to_ready import is_starting

_REPORT_INTERVAL_NS = 5 * MINUTE_NS
_RENEW_INTERVAL_NS = 10 * SECOND_NS
_UPDATE_FREQUENCY_NS = 10 * SECOND_NS


class KubeletTerms(msgspec.Struct, frozen=True):
    """How the kubelets of a scenario behave; ns.

    `lease_renew_interval_ns` None: 10 s, or as the Lease of a kubelet that was joined says;
    `lease_renew_phase_ns` None: at the start, or when the Lease of one that was joined is due.
    `node_status_report_interval_ns` None: as the kubelets of that release do by default.
    `pod_stop_ns` None: a pod uses all of its grace period. `pods_listed`: somebody asks the
    kubelet for its pods between any two batches, as metrics agents do; None: in releases which that
    blinds (1.15 to 1.17).
    """

    lease_renew_interval_ns: int | None = None
    lease_renew_phase_ns: int | None = None
    node_status_report_interval_ns: int | None = None
    pod_start_ns: int = 2 * SECOND_NS
    pod_stop_ns: int | None = None
    pods_listed: bool | None = None
    keep_terminated_pod_volumes: bool = False
    cgroups_per_qos: bool = True

    @property
    def renew_every_ns(self) -> int:
        """How long after a renewal of its Lease a kubelet makes the next one."""
        return self.lease_renew_interval_ns or _RENEW_INTERVAL_NS

    @property
    def post_every_ns(self) -> int:
        """How long after a status post the next one comes, if nothing changes."""
        return self.node_status_report_interval_ns or _REPORT_INTERVAL_NS

    def awaits(self, pod: Pod) -> bool:
        """True if a pod that is there at t=0 and not Ready becomes Ready."""
        return is_starting(pod)

    def starts_after(self, pod: Pod) -> int | None:
        """How long after it was bound a pod is Ready; None: never."""
        return self.pod_start_ns

    def goes_on_for(self, pod: Pod, now_ns: int) -> int | None:
        """How much longer a pod that was bound before now takes until it is Ready; None: never."""
        bound = pod.status.condition("PodScheduled")
        since_ns = bound.last_transition_time if bound is not None else None
        return max(0, self.pod_start_ns - (now_ns - since_ns if since_ns else 0))

    def stops_after(self, pod: Pod, grace_ns: int) -> int | None:
        """How long after its deletion a pod's object goes; None: something holds it for good."""
        return grace_ns if self.pod_stop_ns is None else min(grace_ns, self.pod_stop_ns)

    def for_leases(self, leases_count: bool) -> KubeletTerms:
        """Without Leases a kubelet posts its status each time it has looked at it.

        Follows `tryUpdateNodeStatus` of v1.16, where only the gate NodeLease lets it leave out a
        status that did not change.
        """
        if leases_count or self.node_status_report_interval_ns is not None:
            return self
        return replace(self, node_status_report_interval_ns=_UPDATE_FREQUENCY_NS)
