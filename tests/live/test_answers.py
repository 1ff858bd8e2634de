"""A 2xx counts only where it is the API server's answer to what was asked, whatever the call."""

from __future__ import annotations

import asyncio
import json
from types import SimpleNamespace
from typing import Any, cast

import aiohttp
import pytest

from kubectl_nodelife.engine.calls import Answer, Get, Write
from kubectl_nodelife.engine.calls.call import Delete, Evict, Patch, Post, Replace
from kubectl_nodelife.live.writer import Writer, WritingSession

NODE, POD, LEASE = ("", "n"), ("d", "p"), ("kube-system", "l")
META = {"namespace": "d", "name": "p", "uid": "u"}
CALLS: dict[str, Get | Write] = {
    "get": Get("Pod", POD),
    "get-of-a-node": Get("Node", NODE),
    "create": Post("Pod", POD, {"kind": "Pod", "metadata": {"name": "p"}}),
    "replace": Replace("Lease", LEASE, {"metadata": {"name": "l", "uid": "u"}, "spec": {}}),
    "patch": Patch("Pod", POD, {"metadata": {}}, {"uid": "u"}),
    "patch-of-a-status": Patch("Node", NODE, {"status": {}}, {"uid": "u"}, "status"),
    "delete": Delete("Pod", POD, {"uid": "u"}),
    "evict": Evict(POD, {"uid": "u"}),
}
STATUS = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success"}
TRUE: dict[str, Any] = {
    "get": {"kind": "Pod", "metadata": META},
    "get-of-a-node": {"kind": "Node", "metadata": {"name": "n", "uid": "u"}},
    "create": {"kind": "Pod", "metadata": META},
    "replace": {"kind": "Lease", "metadata": {"namespace": "kube-system", "name": "l", "uid": "u"}},
    "patch": {"kind": "Pod", "metadata": META},
    "patch-of-a-status": {"kind": "Node", "metadata": {"name": "n", "uid": "u"}},
    "delete": {"kind": "Pod", "metadata": META},
    "evict": STATUS,
}
PAGES = {
    "a login page": b"<html>Please log in</html>",
    "nothing": b"",
    "half an object": b'{"kind":"Pod","metadata":{"name":"p"',
    "a list": b"[]",
    "a word": b'"ok"',
    "an object without a kind": b'{"metadata":{"name":"p","namespace":"d","uid":"u"}}',
    "metadata that are none": b'{"kind":"Pod","metadata":"p"}',
    "a failure": b'{"kind":"Status","status":"Failure"}',
}


class Way:
    """A session on which somebody answers everything with these bytes."""

    def __init__(self, code: int, body: bytes) -> None:
        self._code, self._parts = code, [body]

    async def send(self, *_: Any) -> tuple[Any, int]:
        return self, 0

    async def __aenter__(self) -> Way:
        return self

    async def __aexit__(self, *_: object) -> None: ...

    @property
    def status(self) -> int:
        return self._code

    @property
    def headers(self) -> dict[str, str]:
        return {"Content-Type": "text/html"}

    @property
    def content(self) -> Any:
        return SimpleNamespace(readany=self._readany)

    async def _readany(self) -> bytes:
        return self._parts.pop() if self._parts else b""


def answered(call: Get | Write, body: Any, code: int = 200) -> Answer:
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    writer = Writer(cast(WritingSession, Way(code, content)), "test", lambda: 0)
    return asyncio.run(writer.call(call))


@pytest.mark.parametrize("name", CALLS)
@pytest.mark.parametrize("code", [200, 201, 202])
def test_the_object_that_was_asked_for_is_an_answer(name: str, code: int) -> None:
    assert answered(CALLS[name], TRUE[name], code).code == code


@pytest.mark.parametrize("page", PAGES)
@pytest.mark.parametrize("name", CALLS)
def test_a_page_of_somebody_on_the_way_is_none(name: str, page: str) -> None:
    answer = answered(CALLS[name], PAGES[page])
    assert not answer.ok and answer.is_ambiguous, "the object is read before anything follows"
    assert "not the API server's" in answer.message and "log in" not in answer.message


@pytest.mark.parametrize("member", ["kind", "name", "namespace", "uid"])
@pytest.mark.parametrize("name", [name for name in CALLS if name != "evict"])
def test_another_object_is_none(name: str, member: str) -> None:
    body = json.loads(json.dumps(TRUE[name]))
    place = body if member == "kind" else body["metadata"]
    was_asked = member in place and not (member == "uid" and name in ("get", "create"))
    if member not in place or not was_asked or (member == "uid" and name == "get-of-a-node"):
        return  # nobody asked for that one in particular
    place[member] = "Secret" if member == "kind" else "another"
    assert answered(CALLS[name], body).is_ambiguous


@pytest.mark.parametrize(
    ("status", "counts"),
    [
        pytest.param(STATUS, False, id="of-nothing"),
        pytest.param({**STATUS, "details": {"name": "p", "kind": "pods"}}, True, id="of-it"),
        pytest.param({**STATUS, "details": {"name": "p", "uid": "u"}}, True, id="of-its-uid"),
        pytest.param({**STATUS, "details": {"name": "q"}}, False, id="of-another-name"),
        pytest.param({**STATUS, "details": {"name": "p", "uid": "v"}}, False, id="of-another-uid"),
        pytest.param({**STATUS, "status": "Failure", "details": {"name": "p"}}, False, id="failed"),
    ],
)
def test_a_status_answers_a_delete_where_it_names_the_object(status: Any, counts: bool) -> None:
    assert answered(CALLS["delete"], status).ok is counts
    assert not answered(CALLS["patch"], status).ok, "and nothing else"


def test_what_was_sent_to_be_created_is_no_answer() -> None:
    call = CALLS["create"]
    assert isinstance(call, Post) and answered(call, call.body).is_ambiguous
    named = {"kind": "Pod", "metadata": {"namespace": "d", "name": "p"}}
    assert "no uid" in answered(call, named).message


def test_a_timeout_is_no_answer_either() -> None:
    class Late(Way):
        async def send(self, *_: Any) -> tuple[Any, int]:
            raise aiohttp.ServerDisconnectedError

    writer = Writer(cast(WritingSession, Late(200, b"")), "test", lambda: 0)
    assert asyncio.run(writer.call(CALLS["delete"])).is_ambiguous
