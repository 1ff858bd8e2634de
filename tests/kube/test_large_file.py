"""A long file gives the same as one that is read at once, wherever its pieces are cut."""

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import yaml

from kubectl_nodelife.kube import load
from kubectl_nodelife.kube.documents import yaml_documents
from kubectl_nodelife.kube.load import Loaded, load_objects, load_pieces
from kubectl_nodelife.kube.unreadable import InputError

Json = dict[str, Any]


def pod(name: str, **more: Any) -> Json:
    meta = {"name": name, "namespace": "d", "annotations": {"a": '},{"apiVersion":"v1"}]}'}}
    containers = [{"name": "c", "image": "i"}, {"name": "e", "image": "i"}]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": meta,
        "spec": {"nodeName": "n", "containers": containers},
        **more,
    }


def without_kind(obj: Json) -> Json:
    return {key: value for key, value in obj.items() if key not in ("apiVersion", "kind")}


PODS = [pod(f"p{i}") for i in range(9)]
NODES: list[Json] = [
    {"apiVersion": "v1", "kind": "Node", "metadata": {"name": f"n{i}"}} for i in range(5)
]
META: Json = {"annotations": {"nodelife.dev/kinds": "pods"}, "resourceVersion": "7"}
LIST = {"apiVersion": "v1", "items": [*PODS, *NODES], "kind": "List", "metadata": META}
RAW = {"kind": "PodList", "apiVersion": "v1", "metadata": {}, "items": [*map(without_kind, PODS)]}
RAW_LATE = {"apiVersion": "v1", "items": [*map(without_kind, PODS), *NODES], "kind": "PodList"}
EMPTY: Json = {"apiVersion": "v1", "items": [], "kind": "NodeList"}
UNKNOWN = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c", "namespace": "d"}}
DAMAGED = b'{"apiVersion":"v1","kind":"Pod","metadata":{"name":"bad","namespace":"d"},"x":nonsense}'
WRONG = pod("wrong", status=5)


def compact(document: Json) -> bytes:
    return json.dumps(document, separators=(",", ":")).encode()


def pretty(document: Json) -> bytes:
    return json.dumps(document, indent=4).encode() + b"\n"


def with_damage(document: bytes) -> bytes:
    return document.replace(b'"items":[', b'"items":[%b,' % DAMAGED)


def as_yaml(*documents: Json) -> bytes:
    return ("# a comment\n" + yaml.safe_dump_all(documents, explicit_start=True)).encode()


ALIASED = (
    b"apiVersion: v1\nitems:\n"
    b"- apiVersion: v1\n  kind: Pod\n  metadata: {name: a, namespace: d, labels: &l {x: '1'}}\n"
    b"- apiVersion: v1\n  kind: Pod\n  metadata: {name: b, namespace: d, labels: *l}\n"
    b"- apiVersion: v1\n  kind: Pod\n  metadata: {<<: {namespace: d}, name: c}\n"
    b"kind: List\n"
)

FILES = {
    "a list as kubectl prints it": pretty(LIST),
    "a list in one line": compact(LIST),
    "a list as the server gives it": compact(RAW),
    "kinds told after the items": pretty(RAW_LATE),
    "lists one after another": pretty(LIST) + compact(RAW) + b"\n\n" + pretty(EMPTY),
    "an empty list": pretty(EMPTY),
    "objects one after another": b"".join(map(pretty, PODS)),
    "an object, and a list": pretty(NODES[0]) + pretty(LIST),
    "a list, and an object": pretty(LIST) + pretty(NODES[0]),
    "an array": json.dumps(PODS).encode(),
    "kinds that nobody reads": pretty({**LIST, "items": [UNKNOWN, *PODS, UNKNOWN]}),
    "an item that is no JSON": with_damage(compact(LIST)),
    "an item of another shape": pretty({**LIST, "items": [*PODS, WRONG, *NODES]}),
    "a list in a list": pretty({**LIST, "items": [LIST, *PODS]}),
    "one item": pretty({**LIST, "items": PODS[:1]}),
    "a byte order mark": b"\xef\xbb\xbf" + pretty(LIST),
    "UTF-16": pretty(LIST).decode().encode("utf-16"),
    "YAML": as_yaml(*PODS, *NODES),
    "a YAML list": as_yaml(LIST),
    "YAML with a directive": b"%YAML 1.1\n" + as_yaml(*PODS)[12:],
    "a YAML list as the server gives it": as_yaml(RAW),
    "YAML kinds told after the items": as_yaml(RAW_LATE) + as_yaml(NODES[0]),
    "YAML that repeats by aliases": ALIASED,
    "a YAML array": yaml.safe_dump(PODS).encode(),
    "a YAML list in a list": as_yaml({**LIST, "items": [LIST, *PODS]}),
    "a YAML object with items": as_yaml({**NODES[0], "items": [PODS[0], 5]}),
}


def test_a_yaml_list_is_read_item_by_item() -> None:
    text = as_yaml({**LIST, "items": [pod(f"p{i}") for i in range(1000)]})
    read, at = 0, []

    def pieces() -> Iterator[bytes]:
        nonlocal read
        for piece in cut(text, 4096):
            read += 1
            yield piece

    load_pieces(pieces(), "f", whole_bytes=100, seen=lambda kind, obj: at.append(read))
    assert len(at) == 1000 and at[0] < 20 and at[500] < 0.6 * read


