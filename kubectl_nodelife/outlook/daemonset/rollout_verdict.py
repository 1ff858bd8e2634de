"""Whether a roll-out is done, goes on, is slow or never ends, with node, pod and reason.

*Never*: nothing that is under way takes the cause away. A pod that runs and is not Ready counts as
that once it has been so for as long as a Deployment's roll-out is given by default
(`progressDeadlineSeconds`, 600 s) and twice as long as any pod of the set took.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import msgspec
from msgspec.structs import replace

from kubectl_nodelife.controllers.daemonset.node_status_index import (
    NodeUpdateState,
    UpdateBudget,
    differences,
)
from kubectl_nodelife.kube.pod import Pod, is_starting
from kubectl_nodelife.kube.times import MINUTE_NS, SECOND_NS, human_duration, human_seconds
from kubectl_nodelife.outlook.daemonset.kubectl_rollout import RolloutState
from kubectl_nodelife.outlook.daemonset.view import PodTrouble, SetView, TroubleKind, trouble_of
from kubectl_nodelife.workloads.scheduling import REASON_PORTS, host_ports

DONE: Final = "done"
GOES_ON: Final = "goes on"
SLOW: Final = "slow"
NEVER: Final = "never"

PROGRESS_DEADLINE_NS: Final = 600 * SECOND_NS
"""The default of a Deployment's progressDeadlineSeconds (pkg/apis/apps/v1/defaults.go)."""

_WAY_OUT_OF_PORTS: Final = "set maxSurge to 0 and maxUnavailable to 1"


class RolloutVerdict(msgspec.Struct, frozen=True, rename="camel"):
    """Whether a roll-out is done, goes on, is slow or never ends, and why: by which pod, or which
    node without one. What there is nothing to say of is "".
    """

    verdict: str
    because: str = ""
    node: str = ""
    pod: str = ""
    way_out: str = ""


def rollout_verdict(
    view: SetView, state: RolloutState, budget: UpdateBudget, using: dict[str, NodeUpdateState]
) -> RolloutVerdict:
    """The verdict on a set of which nodes, pods and revisions were read."""
    daemon_set = view.daemon_set
    if daemon_set.metadata.generation > daemon_set.status.observed_generation:
        return RolloutVerdict(GOES_ON, "the controller has not acted on the new spec yet")
    counted, tally = view.status(), view.node_index
    missing = counted.desired_number_scheduled - counted.number_available
    if not tally.with_old and missing <= 0:
        if state.done:
            return RolloutVerdict(DONE)
        stale = "; ".join(differences(daemon_set.status, counted))
        because = f"it waits for the status alone: reported {stale}; the controller has not synced"
        return RolloutVerdict(SLOW, because, way_out="see whether kube-controller-manager runs")
    counting = _that_count(view, budget, using)
    worst = min(counting, key=lambda h: _RANK[h.verdict], default=None)
    if worst is None:
        return RolloutVerdict(GOES_ON)
    if worst.verdict == NEVER and worst.node in using and tally.with_old:
        return replace(worst, because=worst.because + _uses_up(budget, len(using)))
    return worst


_RANK: Final = {NEVER: 0, SLOW: 1, GOES_ON: 2}


def _uses_up(budget: UpdateBudget, used: int) -> str:
    limit, name = budget.limit
    if used < limit:
        return f"; it takes 1 of {name} {limit}"
    return f"; it uses up {name} {limit}" if used == 1 else f"; {used} nodes use up {name} {limit}"


def _that_count(
    view: SetView, budget: UpdateBudget, using: dict[str, NodeUpdateState]
) -> list[RolloutVerdict]:
    """The hindrances without those that never end of nodes that should run no pod, such as a lost
    one: they keep nothing from its end but where all such use the whole budget up.
    """
    every = list(hindrances(view, using))
    stuck = {h.node for h in every if h.verdict == NEVER and h.node in using}
    if view.node_index.with_old and len(stuck) >= budget.limit[0]:
        return every
    return [h for h in every if h.verdict != NEVER or _should_run(view, h.node)]


def _should_run(view: SetView, node: str) -> bool:
    facts = view.node_index.facts(node)
    return facts is not None and facts.verdict is not None and facts.verdict.should_run


def hindrances(view: SetView, using: dict[str, NodeUpdateState]) -> Iterator[RolloutVerdict]:
    """The pods that are not available, those first that use the budget. An old pod that is not is
    replaced whatever the budget says, and so is in nobody's way."""
    old = view.node_index.with_old
    present = str(view.current.revision) if view.current is not None else ""
    for name, verdict, pods in sorted(view.nodes(), key=lambda row: row[0] not in using):
        if name not in using and (verdict is None or not verdict.should_run):
            continue
        for pod in pods:
            newest = name not in old or view.revision_of(pod) == present
            counts = newest or pod.metadata.deletion_timestamp is not None
            if counts and (hindrance := _hindrance(view, name, pod)) is not None:
                yield hindrance


