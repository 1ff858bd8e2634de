"""Notices: what is worth one, that each is told once and taken back, and how they get out."""

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

import pytest

from kubectl_nodelife.daemon import notices as delivery
from kubectl_nodelife.daemon.flags import NotifyOptions
from kubectl_nodelife.daemon.metrics.cluster_sample import ClusterSample, ZoneSample
from kubectl_nodelife.daemon.notices import (
    FIRING,
    RESOLVED,
    CommandDelivery,
    NotedCondition,
    Notice,
    NoticeBoard,
    Outbox,
    WebhookDelivery,
    cluster_conditions,
    where,
)
from kubectl_nodelife.errors import BadInput
from tests.daemon.user import SET, silence, user
from tests.loopback import sandbox
from tests.raw_server import Request, raw_server

SECOND = 10**9
NOW = 1_767_225_600 * SECOND
FLAGS = {
    "node-monitor-period": "500ms",
    "node-monitor-grace-period": "3s",
    "node-eviction-rate": "10",
}


def sample(**fields: Any) -> ClusterSample:
    return ClusterSample(NOW, **fields)


def zone(*states: str, **fields: Any) -> ZoneSample:
    return ZoneSample(size=5, states=set(states), **fields)


@pytest.mark.parametrize(
    "given, keys",
    [
        (sample(), set()),
        (sample(soon_lost={"n1"}), {"nodeWillBeLost/n1"}),
        (sample(unreachable={"n1", "n2"}), {"nodeLost/n1", "nodeLost/n2"}),
        (sample(next_eviction_ns=NOW + 59 * SECOND), {"evictionsWillBegin"}),
        (sample(next_eviction_ns=NOW + 61 * SECOND), set()),
        (sample(zones={"r:\0:a": zone("PartialDisruption", unhealthy=3)}), {"zoneStops/r:\0:a"}),
        (sample(zones={"a": zone("PartialDisruption", rate=0.01)}), set()),
        (sample(zones={"a": zone("Normal", rate=0.1, stops="12 of 20")}), {"zoneWillStop/a"}),
        (sample(zones={"a": zone("FullDisruption"), "b": zone("Normal")}), set()),
        (sample(zones={"a": zone("FullDisruption")}), {"allZonesDark"}),
        (sample(drain_waits={"eviction": 901.0, "finalizer": 10.0}), {"drainStuck/eviction"}),
    ],
)
def test_what_is_worth_a_notice(given: ClusterSample, keys: set[str]) -> None:
    found = cluster_conditions(given)
    assert {key.replace("r/a", "r:\0:a") for key in found} == keys
    assert all(key.partition("/")[0] == it.event for key, it in found.items())


def test_a_condition_is_told_once_and_taken_back() -> None:
    board = NoticeBoard("https://server")
    holds = {"nodeLost/n1": NotedCondition("nodeLost", "node n1 is lost", "explain")}
    (begun,) = board.take(holds, NOW)
    assert (begun.key, begun.state, begun.server) == ("nodeLost/n1", FIRING, "https://server")
    assert board.take(holds, NOW) == []
    (over,) = board.take({}, NOW)
    assert (over.key, over.state) == ("nodeLost/n1", RESOLVED)
    assert board.take({}, NOW) == []


@pytest.mark.parametrize(
    "options, words",
    [
        (NotifyOptions(webhook="http://example.com/x"), "https"),
        (NotifyOptions(webhook="ftp://localhost/x"), "https"),
        (NotifyOptions(webhook="https://"), "https"),
        (NotifyOptions(webhook="https://h:port/x"), "https"),
        (NotifyOptions(command="say 'x"), "quotation"),
        (NotifyOptions(command="say", events=("nothing",)), "no event 'nothing'"),
        (NotifyOptions(events=("nodeLost",)), "no one is notified"),
    ],
)
def test_flags_that_make_no_sense(options: NotifyOptions, words: str) -> None:
    with pytest.raises(BadInput, match=words):
        options.check()


