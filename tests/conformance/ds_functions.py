"""DaemonSet vectors of single rules: each notes what the rule says under the expectation's name."""

from dataclasses import replace
from functools import partial
from typing import Any

import msgspec

from kubectl_nodelife.controllers.daemonset.behaviour import Behaviour
from kubectl_nodelife.controllers.daemonset.pods_on_node import (
    SECOND_NS,
    DaemonPods,
    FailedPodsBackoff,
    failed_pods_backoff_key,
    is_pod_updated,
)
from kubectl_nodelife.controllers.daemonset.rolling_update import budget_of
from kubectl_nodelife.controllers.daemonset.sync import claim_pods, sync_nodes
from kubectl_nodelife.controllers.daemonset.template import (
    NoTargetNodeError,
    PodTemplate,
    add_or_update_tolerations,
    default_tolerations,
    get_target_node_name,
    replace_node_name_affinity,
)
from kubectl_nodelife.engine import actions as dact
from kubectl_nodelife.engine.events import Outcome
from kubectl_nodelife.kube.workload import (
    ControllerRevision,
    DaemonSet,
    default_daemon_set_spec,
    default_pod_template,
)
from kubectl_nodelife.outlook.daemonset import kubectl_rollout
from tests.conformance.ds_play import Play
from tests.conformance.ds_world import Json
from tests.conformance.world import decode

KEY = ("default", "x")


def rules_of(play: Play) -> Behaviour:
    """The rules of the vector's profile."""
    return play.world.controller.rules


# --- topics without steps ------------------------------------------------------------------------


def judge(play: Play) -> None:
    """node_should_run_daemon_pod."""
    node = play.world.cache.nodes[play.case["given"]["node"]["metadata"]["name"]]
    verdict = play.world.tracked.node_index.verdict(node)
    play.notes |= {
        "shouldRun": verdict.should_run,
        "shouldSchedule": verdict.should_run,
        "wantToRun": verdict.want_to_run,
        "shouldContinueRunning": verdict.should_continue_running,
    }
    assert verdict.text and verdict.rule


def group_pods(play: Play) -> None:
    """pods_by_node: claims, then the map."""
    world = play.world
    part = world.drive(claim_pods)
    rules = rules_of(play)
    if play.case["given"].get("includeDeletedTerminal"):
        rules = replace(rules, finished_terminating_left_out=False)
    pods = DaemonPods(world.daemon_set, rules)
    for pod in world.cache.pods.values():
        list(pods.observe(None, pod))
    play.notes |= {
        "error": part.error,
        "podsByNode": {
            node: sorted(pod.name for pod in members.values())
            for node, members in pods.by_node.items()
        },
        "adopted": _names(play, dact.AdoptObject),
        "released": _names(play, dact.ReleaseObject),
    }


def count_desired(play: Play) -> None:
    """desired_counts."""
    world = play.world
    node_index = world.tracked.refresh(world.now, world.hash)
    desired = node_index.tally.desired
    budget = budget_of(world.tracked, desired)
    without = [
        node
        for node in world.cache.nodes.values()
        if node_index.verdict(node).should_run and world.tracked.pods.on_node(node.name) is None
    ]
    play.notes |= {
        "maxSurge": budget.max_surge,
        "maxUnavailable": budget.max_unavailable,
        "desiredNumberScheduled": desired,
        "nodesWithoutPodEntryAdded": len(without),
        "numUnavailable": node_index.lacking_available,
    }


def _names(play: Play, kind: type[dact.ObjectAction]) -> list[str]:
    return sorted(a.name for a in play.world.actions if isinstance(a, kind))


# --- template and tolerations --------------------------------------------------------------------


def apply_default_tolerations(play: Play) -> None:
    given = play.case["given"]
    spec = given["podSpec"]
    wanted = default_tolerations(
        bool(spec.get("hostNetwork")), bool(given.get("critical")), rules_of(play)
    )
    play.notes["tolerations"] = add_or_update_tolerations(spec.get("tolerations", []), wanted)


def create_pod_template(play: Play) -> None:
    template = PodTemplate(play.world.daemon_set, rules_of(play))
    play.notes["pod_labels"] = template.labels(play.case["given"]["hash"])


def replace_affinity(play: Play) -> None:
    given = play.case["given"]
    node_affinity = replace_node_name_affinity(given["affinity"], given["nodeName"])["nodeAffinity"]
    required = node_affinity["requiredDuringSchedulingIgnoredDuringExecution"]
    preferred = node_affinity.get("preferredDuringSchedulingIgnoredDuringExecution")
    play.notes |= {"requiredTerms": required["nodeSelectorTerms"], "preferredKept": preferred}


def target_node(play: Play) -> None:
    pod = play.world.pod(play.case["given"]["pod"])
    try:
        play.notes |= {"nodeName": get_target_node_name(pod), "error": False}
    except NoTargetNodeError:
        play.notes |= {"nodeName": None, "error": True}


def apply_defaults(play: Play) -> None:
    raw = {"metadata": {"name": "x"}, "spec": play.case["given"]["spec"]}
    spec = default_daemon_set_spec(decode(raw, DaemonSet).spec)
    play.notes |= {
        "updateStrategy": msgspec.to_builtins(spec.update_strategy),
        "revisionHistoryLimit": spec.revision_history_limit,
        "templateSpec": default_pod_template(spec.template).get("spec"),
    }


def ask_whether_updated(play: Play) -> None:
    given = play.case["given"]
    play.notes["updated"] = is_pod_updated(
        given["podLabels"],
        given["currentHash"],
        given["templateGeneration"],
        rules_of(play).generation_label_counts,
    )


