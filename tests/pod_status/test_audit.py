"""The sweep: pods that only a human releases or that nobody moves, and what each finding cites."""

from __future__ import annotations

import random
import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from msgspec.structs import replace

from kubectl_nodelife.commands.audit import seen_in
from kubectl_nodelife.commands.inputs import read_snapshot, settings_from
from kubectl_nodelife.engine.settings import make_settings
from kubectl_nodelife.kube.node import Lease, Node
from kubectl_nodelife.kube.pod import Pod
from kubectl_nodelife.outlook.audit.notes import NOTES
from kubectl_nodelife.outlook.audit.sweep import (
    Audit,
    Seen,
    _is_plain,
    audit,
    context_of,
    health_of_nodes,
    judge,
)
from tests.pod_status.objects import NOW_NS, ago, health, lease, marked, node, owner, pod

DUMP = Path(__file__).parents[1] / "dumps" / "stuck-pods.yaml"
SETTINGS = make_settings("v1.36")
FOR_EVER = [{"operator": "Exists"}]
FIVE_MINUTES = [{"operator": "Exists", "tolerationSeconds": 300}]
EVICTED = {"status__phase": "Failed", "status__reason": "Evicted", "conditions": {"Ready": None}}


def sweep(*pods: Pod, nodes: tuple[Node, ...] | None = None, **leases: Lease) -> Audit:
    """Audit these pods among these nodes, by default one that is well."""
    nodes = (node(),) if nodes is None else nodes
    seen = Seen(pods, {n.name: n for n in nodes}, leases or None)
    return audit(seen, SETTINGS, NOW_NS)


def classes(*pods: Pod, nodes: tuple[Node, ...] | None = None) -> list[str]:
    return [f.name for f in sweep(*pods, nodes=nodes).findings]


LOST = node(ready="Unknown", ready_for=600, heartbeat=640, reason="NodeStatusUnknown")
OUT_OF_SERVICE = "node.kubernetes.io/out-of-service:NoExecute"


@pytest.mark.parametrize(
    "overdue_s, of_node, finalizers, expected",
    [
        pytest.param(60, LOST, [], [], id="given-a-minute"),
        pytest.param(61, LOST, [], ["terminating-dead-node"], id="node-lost"),
        pytest.param(61, node(ready="False"), [], ["terminating-dead-node"], id="node-sick"),
        pytest.param(61, LOST, ["a/b"], ["terminating-dead-node"], id="node-lost-and-finalizer"),
        pytest.param(61, node(), ["a/b"], ["terminating-finalizer"], id="finalizer"),
        pytest.param(60, node(), ["a/b"], [], id="finalizer-given-a-minute"),
        pytest.param(61, node(), [], ["terminating-slow"], id="kubelet-at-work"),
        pytest.param(61, node(name="n2"), [], ["orphaned"], id="node-gone"),
        pytest.param(-30, LOST, [], [], id="within-its-grace-period"),
    ],
)
def test_terminating(
    overdue_s: int, of_node: Node, finalizers: list[str], expected: list[str]
) -> None:
    dying = pod(metadata__deletionTimestamp=ago(overdue_s), metadata__finalizers=finalizers)
    assert classes(dying, nodes=(of_node,)) == expected


@pytest.mark.parametrize(
    "subject, nodes, expected",
    [
        pytest.param(pod(), (), ["orphaned"], id="no-such-node"),
        pytest.param(pod(status__phase="Succeeded"), (), ["orphaned"], id="ended-on-no-node"),
        pytest.param(pod(spec__nodeName="", status__phase="Pending"), (), [], id="not-bound"),
        pytest.param(pod(**EVICTED), None, ["evicted-leftover"], id="evicted"),
        pytest.param(
            pod(**{**EVICTED, "status__reason": "Terminated"}), None, [], id="terminated-by-what"
        ),
        pytest.param(
            pod(
                **{**EVICTED, "status__reason": "Terminated"},
                status__message="Pod was terminated in response to imminent node shutdown.",
            ),
            None,
            ["evicted-leftover"],
            id="node-shutdown",
        ),
        pytest.param(
            pod(
                status__phase="Failed",
                conditions={
                    "Ready": ("False", "PodFailed", ""),
                    "ContainersReady": "False",
                    "DisruptionTarget": ("True", "DeletionByTaintManager", ""),
                },
            ),
            None,
            ["evicted-leftover"],
            id="put-out-by-somebody",
        ),
        pytest.param(
            pod(
                status__phase="Failed",
                conditions={"Ready": ("False", "PodFailed", ""), "ContainersReady": "False"},
            ),
            None,
            [],
            id="failed-by-itself",
        ),
    ],
)
def test_orphans_and_leftovers(
    subject: Pod, nodes: tuple[Node, ...] | None, expected: list[str]
) -> None:
    assert classes(subject, nodes=nodes) == expected


