"""What stays of an object in a snapshot, and what becomes a digest."""

import json
from typing import Any

import pytest

from kubectl_nodelife.controllers.daemonset.history import match
from kubectl_nodelife.daemon.settings import flags_of
from kubectl_nodelife.kube.codec import decode
from kubectl_nodelife.kube.redaction import DIGEST, RememberedDigests
from kubectl_nodelife.kube.workload import ControllerRevision
from kubectl_nodelife.snapshot import Redaction

KEY = bytes(range(32))


def redact(document: dict[str, Any], kind: str = "Pod", key: bytes = KEY) -> dict[str, Any]:
    copied = json.loads(json.dumps(document))
    made: dict[str, Any] = Redaction(key)(kind, copied)
    return made


def digest(text: str) -> str:
    return Redaction(KEY).digest(text)


def container(**fields: object) -> dict[str, Any]:
    return {"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", **fields}]}}


REFERENCE = {"name": "B", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}}


@pytest.mark.parametrize(
    "given, kept",
    [
        pytest.param(
            container(env=[{"name": "A", "value": "x"}, REFERENCE]),
            container(
                env=[
                    {"name": digest("A"), "value": digest("x")},
                    {
                        "name": digest("B"),
                        "valueFrom": {"secretKeyRef": {"name": digest("s"), "key": digest("k")}},
                    },
                ]
            ),
            id="all-of-env",
        ),
        pytest.param(
            container(args=["-a", "x"], command=["sh"]),
            container(args=[digest("-a"), digest("x")], command=[digest("sh")]),
            id="words-of-args-and-command",
        ),
        pytest.param(
            container(livenessProbe={"exec": {"command": ["x"]}, "periodSeconds": 5}),
            container(livenessProbe={"exec": {"command": [digest("x")]}, "periodSeconds": 5}),
            id="a-probe's-command",
        ),
        pytest.param(
            container(startupProbe={"httpGet": {"httpHeaders": [{"name": "H", "value": "x"}]}}),
            container(
                startupProbe={
                    "httpGet": {"httpHeaders": [{"name": digest("H"), "value": digest("x")}]}
                }
            ),
            id="a-probe's-headers",
        ),
        pytest.param(
            {"metadata": {"labels": {"env": "a", "command": "b", "annotations": "c"}}},
            {"metadata": {"labels": {"env": "a", "command": "b", "annotations": "c"}}},
            id="labels-of-such-names-stay",
        ),
        pytest.param(
            {"spec": {"selector": {"env": {"args": ["x"], "annotations": {"k": "x"}}}}},
            {
                "spec": {
                    "selector": {"env": {"args": [digest("x")], "annotations": {"k": digest("x")}}}
                }
            },
            id="another-shape-under-such-a-name-is-looked-into",
        ),
        pytest.param(
            {"metadata": {"annotations": {"kubernetes.io/config.mirror": "m", "a/b": "x"}}},
            {"metadata": {"annotations": {"kubernetes.io/config.mirror": "m"}}},
            id="annotations-that-count",
        ),
        pytest.param(
            {"metadata": {"annotations": {"a/b": "x"}, "managedFields": [{"manager": "m"}]}},
            {"metadata": {"annotations": {}}},
            id="no-annotations-differs-from-none-at-all",
        ),
        pytest.param(
            {"spec": {"template": {"metadata": {"annotations": {"a/b": "x"}}}}},
            {"spec": {"template": {"metadata": {"annotations": {"a/b": digest("x")}}}}},
            id="a-template-that-differs-is-another-one",
        ),
        pytest.param(
            {"status": {"containerStatuses": [{"state": {"terminated": {"message": "x"}}}]}},
            {
                "status": {
                    "containerStatuses": [{"state": {"terminated": {"message": digest("x")}}}]
                }
            },
            id="what-a-program-said-last",
        ),
        pytest.param(
            {"status": {"message": "x", "reason": "Evicted"}},
            {"status": {"message": digest("x"), "reason": "Evicted"}},
            id="what-a-kubelet-says-of-a-pod",
        ),
        pytest.param(
            {"provisioner": "p", "parameters": {"key": "x"}},
            {"provisioner": digest("p"), "parameters": {"key": digest("x")}},
            id="a-storage-class's-parameters",
        ),
        pytest.param(
            {"spec": {"csi": {"volumeAttributes": {"key": "x"}}}},
            {"spec": {"csi": {"volumeAttributes": {"key": digest("x")}}}},
            id="a-driver's-attributes",
        ),
    ],
)
def test_one_document(given: dict[str, Any], kept: dict[str, Any]) -> None:
    assert redact(given) == kept


