"""Whatever kubectl prints and people save, as objects, or as one clear line of complaint."""

import gzip
import json
from typing import Any

import pytest
import yaml

from kubectl_nodelife.kube.kinds import kind_of
from kubectl_nodelife.kube.load import InputError, Loaded, decode, load_documents, load_objects
from kubectl_nodelife.kube.node import Node
from kubectl_nodelife.kube.pod import Pod
from kubectl_nodelife.kube.workload import DaemonSet, Event, PodDisruptionBudget
from tests.objects import manifest

NODE: dict[str, Any] = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n"}}
POD: dict[str, Any] = manifest("Pod", "p", "ns")
SECRET: dict[str, Any] = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s"}}


def listed(*items: Any, kind: str = "List", **metadata: Any) -> dict[str, Any]:
    return {"apiVersion": "v1", "items": list(items), "kind": kind, "metadata": metadata}


def load(document: Any) -> Loaded:
    """The document read as JSON; that YAML and plain objects read the same is checked here too."""
    loaded = load_objects(json.dumps(document, indent=4).encode(), "f.json")
    assert load_objects(yaml.safe_dump(document).encode(), "f.yaml") == loaded
    assert load_documents([document], "f") == loaded
    return loaded


def names(loaded: Loaded) -> list[str]:
    return [f"{kind_of(obj)} {obj.name}" for obj in loaded.objects]


NODE_TEXT, POD_TEXT = json.dumps(NODE), json.dumps(POD)
BOTH = ["Node n", "Pod p"]

SHAPES: dict[str, tuple[bytes, list[str]]] = {
    "one object": (NODE_TEXT.encode(), ["Node n"]),
    "a List": (json.dumps(listed(NODE, POD)).encode(), BOTH),
    "members in another order": (
        json.dumps({"metadata": {"name": "n"}, "kind": "Node", "apiVersion": "v1"}).encode(),
        ["Node n"],
    ),
    "a List in a List": (json.dumps(listed(listed(NODE), POD)).encode(), BOTH),
    "an array": (f"[{NODE_TEXT},{POD_TEXT}]".encode(), BOTH),
    "JSON documents end to end": (f"{NODE_TEXT}{POD_TEXT}".encode(), BOTH),
    "JSON lines": (f"\n{NODE_TEXT}\n{POD_TEXT}\n\n".encode(), BOTH),
    "lists end to end": (
        f"{json.dumps(listed(NODE), indent=1)}\n{json.dumps(listed(POD))}".encode(),
        BOTH,
    ),
    "YAML documents": (f"---\n{yaml.dump(NODE)}---\n---\n{yaml.dump(POD)}...\n".encode(), BOTH),
    "YAML flow, not deep": (
        b"{apiVersion: v1, kind: Node, metadata: {name: n}, x: [" + b"[]," * 2000 + b"]}",
        ["Node n"],
    ),
    "YAML flow": (b"{apiVersion: v1, kind: Node, metadata: {name: n}}", ["Node n"]),
    "UTF-8 with a byte order mark": (b"\xef\xbb\xbf" + NODE_TEXT.encode(), ["Node n"]),
    "UTF-16": (NODE_TEXT.encode("utf-16"), ["Node n"]),
    "UTF-16 YAML": (yaml.dump(NODE).encode("utf-16"), ["Node n"]),
    "CRLF": (yaml.dump(NODE).replace("\n", "\r\n").encode(), ["Node n"]),
}


@pytest.mark.parametrize(("text", "expected"), SHAPES.values(), ids=SHAPES)
def test_shapes(text: bytes, expected: list[str]) -> None:
    assert names(load_objects(text, "f")) == expected


def test_items_without_kind_take_it_from_their_list() -> None:
    bare = {"metadata": {"name": "n"}}
    assert names(load(listed(bare, kind="NodeList"))) == ["Node n"]
    in_group = {**listed(bare, kind="DaemonSetList"), "apiVersion": "apps/v1"}
    assert isinstance(load(in_group).objects[0], DaemonSet)


