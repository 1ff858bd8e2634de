"""Leaving "terminated", and the states of a dead pod, where upstream's vectors are silent."""

from typing import Any

import msgspec
import pytest

from kubectl_nodelife.engine.settings import parse_profile
from kubectl_nodelife.kube.pod import ContainerState, Pod, PodSpec, PodStatus
from kubectl_nodelife.kubelet.conditions import (
    containers_ready_condition,
    initialized_condition,
    owned_types,
    ready_condition,
    shared_types,
)
from kubectl_nodelife.kubelet.containers import (
    has_pod_initialized,
    illegal_transition,
    terminated_status,
)
from kubectl_nodelife.kubelet.releases import StatusRules, rules_for

WAITING: dict[str, Any] = {"waiting": {}}
RUNNING: dict[str, Any] = {"running": {}}


def ended(code: int) -> dict[str, Any]:
    return {"terminated": {"exitCode": code}}


def rules(profile: str) -> StatusRules:
    return rules_for(parse_profile(profile))


def spec_of(**fields: Any) -> PodSpec:
    return msgspec.convert({"restartPolicy": "Never"} | fields, PodSpec)


def status_of(*states: Any, init: Any = (), names: str = "abcdef", phase: str = "") -> PodStatus:
    """A status; each state is a container state, or a whole status without its name."""

    def whole(name: str, state: dict[str, Any]) -> dict[str, Any]:
        return {"name": name} | (state if "state" in state else {"state": state})

    return msgspec.convert(
        {
            "phase": phase,
            "containerStatuses": [whole(n, s) for n, s in zip(names, states, strict=False)],
            "initContainerStatuses": [whole(n, s) for n, s in zip("ijkl", init, strict=False)],
        },
        PodStatus,
    )


def allowed(spec: PodSpec, old: PodStatus, new: PodStatus, profile: str = "v1.36") -> bool:
    return illegal_transition(old, new, spec, rules(profile)) is None


def rule(action: str, operator: str, *values: int) -> dict[str, Any]:
    return {"action": action, "exitCodes": {"operator": operator, "values": list(values)}}


@pytest.mark.parametrize(
    "policy, restart_rules, code, expected",
    [
        pytest.param("Always", [], 0, True, id="its-own-always"),
        pytest.param("OnFailure", [], 0, False, id="its-own-on-failure-after-success"),
        pytest.param("OnFailure", [], 1, True, id="its-own-on-failure-after-failure"),
        pytest.param("Never", [], 1, False, id="its-own-never"),
        pytest.param("Never", [rule("Restart", "In", 42)], 42, True, id="rule-in"),
        pytest.param("Never", [rule("Restart", "In", 42)], 1, False, id="rule-in-other-code"),
        pytest.param("Never", [rule("Restart", "NotIn", 42)], 1, True, id="rule-not-in"),
        pytest.param("Never", [rule("Restart", "NotIn", 42)], 42, False, id="rule-not-in-that"),
        pytest.param("Never", [rule("Explode", "In", 42)], 42, False, id="unknown-action"),
        pytest.param("", [rule("Restart", "In", 42)], 42, False, id="rules-need-a-policy"),
        pytest.param("Never", [{"action": "Restart"}], 42, False, id="rule-without-codes"),
    ],
)
def test_a_container_with_a_policy_of_its_own(
    policy: str, restart_rules: list[Any], code: int, expected: bool
) -> None:
    own = {"name": "a", "restartPolicy": policy, "restartPolicyRules": restart_rules}
    spec = spec_of(containers=[{"name": "z", "restartPolicy": "Always"}, own])
    old, new = status_of(ended(code)), status_of(RUNNING)
    assert allowed(spec, old, new) is expected
    assert not allowed(spec, old, new, "v1.34")


def test_a_rule_may_restart_all_containers() -> None:
    everything = [rule("RestartAllContainers", "In", 42)]
    for where in ("containers", "initContainers"):
        spec = spec_of(**{where: [{"name": "x", "restartPolicyRules": everything}]})
        assert allowed(spec, status_of(ended(0)), status_of(RUNNING))
        assert not allowed(spec, status_of(ended(0)), status_of(RUNNING), "v1.35")
    one = spec_of(containers=[{"name": "x", "restartPolicyRules": [rule("Restart", "In", 42)]}])
    assert not allowed(one, status_of(ended(0)), status_of(RUNNING))