def test_what_a_reader_of_pieces_says_is_told() -> None:
    def pieces() -> Iterator[bytes]:
        yield as_yaml(LIST)[:-200]
        raise ValueError("the file is too long")

    with pytest.raises(InputError, match="the file is too long"):
        load_pieces(pieces(), "f", whole_bytes=100)


@pytest.mark.parametrize("scalar", ["{x: &a 1, y: *a}", "[[1, 2], {k: []}]", "!!str 5", "? [a]\n"])
def test_an_unusual_value_is_read_as_pyyaml_does(scalar: str) -> None:
    text = f"kind: Odd\nvalue: {scalar}\n".encode()
    if "?" in scalar:
        with pytest.raises(InputError, match="unhashable"):
            list(yaml_documents(b"? [a]\n: 1\n", "f"))
    else:
        assert list(yaml_documents(text, "f")) == [yaml.safe_load(text)]


def cut(text: bytes, size: int) -> Iterator[bytes]:
    return (text[at : at + size] for at in range(0, len(text), size))


def told(loaded: Loaded) -> Any:
    """All of it; where the kind comes last, so do the objects that waited for it."""
    return (
        sorted((type(obj).__name__, obj.key) for obj in loaded.objects),
        sorted(map(str, loaded.unreadable)),
        loaded.unknown_kinds,
        loaded.kinds_read,
        loaded.annotations,
    )


@pytest.mark.parametrize("size", [1, 7, 100, 1000, 5000, 1 << 20])
@pytest.mark.parametrize("text", FILES.values(), ids=FILES)
def test_pieces_make_no_difference(text: bytes, size: int) -> None:
    whole = load_objects(text, "f")
    seen: list[int] = []
    loaded = load_pieces(cut(text, size), "f", seen.append, whole_bytes=100)
    assert told(loaded) == told(whole)
    assert seen[-1] == len(loaded.objects) + len(loaded.unreadable) + loaded.unknown_kinds.total()


@pytest.mark.parametrize("size", [50, 1000])
@pytest.mark.parametrize(
    "text, what",
    [
        (pretty(LIST)[:-200], "cut off"),
        (pretty(LIST)[:2000], "cut off"),
        (compact({**LIST, "items": [*PODS, {"kind": "Pod", "apiVersion": "v1"}]}), "items[9]"),
        (compact({**LIST, "items": [*PODS, 5]}), "items[9]"),
        (pretty(LIST) + b"nonsense", "is not JSON"),
        (b'{"items": 5}' + b" " * 200, "f"),
        (as_yaml(*PODS) + b"---\na: [\n", "line"),
        (b"\x1f\x8b" + b"x" * 500, "gzip"),
    ],
)
def test_what_is_wrong_is_told_alike(text: bytes, what: str, size: int) -> None:
    with pytest.raises(InputError) as whole:
        load_objects(text, "f")
    with pytest.raises(InputError) as pieces:
        load_pieces(cut(text, size), "f", whole_bytes=100)
    assert what in str(whole.value) and what in str(pieces.value)
    if b"nonsense" not in text and b"[:" not in text:
        assert pieces.value.path == whole.value.path


def test_yaml_lines_count_from_the_beginning() -> None:
    text = as_yaml(*PODS) + b"---\na: ]\n"
    with pytest.raises(InputError) as whole:
        load_objects(text, "f")
    with pytest.raises(InputError) as pieces:
        load_pieces(cut(text, 100), "f", whole_bytes=100)
    assert str(whole.value) == str(pieces.value)


@pytest.mark.parametrize("write", [compact, pretty])
def test_items_are_found_by_what_stands_between_them(
    write: Callable[[Json], bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    managed = [{"apiVersion": "v1", "manager": name} for name in "abcde"]
    conditions = [{"type": name} for name in "abcde"]
    pods = [
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": f"p{i}", "namespace": "d", "managedFields": managed},
            "status": {"message": "x" * 30_000, "conditions": conditions},
        }
        for i in range(100)
    ]
    scanned = 0
    real = load._scanned_items

    def counted(text: bytes) -> Any:  # which takes many times as long
        nonlocal scanned
        scanned += len(text)
        return real(text)

    monkeypatch.setattr(load, "_scanned_items", counted)
    for document in ({**LIST, "items": pods}, {**RAW, "items": [*map(without_kind, pods)]}):
        found = load_pieces(cut(write(document), 200_000), "f", whole_bytes=100)
        assert len(found.objects) == 100
    assert scanned < 1_000_000, "the end of each list, of two of 3 MB"


def test_one_long_item_is_not_read_again_and_again(monkeypatch: pytest.MonkeyPatch) -> None:
    looks = 0
    real = load._scanned_items

    def counted(text: bytes) -> Any:
        nonlocal looks
        looks += 1
        return real(text)

    monkeypatch.setattr(load, "_scanned_items", counted)
    long = pod("long", status={"message": "x" * 1_000_000})
    load_pieces(cut(compact({**LIST, "items": [long, *PODS]}), 1000), "f", whole_bytes=100)
    assert looks < 20
