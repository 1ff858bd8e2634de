"""The DaemonSet controller: one pod of each set on each node that should have one.

Follows `pkg/controller/daemon`. Split by noun; each file's header names what it follows:

    controller           changes in, actions out
    memory               each set as it is known, how far its sync is, the calls on their way
    handlers             which sets must be synced, and when (the queue)
    sync                 one sync from top to bottom, in steps
    history              revisions: which is current, and how it is made
    node_status_index    what each node is to the set and its update, the counts of the status
    placement            on which nodes, and by which rule
    pods_on_node         a set's pods by node, and what to do on each
    template             from a set's template to its pods
    rolling_update       what to replace next, within the budget
    behaviour            what differs between releases
"""

from kubectl_nodelife.controllers.daemonset.controller import (
    DaemonSetController as DaemonSetController,
)
from kubectl_nodelife.controllers.daemonset.controller import (
    hash_of_all as hash_of_all,
)