def test_no_secret_of_a_url_is_told() -> None:
    assert where("https://me:secret@host:8443/hook/secret?key=secret") == "https://host:8443"
    for url in ("https://host/x", "http://127.0.0.1:1/x", "http://[::1]/x", "http://localhost/x"):
        NotifyOptions(webhook=url).check()


def notice(key: str = "k", state: str = FIRING) -> Notice:
    return Notice(key, "nodeLost", state, "node n1 is lost", "explain", "https://s", "2026")


async def test_waiting_notices_are_replaced_by_newer_ones_limited_and_summed_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(delivery, "_APART_S", 0.0)
    sent: list[Notice] = []

    async def deliver(one: Notice) -> bool:
        sent.append(one)
        return True

    outbox = Outbox(deliver, lambda: 0.0)
    outbox.put([notice("a"), notice("b"), notice("a", RESOLVED)])
    outbox.put(notice(f"k{n}") for n in range(40))
    going = asyncio.create_task(outbox.run())
    while len(sent) < 21:
        await asyncio.sleep(0)
    await asyncio.sleep(0.05)
    going.cancel()
    assert [(one.key, one.state) for one in sent[:2]] == [("b", FIRING), ("a", RESOLVED)]
    assert len(sent) == 21 and sent[-1].event == "tooManyNotices"


async def test_a_webhook_is_tried_again_and_follows_no_redirect() -> None:
    codes = [503, 429, 302]

    async def hook(request: Request) -> bool:
        await request.reply(b"", codes.pop(0), {"Location": "/elsewhere"})
        return True

    async with raw_server() as server:
        server.sickness = hook
        send = WebhookDelivery(f"{server.url}/hook", "secret")
        assert [await send(notice()) for _ in range(3)] == [False, False, True]
    assert not await send(notice())
    taken = server.requests
    assert [request.path for request in taken] == ["/hook"] * 3
    assert taken[0].headers["authorization"] == "Bearer secret"
    assert json.loads(taken[0].body) == {
        "key": "k",
        "event": "nodeLost",
        "state": "firing",
        "sentence": "node n1 is lost",
        "command": "explain",
        "server": "https://s",
        "time": "2026",
    }


async def test_a_command_gets_json_and_is_ended_in_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "out"
    write = f"import sys; open({str(out)!r}, 'w').write(sys.stdin.read())"
    assert await CommandDelivery([sys.executable, "-c", write])(notice())
    assert json.loads(out.read_text())["key"] == "k"
    assert await CommandDelivery([str(tmp_path / "none")])(notice())
    monkeypatch.setattr(delivery, "COMMAND_SECONDS", 0.2)
    assert await CommandDelivery([sys.executable, "-c", "import time; time.sleep(60)"])(notice())


async def test_a_daemon_tells_of_a_lost_node_and_of_its_return(tmp_path: Path) -> None:
    out = tmp_path / "told"
    script = tmp_path / "tell.py"
    script.write_text(f"import sys; open({str(out)!r}, 'a').write(sys.stdin.read() + '\\n')")
    async with (
        sandbox(controllers=("node-lifecycle",), flags=FLAGS) as served,
        user(served.kubeconfig) as one,
    ):
        command = f"--notify={sys.executable} {script}"
        no_such = await one.run("daemon", "start", "--notify=no-such-command -x")
        assert (no_such.code, no_such.out) == (2, "") and "is not on PATH" in no_such.err
        await one.begin(*SET, command, "--notify-on=nodeLost")

        async def warm() -> bool:
            return not (await one.health())["cold"]

        async def told(state: str) -> list[dict[str, Any]]:
            lines = out.read_text().splitlines() if out.exists() else []
            return [n for n in map(json.loads, lines) if n["state"] == state]

        await one.until(warm)
        silence(served, "a1")
        (first,) = await one.until(lambda: told(FIRING))
        assert first["key"] == "nodeLost/a1" and first["event"] == "nodeLost"
        silence(served, "a1", "start")
        (last,) = await one.until(lambda: told(RESOLVED))
        assert last["key"] == first["key"]