def test_kinds_read() -> None:
    assert load(listed(NODE)).kinds_read == {"Node"}
    assert load(listed()).kinds_read == set()
    assert load(listed(kind="PodList")).kinds_read == {"Pod"}
    assert load({"apiVersion": "v1", "kind": "PodList", "items": None}).kinds_read == {"Pod"}
    assert load({"apiVersion": "v1", "kind": "PodList"}).kinds_read == {"Pod"}
    declared = {"nodelife.dev/kinds": "pods, pdb,secrets,leases.coordination.k8s.io"}
    loaded = load(listed(annotations=declared))
    assert loaded.kinds_read == {"Pod", "PodDisruptionBudget", "Lease"}
    assert not loaded.all_kinds
    assert load(listed(NODE, annotations={"nodelife.dev/kinds": "all"})).all_kinds


def test_unknown_kinds_are_counted() -> None:
    foreign = {"apiVersion": "longhorn.io/v1", "kind": "Node", "metadata": {"name": "n"}}
    loaded = load(listed(SECRET, NODE, SECRET, foreign, {**SECRET, "kind": "IPList"}))
    assert names(loaded) == ["Node n"]
    assert loaded.unknown_kinds == {"Secret": 2, "Node.longhorn.io": 1, "IPList": 1}


def test_old_group_versions_are_the_same_kind() -> None:
    loaded = load({**POD, "apiVersion": "extensions/v1beta1", "kind": "DaemonSet"})
    assert isinstance(loaded.objects[0], DaemonSet)


@pytest.mark.parametrize(
    ("version", "matches_all"), [("policy/v1", True), ("policy/v1beta1", False)]
)
@pytest.mark.parametrize("selector", [{}, {"matchLabels": {}}, {"matchLabels": None}])
def test_empty_selector_of_a_budget(
    version: str, matches_all: bool, selector: dict[str, Any]
) -> None:
    budget = {**POD, "apiVersion": version, "kind": "PodDisruptionBudget"}
    (obj,) = load({**budget, "spec": {"selector": selector}}).objects
    assert isinstance(obj, PodDisruptionBudget)
    assert (obj.spec.selector is not None) is matches_all


def test_events_of_both_groups() -> None:
    old = {
        **POD,
        "kind": "Event",
        "involvedObject": {"kind": "Node", "name": "n"},
        "message": "m",
        "count": 3,
        "lastTimestamp": "2026-01-01T00:00:00Z",
    }
    new = {
        **POD,
        "kind": "Event",
        "apiVersion": "events.k8s.io/v1",
        "regarding": {"kind": "Node", "name": "n"},
        "note": "m",
        "deprecatedCount": 3,
        "deprecatedLastTimestamp": "2026-01-01T00:00:00Z",
    }
    (first, second) = load(listed(old, new)).objects
    assert isinstance(first, Event)
    assert first == second


def test_a_namespaced_object_without_namespace_is_in_default() -> None:
    (pod, node) = load(listed({**POD, "metadata": {"name": "p"}}, NODE)).objects
    assert pod.namespace == "default"
    assert node.namespace == ""


def test_nulls_quotes_and_strange_fields_do_not_matter() -> None:
    odd = {
        **POD,
        "spec": {
            "tolerations": None,
            "nodeName": None,
            "containers": [None, {"name": "c", "ports": None, "livenessProbe": {"x": [1]}}],
            "terminationGracePeriodSeconds": "30",
            "hostNetwork": "true",
        },
        "status": {"conditions": [{"type": "Ready", "status": "True", "reason": None}], "new": {}},
        "extra": {"a": [None]},
    }
    (pod,) = load(listed(odd)).objects
    assert isinstance(pod, Pod)
    assert pod.spec.tolerations == ()
    assert [c.name for c in pod.spec.containers] == ["c"]
    assert pod.spec.termination_grace_period_seconds == 30
    assert pod.spec.host_network is True
    assert pod.ready()


