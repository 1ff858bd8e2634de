"""Judges of the audit: a cluster described by hand, the raw objects, and the slow way round."""

import random
import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from msgspec.structs import replace

from kubectl_nodelife.commands.cluster.look import view_of_dump
from kubectl_nodelife.dumps.dump import read_dump
from kubectl_nodelife.engine.settings import make_settings
from kubectl_nodelife.kube.pod import Pod
from kubectl_nodelife.outlook.audit import audit_pods
from kubectl_nodelife.outlook.audit.document import KINDS, pod_audit, seen_in
from tests.pod_status.objects import NOW_NS, ago, health, node, pod
from tests.pod_status.sweeping import LOST, SETTINGS

DUMP = Path(__file__).parents[1] / "dumps" / "stuck-pods.yaml"


def audited() -> audit_pods.AuditResult:
    """The audit of all pods of the dump."""
    view = view_of_dump(read_dump([str(DUMP)]), KINDS)
    return pod_audit(view, seen_in(view, None)).audit


def test_every_class_is_found_in_the_dump() -> None:
    """The dump has a pod of each class, named by what it is; by hand, from the raw objects."""
    found = audited()
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
    found = audited()
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
    context = audit_pods.context_of(make_settings(profile), NOW_NS)
    chance = random.Random(7)
    pods = [random_pod(chance) for _ in range(3000)]
    plain = [p for p in pods if audit_pods._is_plain(p)]
    assert len(plain) > 500
    assert [p for p in plain if list(audit_pods.pod_findings(p, health(), context))] == []


def test_the_sweep_finds_what_judging_each_pod_finds() -> None:
    chance = random.Random(8)
    nodes = {"n1": node(), "n2": LOST}
    pods = [
        replace(p, spec=replace(p.spec, node_name=chance.choice(("n1", "n2", "n3"))))
        for p in (random_pod(chance) for _ in range(2000))
    ]
    seen = audit_pods.AuditInput(pods, nodes, None)
    context, of_node = audit_pods.context_of(SETTINGS, NOW_NS), audit_pods.health_of_nodes(seen)
    one_by_one = [
        f.name
        for p in pods
        if p.spec.node_name in nodes
        for f in audit_pods.pod_findings(p, of_node[p.spec.node_name], context)
    ]
    found = [
        f.name for f in audit_pods.audit(seen, SETTINGS, NOW_NS).findings if f.name != "orphaned"
    ]
    assert sorted(found) == sorted(one_by_one)