@pytest.mark.parametrize(
    "tolerations, kind, of_node, expected",
    [
        pytest.param(FOR_EVER, "DaemonSet", LOST, "daemonset-never-evicted", id="daemon"),
        pytest.param(FOR_EVER, "ReplicaSet", LOST, "never-evicted", id="tolerates-all"),
        pytest.param(FIVE_MINUTES, "DaemonSet", LOST, None, id="daemon-for-five-minutes"),
        pytest.param([], "ReplicaSet", LOST, None, id="tolerates-nothing"),
        pytest.param(FOR_EVER, "DaemonSet", node(), None, id="node-is-well"),
        pytest.param(
            [{"operator": "Exists", "key": "node.kubernetes.io/unreachable"}],
            "DaemonSet",
            node(ready="False"),
            None,
            id="tolerates-the-other-taint",
        ),
        pytest.param(
            [{"operator": "Exists", "key": "node.kubernetes.io/unreachable"}],
            "DaemonSet",
            node(
                ready="Unknown", taints=("node.kubernetes.io/unreachable:NoExecute", "x:NoExecute")
            ),
            None,
            id="a-taint-of-somebody-else-evicts-it",
        ),
    ],
)
def test_never_evicted(
    tolerations: list[Any], kind: str, of_node: Node, expected: str | None
) -> None:
    subject = marked(spec__tolerations=tolerations, metadata__ownerReferences=owner(kind))
    found = classes(subject, nodes=(of_node,))
    stays = [name for name in found if name.endswith("never-evicted")]
    assert stays == ([expected] if expected else [])


def test_a_lagging_pod_is_given_a_minute() -> None:
    started = [{"name": "c", "ready": True, "state": {"running": {"startedAt": ago(30)}}}]
    words = ("False", "ContainersNotReady", "containers with unready status: [c]")
    young = pod(conditions={"Ready": words}, status__containerStatuses=started)
    assert classes(young) == []
    assert classes(pod(conditions={"Ready": words})) == ["lagging"]


def test_ages_are_those_of_the_newest_fact() -> None:
    (back,) = sweep(marked(since=900), nodes=(node(ready_for=120),)).findings
    assert back.since_ns == NOW_NS - 120 * 10**9
    assert back.since_field == "node.status.conditions[Ready].lastTransitionTime"
    (again,) = sweep(marked(since=90), nodes=(node(ready_for=120),)).findings
    assert again.since_ns == NOW_NS - 90 * 10**9


def test_what_was_not_read_is_said_and_not_guessed() -> None:
    found = audit(Seen([pod(), marked("m")], None, None), SETTINGS, NOW_NS)
    assert found.findings == ()
    assert found.counts == {"ok": 1, "unknown": 1}
    assert any("nodes were not read" in line for line in found.not_evaluated)
    assert any("1 pods bear the node controller's mark" in line for line in found.not_evaluated)


def test_a_stale_lease_alone_makes_no_finding_but_a_warning() -> None:
    seen = Seen([pod(), marked("m")], {"n1": node()}, {"n1": lease(age=600)})
    found = audit(seen, SETTINGS, NOW_NS)
    assert [f.name for f in found.findings] == ["stuck-not-ready"]
    assert ["600s old" in line for line in found.warnings] == [True]


# -- advice


def advice_for(of_node: Node, profile: str = "v1.36", **fields: Any) -> Any:
    dying = pod(metadata__deletionTimestamp=ago(600), **fields)
    seen = Seen([dying], {of_node.name: of_node}, None)
    (finding,) = audit(seen, make_settings(profile), NOW_NS).findings
    return finding.advice


