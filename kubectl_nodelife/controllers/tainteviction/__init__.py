"""The taint-eviction controller: deletes pods that do not tolerate their node's taints."""

from kubectl_nodelife.controllers.tainteviction.controller import (
    ParallelTaintEviction as ParallelTaintEviction,
)
from kubectl_nodelife.controllers.tainteviction.controller import (
    TaintEvictionController as TaintEvictionController,
)
