"""Pod status vectors of our own: readiness judged from outside, and the lost node replayed."""

from msgspec.structs import replace

from kubectl_nodelife.engine.settings import make_settings
from kubectl_nodelife.kube.meta import Time
from kubectl_nodelife.kube.node import Node
from kubectl_nodelife.kube.pod import Pod, PodStatus
from kubectl_nodelife.kube.times import SECOND_NS, parse_time
from kubectl_nodelife.kubelet import machine
from kubectl_nodelife.kubelet.conditions import ready_condition
from kubectl_nodelife.kubelet.status import with_condition
from kubectl_nodelife.outlook.audit.classes import SETTLE_NS, classify
from kubectl_nodelife.outlook.audit.repair_plan import FirstSeen, refusals
from kubectl_nodelife.workloads.force_advice import NodeReadiness, node_readiness
from tests.conformance.checks import only
from tests.conformance.ps_functions import NOW_NS, Case, profiles_of, read, rules_of


def health_of(given: Case) -> NodeReadiness:
    """The node of a classification; without one the pod's node does not exist."""
    if not given.get("node"):
        return NodeReadiness(name="", exists=False)
    renewed = given["node"].get("leaseRenewTime")
    return node_readiness(read(given["node"], Node), parse_time(renewed) if renewed else None)


def classification(case: Case) -> None:
    """The class of one pod, and whether it may be repaired."""
    given, expect = case["given"], case["expect"]
    pod, node = read(given["pod"], Pod), health_of(given)
    now_ns = parse_time(given["clock"])
    assert given.get("settleSeconds", 60) * SECOND_NS == SETTLE_NS
    for profile in profiles_of(case):
        rules = rules_of(profile)
        found = classify(pod, node, rules, now_ns=now_ns)
        seen = FirstSeen(
            parse_time(given["classFirstSeen"]) if "classFirstSeen" in given else now_ns,
            given.get("resourceVersionFirstSeen", given.get("firstSeenResourceVersion", "")),
        )
        grace_ns = make_settings(profile).node_monitor_grace_period_ns
        against = refusals(pod, node, found, seen, rules, grace_ns, now_ns)
        got = {
            "class": found.name,
            "repairAllowed": not against,
            "expectedReady": ready_condition(pod.spec, pod.status, rules).status,
        }
        assert {key: got[key] for key in expect} == expect, against


class Replay:
    """One kubelet whose network is cut, and a node controller that marks its pods, second by
    second. The node controller is played; judged is what the kubelet does about the mark."""

    def __init__(self, case: Case, profile: str) -> None:
        given = case["given"]
        self.rules = rules_of(profile)
        self.blind = given.get("reconcile", "on") == "blind"
        self.grace_s: int = given["monitorGraceSeconds"]
        self.machine = machine.PodStatusMachine(self.rules, self)
        self.api = {f"p{i}": running_pod(f"p{i}", given["node"]) for i in range(given["pods"])}
        self.cut_at: int | None = None
        self.ready_since_s = -3600
        self.ready_log: list[bool] = []
        self.first_seen: dict[str, FirstSeen] = {}
        self.classes: set[str] = set()
        for pod in self.api.values():
            self.machine.observe(pod)
            self.machine.set_pod_status(pod, pod.status, NOW_NS)
        machine.drive(self.machine.sync_batch(NOW_NS), self.answer)

    def could_have_running_containers(self, pod: Pod) -> bool:
        return True

    def pod_resources_are_reclaimed(self, pod: Pod, status: PodStatus) -> bool:
        return False

    def answer(self, call: machine.ApiCall) -> machine.Answer:
        if self.cut_at is not None:
            return None
        if isinstance(call, machine.PatchPodStatusCall):
            self.write(replace(self.api[call.name], status=call.status))
        return self.api[call.name]

    def write(self, pod: Pod) -> None:
        """A write to the API server; the kubelet's watch shows it where its network is up."""
        version = str(int(pod.metadata.resource_version) + 1)
        pod = replace(pod, metadata=replace(pod.metadata, resource_version=version))
        self.api[pod.name] = pod
        if self.cut_at is None:
            self.machine.observe(pod)

    def reconnect(self, second: int) -> None:
        if self.cut_at is not None and second - self.cut_at >= self.grace_s:
            self.ready_since_s = second
        self.cut_at = None
        for pod in self.api.values():
            self.machine.observe(pod)

    def node(self, second: int) -> NodeReadiness:
        lost = self.cut_at is not None and second - self.cut_at >= self.grace_s
        return NodeReadiness(
            name="n1",
            ready="Unknown" if lost else "True",
            ready_since_ns=NOW_NS + self.ready_since_s * SECOND_NS,
        )

    def tick(self, second: int) -> None:
        """What happens in one second: the mark, then the kubelet's batch, then our look."""
        now_ns = NOW_NS + second * SECOND_NS
        if self.cut_at is not None and second == self.cut_at + self.grace_s:
            for pod in list(self.api.values()):
                self.write(marked(pod, now_ns))
        if second * SECOND_NS % machine.SYNC_PERIOD_NS == 0:
            if self.blind:
                self.machine.overwrite_statuses_from_cache()
            machine.drive(self.machine.sync_batch(now_ns), self.answer)
        self.ready_log.append(all(pod.ready() for pod in self.api.values()))
        node = self.node(second)
        self.classes = {
            classify(pod, node, self.rules, now_ns=now_ns).name for pod in self.api.values()
        }


