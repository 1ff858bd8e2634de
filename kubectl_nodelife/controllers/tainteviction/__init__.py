"""The taint-eviction controller: who does not tolerate a NoExecute taint must go."""

from kubectl_nodelife.controllers.tainteviction.controller import (
    PendingEviction as PendingEviction,
)
from kubectl_nodelife.controllers.tainteviction.controller import (
    TaintEvictionController as TaintEvictionController,
)
