"""The taint-eviction controller: who does not tolerate a NoExecute taint must go."""

from kubectl_nodelife.controllers.tainteviction.controller import (
    TaintEvictionController as TaintEvictionController,
)
from kubectl_nodelife.controllers.tainteviction.pending import PendingEviction as PendingEviction
