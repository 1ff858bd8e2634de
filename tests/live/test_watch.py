"""Watch streams, fed with text."""

import json
from typing import Any

import pytest

from kubectl_nodelife.kube.kinds import kind_named
from kubectl_nodelife.kube.pod import Pod
from kubectl_nodelife.live.client import ApiError, api_error
from kubectl_nodelife.live.listwatch import MalformedLine, WatchStream
from kubectl_nodelife.live.requests import Resource, get_url, list_url, watch_list_url, watch_url


def line(type_: str, name: str = "p", version: str = "1", **metadata: Any) -> bytes:
    obj = {
        "kind": "Pod",
        "apiVersion": "v1",
        "metadata": {"name": name, "namespace": "d", "resourceVersion": version, **metadata},
        "spec": {"nodeName": "n1"},
    }
    return json.dumps({"type": type_, "object": obj}).encode() + b"\n"


def error(code: int, reason: str) -> bytes:
    status = {"kind": "Status", "status": "Failure", "code": code, "reason": reason, "message": "m"}
    return json.dumps({"type": "ERROR", "object": status}).encode() + b"\n"


def test_events_come_out_in_order_whatever_the_pieces() -> None:
    text = line("ADDED", "a", "5") + line("MODIFIED", "b", "6") + line("DELETED", "a", "7")
    for size in (1, 7, 100, len(text)):
        stream = WatchStream(Pod)
        events = [
            event for at in range(0, len(text), size) for event in stream.feed(text[at : at + size])
        ]
        assert [(e.type, e.object.name) for e in events] == [
            ("ADDED", "a"),
            ("MODIFIED", "b"),
            ("DELETED", "a"),
        ]
        assert stream.resource_version == "7"


def test_a_bookmark_only_moves_the_version_on() -> None:
    stream = WatchStream(Pod, "3")
    assert list(stream.feed(line("BOOKMARK", "", "90"))) == []
    assert stream.resource_version == "90"
    assert not stream.initial_events_ended


def test_the_end_of_a_watch_list_is_told_between_the_objects_and_the_news() -> None:
    stream = WatchStream(Pod)
    text = (
        line("ADDED", "a", "5")
        + line("BOOKMARK", "", "9", annotations={"k8s.io/initial-events-end": "true"})
        + line("ADDED", "b", "10")
    )
    seen = [(event.object.name, stream.initial_events_ended) for event in stream.feed(text)]
    assert seen == [("a", False), ("b", True)]


def test_a_torn_line_is_kept_for_the_next_piece() -> None:
    stream = WatchStream(Pod)
    text = line("ADDED", "a", "5")
    assert list(stream.feed(text[:30])) == []
    assert stream.resource_version == ""
    assert [e.object.name for e in stream.feed(text[30:])] == ["a"]


def test_an_old_version_is_an_error_that_says_gone() -> None:
    stream = WatchStream(Pod, "1")
    with pytest.raises(ApiError) as caught:
        list(stream.feed(error(410, "Expired")))
    assert caught.value.gone


def test_events_before_an_error_still_come_and_count() -> None:
    stream = WatchStream(Pod)
    seen = []
    with pytest.raises(ApiError) as caught:
        for event in stream.feed(line("ADDED", "a", "5") + error(500, "InternalError")):
            seen.append(event.object.name)
    assert seen == ["a"]
    assert stream.resource_version == "5"
    assert not caught.value.gone


def test_an_object_with_nulls_where_none_belong_is_read_all_the_same() -> None:
    text = line("ADDED", "p", "5", labels=None, annotations={"a": None}, generation=None)
    (event,) = WatchStream(Pod).feed(text)
    assert (event.object.name, event.object.metadata.labels) == ("p", None)


@pytest.mark.parametrize("text", [b"<html>\n", b'{"type": 1}\n', b"[]\n"])
def test_a_line_that_is_no_event_is_refused(text: bytes) -> None:
    with pytest.raises(MalformedLine):
        list(WatchStream(Pod).feed(text))


@pytest.mark.parametrize(
    "text",
    [
        b'{"type": "ADDED"}\n',
        b'{"type":"MODIFIED","object":{"metadata":{"name":5,"resourceVersion":"9"}}}\n',
        b'{"type":"ADDED","object":{"metadata":{"resourceVersion":"9","name":"\xff\n',
    ],
)
def test_an_event_that_names_nothing_is_passed_over_and_counted(text: bytes) -> None:
    stream = WatchStream(Pod)
    events = list(stream.feed(line("ADDED", "a", "5") + text + line("ADDED", "b", "")))
    assert [event.object.name for event in events] == ["a", "b"]
    assert stream.nameless == 1 and stream.nameless_because
    assert stream.resource_version in ("5", "9")


def test_empty_lines_are_nothing() -> None:
    events = WatchStream(Pod).feed(b"\n\n" + line("ADDED") + b"\n")
    assert [event.object.name for event in events] == ["p"]


def test_api_errors_speak_for_the_server() -> None:
    body = b'{"kind":"Status","message":"pods is forbidden","reason":"Forbidden","code":403}'
    said = api_error(403, body)
    assert (said.code, said.what, said.reason) == (403, "pods is forbidden", "Forbidden")
    plain = api_error(502, b"<html>\n bad gateway</html>")
    assert (plain.code, plain.what) == (502, "<html> bad gateway</html>")
    slow = api_error(429, b'{"details":{"retryAfterSeconds":7},"message":"slow down"}')
    assert slow.retry_after_s == 7


def test_urls() -> None:
    pods = Resource(kind_named("Pod"))
    leases = Resource(kind_named("Lease"), "kube-node-lease")
    assert list_url(pods) == "/api/v1/pods?limit=500"
    assert list_url(pods, continue_="a+b=") == "/api/v1/pods?limit=500&continue=a%2Bb%3D"
    assert list_url(pods, limit=0) == "/api/v1/pods"
    root = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"
    assert get_url(leases, "n1") == f"{root}/n1"
    assert watch_url(leases, "5", 300) == (
        f"{root}?watch=true&allowWatchBookmarks=true&resourceVersion=5&timeoutSeconds=300"
    )
    assert "sendInitialEvents=true" in watch_list_url(pods, 300)
    assert "resourceVersionMatch=NotOlderThan" in watch_list_url(pods, 300)