def test_a_sidecar_may_always_come_back_from_1_29_on() -> None:
    spec = spec_of(initContainers=[{"name": "i", "restartPolicy": "Always"}])
    old, new = status_of(init=[ended(0)]), status_of(init=[RUNNING])
    assert allowed(spec, old, new) and not allowed(spec, old, new, "v1.28")


def test_init_statuses_must_fit_the_spec_from_1_29_on() -> None:
    old = status_of(init=[RUNNING, RUNNING])
    for names, fits in (("ij", True), ("ijk", True), ("i", False), ("ji", False), ("", False)):
        spec = spec_of(initContainers=[{"name": name} for name in names])
        assert allowed(spec, old, old) is fits, names
        assert allowed(spec, old, old, "v1.28"), names


def states_after(profile: str, old: PodStatus, spec: PodSpec | None = None) -> list[list[str]]:
    """`w`, `r`, the exit code, or `-` of each regular and each init container."""
    pod = Pod(spec=spec or PodSpec(), status=old)
    new = terminated_status(pod, old, rules(profile), is_static=False)
    return [
        [letter(s.state) for s in statuses or ()]
        for statuses in (new.container_statuses, new.init_container_statuses)
    ]


def letter(state: ContainerState) -> str:
    if state.terminated is not None:
        return f"{state.terminated.reason[:1]}{state.terminated.exit_code}"
    return "w" if state.waiting is not None else "r" if state.running is not None else "-"


def test_what_a_dead_pod_leaves_in_each_age() -> None:
    old = status_of(ended(2), RUNNING, WAITING, {}, init=[ended(0), WAITING])
    assert states_after("v1.16", old) == [["0", "0", "0", "0"], ["0", "0"]]
    for profile in ("v1.17", "v1.21"):
        assert states_after(profile, old) == [["2", "C137", "w", "C137"], ["0", "w"]]
    assert states_after("v1.22", old) == [["2", "C137", "C137", "C137"], ["0", "w"]]


def test_only_those_containers_that_there_are_statuses_of() -> None:
    for profile in ("v1.16", "v1.17", "v1.36"):
        only_regular = msgspec.convert({"containerStatuses": [{"name": "a"}]}, PodStatus)
        only_init = msgspec.convert({"initContainerStatuses": [{"name": "i"}]}, PodStatus)
        assert states_after(profile, only_regular)[0] != ["-"]
        assert states_after(profile, only_init)[1] != ["-"]


@pytest.mark.parametrize("phase", ["Running", "Pending", "", "Odd"])
def test_a_dead_pod_has_failed_from_1_27_on(phase: str) -> None:
    old = status_of(phase=phase)
    for profile, expected in (("v1.26", phase), ("v1.27", "Failed")):
        new = terminated_status(Pod(), old, rules(profile), is_static=False)
        assert new.phase == expected
    assert terminated_status(Pod(), old, rules("v1.36"), is_static=True).phase == phase


SIDECAR = {"name": "j", "restartPolicy": "Always"}


