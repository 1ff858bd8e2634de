"""Counts each DaemonSet's pods, compares with the reported status, and says what is odd."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec
from msgspec.structs import replace

from kubectl_nodelife.controllers.daemonset.node_status_index import differences
from kubectl_nodelife.controllers.daemonset.rolling_update import ROLLING_UPDATE
from kubectl_nodelife.engine.actions import STATUS_COUNTS
from kubectl_nodelife.kube.enumeration import first_names
from kubectl_nodelife.kube.workload import DaemonSet, DaemonSetStatus
from kubectl_nodelife.outlook.daemonset.truth_table import trouble_of
from kubectl_nodelife.outlook.daemonset.view import DaemonSets, Key, SetView

_SHOWN = 3


class SetSummary(msgspec.Struct, frozen=True):
    """One set. `counted` None: it cannot be counted from what was read."""

    daemon_set: DaemonSet
    counted: DaemonSetStatus | None
    updated_known: bool
    odd: list[str]

    def document(self) -> dict[str, Any]:
        """The summary as plain values."""
        return {
            "namespace": self.daemon_set.namespace,
            "name": self.daemon_set.name,
            "uid": self.daemon_set.uid,
            "counted": counts(self.counted, self.updated_known) if self.counted else None,
            "reported": counts(self.daemon_set.status),
            "odd": self.odd,
        }


def counts(status: DaemonSetStatus, updated_known: bool = True) -> dict[str, int | None]:
    """The counts under the API's names."""
    found: dict[str, int | None] = {camel(field): getattr(status, field) for field in STATUS_COUNTS}
    if not updated_known:
        found["updatedNumberScheduled"] = None
    return found


def camel(field: str) -> str:
    """`numberReady` for `number_ready`."""
    first, *rest = field.split("_")
    return first + "".join(word.capitalize() for word in rest)


def summarize(sets: DaemonSets, key: Key) -> SetSummary:
    """One set that is in the cache."""
    daemon_set = sets.cache.get("DaemonSet", key)
    assert isinstance(daemon_set, DaemonSet)
    view = sets.view(key)
    if view is None:
        fault = f"its template cannot be read: {sets.fault(key)}"
        return SetSummary(daemon_set, None, False, [fault])
    missing = sets.read.lacking_to_count()
    if missing:
        odd = [f"no {missing} were read: only reported counts"]
        return SetSummary(daemon_set, None, False, odd)
    odd = list(oddities(view))
    return SetSummary(daemon_set, view.status(), view.knows_updated, odd)


def oddities(view: SetView) -> Iterator[str]:
    """Sentences on what is not as it should be with the set; none where all is."""
    daemon_set = view.daemon_set
    if view.tracked.selects_everything:
        yield "its selector is empty: the controller refuses to act on it"
        return
    if daemon_set.metadata.deletion_timestamp is not None:
        yield "it is being deleted: its pods are left to the garbage collector"
        return
    generation, observed = daemon_set.metadata.generation, daemon_set.status.observed_generation
    if observed < generation:
        yield f"the controller has not acted on generation {generation} yet (it is at {observed})"
    yield from _count_differences(view)
    yield from _node_oddities(view)
    yield from _rollout_oddities(view)


def _count_differences(view: SetView) -> Iterator[str]:
    counted, reported = view.status(), view.daemon_set.status
    if not view.knows_updated:
        updated = reported.updated_number_scheduled
        counted = replace(counted, updated_number_scheduled=updated)
    found = differences(reported, counted)
    if not found:
        return
    yield "reported " + "; ".join(found)
    stale = counted.desired_number_scheduled < reported.desired_number_scheduled
    if stale and view.tracked.rules.node_queue:
        yield "(this release does not count anew when a taint only keeps new pods away)"


def _node_oddities(view: SetView) -> Iterator[str]:
    misscheduled, lacking, crowded, troubled, placeless = [], [], [], [], []
    for node, verdict, pods in view.nodes():
        if verdict is not None and verdict.failed_placements:
            placeless.append(f"{node} ({verdict.failed_placements[0]})")
        if pods and (verdict is None or not verdict.want_to_run):
            about = "no such node" if verdict is None else verdict.subject or verdict.rule
            misscheduled.append(f"{node} ({about})")
        elif verdict is not None and verdict.want_to_run and not pods:
            lacking.append(node)
        if len(pods) > 1 and sum(p.metadata.deletion_timestamp is None for p in pods) > 1:
            crowded.append(node)
        for pod in pods:
            if trouble := trouble_of(view, pod):
                troubled.append(f"{pod.name} on {node} ({trouble})")
    if misscheduled:
        yield f"misscheduled on {first_names(misscheduled, _SHOWN)}"
    if placeless:
        yield f"FailedPlacement on {first_names(placeless, _SHOWN)}"
    if lacking:
        yield f"no pod on {first_names(lacking, _SHOWN)}"
    if crowded:
        yield f"more than one pod on {first_names(crowded, _SHOWN)}"
    if troubled:
        yield f"not at work: {first_names(troubled, _SHOWN)}"


def _rollout_oddities(view: SetView) -> Iterator[str]:
    if not view.knows_updated:
        return
    old = len(view.node_index.with_old)
    if not old:
        return
    have = f"{old} {'node has' if old == 1 else 'nodes have'} a pod of another revision"
    if view.daemon_set.spec.update_strategy.type == ROLLING_UPDATE:
        yield f"an update is under way: {have}"
    else:
        yield f"{have}, which stays until somebody deletes it"