def _hindrance(view: SetView, node: str, pod: Pod) -> RolloutVerdict | None:
    trouble = trouble_of(view, pod)
    if trouble is None:
        return None
    if trouble.kind is TroubleKind.LEAVING:
        return _terminating(view, node, pod, trouble)
    if trouble.kind is TroubleKind.FINISHED:
        return RolloutVerdict(SLOW, f"{pod.name} has {trouble.words} on {node}", node, pod.name)
    if pod.key in view.doomed and not trouble.node_down:
        because = f"{pod.name} on {node} is to be deleted: {view.doomed[pod.key]}"
        return RolloutVerdict(GOES_ON, because, node, pod.name)
    if trouble.kind is TroubleKind.UNSCHEDULED:
        return _pending(view, node, pod, trouble)
    if trouble.kind is TroubleKind.NODE_DOWN:
        return RolloutVerdict(NEVER, f"{pod.name}: its node {node} is not Ready", node, pod.name)
    if trouble.kind is TroubleKind.WAITING_CONTAINER and not is_starting(pod):
        return RolloutVerdict(NEVER, f"{pod.name} on {node}: {trouble.words}", node, pod.name)
    return _unready(view, node, pod, trouble)


def _terminating(view: SetView, node: str, pod: Pod, trouble: PodTrouble) -> RolloutVerdict:
    late_ns = view.now_ns - (pod.metadata.deletion_timestamp or 0)
    if trouble.node_down:
        return RolloutVerdict(NEVER, f"{pod.name} on {node} is {trouble.words}", node, pod.name)
    if late_ns > MINUTE_NS:
        because = f"{pod.name} should have been gone from {node} {human_duration(late_ns)} ago"
        if pod.metadata.finalizers:
            because += f"; finalizers keep its object: {', '.join(pod.metadata.finalizers)}"
        return RolloutVerdict(NEVER, because, node, pod.name)
    return RolloutVerdict(GOES_ON, f"{pod.name} on {node} is terminating", node, pod.name)


def _pending(view: SetView, node: str, pod: Pod, trouble: PodTrouble) -> RolloutVerdict:
    obstacle = view.pending(pod)
    if obstacle is None:
        return _unready(view, node, pod, trouble)
    own = {other.uid for other in view.pods_on(node)}
    if obstacle.kind == REASON_PORTS and any(other.uid in own for other in obstacle.pods):
        ports = ", ".join(str(port) for _, _, port in host_ports(pod))
        because = (
            f"the set's own old pod on {node} holds host port {ports}, and maxSurge with "
            "maxUnavailable 0 wants both pods at once"
        )
        return RolloutVerdict(NEVER, because, node, pod.name, _WAY_OUT_OF_PORTS)
    verdict = NEVER if obstacle.lasts else GOES_ON
    because = f"{pod.name} is not scheduled: {obstacle.because}"
    return RolloutVerdict(verdict, because, node, pod.name, obstacle.change)


def _unready(view: SetView, node: str, pod: Pod, trouble: PodTrouble) -> RolloutVerdict:
    ready = pod.status.condition("Ready")
    since = ready.last_transition_time if ready is not None else None
    since = since if since is not None else pod.metadata.creation_timestamp
    usual = max((s for other in view.pods() if (s := ready_seconds(other)) is not None), default=0)
    waited_ns = view.now_ns - since if since is not None else 0
    which = " (new revision)" if view.node_index.with_old else ""
    is_unready = trouble.kind is TroubleKind.UNREADY
    state = " has not been Ready" if is_unready else f": {trouble.words},"
    because = f"{pod.name}{which} on {node}{state} for {human_duration(waited_ns)}"
    if usual:
        because += f", similar pods needed {human_seconds(usual)}"
    verdict = GOES_ON
    if waited_ns > 2 * usual * SECOND_NS + MINUTE_NS:
        verdict = NEVER if waited_ns > PROGRESS_DEADLINE_NS else SLOW
    return RolloutVerdict(verdict, because, node, pod.name)


def ready_seconds(pod: Pod) -> float | None:
    """From the pod's creation to its being Ready; None where it does not show that."""
    condition = pod.status.condition("Ready")
    created = pod.metadata.creation_timestamp
    if condition is None or condition.status != "True" or created is None:
        return None
    since = condition.last_transition_time
    restarted = any(s.restart_count for s in pod.status.container_statuses or ())
    return None if since is None or restarted else max(0, since - created) / SECOND_NS


def taken_for_good(view: SetView) -> Iterator[tuple[str, Pod, str]]:
    """(node, old pod, taint) where the update deletes a pod and none is made again.

    `rollingUpdate` deletes old pods without asking whether their node should run one; `manage` then
    makes none where it should not.
    """
    for name, verdict, pods in view.nodes():
        if verdict is None or verdict.should_run or name not in view.node_index.with_old:
            continue
        for pod in pods:
            if pod.metadata.deletion_timestamp is None:
                yield name, pod, verdict.subject or verdict.rule


def surge_needs_port_twice(view: SetView) -> str:
    """Why no update of the set can end: host ports, and both pods of a node at once; "" if none."""
    spec = view.daemon_set.spec.update_strategy
    try:
        ports = host_ports(Pod(spec=view.tracked.template.spec))
    except ValueError:
        return ""
    surge = spec.rolling_update.max_surge if spec.rolling_update is not None else None
    if not ports or spec.type != "RollingUpdate" or surge in (None, 0, "0", "0%"):
        return ""
    port = ", ".join(str(number) for _, _, number in ports)
    return (
        f"no update of it can end: maxSurge {surge} wants both pods of a node at once, and both "
        f"want host port {port} ({_WAY_OUT_OF_PORTS})"
    )
