"""The present: a running cluster at one moment, joined, which every forecast forks and plays.

`simulate` with `start: join`, `drain-plan`, `upgrade plan` and `what-if` play it; `status` and
`explain` read the same controllers off it before the first tick. Nothing that ticks is started
anew: kubelets go on in their own phases (`joined`), taints in place are done work. What was not
read switches its part off instead of acting on nothing, and is listed.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from typing import Final

import msgspec
from msgspec.structs import replace

from kubectl_nodelife.controllers import make_controllers
from kubectl_nodelife.controllers.nodelifecycle import NodeLifecycleController
from kubectl_nodelife.engine.cache import Cache
from kubectl_nodelife.engine.settings import Settings
from kubectl_nodelife.kube.duration import human_duration
from kubectl_nodelife.sim.branch import Branch
from kubectl_nodelife.sim.joined import goes_on, last_sign
from kubectl_nodelife.sim.kubelet_state import KubeletTerms
from kubectl_nodelife.sim.scenario import (
    CONTROLLER_NAMES,
    HIGHEST_SCORE,
    PASS_DRIFT_NS,
    Scenario,
    Setting,
)
from kubectl_nodelife.sim.timing import MIDDLE, LearntTerms, Timing
from kubectl_nodelife.workloads.time_to_ready import TimesToReady, is_on_its_way

_MEANS: Final = {
    "Lease": "no node is lost for its silence alone",
    "ControllerRevision": "DaemonSets are held as up to date",
    "DaemonSet": "pods of DaemonSets are not made again",
    "PodDisruptionBudget": "no budget holds an eviction up",
    "Service": "endpoints are not followed",
    "ReplicaSet": "their pods are replaced at once",
    "StatefulSet": "their pods are replaced at once",
    "Job": "their pods are replaced at once",
    "PersistentVolumeClaim": "volumes keep no pod on a node or in a zone",
}


_TERMS: Final = KubeletTerms()


class UnreadKind(msgspec.Struct, frozen=True):
    """A kind of which nothing was read, and what the play does instead."""

    kind: str
    means: str


class Present(msgspec.Struct, frozen=True):
    """See the module. `assumed`: sentences that must be said with what is read off it.
    `next_pass_ns`: when the running node-lifecycle begins its next pass; None: not known."""

    setting: Setting
    settings: Settings
    assumed: tuple[str, ...]
    unread: tuple[UnreadKind, ...]
    next_pass_ns: int | None = None

    def begin(
        self,
        duration_ns: int,
        *,
        controllers: Collection[str] = CONTROLLER_NAMES,
        timing: Timing = MIDDLE,
    ) -> Branch:
        """The play of it before its first tick; forks of it may have other events of t=0."""
        scenario = replace(self.setting.scenario, kubelet=self.terms(timing))
        setting = replace(self.setting, scenario=scenario)
        made = make_controllers(self.settings, controllers, pass_drift_ns=PASS_DRIFT_NS)
        for controller in made:
            if isinstance(controller, NodeLifecycleController):
                controller.memory.joined_pass_ns = self.next_pass_ns
        return Branch.begin(setting, made, duration_ns=duration_ns)

    def terms(self, timing: Timing) -> LearntTerms:
        """The kubelets' terms, with the times that the cluster's own pods tell."""
        cluster, terms = self.setting.cluster, self.setting.scenario.kubelet
        return LearntTerms(
            **{name: getattr(terms, name) for name in terms.__struct_fields__},
            times=TimesToReady(
                cluster.pods_of,
                lambda namespace: (p for p in cluster.pods.values() if p.namespace == namespace),
                cluster.pods.values(),
            ),
            timing=timing,
            start_ns=self.setting.start_ns,
            starting=frozenset(
                p.uid for p in cluster.pods.values() if p.spec.node_name and is_on_its_way(p)
            ),
        )


def join(
    cluster: Cache,
    settings: Settings,
    now_ns: int,
    kinds_read: Iterable[str],
    *,
    late_renew: bool = False,
    next_pass_ns: int | None = None,
    kubelet: KubeletTerms = _TERMS,
    scheduler: str = HIGHEST_SCORE,
) -> Present:
    """The present of a cluster, which is not changed. `kinds_read`: kinds of which an object that
    is not there is known not to exist. `late_renew`: who is late is slow, and not silent.
    `next_pass_ns`: as of `Present`. `kubelet`: what is said of kubelets that the cluster does not
    tell; `scheduler`: how a node is chosen, a key of SCHEDULERS.
    """
    scenario = Scenario("", "present", join=True, kubelet=kubelet, scheduler=scheduler)
    read = frozenset(kinds_read)
    setting = Setting(scenario, settings.profile, now_ns, cluster, read).under(settings)
    setting = replace(setting, late_kubelets_renew=late_renew)
    unread = tuple(UnreadKind(k, means) for k, means in _MEANS.items() if k not in read)
    return Present(setting, settings, tuple(assumed_of(setting)), unread, next_pass_ns)


def assumed_of(setting: Setting) -> Iterator[str]:
    """Sentences on what is assumed of kubelets that are late."""
    late_renew = setting.late_kubelets_renew
    for name, node in sorted(setting.cluster.nodes.items()):
        sign = last_sign(setting, node)
        age_ns = sign.age_ns(setting.start_ns)
        ready = node.ready()
        if age_ns is None or not sign.is_late(setting.start_ns):
            continue
        if ready is None or ready.status == "Unknown":
            continue
        lives = goes_on(node, sign, setting.start_ns, late_renew=late_renew)
        then = "is taken for slow" if lives else "stays silent"
        yield f"the kubelet of {name} last reported {human_duration(age_ns)} ago and {then}"
