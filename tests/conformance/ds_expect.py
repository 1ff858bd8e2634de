"""What a DaemonSet vector expects, held against a play."""

from collections.abc import Callable
from typing import Any

from kubectl_nodelife.controllers.daemonset.history import hash_label
from kubectl_nodelife.controllers.daemonset.template import get_target_node_name
from kubectl_nodelife.engine.actions import STATUS_COUNTS
from kubectl_nodelife.kube.pod import Pod
from kubectl_nodelife.kube.times import SECOND_NS
from kubectl_nodelife.kube.workload import DaemonSet, DaemonSetStatus
from tests.conformance.checks import only
from tests.conformance.ds_play import Play, has_hash
from tests.conformance.ds_revisions import check_current
from tests.conformance.ds_world import COUNTED_EVENTS, Json, SyncReport
from tests.conformance.world import decode

SYNC_KEYS = frozenset(
    {
        "createCallsAtMost",
        "createdOn",
        "creates",
        "deletedFrom",
        "deletedPods",
        "deletes",
        "eventReasons",
        "events",
        "expectationsSatisfiedAfter",
        "status",
        "syncError",
    }
)


def check_sync(report: SyncReport, want: Json) -> None:
    """Hold one sync against what the vector says of it."""
    only(want, SYNC_KEYS, "key of a sync")
    reasons = [e.reason for e in report.events if e.reason in COUNTED_EVENTS]
    have = {
        "creates": len(report.created),
        "deletes": report.delete_calls,
        "events": len(reasons),
        "eventReasons": reasons,
        "deletedPods": {p.name for p in report.deleted},
        "deletedFrom": {get_target_node_name(p) for p in report.deleted},
        "createdOn": {a.node for a in report.created},
        "syncError": bool(report.error),
        "expectationsSatisfiedAfter": report.expectations_satisfied,
    }
    for key, value in want.items():
        if key == "createCallsAtMost":
            assert report.create_calls <= value
        elif key == "status":
            check_status(report.status, value)
        elif key in ("deletedPods", "deletedFrom", "createdOn"):
            assert have[key] == set(value), key
        elif key == "syncError":
            assert have[key] == bool(value), report.error
        else:
            assert have[key] == value, (key, have[key], report.error)


def check_status(status: DaemonSetStatus, want: Json) -> None:
    """Hold the named counts against a status."""
    have = {_camel(f): getattr(status, f) for f in (*STATUS_COUNTS, "collision_count")}
    for key, value in want.items():
        assert (have[key] or 0) == value, (key, have[key], value)


