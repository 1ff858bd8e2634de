"""The DaemonSet controller: one pod of each set on each node that should have one.

Follows `pkg/controller/daemon`. Split by noun; each file's header names what it follows:

    behaviour       what differs between releases
    template        from a set's template to its pods
    verdict, placement, simulated_predicates   on which nodes, and by which rule
    daemon_pods     a set's pods by node; node_status_index: what each node is to the set
    pods_on_node    what to do on one node; rolling_update, update_plan: what to replace next
    history, construct_history   revisions
    status          the counts
    sync_context, sync, execute   one sync from top to bottom, as a generator of calls
    handlers, work_queue, tracked_set, controller   changes in, actions out
    expectations, backoff, slow_start, budget, availability, hashing, claim   the small rules
"""

from kubectl_nodelife.controllers.daemonset.controller import (
    DaemonSetController as DaemonSetController,
)