# --- expectations, backoff, slow start -----------------------------------------------------------


def set_expectations(play: Play, adds: int, deletes: int) -> None:
    play.world.controller.expectations.expect(KEY, adds, deletes, play.world.now)
    read_expectations(play)


def read_expectations(play: Play) -> None:
    """Note the record, if there is one, and whether it holds a sync back."""
    expectations, now = play.world.controller.expectations, play.world.now
    record = expectations.get(KEY)
    play.notes["satisfied"] = expectations.satisfied(KEY, now)
    if record is not None:
        play.notes |= {"adds": record.adds, "deletes": record.deletes}


def creation_observed(play: Play) -> None:
    play.world.controller.expectations.creation_observed(KEY)
    read_expectations(play)


def deletion_observed(play: Play) -> None:
    play.world.controller.expectations.deletion_observed(KEY)
    read_expectations(play)


def advance_seconds(play: Play, by: float) -> None:
    play.world.now += round(by * SECOND_NS)
    read_expectations(play)


def advance_backoff(play: Play, times: int = 1) -> None:
    given = play.case["given"]
    backoff = play.notes.setdefault(
        "backoff",
        FailedPodsBackoff(given["baseSeconds"] * SECOND_NS, given["maxSeconds"] * SECOND_NS),
    )
    delays = play.notes.setdefault("delaysSeconds", [])
    delays += [backoff.next("key", play.world.now) / SECOND_NS for _ in range(times)]


def backoff_key(play: Play) -> None:
    key = failed_pods_backoff_key(play.world.daemon_set, play.case["given"]["nodeName"])
    play.notes["key"] = key


SLOW_SET: Json = {
    "metadata": {"name": "x", "namespace": "default", "uid": "uid-x", "generation": 1},
    "spec": {
        "selector": {"matchLabels": {"a": "b"}},
        "template": {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": []}},
    },
}


def slow_start(play: Play) -> None:
    """`count` creates of which call number `failAtCall` (from 1) fails."""
    given = play.case["given"]
    case = {**play.case, "given": {"daemonSet": SLOW_SET}}
    world = Play(case, play.world.profile).world
    context = world.context()
    context.then(partial(sync_nodes, [], [(f"n{i}", "") for i in range(given["count"])], "h"))
    sizes: list[int] = []
    calls = 0
    failures: list[Outcome] = []
    while batch := context.advance(failures):
        creates = [a for a in batch if isinstance(a, dact.CreatePod)]
        failures = [
            Outcome(action, 500)
            for number, action in enumerate(creates, calls + 1)
            if number == given["failAtCall"]
        ]
        calls += len(creates)
        sizes += [len(creates)] if creates else []
    failed = 1 if context.error else 0
    assert not failed or given["failAtCall"] is not None, context.error
    play.notes |= {
        "batchSizes": sizes,
        "attempted": calls,
        "successes": calls - failed,
        "skipped": given["count"] - calls,
    }


# --- kubectl -------------------------------------------------------------------------------------


def kubectl_status(play: Play) -> None:
    try:
        state = kubectl_rollout.rollout_status(play.world.daemon_set)
        play.notes |= {"message": state.message, "done": state.done, "error": None}
    except kubectl_rollout.RolloutError as error:
        play.notes |= {"message": "", "done": True, "error": str(error)}


def kubectl_history(play: Play, revision: int = 0) -> None:
    history = _history(play)
    play.notes["message"] = "" if history else kubectl_rollout.NO_HISTORY
    play.notes["rows"] = [
        [r.revision, kubectl_rollout.change_cause(r) or "<none>"] for r in history
    ]
    if revision:
        try:
            found = kubectl_rollout.revision_of_number(history, revision)
            play.notes["template"] = kubectl_rollout.template_of(found)
        except kubectl_rollout.RolloutError as error:
            play.notes["error"] = str(error)


def kubectl_undo(play: Play, toRevision: int) -> None:  # noqa: N803
    try:
        plan = kubectl_rollout.rollback(play.world.daemon_set, _history(play), toRevision)
    except kubectl_rollout.RolloutError as error:
        play.notes["error"] = str(error)
        return
    play.notes["result"] = plan.message
    play.notes["patchedWith"] = None if plan.skipped else plan.revision.name
    if not plan.skipped:
        play.update_template(kubectl_rollout.template_of(plan.revision))


def _history(play: Play) -> list[ControllerRevision]:
    revisions: list[Any] = list(play.world.cache.all("ControllerRevision"))
    return kubectl_rollout.history_of(play.world.daemon_set, revisions)


STEPS = {
    "advanceSeconds": advance_seconds,
    "applyDefaultTolerations": apply_default_tolerations,
    "applyDefaults": apply_defaults,
    "backoffAdvance": advance_backoff,
    "backoffKey": backoff_key,
    "createPodTemplate": create_pod_template,
    "creationObserved": creation_observed,
    "deletionObserved": deletion_observed,
    "getTargetNodeName": target_node,
    "isPodUpdated": ask_whether_updated,
    "replaceNodeNameAffinity": replace_affinity,
    "rolloutHistory": kubectl_history,
    "rolloutStatus": kubectl_status,
    "rolloutUndo": kubectl_undo,
    "setExpectations": set_expectations,
    "slowStart": slow_start,
}
WITHOUT_STEPS = {
    "desired_counts": count_desired,
    "expectations_and_backoff": read_expectations,
    "node_should_run_daemon_pod": judge,
    "pods_by_node": group_pods,
}