def _camel(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(part.capitalize() for part in rest)


def _check_syncs(play: Play, want: list[Json]) -> None:
    assert len(play.reports) == len(want)
    for report, expected in zip(play.reports, want, strict=True):
        check_sync(report, expected)


def _check_statuses(play: Play, want: list[Json]) -> None:
    assert len(play.statuses) == len(want)
    for status, expected in zip(play.statuses, want, strict=True):
        check_status(status, expected)


def _check_queue(play: Play, want: list[str]) -> None:
    controller = play.world.controller
    controller.handlers.drain_nodes(play.world.cache)
    waiting = {*controller.queue.ready, *controller.queue.rate_limited}
    assert {"/".join(key) for key in waiting} == set(want)


def _check_delayed(play: Play, want: list[Json]) -> None:
    queue, now = play.world.controller.queue, play.world.now
    have = [
        {"key": "/".join(key), "afterSeconds": (at - now) / SECOND_NS}
        for key, at in queue.delayed.items()
        if key not in queue.rate_limited
    ]
    assert have == want


def _check_created_pods(play: Play, want: Json) -> None:
    for action in play.world.created_pods:
        manifest = action.manifest
        spec, metadata = manifest["spec"], manifest["metadata"]
        affinity = (spec.get("affinity") or {}).get("nodeAffinity") or {}
        required = affinity.get("requiredDuringSchedulingIgnoredDuringExecution") or {}
        terms = required.get("nodeSelectorTerms") or []
        fields = [f for term in terms for f in term.get("matchFields", [])]
        owner = {k: v for k, v in metadata["ownerReferences"][0].items() if k != "uid"}
        have = {
            "nodeNameEmpty": not spec.get("nodeName"),
            "nodeNameSet": bool(spec.get("nodeName")),
            "requiredTermsCount": len(terms),
            "fieldKey": fields[0]["key"] if fields else None,
            "operator": fields[0]["operator"] if fields else None,
            "valuesCount": len(fields[0]["values"]) if fields else 0,
            "generateName": metadata["generateName"],
            "ownerReference": owner,
        }
        for key, value in want.items():
            assert have[key] == value, key
    assert play.world.created_pods


def _check_targets(play: Play, want: list[str]) -> None:
    created = [decode(a.manifest, Pod) for a in play.world.created_pods]
    assert sorted(get_target_node_name(pod) for pod in created) == sorted(want)


def _ready_at_end(play: Play) -> int:
    return sum(pod.ready() for pod in play.world.own_pods())


def _check_error(play: Play, want: Any) -> None:
    error = play.notes.get("error")
    if isinstance(want, str):
        assert error and want in error, error
    else:
        assert bool(error) == bool(want), error


def _error_of_last_sync(play: Play) -> str:
    return play.reports[-1].error


def _new_template_pod(play: Play) -> bool:
    image = play.world.daemon_set.spec.template["spec"]["containers"][0]["image"]
    history = play.world.tracked.history
    assert history is not None
    current = hash_label(history.current)
    pods = [p for p in play.world.own_pods() if has_hash(p, current)]
    return any(p.spec.containers[0].image == image for p in pods)


def _contains(text: str, want: str) -> None:
    assert want in text, text


def _equal(have: Any, want: Any) -> None:
    assert have == want, (have, want)


def _collision_delta(play: Play) -> int:
    before = decode(play.case["given"]["daemonSet"], DaemonSet).status.collision_count or 0
    return (play.world.daemon_set.status.collision_count or 0) - before


def _check_labels(play: Play, want: dict[str, str]) -> None:
    have = play.notes["pod_labels"]
    assert {key: have.get(key) for key in want} == want


def _check_labels_absent(play: Play, want: list[str]) -> None:
    assert not set(want) & set(play.notes["pod_labels"])


def _check_tolerations(play: Play, want: list[Json]) -> None:
    have = play.notes["tolerations"]
    assert len(have) == len(want) and all(toleration in have for toleration in want), have


def _check_tolerations_include(play: Play, want: list[Json]) -> None:
    assert all(toleration in play.notes["tolerations"] for toleration in want)


def _check_toleration_keys_absent(play: Play, want: list[str]) -> None:
    assert not set(want) & {t.get("key") for t in play.notes["tolerations"]}


def _check_pods_by_node(play: Play, want: dict[str, list[str]]) -> None:
    assert play.notes["podsByNode"] == {node: sorted(names) for node, names in want.items()}


def _check_pod_hashes(play: Play, want: dict[str, str]) -> None:
    have = play.notes["podHashes"]
    assert {name: have.get(name) for name in want} == want


def _check_names(key: str) -> Callable[[Play, list[str]], None]:
    return lambda play, want: _equal(sorted(play.notes[key]), sorted(want))


def _check_error_text(play: Play, want: str) -> None:
    assert want in play.notes["error"]


EXPECT: dict[str, Callable[[Play, Any], None]] = {
    "syncs": _check_syncs,
    "statuses": _check_statuses,
    "queue": _check_queue,
    "rateLimited": lambda p, w: _equal(bool(p.world.controller.queue.rate_limited), w),
    "delayed": _check_delayed,
    "everyCreatedPod": _check_created_pods,
    "targetNodes": _check_targets,
    "readyPodsAtEnd": lambda p, w: _equal(_ready_at_end(p), w),
    "syncErrorContains": lambda p, w: _contains(_error_of_last_sync(p), w),
    "statusUpdateCalls": lambda p, w: _equal(p.world.status_calls, w),
    "getCalls": lambda p, w: _equal(p.world.get_calls, w),
    "error": _check_error,
    "collisionCountDelta": lambda p, w: _equal(_collision_delta(p), w),
    "newTemplatePodEventually": lambda p, w: _equal(_new_template_pod(p), w),
    "current": check_current,
    "labels": _check_labels,
    "labelsAbsent": _check_labels_absent,
    "tolerationsAsSet": _check_tolerations,
    "tolerationsInclude": _check_tolerations_include,
    "tolerationKeysAbsent": _check_toleration_keys_absent,
    "podsByNode": _check_pods_by_node,
    "podHashes": _check_pod_hashes,
    "errorContains": _check_error_text,
    "old": _check_names("old"),
    "claimed": _check_names("claimed"),
    "deletedRevisions": _check_names("deletedRevisions"),
    "found": _check_names("found"),
    "adopted": _check_names("adopted"),
    "released": _check_names("released"),
}


def check(play: Play, key: str, want: Any) -> None:
    """Hold one expectation; a key that no rule and no step knows fails."""
    if key in EXPECT:
        EXPECT[key](play, want)
    else:
        only([key], play.notes, "expectation")
        _equal(play.notes[key], want)