def test_yaml_scalars_are_kubectls() -> None:
    text = b"""
apiVersion: v1
kind: Node
metadata:
  name: n
  creationTimestamp: 2026-01-01T00:00:00Z
  labels: {time: 12:30, equals: =, version: "1.0", day: 2026-01-01}
spec: {unschedulable: yes}
"""
    (node,) = load_objects(text, "f").objects
    assert isinstance(node, Node)
    assert node.metadata.labels == {
        "time": "12:30",
        "equals": "=",
        "version": "1.0",
        "day": "2026-01-01",
    }
    assert node.metadata.creation_timestamp == 1_767_225_600_000_000_000
    assert node.spec.unschedulable is True


def with_pod(**changes: Any) -> bytes:
    return json.dumps(listed(SECRET, {**POD, **changes})).encode()


BIG = json.dumps(listed(*[NODE] * 50), indent=1).encode()

FAULTS: dict[str, tuple[bytes, str]] = {
    "nothing": (b"", "f: is empty; name a file"),
    "blanks": (b" \n\t\n", "f: is empty; name a file"),
    "cut off": (BIG[:700], "f: the JSON is cut off in the middle; write it again"),
    "cut off in a string": (BIG[:305], "f: the JSON is cut off in the middle; write it again"),
    "a YAML List cut off": (
        yaml.dump(listed(NODE, POD)).encode().partition(b"namespace")[0],
        "f: kind: is missing: a List without its end is cut off; write it again",
    ),
    "broken JSON": (b'{"kind": "Node"\n "x": 1}', "f: is not JSON: expected ',' or '}' at byte"),
    "second document broken": (
        f"{NODE_TEXT}\n{{]".encode(),
        "f: is not JSON: expected '\"' at byte 66 (line 2); write it again",
    ),
    "words after the JSON": (f"{NODE_TEXT}\nerror: lost".encode(), "f: is not JSON: invalid"),
    "broken YAML": (b"kind: Node\n  a: b\n c", "f: is not YAML: mapping values are not allowed"),
    "YAML with a tab": (b"kind:\n\t- a", "f: is not YAML: found character that cannot start"),
    "YAML of another program": (b"a: !ruby/object {}", "f: is not YAML: could not determine"),
    "binary noise": (bytes(range(256)), "f: is not text, but binary; name a file"),
    "noise without a NUL": (b"\x80\x81\xfe\xff\x90kind", "f: is not text, but binary; name a file"),
    "half a UTF-16 character": (b"\xff\xfea", "f: is not text, but binary; name a file"),
    "gzip": (gzip.compress(b"kind: Node"), "f: is compressed with gzip; unpack it first"),
    "prose": (b"Dear reader, this is no dump.", "f: holds no Kubernetes object; name a file"),
    "separators only": (b"---\n---\n", "f: holds no Kubernetes object; name a file"),
    "a number": (b"42", "f: holds no Kubernetes object; name a file"),
    "no kind": (b'{"a": 1}', "f: kind: is missing: this is not a Kubernetes object; correct it"),
    "no kind in YAML": (b"a: 1", "f: kind: is missing: this is not a Kubernetes object; correct"),
    "no kind in an item": (
        json.dumps(listed(NODE, {"metadata": {"name": "x"}})).encode(),
        "f: items[1].kind: is missing",
    ),
    "kind not text": (b'{"kind": 3, "apiVersion": "v1"}', "f: kind: expected text"),
    "no name": (
        json.dumps(listed(NODE, {**POD, "metadata": {"namespace": "ns"}})).encode(),
        "f: items[1].metadata.name: is missing: a Pod needs a name; correct it or take it out",
    ),
    "no metadata": (b'{"apiVersion":"v1","kind":"Node"}', "f: metadata.name: is missing: a Node"),
    "no name in the second document": (
        f"{yaml.dump(NODE)}---\nkind: Pod\napiVersion: v1\n".encode(),
        "f: document 2: metadata.name: is missing",
    ),
    "an item that is no object": (
        json.dumps(listed(NODE, "x")).encode(),
        "f: items[1]: expected an object, got text",
    ),
    "items that are no list": (
        json.dumps({"kind": "List", "items": {"a": 1}}).encode(),
        "f: items: expected a list, got an object",
    ),
    "wrong type": (
        with_pod(spec={"tolerations": [{}, {"tolerationSeconds": "soon"}]}),
        "f: items[1].spec.tolerations[1].tolerationSeconds: expected `int | null`, got `str`;",
    ),
    "text wanted": (
        with_pod(metadata={"name": "p", "labels": {"a": 1}}),
        "f: items[1].metadata.labels[...]: expected `str`, got `int`; put it in quotes",
    ),
    "no time": (
        with_pod(metadata={"name": "p", "creationTimestamp": "yesterday"}),
        "f: items[1].metadata.creationTimestamp: 'yesterday' is not an RFC 3339 time",
    ),
    "a map for a time": (
        with_pod(metadata={"name": "p", "creationTimestamp": {"a": 1}}),
        "f: items[1].metadata.creationTimestamp: ",
    ),
    "bytes that are not UTF-8": (
        b'{"apiVersion":"v1","kind":"Node","metadata":{"name":"\xff"}}',
        "f: holds bytes that are not UTF-8",
    ),
    "a kind that is not UTF-8": (
        b'{"kind":"List","items":[{"apiVersion":"v\xff","kind":"Node"}]}',
        "f: items[0]: holds bytes that are not UTF-8",
    ),
    "too deep": (b'{"a":' + b"[" * 100_000, "f: is nested too deeply"),
    "too deep in YAML": (b"a: " + b"[" * 99_999 + b"]" * 99_999, "f: is nested too deeply"),
    "too deep in a line of YAML": (b"a:\n" + b"- " * 99_999 + b"b", "f: is nested too deeply"),
}


