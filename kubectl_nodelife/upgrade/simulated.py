"""The upgrade controller as it runs on the virtual cluster."""

from __future__ import annotations

from kubectl_nodelife.controllers.upgrade.controller import UpgradeController
from kubectl_nodelife.controllers.upgrade.policy import UpgradePolicy
from kubectl_nodelife.controllers.upgrade.ports import UpgradeDecider
from kubectl_nodelife.engine.cache import Cache
from kubectl_nodelife.engine.settings import Settings
from kubectl_nodelife.kube.node import Node
from kubectl_nodelife.sim.upgrade_reading import CANARY_IMAGE
from kubectl_nodelife.sim.upgrade_run import MakeDecider
from kubectl_nodelife.upgrade.ports import make_ports


class SimulatedImages:
    """Simulated nodes tell of no images, and have each that is asked for."""

    def image_for(self, cache: Cache, node: Node) -> str:
        """The image that a scenario's canaries have."""
        return CANARY_IMAGE


def decider_for(settings: Settings) -> MakeDecider:
    """Makes upgrade controllers. What the virtual cluster does not have does not exist."""

    def make(policy: UpgradePolicy, epoch: int, began_ns: int) -> UpgradeDecider:
        ports = make_ports(policy, settings, SimulatedImages())
        return UpgradeController(policy, ports, epoch, began_ns)

    return make
