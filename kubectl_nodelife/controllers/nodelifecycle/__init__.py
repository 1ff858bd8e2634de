"""The node lifecycle controller, split by noun:

health, zones, taints, pods, disruption, classic eviction.
"""

from kubectl_nodelife.controllers.nodelifecycle.controller import NodeLifecycleController

__all__ = ["NodeLifecycleController"]
