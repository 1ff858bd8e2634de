"""Pod status vectors that ask for one function: conditions, merging, equality, transitions."""

from collections.abc import Callable, Iterable
from typing import Any

import msgspec
from msgspec.structs import fields

from kubectl_nodelife.engine.settings import parse_profile
from kubectl_nodelife.kube.pod import (
    ContainerState,
    ContainerStateTerminated,
    ContainerStatus,
    Pod,
    PodCondition,
    PodSpec,
    PodStatus,
)
from kubectl_nodelife.kube.times import decode_time, format_time, parse_time
from kubectl_nodelife.kubelet.conditions import (
    PodSandbox,
    containers_ready_condition,
    initialized_condition,
    ready_condition,
    ready_to_start_condition,
)
from kubectl_nodelife.kubelet.containers import illegal_transition
from kubectl_nodelife.kubelet.releases import StatusRules, rules_for
from kubectl_nodelife.kubelet.status import (
    is_status_equal_by_kubelet,
    merge_pod_status,
    normalize_status,
    with_last_transition_times,
)

Case = dict[str, Any]

NOW_NS = parse_time("2020-01-01T00:00:00Z")
WORDS = ("type", "status", "reason", "message")


def profiles_of(case: Case) -> list[str]:
    """The profiles in which the case must hold."""
    return ["v1.16", "current"] if case["profile"] == "any" else [case["profile"]]


def rules_of(profile: str) -> StatusRules:
    """The rules of a profile by name."""
    return rules_for(parse_profile(profile))


def read(value: Any, type_: Any) -> Any:
    """A slice from plain JSON values."""
    return msgspec.convert(value, type_, dec_hook=decode_time)


def in_each_profile(judge: Callable[[Case, StatusRules], None]) -> Callable[[Case], None]:
    """A function of a case that runs `judge` with the rules of each of the case's profiles."""

    def run(case: Case) -> None:
        for profile in profiles_of(case):
            judge(case, rules_of(profile))

    return run


GENERATORS = {
    "generateContainersReady": containers_ready_condition,
    "generateReady": ready_condition,
    "generateInitialized": initialized_condition,
}


@in_each_profile
def condition(case: Case, rules: StatusRules) -> None:
    """One generated condition, word for word."""
    (step,) = case["steps"]
    spec, status = read(case["given"]["spec"], PodSpec), read(case["given"]["status"], PodStatus)
    got = GENERATORS[step["op"]](spec, status, rules)
    wanted = case["expect"]["condition"]
    assert {word: getattr(got, word) for word in WORDS} == {w: wanted.get(w, "") for w in WORDS}


@in_each_profile
def ready_to_start(case: Case, rules: StatusRules) -> None:
    """PodReadyToStartContainers, from the sandboxes that the runtime has."""
    assert [step["op"] for step in case["steps"]] == ["generateReadyToStart"]
    given = case["given"]
    spec = read(given["spec"], PodSpec)
    sandboxes = []
    for raw in given["sandboxes"]:
        raw = dict(raw)
        raw.pop("attempt", None)
        ready, ip = raw.pop("state") == "ready", raw.pop("ip", "unknown") or ""
        network = raw.pop("network", None)
        assert not raw, f"unknown fields of a sandbox: {raw}"
        same = network is None or (network == "node") is spec.host_network
        sandboxes.append(PodSandbox(ready, ip, same))
    got = ready_to_start_condition(spec, sandboxes, rules)
    wanted = case["expect"]["condition"]
    assert {word: getattr(got, word) for word in WORDS} == {w: wanted.get(w, "") for w in WORDS}


@in_each_profile
def merge(case: Case, rules: StatusRules) -> None:
    """`mergePodStatus`: conditions as a set, phase, reason and message."""
    assert [step["op"] for step in case["steps"]] == ["mergePodStatus"]
    given = case["given"]
    got = merge_pod_status(
        read(given["oldStatus"], PodStatus),
        read(given["newStatus"], PodStatus),
        rules,
        could_have_running_containers=given.get("couldHaveRunningContainers", False),
        now_ns=NOW_NS,
    )
    wanted = read(case["expect"]["status"], PodStatus)
    words = case["expect"]["compareConditionsBy"]
    assert word_set(got.conditions, words) == word_set(wanted.conditions, words)
    assert len(got.conditions) == len(wanted.conditions)
    others = case["expect"]["status"].keys() - {"conditions"}
    for field in fields(PodStatus):
        if field.encode_name in others | {"phase", "reason", "message"}:
            assert getattr(got, field.name) == getattr(wanted, field.name), field.name


def word_set(conditions: Iterable[PodCondition], words: Iterable[str]) -> set[tuple[str, ...]]:
    """The conditions reduced to these words."""
    return {tuple(getattr(c, word) for word in words) for c in conditions}


@in_each_profile
def transition(case: Case, rules: StatusRules) -> None:
    """The container state check by itself."""
    assert [step["op"] for step in case["steps"]] == ["checkTransition"]
    given = case["given"]
    refusal = illegal_transition(
        read(given["oldStatus"], PodStatus),
        read(given["newStatus"], PodStatus),
        read(given["spec"], PodSpec),
        rules,
    )
    assert (refusal is None) == case["expect"]["accepted"], refusal


