"""Watch lines and lists with one object that cannot be read: it is named, the others come."""

import json
from typing import Any

import pytest

from kubectl_nodelife.kube.codec import sift
from kubectl_nodelife.kube.kinds import find_kind, kind_named
from kubectl_nodelife.kube.load import load_objects
from kubectl_nodelife.kube.unreadable import Unreadable, identify
from kubectl_nodelife.live.listwatch import WatchStream
from kubectl_nodelife.live.requests import Resource
from tests.hostile.bad import BAD, good, line

NAMES = list(BAD)


@pytest.mark.parametrize("name", NAMES)
def test_a_watch_goes_on_after_it(name: str) -> None:
    kind, document = BAD[name]
    stream: WatchStream[Any] = WatchStream(kind_named(kind).type)
    text = line("ADDED", good(kind, "before")) + line("MODIFIED", document)
    text += line("ADDED", good(kind, "after"))
    first, bad, last = list(stream.feed(text))
    assert (first.object.name, last.object.name) == ("before", "after")
    assert isinstance(bad.object, Unreadable), bad
    assert (bad.object.kind, bad.object.key[1]) == (kind, "bad")
    assert bad.object.why and "\n" not in bad.object.why and len(bad.object.why) <= 200
    assert stream.resource_version == "7", "the next watch goes on after it"


@pytest.mark.parametrize("name", NAMES)
def test_its_end_is_seen(name: str) -> None:
    kind, document = BAD[name]
    stream: WatchStream[Any] = WatchStream(kind_named(kind).type)
    (gone,) = stream.feed(line("DELETED", document))
    assert (gone.type, gone.object.key[1]) == ("DELETED", "bad")


@pytest.mark.parametrize("name", NAMES)
def test_a_list_holds_all_others(name: str) -> None:
    from kubectl_nodelife.live.listwatch import _Page, _read_slowly

    kind, document = BAD[name]
    body = b'{"metadata":{"resourceVersion":"5"},"items":[%s]}' % b",".join(
        [good(kind, "before"), document, good(kind, "after")]
    )
    page: _Page[Any] = _read_slowly(body, Resource(kind_named(kind)))
    objects, more = sift(page.items or [])
    assert [obj.name for obj in objects] == ["before", "after"]
    assert [found.key[1] for found in (*page.unreadable, *more)] == ["bad"]


@pytest.mark.parametrize("name", NAMES)
def test_a_dump_holds_all_others(name: str) -> None:
    kind, document = BAD[name]
    items = b",\n".join([good(kind, "before"), document, good(kind, "after")])
    dump = b'{"apiVersion":"v1","kind":"List","items":[\n%s\n]}' % items
    loaded = load_objects(dump, "f.json")
    assert [obj.name for obj in loaded.objects] == ["before", "after"]
    assert [found.key[1] for found in loaded.unreadable] == ["bad"]


def test_what_it_relates_to_is_known() -> None:
    pod = kind_named("Pod")
    meta = {
        "name": "p",
        "namespace": "ns",
        "ownerReferences": [{"kind": "DaemonSet", "name": "s", "uid": "u", "controller": True}],
    }
    document = {"metadata": meta, "spec": {"a": {"nodeName": "not this"}, "nodeName": "n1"}}
    found = identify(pod, json.dumps(document).encode(), "w")
    assert found is not None
    assert set(found.related) == {("Node", ("", "n1")), ("DaemonSet", ("ns", "s"))}


def test_one_without_a_name_is_not_guessed_at() -> None:
    pod = kind_named("Pod")
    for document in (b"", b"[]", b"{", b'{"metadata":{"name":"p"}}', b'{"spec":{"name":"p"}}'):
        assert identify(pod, document, "w") is None
    fake = b'{"data":{"metadata":{"name":"victim","namespace":"ns"}},"kind":"x"}'
    assert identify(pod, fake, "w") is None, "metadata within something else is not its own"
    assert find_kind("v1", "Pod") is pod