def test_who_cordoned_and_tainted_a_node_stays() -> None:
    cordon = {
        "manager": "kubectl",
        "operation": "Update",
        "apiVersion": "v1",
        "time": "2026-11-21T12:00:00Z",
        "fieldsType": "FieldsV1",
        "fieldsV1": {"f:spec": {"f:unschedulable": {}}},
    }
    labels = {**cordon, "manager": "x", "fieldsV1": {"f:metadata": {"f:labels": {"f:secret": {}}}}}
    given = {"metadata": {"name": "a1", "managedFields": [labels, cordon]}}
    assert redact(given, "Node")["metadata"]["managedFields"] == [cordon]
    assert "managedFields" not in redact(given, "Pod")["metadata"]


def test_digests_are_keyed() -> None:
    given = container(env=[{"name": "A", "value": "x"}])
    assert redact(given) == redact(given)
    assert redact(given) != redact(given, key=bytes(32))
    assert digest("x").startswith(DIGEST)
    assert digest("x") != digest("y")


def test_as_many_digests_are_remembered_as_there_is_room_for() -> None:
    made: list[str] = []

    def digest(text: str) -> str:
        made.append(text)
        return f"of {text}"

    digests = RememberedDigests(digest)
    most, long = RememberedDigests.MOST, "x" * (RememberedDigests.LONGEST + 1)
    texts = [*map(str, range(most)), "0", long, long, "more", "0"]
    assert [digests[text] for text in texts] == [f"of {text}" for text in texts]
    assert made[most:] == [long, long, "more", "0"]
    assert len(digests) == 2


TEMPLATE = {
    "metadata": {"labels": {"app": "a"}, "annotations": {"restartedAt": "now"}},
    "spec": {
        "containers": [
            {
                "name": "c",
                "image": "i:1",
                "env": [{"name": "A", "value": "x"}],
                "command": ["sh", "-c", "x"],
            }
        ]
    },
}


def _other(member: str) -> dict[str, Any]:
    other: dict[str, Any] = json.loads(json.dumps(TEMPLATE))
    inside = other["spec"]["containers"][0]
    match member:
        case "env":
            inside["env"][0]["value"] = "y"
        case "command":
            inside["command"].append("y")
        case "annotations":
            other["metadata"]["annotations"]["restartedAt"] = "later"
    return other