def test_a_lost_node_may_be_forced_after_power_off_only() -> None:
    advice = advice_for(LOST)
    assert (advice.force_delete, advice.out_of_service_taint) == ("only-after-power-off",) * 2
    assert any("powered off" in line for line in advice.evidence_missing)
    assert advice.commands[0].startswith("kubectl taint node n1 node.kubernetes.io/out-of-service=")
    assert any("out-of-service:NoExecute-" in line for line in advice.undo)


def test_the_cloud_says_that_the_machine_is_off() -> None:
    off = node(ready="Unknown", taints=("node.cloudprovider.kubernetes.io/shutdown:NoSchedule",))
    advice = advice_for(off)
    assert any("shut down" in line for line in advice.evidence_found)
    assert not any("powered off" in line for line in advice.evidence_missing)


def test_a_kubelet_that_speaks_is_never_forced() -> None:
    advice = advice_for(node(ready="False", heartbeat=5))
    assert (advice.force_delete, advice.out_of_service_taint, advice.commands) == (
        "never",
        "never",
        (),
    )


def test_out_of_service_does_it_by_itself() -> None:
    assert advice_for(node(ready="Unknown", taints=(OUT_OF_SERVICE,))).force_delete == "not-needed"


def test_the_taint_is_of_no_use_before_1_26() -> None:
    advice = advice_for(LOST, profile="v1.25")
    assert advice.out_of_service_taint == "unavailable"
    assert not any("taint" in command for command in advice.commands)


def test_hazards_of_a_stateful_pod() -> None:
    volume = {"name": "v", "persistentVolumeClaim": {"claimName": "data"}}
    advice = advice_for(
        LOST,
        metadata__ownerReferences=owner("StatefulSet", "db"),
        metadata__finalizers=["a/b"],
        spec__volumes=[volume],
    )
    text = " ".join(advice.hazards)
    assert "StatefulSet db" in text and "claim data" in text and "a/b" in text


# -- judges


def test_every_class_is_found_in_the_dump() -> None:
    """The dump has a pod of each class, named by what it is; by hand, from the raw objects."""
    snapshot = read_snapshot([str(DUMP)])
    found = audit(seen_in(snapshot, None), settings_from(snapshot.profile, ()), snapshot.moment_ns)
    by_pod: dict[str, list[str]] = {}
    for finding in found.findings:
        by_pod.setdefault(finding.pod.name, []).append(finding.name)
    assert by_pod == {
        "agent-lost": ["marked-node-down", "daemonset-never-evicted"],
        "agent-sick": ["stale-ready", "daemonset-never-evicted"],
        "db-0": ["terminating-dead-node"],
        "dying-on-sick": ["terminating-dead-node"],
        "evicted": ["evicted-leftover"],
        "gated": ["gates"],
        "kept": ["terminating-finalizer"],
        "lagging": ["lagging"],
        "marked": ["marked-node-down"],
        "orphan": ["orphaned"],
        "orphan-dying": ["orphaned"],
        "recovering": ["recovering"],
        "slow": ["terminating-slow"],
        "stale-on-lost": ["stale-ready"],
        "stale-on-sick": ["stale-ready"],
        "static-lost": ["marked-node-down", "never-evicted"],
        "stuck": ["stuck-not-ready"],
        "stuck-and-old-news": ["stuck-not-ready"],
    }


def test_every_cited_field_stands_in_the_raw_objects() -> None:
    raw = yaml.safe_load(DUMP.read_text())["items"]
    objects = {(o["kind"], o["metadata"]["name"]): o for o in raw}
    snapshot = read_snapshot([str(DUMP)])
    found = audit(seen_in(snapshot, None), settings_from(snapshot.profile, ()), snapshot.moment_ns)
    checked = 0
    for finding in found.findings:
        assert finding.evidence, finding.name
        for field, value in finding.evidence:
            checked += cited(objects, finding.pod.name, field, value)
    assert checked > 100