@in_each_profile
def equality_and_times(case: Case, rules: StatusRules) -> None:
    """Equality as the kubelet sees it, transition times, normalising."""
    given, ops = case["given"], [step["op"] for step in case["steps"]]
    pod = read(given.get("pod", {}), Pod)
    if ops == ["updateLastTransitionTime"]:
        return check_transition_time(case)
    if ops == ["normalize"]:
        return check_normal_form(case, pod, rules)
    old, new = (read(given[which], PodStatus) for which in ("old", "new"))
    for op in ops:
        if op == "normalizeBoth":
            old, new = (normalize_status(pod.spec, status, rules) for status in (old, new))
        else:
            assert op == "equalByKubelet", op
            equal = is_status_equal_by_kubelet(old, new, rules)
            assert equal == case["expect"]["equal"]
    return None


def check_transition_time(case: Case) -> None:
    """`updateLastTransitionTime` for one condition type."""
    given = case["given"]
    old, new = (
        PodStatus(conditions=read(given[which], tuple[PodCondition, ...]))
        for which in ("oldConditions", "newConditions")
    )
    got = with_last_transition_times(new, old, (given["type"],), parse_time(given["clock"]))
    condition = got.condition(given["type"])
    time = None if condition is None else condition.last_transition_time
    assert (None if time is None else format_time(time)) == case["expect"]["lastTransitionTime"]


def check_normal_form(case: Case, pod: Pod, rules: StatusRules) -> None:
    """`normalizeStatus`: times, and the bytes of termination messages."""
    given, expect = case["given"], dict(case["expect"])
    if "statusPattern" in given:
        status = patterned(given["statusPattern"])
    elif "messageBytes" in given:
        status = messages_of(given["messageBytes"], pod.spec)
    else:
        status = read(given["status"], PodStatus)
    got = normalize_status(pod.spec, status, rules)
    lengths = message_lengths(got)
    if "messageBytes" in expect:
        wanted = expect.pop("messageBytes")
        assert {name: lengths[name] for name in wanted} == wanted
    if "everyMessageLength" in expect:
        bounds = expect.pop("everyMessageLength")
        assert all(bounds["min"] <= n <= bounds["max"] for n in lengths.values())
        assert lengths
    if "totalLengthAtMost" in expect:
        assert sum(lengths.values()) <= expect.pop("totalLengthAtMost")
    if "order" in expect:
        assert [s.name for s in got.container_statuses or ()] == expect.pop("order")
    if "initOrder" in expect:
        assert [s.name for s in got.init_container_statuses or ()] == expect.pop("initOrder")
    times = times_in(got)
    assert {key: sorted(times[key]) for key in expect} == {k: [v] for k, v in expect.items()}


def times_in(status: PodStatus) -> dict[str, set[str]]:
    """Each kind of time in the status, as text."""
    found: dict[str, set[str]] = {}

    def note(key: str, time: int | None) -> None:
        if time is not None:
            assert time % 1_000_000_000 == 0, key
            found.setdefault(key, set()).add(format_time(time))

    note("startTime", status.start_time)
    for c in status.conditions:
        note("lastTransitionTime", c.last_transition_time)
        note("lastProbeTime", c.last_probe_time)
    for container in every_container(status):
        for state in (container.state, container.last_state):
            if state.running is not None:
                note("runningStartedAt", state.running.started_at)
            if state.terminated is not None:
                note("terminatedStartedAt", state.terminated.started_at)
                note("terminatedFinishedAt", state.terminated.finished_at)
    return found


def every_container(status: PodStatus) -> tuple[ContainerStatus, ...]:
    """Init, regular and ephemeral statuses."""
    return (
        *(status.init_container_statuses or ()),
        *(status.container_statuses or ()),
        *status.ephemeral_container_statuses,
    )


def message_lengths(status: PodStatus) -> dict[str, int]:
    """Container -> bytes of its longest termination message, where it has one."""
    lengths: dict[str, int] = {}
    for container in every_container(status):
        for state in (container.state, container.last_state):
            if state.terminated is not None:
                size = len(state.terminated.message.encode())
                lengths[container.name] = max(size, lengths.get(container.name, 0))
    return lengths


def with_message(name: str, message: str) -> ContainerStatus:
    """A container whose last run ended with that message."""
    ended = ContainerState(terminated=ContainerStateTerminated(message=message))
    return ContainerStatus(name=name, last_state=ended)


def messages_of(sizes: dict[str, int], spec: PodSpec) -> PodStatus:
    """A status whose containers ended with messages of so many bytes."""
    init = {c.name for c in spec.init_containers}
    return PodStatus(
        container_statuses=tuple(
            with_message(name, "x" * size) for name, size in sizes.items() if name not in init
        ),
        init_container_statuses=tuple(
            with_message(name, "x" * size) for name, size in sizes.items() if name in init
        ),
    )


def patterned(pattern: Case) -> PodStatus:
    """The 48 statuses of the upstream test."""
    assert pattern["repeats"] == "24 + index mod 3"
    assert pattern["where"] == "lastState.terminated.message"

    def statuses(part: str) -> tuple[ContainerStatus, ...]:
        bounds = pattern[part]
        return tuple(
            with_message(f"container{i}", pattern["messageUnit"] * (24 + i % 3))
            for i in range(bounds["from"], bounds["to"] + 1)
        )

    return PodStatus(
        container_statuses=statuses("containerStatuses"),
        init_container_statuses=statuses("initContainerStatuses"),
    )
