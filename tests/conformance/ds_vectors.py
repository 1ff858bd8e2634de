"""The DaemonSet controller against upstream's own test vectors."""

from collections.abc import Callable
from typing import Any

from tests.conformance import ds_expect, ds_functions, ds_play, ds_revisions
from tests.conformance.checks import only
from tests.conformance.ds_play import Play
from tests.conformance.ds_world import Json, profiles_of

STEPS: dict[str, Callable[..., Any]] = {
    **ds_play.STEPS,
    **ds_functions.STEPS,
    **ds_revisions.STEPS,
}


def play(case: Json) -> None:
    """Play one vector in each of its profiles."""
    for profile in profiles_of(case):
        run = Play(case, profile)
        only((step["op"] for step in case["steps"]), STEPS, "step")
        if not case["steps"]:
            ds_functions.WITHOUT_STEPS[case["topic"]](run)
        for step in case["steps"]:
            arguments = {key: value for key, value in step.items() if key != "op"}
            STEPS[step["op"]](run, **arguments)
        for key, want in case["expect"].items():
            ds_expect.check(run, key, want)


TOPICS = dict.fromkeys(
    (
        "api_defaults",
        "default_tolerations",
        "desired_counts",
        "events_to_queue",
        "expectations_and_backoff",
        "kubectl_rollout",
        "node_should_run_daemon_pod",
        "pod_template_and_placement",
        "pods_by_node",
        "pods_should_be_on_node",
        "revision_history",
        "rolling_update",
        "status",
    ),
    play,
)