@pytest.mark.parametrize(
    "init_spec, status, expected",
    [
        pytest.param([], status_of(WAITING), True, id="nothing-to-initialise"),
        pytest.param([{"name": "i"}], status_of(WAITING), False, id="no-init-statuses"),
        pytest.param([{"name": "i"}], status_of(RUNNING), True, id="a-container-runs"),
        pytest.param([{"name": "i"}], status_of({}), True, id="a-container-without-a-state"),
        pytest.param(
            [{"name": "i"}],
            status_of({"state": WAITING, "lastState": ended(1)}),
            True,
            id="a-container-ran-before",
        ),
        pytest.param(
            [{"name": "i"}], status_of(WAITING, init=[ended(0)]), True, id="the-last-one-is-through"
        ),
        pytest.param(
            [{"name": "i"}], status_of(WAITING, init=[ended(1)]), False, id="the-last-one-failed"
        ),
        pytest.param(
            [{"name": "i"}, {"name": "j"}],
            status_of(WAITING, init=[ended(0), WAITING]),
            False,
            id="the-last-one-waits",
        ),
        pytest.param(
            [{"name": "x"}], status_of(WAITING, init=[ended(0)]), False, id="statuses-do-not-fit"
        ),
        pytest.param(
            [{"name": "i"}, SIDECAR],
            status_of(WAITING, init=[ended(0), {"state": RUNNING, "started": True}]),
            True,
            id="the-last-sidecar-has-started",
        ),
        pytest.param(
            [{"name": "i"}, SIDECAR],
            status_of(WAITING, init=[ended(0), {"state": RUNNING, "started": False}]),
            False,
            id="the-last-sidecar-has-not-started",
        ),
        pytest.param(
            [{"name": "i"}, SIDECAR],
            status_of(WAITING, init=[ended(0), {"state": ended(0), "started": True}]),
            False,
            id="the-last-sidecar-has-ended",
        ),
    ],
)
def test_has_the_pod_been_initialised(
    init_spec: list[Any], status: PodStatus, expected: bool
) -> None:
    pod = Pod(spec=spec_of(initContainers=init_spec), status=status)
    assert has_pod_initialized(pod, rules("v1.36")) is expected


def test_before_sidecars_the_exit_code_of_the_last_counts() -> None:
    status = status_of(WAITING, init=[ended(0), {"state": ended(0), "started": True}])
    pod = Pod(spec=spec_of(initContainers=[{"name": "i"}, SIDECAR]), status=status)
    assert has_pod_initialized(pod, rules("v1.28"))


# -- conditions


@pytest.mark.parametrize(
    "type_, since, until",
    [
        ("Ready", 16, 99),
        ("Unschedulable", 16, 20),
        ("PodReadyToStartContainers", 29, 99),
        ("PodResizePending", 33, 99),
        ("example.com/x", 99, 99),
    ],
)
def test_whose_condition_it_is(type_: str, since: int, until: int) -> None:
    for minor in range(16, 37):
        owned = owned_types(rules(f"v1.{minor}"))
        assert (type_ in owned) is (since <= minor < until), minor


def test_the_disruption_target_is_shared_from_1_26_on() -> None:
    assert not shared_types(rules("v1.25"))
    assert shared_types(rules("v1.26")) == {"DisruptionTarget"}


def test_conditions_of_a_pod_that_has_ended() -> None:
    spec = spec_of(containers=[{"name": "a"}], initContainers=[{"name": "i"}])
    done = status_of(ended(0), init=[ended(0)], phase="Succeeded")
    failed = status_of(ended(1), init=[ended(0)], phase="Failed")
    new, old = rules("v1.36"), rules("v1.21")
    for ready in (ready_condition, containers_ready_condition):
        assert (ready(spec, done, new).status, ready(spec, done, new).reason) == (
            "False",
            "PodCompleted",
        )
        assert ready(spec, failed, new).reason == "PodFailed"
        assert ready(spec, failed, old).reason == "ContainersNotReady"
    assert initialized_condition(spec, done, new).reason == "PodCompleted"
    assert initialized_condition(spec, failed, new).reason == ""


def test_a_pod_of_sidecars_and_no_statuses_at_all() -> None:
    spec = spec_of(containers=[{"name": "a"}], initContainers=[SIDECAR])
    nothing = PodStatus()
    new = rules("v1.36")
    assert containers_ready_condition(spec, nothing, new).reason == "UnknownContainerStatuses"
    assert initialized_condition(spec, nothing, new).reason == "UnknownContainerStatuses"
    only_init = msgspec.convert({"initContainerStatuses": []}, PodStatus)
    message = "containers with unknown status: [j a]"
    assert containers_ready_condition(spec, only_init, new).message == message


def test_an_ordinary_init_container_that_has_started_is_not_ready() -> None:
    spec = spec_of(initContainers=[{"name": "i"}])
    started = status_of(init=[{"state": RUNNING, "started": True, "ready": False}])
    assert initialized_condition(spec, started, rules("v1.36")).status == "False"
    stale = status_of(RUNNING, names="x", init=[WAITING])
    assert initialized_condition(spec, stale, rules("v1.36")).status == "False"