def cited(objects: dict[Any, Any], pod_name: str, field: str, value: str) -> int:
    """Check one citation against the raw objects; 0 for what is computed and not read."""
    if field.endswith(" by the container statuses"):
        return 0
    where = re.fullmatch(r"(?:(node|lease) (\S+): |pod\.)(.+)", field)
    assert where is not None, field
    kind, name, path = where.groups()
    obj = objects[(kind.capitalize(), name) if kind else ("Pod", pod_name)]
    for key, entry in re.findall(r"([A-Za-z]+)(?:\[([^\]]+)\])?\.?", path):
        obj = obj[key]
        if entry:
            (obj,) = [o for o in obj if entry in (o.get("type"), o.get("name"))]
    if isinstance(obj, str):
        instant = re.sub(r"\.\d+Z$", "Z", obj)
        assert value in (obj, instant, f"{obj}: no such node"), field
    elif path == "spec.taints":
        assert value == ", ".join(f"{t['key']}:{t['effect']}" for t in obj)
    elif path == "metadata.ownerReferences":
        assert value == f"{obj[0]['kind']}/{obj[0]['name']}"
    elif path == "spec.tolerations":
        assert value.endswith(", for ever") and any("tolerationSeconds" not in t for t in obj)
    elif path == "metadata.finalizers":
        assert value == ", ".join(obj)
    else:
        (state,) = obj["state"]
        ready = str(obj["ready"]).lower()
        assert value.startswith(f"ready: {ready}, {state}"), field
    return 1


def random_pod(chance: random.Random) -> Pod:
    """A pod with every field that the quick look reads set at random, mostly to what is usual."""

    def word() -> str:
        return chance.choices(("True", "False", "Unknown"), (20, 1, 1))[0]

    names = chance.choice((["c"], ["c"], ["b", "a"], ["a", "b", "c"]))
    shown = sorted(names) if chance.random() < 0.9 else names[:-1]
    init = chance.choice(([], [], ["i"], ["i", "j"]))
    return pod(
        conditions={
            "Ready": chance.choices((word(), ("True", "X", ""), None), (20, 1, 1))[0],
            "ContainersReady": chance.choices((word(), None), (20, 1))[0],
            "Initialized": chance.choices((word(), None), (20, 1))[0],
        },
        metadata__deletionTimestamp=None if chance.random() < 0.95 else ago(600),
        spec__containers=[{"name": n} for n in names],
        spec__initContainers=[
            {"name": n, "restartPolicy": "Always"} if chance.random() < 0.1 else {"name": n}
            for n in init
        ],
        spec__readinessGates=[{"conditionType": "g"}] if chance.random() < 0.05 else [],
        status__phase=chance.choices(("Running", "Pending", "Failed"), (20, 1, 1))[0],
        status__containerStatuses=[
            {"name": n, "ready": chance.random() < 0.95, "state": {"running": {}}} for n in shown
        ],
        status__initContainerStatuses=[
            {"name": n, "ready": chance.random() < 0.9, "started": chance.random() < 0.9}
            for n in init
        ],
    )


@pytest.mark.parametrize("profile", ["v1.16", "v1.36"])
def test_the_quick_look_never_hides_a_finding(profile: str) -> None:
    """Whoever is told apart as plain has no finding by the whole judgement either."""
    context = context_of(make_settings(profile), NOW_NS)
    chance = random.Random(7)
    pods = [random_pod(chance) for _ in range(3000)]
    plain = [p for p in pods if _is_plain(p)]
    assert len(plain) > 500
    assert [p for p in plain if list(judge(p, health(), context))] == []


def test_the_sweep_finds_what_judging_each_pod_finds() -> None:
    chance = random.Random(8)
    nodes = {"n1": node(), "n2": LOST}
    pods = [
        replace(p, spec=replace(p.spec, node_name=chance.choice(("n1", "n2", "n3"))))
        for p in (random_pod(chance) for _ in range(2000))
    ]
    seen = Seen(pods, nodes, None)
    context, of_node = context_of(SETTINGS, NOW_NS), health_of_nodes(seen)
    one_by_one = [
        f.name
        for p in pods
        if p.spec.node_name in nodes
        for f in judge(p, of_node[p.spec.node_name], context)
    ]
    found = [f.name for f in audit(seen, SETTINGS, NOW_NS).findings if f.name != "orphaned"]
    assert sorted(found) == sorted(one_by_one)


def test_the_documentation_lists_every_class() -> None:
    page = (Path(__file__).parents[2] / "docs" / "pod-status.md").read_text()
    rows = re.findall(r"^\| `([a-z-]+)` \| (wrong|note) \|", page, re.MULTILINE)
    assert rows == [(name, note.severity) for name, note in NOTES.items()]


