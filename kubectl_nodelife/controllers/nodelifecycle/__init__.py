"""The node lifecycle controller, a module for each noun.

- `controller`: what the engine calls; node workers, retries, and when the 100 ms loop has work
- `monitor`: the monitor pass, which asks the others about one node after another and marks the pods
  of a lost one
- `health`: whether a node is silent for too long, and which pass would have noticed
- `eviction`: which nodes are queued, tainted or released, at which rates, and how it was before
  taints
- `taints`: which taints and labels a node should have, and the patches
- `zones`: which nodes count in a zone, and the states and rates of zones
- `memory`: what is kept between passes; `join`: reading it off what a running controller wrote
"""

from kubectl_nodelife.controllers.nodelifecycle.controller import NodeLifecycleController

__all__ = ["NodeLifecycleController"]
