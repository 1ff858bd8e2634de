"""What no plan can beat, by arithmetic that shares nothing with the planner.

Only the snapshot's pods, budgets and options go in; no run of the virtual clock. A bound is allowed
to be weak, never wrong: it counts what must be there in any order of events.
"""

from __future__ import annotations

from kubectl_nodelife.drain.limiter import BURST
from kubectl_nodelife.drain.options import DrainOptions
from kubectl_nodelife.drain.scope import Scope
from kubectl_nodelife.kube.meta import controller_of

RETRY_S = 5.0
"""kubectl asks again no sooner."""


def kubectl_bound(scope: Scope, options: DrainOptions) -> tuple[int, float]:
    """(waves, seconds) for nodes drained one after another.

    One wave a node. Under a budget that can allow `a` of the node's `p` pods at a time, kubectl
    asks at least p / a times, 5 s apart; nodes follow one another. With more pods than kubectl's
    burst the requests are spread out, and a budget may refill between two of them: no bound then.
    """
    total = 0.0
    for pods in scope.pods.values():
        under: dict[tuple[str, str], int] = {}
        for pod in pods:
            owner = controller_of(pod.metadata)
            daemon = owner is not None and owner.kind == "DaemonSet"
            going = pod.metadata.deletion_timestamp is not None
            running = pod.status.phase == "Running"
            if daemon or going or not running or not pod.ready() or options.disable_eviction:
                continue
            for key in scope.budgets_of.get(pod.metadata.uid, ()):
                under[key] = under.get(key, 0) + 1
        rounds = [
            -(-count // max(1, _most_at_once(scope, key))) - 1 for key, count in under.items()
        ]
        if len(pods) <= BURST:
            total += RETRY_S * max(rounds, default=0)
    return len(scope.nodes), total


def _most_at_once(scope: Scope, key: tuple[str, str]) -> int:
    """How many disruptions the budget can ever allow: with every pod that it expects healthy."""
    status = scope.ledgers[key].budget.status
    most = max(status.expected_pods, status.current_healthy) - status.desired_healthy
    return max(most, status.disruptions_allowed)