def test_an_eviction_waits_for_the_taint() -> None:
    subject = marked(spec__tolerations=FIVE_MINUTES)
    (finding,) = sweep(subject, nodes=(LOST,)).findings
    assert finding.eviction is not None
    assert finding.eviction.due_ns is None
    assert finding.eviction.because.startswith("evicted 300s after the node's NoExecute taint")


def test_a_ready_node_that_was_not_heard_of_since_is_named_so() -> None:
    dying = pod(metadata__deletionTimestamp=ago(300))
    for heartbeat, said in ((301, True), (299, False)):
        (finding,) = sweep(dying, nodes=(node(heartbeat=heartbeat),)).findings
        assert ("nothing was heard of it since" in finding.because) is said


def told(subject: Pod, of_node: Node) -> Any:
    (finding, *_) = sweep(subject, nodes=(of_node,)).findings
    return finding


def test_what_to_do_where_that_is_not_what_the_class_says() -> None:
    dying = pod(metadata__deletionTimestamp=ago(600))
    off = node(ready="Unknown", taints=(OUT_OF_SERVICE,))
    assert "nothing has to be forced" in told(dying, off).what_to_do
    assert "mend the node" in told(dying, node(ready="False")).what_to_do
    assert "make sure that the machine is off" in told(dying, LOST).what_to_do
    job = pod(**EVICTED, metadata__ownerReferences=owner("Job"))
    assert "its Job counts it" in told(job, node()).what_to_do
    assert "its Job" not in told(pod(**EVICTED), node()).what_to_do
    ended = pod(status__phase="Succeeded")
    assert "1.25" in told(ended, node()).what_to_do
    unready = [{"name": "c", "ready": False, "state": {"running": {}}}]
    on_paper = pod(status__containerStatuses=unready)
    assert "kubelet's log" in told(on_paper, node()).what_to_do
    assert "fenced" in told(pod(), LOST).what_to_do


def test_each_finding_says_why_in_a_sentence_of_its_own() -> None:
    unready = [{"name": "c", "ready": False, "state": {"running": {}}}]
    gate: dict[str, Any] = {"spec__readinessGates": [{"conditionType": "g"}]}
    waits = ("False", "ReadinessGatesNotReady", "x")
    sentences = {
        told(pod(status__phase="Failed"), LOST).because: "its phase is Failed",
        told(pod(), LOST).because: "node n1 is Ready=Unknown",
        told(pod(status__containerStatuses=unready), node()).because: "unready status: [c]",
        told(
            pod(**gate, conditions={"Ready": waits, "g": "True"}), node()
        ).because: "gates are all",
        told(pod(**gate, conditions={"Ready": waits, "g": "False"}), node()).because: '"g" is not',
        told(pod(conditions={"ContainersReady": "False"}), node()).because: "does not fit",
        told(pod(conditions={"Ready": ("False", "X", "")}), node()).because: "Ready is False (X)",
        told(pod(**EVICTED), node()).because: "the kubelet evicted it",
    }
    for sentence, part in sentences.items():
        assert part in sentence


def test_a_deleted_pod_whose_node_was_not_read() -> None:
    dying = pod(metadata__deletionTimestamp=ago(600))
    (finding,) = audit(Seen([dying], None, None), SETTINGS, NOW_NS).findings
    assert finding.name == "terminating-slow"
    assert "read the nodes too" in finding.what_to_do
    unbound = pod(metadata__deletionTimestamp=ago(600), spec__nodeName="")
    (finding,) = audit(Seen([unbound], None, None), SETTINGS, NOW_NS).findings
    assert finding.name == "orphaned" and "never bound" in finding.because


def test_known_issues_of_the_very_shape_come_first() -> None:
    lost, sick = told(pod(), LOST), told(pod(), node(ready="False"))
    ended = told(pod(status__phase="Succeeded"), node())
    unready = [{"name": "c", "ready": False, "state": {"running": {}}}]
    on_paper = told(pod(status__containerStatuses=unready), node())
    first = [f.known_issues[:1] for f in (lost, sick, ended, on_paper)]
    assert first == [
        ("kubernetes/kubernetes#112733",),
        ("kubernetes/kubernetes#125618",),
        ("kubernetes/kubernetes#108594",),
        (),
    ]


def test_a_mark_is_as_old_as_its_transition() -> None:
    (finding,) = sweep(marked(since=100), nodes=(LOST,)).findings
    assert finding.since_ns == NOW_NS - 100 * 10**9
