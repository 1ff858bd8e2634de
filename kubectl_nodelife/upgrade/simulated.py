"""The upgrade controller as it runs on the virtual cluster."""

from __future__ import annotations

from collections.abc import Collection

from kubectl_nodelife.controllers.upgrade.controller import UpgradeController
from kubectl_nodelife.controllers.upgrade.policy import UpgradePolicy
from kubectl_nodelife.engine.cache import Cache
from kubectl_nodelife.engine.settings import Settings
from kubectl_nodelife.kube.node import Node
from kubectl_nodelife.sim.upgrade_reading import CANARY_IMAGE
from kubectl_nodelife.sim.upgrade_run import MakeDecider
from kubectl_nodelife.upgrade.ports import make_ports
from kubectl_nodelife.workloads.force_advice import Release


class SimulatedImages:
    """Simulated nodes tell of no images, and have each that is asked for."""

    def image_for(self, cache: Cache, node: Node) -> str:
        """The image that a scenario's canaries have."""
        return CANARY_IMAGE


def decider_for(
    settings: Settings,
    kinds_read: Collection[str] | None = None,
    release: Release | None = None,
) -> MakeDecider:
    """Makes upgrade controllers. `kinds_read`: the kinds of which the virtual cluster has all that
    there is, None for every kind.
    """

    def make(policy: UpgradePolicy, epoch: int, began_ns: int) -> UpgradeController:
        ports = make_ports(policy, settings, SimulatedImages(), kinds_read, release)
        return UpgradeController(policy, ports, epoch, began_ns)

    return make