@pytest.mark.parametrize("member", ["", "env", "command", "annotations"])
def test_a_template_equals_its_revision_as_before(member: str) -> None:
    owner = {"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "d", "controller": True}
    data = {"spec": {"template": {**_other(member), "$patch": "replace"}}}
    revision = {"metadata": {"name": "d-1", "ownerReferences": [owner]}, "data": data}
    daemon_set = {"metadata": {"name": "d"}, "spec": {"template": TEMPLATE}}
    for made in (lambda document, kind: document, redact):
        found = decode("ControllerRevision", made(revision, "ControllerRevision"))
        template = made(daemon_set, "DaemonSet")["spec"]["template"]
        assert isinstance(found, ControllerRevision)
        assert match(template, found) is (member == "")


def test_revisions_of_an_operator_are_one_digest() -> None:
    owner = {"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachine", "controller": True}
    data = {"spec": {"template": {"spec": {"volumes": [{"cloudInit": {"userData": "s"}}]}}}}
    given = {"metadata": {"ownerReferences": [owner]}, "data": data, "revision": 2}
    kept = redact(given, "ControllerRevision")
    assert kept["revision"] == 2
    assert list(kept["data"]) == ["digest"]
    assert kept["data"]["digest"].startswith(DIGEST)


def control_plane(component: str, *words: str, member: str = "command") -> dict[str, Any]:
    metadata = {"namespace": "kube-system", "name": f"{component}-cp-1"}
    return {"metadata": metadata, "spec": {"containers": [{"name": component, member: [*words]}]}}


@pytest.mark.parametrize(
    "words",
    [
        ("--node-monitor-grace-period=20s", "--token=s3cr3t"),
        ("--node-monitor-grace-period", "20s", "--token", "s3cr3t"),
        ("--enable-taint-manager", "s3cr3t", "--feature-gates=A=true"),
        ("sh", "-c", "exec kcm --token=s3cr3t --node-eviction-rate=0.2 --feature-gates A=true"),
        ("sh", "-c", "exec 'kcm --token=s3cr3t --node-eviction-rate=0.2'"),
    ],
)
def test_flags_that_decide_survive_and_nothing_else(words: tuple[str, ...]) -> None:
    for member in ("command", "args"):
        given = control_plane("kube-controller-manager", *words, member=member)
        kept = redact(given)
        assert "s3cr3t" not in json.dumps(kept)
        shown = dict(flags_of(kept, "kube-controller-manager"))
        if not any("'" in word for word in words):  # a line within a line is not taken apart
            assert shown == dict(flags_of(given, "kube-controller-manager"))
            assert shown


def test_other_pods_of_that_name_elsewhere_keep_no_flags() -> None:
    given = control_plane("kube-controller-manager", "--node-eviction-rate=0.2")
    given["metadata"]["namespace"] = "default"
    assert dict(flags_of(redact(given), "kube-controller-manager")) == {}


def test_an_annotation_that_a_policy_asks_for_stays() -> None:
    redaction = Redaction(KEY)
    expression = "'example.com/keep' in object.metadata.annotations"
    redaction.admit({"spec": {"validations": [{"expression": expression}]}})
    pod = {"metadata": {"annotations": {"example.com/keep": "1", "example.com/other": "2"}}}
    assert redaction("Pod", pod)["metadata"]["annotations"] == {"example.com/keep": "1"}


@pytest.mark.parametrize(
    ("read", "keys"),
    [
        (["object.metadata.annotations['a/b'] == 'x'"], {"a/b"}),
        (["object.metadata.annotations[\"a\"].startsWith('x')"], {"a"}),
        (["has(object.metadata.annotations.team)"], {"team"}),
        (["object.metadata.?annotations[?'a'].orValue('') == ''"], {"a"}),
        (["object.metadata[?'annotations'].orValue({})['z'] == ''"], {"z"}),
        (["object.metadata.annotations.exists(k, k == 'team')"], {"team"}),
        (["object.metadata.annotations", "variables.notes['a'] == object.spec.b"], {"a"}),
        (["object.a", "object.labels['b'] == 'c' && 'd' in object.metadata.labels"], set()),
        (["object.metadata.annotations.size() < 9", "object.a == 'b'"], set()),
        (["object.metadata.annotations['a'", "'"], set()),
    ],
)
def test_only_what_is_read_as_an_annotation_stays(read: list[str], keys: set[str]) -> None:
    """`object.a` is no word of the annotation `a`, nor is a value that one is compared with."""
    redaction = Redaction(KEY)
    redaction.admit({"spec": {"validations": [{"expression": text} for text in read]}})
    notes = dict.fromkeys(["a", "a/b", "b", "c", "d", "team", "x", "z", "object", "size"], "s3cret")
    kept = redaction("Pod", {"metadata": {"annotations": notes}})["metadata"]["annotations"]
    assert kept.keys() == keys


@pytest.mark.parametrize("key", ["a", "example.com/ke", "object"])
def test_an_annotation_whose_key_is_only_a_part_of_a_word_goes(key: str) -> None:
    redaction = Redaction(KEY)
    redaction.admit({"spec": {"expression": "'example.com/keep' in object.metadata.annotations"}})
    assert redaction("Pod", {"metadata": {"annotations": {key: "s"}}})["metadata"] == {
        "annotations": {}
    }