@pytest.mark.parametrize(("text", "message"), FAULTS.values(), ids=FAULTS)
def test_faults_are_one_line_with_file_path_and_remedy(text: bytes, message: str) -> None:
    with pytest.raises(InputError) as refusal:
        load_objects(text, "f")
    assert str(refusal.value).startswith(message)
    assert "\n" not in str(refusal.value)
    assert refusal.value.source == "f"


def test_decode_names_the_path() -> None:
    with pytest.raises(InputError, match=r"^spec\.nodeName: expected"):
        decode("Pod", {"spec": {"nodeName": 7}})


def test_progress_is_told_now_and_then() -> None:
    seen: list[int] = []
    load_objects(json.dumps(listed(*[NODE] * 2500)).encode(), "f", seen.append)
    assert seen == [1000, 2000, 2500]


def test_well_formed_dumps_never_become_dictionaries(monkeypatch: pytest.MonkeyPatch) -> None:
    def slow(*_: Any) -> Any:
        raise AssertionError("the slow way was taken")

    monkeypatch.setattr("kubectl_nodelife.kube.codec.plain", slow)
    document = listed(NODE, POD, SECRET, resourceVersion="")
    assert names(load_objects(json.dumps(document, indent=4).encode(), "f")) == BOTH
    two = f"{json.dumps(document)}\n{NODE_TEXT}\n".encode()
    assert names(load_objects(two, "f")) == [*BOTH, "Node n"]


def test_neighbours_share_what_is_equal_and_nothing_else() -> None:
    def replica(name: str, image: str) -> dict[str, Any]:
        return {
            **POD,
            "metadata": {"name": name, "namespace": "ns", "labels": {"app": "a"}},
            "spec": {
                "nodeName": name,
                "tolerations": [{"operator": "Exists"}],
                "containers": [{"name": "c", "image": image}],
            },
        }

    raw = [replica("a", "i:1"), NODE, replica("b", "i:1"), replica("c", "i:2")]
    loaded = load_objects(json.dumps(listed(*raw)).encode(), "f")
    assert loaded == load_documents([listed(*raw)], "f")
    a, b, c = (obj for obj in loaded.objects if isinstance(obj, Pod))
    assert a.metadata.labels is b.metadata.labels is c.metadata.labels
    assert a.spec.tolerations is b.spec.tolerations is c.spec.tolerations
    assert a.spec.containers is b.spec.containers
    assert [pod.spec.containers[0].image for pod in (a, b, c)] == ["i:1", "i:1", "i:2"]
    assert [pod.spec.node_name for pod in (a, b, c)] == ["a", "b", "c"]
