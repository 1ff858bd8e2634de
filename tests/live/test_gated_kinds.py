"""What a cluster may have or not: kinds behind feature gates, a role that is too small, causes of a
refusal."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from aiohttp import web

from kubectl_nodelife import cli
from kubectl_nodelife.kube.kinds import OPTIONAL_KINDS
from kubectl_nodelife.live.client import ApiError, api_error
from kubectl_nodelife.live.listwatch import list_once, served
from kubectl_nodelife.live.manager_role import MAY_NOT, ROLE_PATH
from tests.loopback import client, play, sandbox

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
GATED = ("/apis/lifecycle.k8s.io", "/apis/scheduling.k8s.io/v1beta1")
FORBIDDEN = {"kind": "Status", "code": 403, "reason": "Forbidden", "message": "no right to it"}
LISTS = {"apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "verbs": ["list", "watch"]}


@web.middleware
async def gates_are_off(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Discovery says 404; a list is forbidden, as authorization comes before that."""
    if not request.path.startswith(GATED):
        return await handler(request)
    found = request.path.count("/") > 3
    code = 403 if found else 404
    return web.json_response({**FORBIDDEN, "code": code}, status=code)


def v1_37_with(role: dict[str, Any]) -> Any:
    """A server of that release, whose node controller has this role."""

    @web.middleware
    async def answered(request: web.Request, handler: Handler) -> web.StreamResponse:
        if request.path == "/version":
            return web.json_response({"major": "1", "minor": "37", "gitVersion": "v1.37.2"})
        return web.json_response(role) if request.path == ROLE_PATH else await handler(request)

    return answered


def asked_of_gated(record: list[str]) -> list[str]:
    return [line for line in record if line.removeprefix("GET ").startswith(GATED)]


async def test_only_what_is_served_is_listed() -> None:
    record: list[str] = []

    async with sandbox(between=gates_are_off, record=record) as off, client(off) as ours:
        kinds = ("Node", *OPTIONAL_KINDS)
        assert await served(ours, kinds) == ["Node"]
        listed = await list_once(ours, kinds)
        assert listed.objects and not listed.unread
    async with sandbox() as on, client(on) as ours:
        assert await served(ours, kinds) == list(kinds)
        assert await served(ours, ("Node",)) == ["Node"]
    assert set(asked_of_gated(record)) == {
        "GET /apis/lifecycle.k8s.io/v1alpha1",
        "GET /apis/scheduling.k8s.io/v1beta1",
    }


def said_on_a_sandbox(
    capsys: pytest.CaptureFixture[str], between: Any, *words: str
) -> tuple[str, str, list[str]]:
    """stdout, stderr and the requests of a command."""
    record: list[str] = []

    async def test() -> None:
        async with sandbox(between=between, record=record) as there:
            given = [*words, "--no-daemon", f"--kubeconfig={there.kubeconfig}"]
            assert await asyncio.to_thread(cli.main, given) in (0, 4)

    play(test)
    out, err = capsys.readouterr()
    return out, err, record


def test_where_the_gates_are_off_nothing_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    _, err, record = said_on_a_sandbox(
        capsys, gates_are_off, "drain-plan", "--all", "--ignore-daemonsets", "--force"
    )
    assert "Eviction" not in err and "PodGroup" not in err
    assert len(asked_of_gated(record)) == 2, "discovery alone"


def test_what_needs_none_of_them_asks_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    *_, record = said_on_a_sandbox(capsys, gates_are_off, "status")
    assert record and not asked_of_gated(record)


@pytest.mark.parametrize("verbs", [["list", "watch"], ["get", "list", "watch"]])
def test_status_says_that_the_manager_may_not_read_leases(
    verbs: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    role = {"metadata": {"name": "r"}, "rules": [{**LISTS, "verbs": verbs}]}
    out, _, record = said_on_a_sandbox(capsys, v1_37_with(role), "status", "-o", "json")
    told = [text for text in json.loads(out)["warnings"] if text.startswith(MAY_NOT)]
    assert len(told) == (verbs[0] != "get")
    assert f"GET {ROLE_PATH}" in record


def test_nobody_asks_for_the_role_before_v1_37(capsys: pytest.CaptureFixture[str]) -> None:
    *_, record = said_on_a_sandbox(capsys, gates_are_off, "status")
    assert f"GET {ROLE_PATH}" not in record


def error(code: int, message: str, *causes: str) -> ApiError:
    details = {"causes": [{"reason": "DisruptionBudget", "message": text} for text in causes]}
    return api_error(code, json.dumps({"message": message, "details": details}).encode())


def test_a_refusal_tells_its_causes_on_a_line() -> None:
    why = "the budget web is negative"
    assert error(403, "forbidden: no", why).what == f"forbidden: no ({why})"
    assert error(403, f"forbidden: {why}", why).what == f"forbidden: {why}"
    assert error(429, "too many", why).what == "too many"
    long = error(403, "no", *["x\n" * 5000] * 9).what
    assert "\n" not in long and len(long) < 700
