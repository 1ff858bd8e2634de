"""Typed calls of the official client: what is sent, and what is read, over a connection of ours."""

import asyncio
from typing import Any

import pytest

from kubectl_nodelife.engine.calls import Answer, Request
from kubectl_nodelife.errors import Unreachable
from kubectl_nodelife.live.typed import TypedApi


class Server:
    """Answers each request alike, and keeps them."""

    def __init__(self, code: int, status: Any, message: str = "") -> None:
        self.answer = (code, status, message)
        self.requests: list[tuple[Request, str]] = []

    async def send(self, request: Request, kind: str) -> Answer:
        self.requests.append((request, kind))
        code, status, message = self.answer
        if code != 201:
            return Answer(code, message=message)
        return Answer(code, None, {**request.body, "status": status})


@pytest.mark.parametrize(
    ("status", "may"),
    [
        ({"allowed": True}, True),
        ({"allowed": False, "denied": True, "reason": "no"}, False),
        ({"allowed": False, "evaluationError": "webhook down"}, False),
        (None, False),
    ],
)
def test_only_a_word_of_allowance_allows(status: Any, may: bool) -> None:
    server = Server(201, status)
    asked = {"group": "", "resource": "pods", "subresource": "eviction", "verb": "create"}
    assert asyncio.run(TypedApi(server.send).may({**asked, "namespace": "", "name": ""})) is may
    ((request, kind),) = server.requests
    assert (request.method, kind) == ("POST", "SelfSubjectAccessReview")
    assert request.path == "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
    assert request.content_type == "application/json"
    assert request.body == {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SelfSubjectAccessReview",
        "spec": {
            "resourceAttributes": {"resource": "pods", "subresource": "eviction", "verb": "create"}
        },
    }


@pytest.mark.parametrize(
    ("code", "message"), [(0, "no answer in time"), (403, "forbidden"), (500, "broken")]
)
def test_a_server_that_does_not_say_is_not_taken_for_a_yes(code: int, message: str) -> None:
    with pytest.raises(Unreachable, match=message):
        asyncio.run(TypedApi(Server(code, None, message).send).may({"verb": "get"}))


def test_an_answer_that_is_no_review_is_not_taken_for_a_yes() -> None:
    async def send(request: Request, kind: str) -> Answer:
        return Answer(201, None, {"status": {"allowed": True}})

    with pytest.raises(Unreachable, match="is no SelfSubjectAccessReview"):
        asyncio.run(TypedApi(send).may({"verb": "get"}))
