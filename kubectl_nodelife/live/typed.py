"""Typed calls by Kubernetes' official Python client, over our own connections.

Of that client the generated API and its models are used, where start-up does not count: loading
them takes a third of a second and some 30 MB, so that nothing that only reads imports this. Its
loader of kubeconfigs and its transport are not used: they write keys to temporary files, take
passwords from ~/.netrc, and send an OIDC client's secret without a check of certificates. Here the
generated code makes the request and reads the answer, and `Writer.send` carries it, with the
credentials that are in memory.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from http import HTTPStatus
from typing import Any

import msgspec
from kubernetes.aio.client.api.authorization_v1_api import AuthorizationV1Api
from kubernetes.aio.client.api_client import ApiClient
from kubernetes.aio.client.configuration import Configuration
from kubernetes.aio.client.models.v1_resource_attributes import V1ResourceAttributes
from kubernetes.aio.client.models.v1_self_subject_access_review import V1SelfSubjectAccessReview
from kubernetes.aio.client.models.v1_self_subject_access_review_spec import (
    V1SelfSubjectAccessReviewSpec,
)

from kubectl_nodelife.engine.calls import Answer, Request
from kubectl_nodelife.errors import Unreachable

_REVIEW = "SelfSubjectAccessReview"
_JSON = "application/json"


SendRequest = Callable[[Request, str], Awaitable[Answer]]
"""`Writer.send`: one request, about an object of that kind. Never raises for what a server or a
network does."""


class TypedApi:
    """Calls of one cluster. It holds nothing that must be closed."""

    def __init__(self, send: SendRequest) -> None:
        client = ApiClient(Configuration(host=""))
        client.rest_client = _OwnConnections(send)
        self._authorization = AuthorizationV1Api(client)

    async def may(self, attributes: Mapping[str, str]) -> bool:
        """True if this user may do so; `attributes` are those of a ResourceAttributes (`verb`,
        `group`, `resource`, `subresource`, `namespace`, `name`). Raises Unreachable.
        """
        asked = V1ResourceAttributes(**{name: value for name, value in attributes.items() if value})
        review = V1SelfSubjectAccessReview(
            api_version="authorization.k8s.io/v1",
            kind=_REVIEW,
            spec=V1SelfSubjectAccessReviewSpec(resource_attributes=asked),
        )
        try:
            answer = await self._authorization.create_self_subject_access_review(review)
        except ValueError:  # of pydantic: the answer lacks what each review has
            raise Unreachable(f"what is allowed is not said: the answer is no {_REVIEW}") from None
        return answer.status is not None and answer.status.allowed is True


class _OwnConnections:
    """In the place of the library's `RESTClientObject`: sends by `Writer.send`."""

    def __init__(self, send: SendRequest) -> None:
        self._send = send

    async def request(
        self,
        method: str,
        url: str,
        headers: Mapping[str, str] | None = None,
        body: Any = None,
        **_: Any,
    ) -> _Received:
        """Raises Unreachable for anything but success: the callers ask for nothing less."""
        content_type = (headers or {}).get("Content-Type", _JSON)
        kind = str(body.get("kind", "")) if isinstance(body, dict) else ""
        answer = await self._send(Request(method, url, content_type, body or {}), kind)
        if not answer.ok:
            raise Unreachable(f"{kind or method} is not answered: {answer.message}", on=url)
        return _Received(msgspec.json.encode(answer.raw))

    async def close(self) -> None:
        """The connections are another's."""


class _Received:
    """The answer, as the library reads it."""

    status = int(HTTPStatus.OK)
    reason = ""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.headers = {"content-type": _JSON}

    async def read(self) -> bytes:
        """The body."""
        return self.data

    def getheaders(self) -> Mapping[str, str]:
        """All of them."""
        return self.headers

    def getheader(self, name: str, default: str | None = None) -> str | None:
        """One of them."""
        return self.headers.get(name.lower(), default)