def running_pod(name: str, node: str) -> Pod:
    """A pod whose only container runs and is ready."""
    conditions = ("Initialized", "Ready", "ContainersReady", "PodScheduled")
    container = {"name": "c1", "ready": True, "state": {"running": {}}, "containerID": "x://c1"}
    return read(
        {
            "metadata": {"name": name, "namespace": "d", "uid": name, "resourceVersion": "1"},
            "spec": {"nodeName": node, "containers": [{"name": "c1"}]},
            "status": {
                "phase": "Running",
                "conditions": [{"type": type_, "status": "True"} for type_ in conditions],
                "containerStatuses": [container],
            },
        },
        Pod,
    )


def marked(pod: Pod, now_ns: int) -> Pod:
    """The pod as `MarkPodsNotReady` leaves it."""
    ready = pod.status.condition("Ready")
    assert ready is not None
    ready = replace(ready, status="False", last_transition_time=Time(now_ns))
    conditions = with_condition(pod.status.conditions, ready)
    return replace(pod, status=replace(pod.status, conditions=conditions))


def replay(case: Case) -> None:
    """The lost node that comes back: when Ready fell, when it rose, and what we say of it."""
    for profile in profiles_of(case):
        run = Replay(case, profile)
        steps = {step["at"]: step["op"] for step in case["steps"]}
        only(steps.values(), {"disconnect", "reconnect", "runUntil"}, "op")
        back_at = 0
        for second in range(max(steps) + 1):
            if steps.get(second) == "disconnect":
                run.cut_at = second
            elif steps.get(second) == "reconnect":
                run.reconnect(second)
                back_at = second
            run.tick(second)
        log, expect = run.ready_log, case["expect"]
        got = {
            "readyFalseAtSeconds": log.index(False) if False in log else None,
            "readyAtEnd": str(log[-1]),
            "classAtEnd": " ".join(sorted(run.classes)),
        }
        only(expect, {*got, "readyTrueWithinSecondsAfterReconnect"}, "key of expect")
        if "readyTrueWithinSecondsAfterReconnect" in expect:
            limit = expect["readyTrueWithinSecondsAfterReconnect"]
            assert True in log[back_at : back_at + limit + 1]
        assert {key: got[key] for key in got if key in expect} == {
            key: value for key, value in expect.items() if key in got
        }


def drift(case: Case) -> None:
    """A classification, or a replay."""
    ops = {step["op"] for step in case["steps"]}
    (classification if ops == {"classify"} else replay)(case)


TOPICS = {"drift_from_outside": drift}
