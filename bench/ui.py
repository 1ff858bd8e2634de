"""The live page in Chromium while a zone of its cluster is lost: how long its frames take.

The page's own server sends a browser here what a daemon would: a snapshot, a quiet time, then the
nodes of one zone of three, whose kubelets stop one after another and which are marked lost in two
passes. A frame is the work of the page's thread for it: script, layout and painting together. Times
are CPU time of that thread, from Chromium's own trace, which adds a little: so they mean the same
on a busy machine.
"""

from __future__ import annotations

import asyncio
import gzip
import time
from bisect import bisect_left
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import msgspec
from msgspec.structs import replace

from bench import BenchFailed, Stopwatch
from kubectl_nodelife.daemon.server import Answer, Query, Stream
from kubectl_nodelife.daemon.ui.endpoint import PageEndpoint, Sessions, listen
from kubectl_nodelife.daemon.ui.live_feed import Broadcast
from kubectl_nodelife.outlook.fates import Coming, Lane
from kubectl_nodelife.outlook.live_wall import LiveFrame, LiveNode, WallZone, delta
from kubectl_nodelife.outlook.node_verdict import WORST_FIRST, Option
from kubectl_nodelife.outlook.situation import Situation
from tests.ui.browser import Browser, browser

NODES = 5_000
PODS = 150_000
ZONES = ("a", "b", "c")
STEP_SECONDS = 0.5
QUIET_SECONDS = 10.0
SILENT_SECONDS = 10.0
DARK_SECONDS = 30.0

FIRST = "return performance.getEntriesByName('wall')[0]?.startTime ?? null"


class Trace(msgspec.Struct):
    """The work of the page's thread, in CPU milliseconds. `frames`: script, layout and painting."""

    frames: list[float]
    tasks: list[float]

    @classmethod
    def of(cls, events: list[dict[str, Any]]) -> Trace:
        """The trace made from Chromium's trace events."""
        threads = {
            (e["pid"], e["tid"]): e["args"]["name"] for e in events if e["name"] == "thread_name"
        }
        mine = [e for e in events if threads.get((e["pid"], e["tid"])) == "CrRendererMain"]
        tasks = [e for e in mine if e["name"].endswith("RunTask") and "tdur" in e]
        drawn = sorted(e["ts"] for e in mine if e["name"] == "FireAnimationFrame")
        frames = []
        for task in tasks:
            place = bisect_left(drawn, task["ts"])
            if place < len(drawn) and drawn[place] <= task["ts"] + task["dur"]:
                frames.append(task["tdur"] / 1000)
        return cls(sorted(frames), sorted(task["tdur"] / 1000 for task in tasks))

    def frame(self, share: float) -> float | None:
        """The time that this share of the frames does not exceed."""
        return round(self.frames[int((len(self.frames) - 1) * share)], 1) if self.frames else None


@asynccontextmanager
async def traced(window: Browser) -> AsyncIterator[Callable[[], Awaitable[Trace]]]:
    """Records a trace of the browser; the yielded function ends and returns it."""
    async with aiohttp.ClientSession() as session:
        async with session.get(f"http://{window.debugger}/json/version") as answer:
            url = (await answer.json())["webSocketDebuggerUrl"]
        async with session.ws_connect(url, max_msg_size=0) as socket:
            wanted = {"categories": "devtools.timeline,toplevel", "transferMode": "ReportEvents"}
            await socket.send_json({"id": 1, "method": "Tracing.start", "params": wanted})

            async def ended() -> Trace:
                await socket.send_json({"id": 2, "method": "Tracing.end"})
                events: list[dict[str, Any]] = []
                async for message in socket:
                    told = msgspec.json.decode(message.data)
                    if told.get("method") == "Tracing.dataCollected":
                        events += told["params"]["value"]
                    if told.get("method") == "Tracing.tracingComplete":
                        break
                return Trace.of(events)

            yield ended


class DarkZone:
    """A cluster of three zones, and the frames sent to a reader while the first one is lost."""

    def __init__(self, nodes: int, pods: int) -> None:
        self.names = [f"node-{number:05}" for number in range(nodes)]
        self.pods = pods // max(1, nodes)
        self.dark = len(self.names[:: len(ZONES)])
        self.now_s = 0.0

    def frame(self, dark_s: float | None = None) -> LiveFrame:
        """The frame so many seconds after the zone's last heartbeat; None: before it."""
        rows = {name: self._row(number, name, dark_s) for number, name in enumerate(self.names)}
        lost = 0 if dark_s is None else sum(row.state in (1, 4) for row in rows.values())
        zones = [
            WallZone(
                name=f"r/{zone}",
                state="FullDisruption" if not place and lost == self.dark else "Normal",
                nodes=self.dark,
                not_ready=0 if place else lost,
                threshold=0.55,
                rate=0.1,
                queued=0 if place else lost,
                because="",
                brake="Losing 917 more nodes slows evictions.",
            )
            for place, zone in enumerate(ZONES)
        ]
        return LiveFrame(self.now_s, {"context": "bench"}, "v1.36", zones, rows, [])

    def situation(self, dark_s: float) -> Situation:
        """What the top of the page says so many seconds after the zone's last heartbeat."""
        rows = [self._row(number, name, dark_s) for number, name in enumerate(self.names)]
        silent = sum(row.state == WORST_FIRST.index("silent") for row in rows)
        lost = sum(row.state == WORST_FIRST.index("unreachable") for row in rows)
        began_s = self.now_s - dark_s
        unknown = Coming("Unknown", began_s + 38, began_s + 48)
        tainted = Coming("tainted", began_s + 45, began_s + 16_700)
        leave = Coming("pods leave", began_s + 345, began_s + 17_000)
        lane = f"{silent + lost} nodes of r/a: node-00000, node-00003 and more"
        fewer = Coming("20 of 30 ready", began_s + 38, began_s + 48)
        return Situation(
            level="worse",
            sentence=f"Zone r/a: {silent} of {self.dark} nodes are silent, {lost} are lost.",
            since_s=began_s,
            coming=[unknown, tainted, leave],
            hurts=f"{lost * self.pods} pods of 100 workloads",
            advice="Pods move by themselves.",
            options=[Option("kubectl nodelife explain zone r/a", "why")],
            lanes=[Lane(lane, "silent", began_s, [unknown, tainted, leave])],
            harmed=[
                Lane(f"Service shop/web-{each}", "30 → 20", None, [fewer]) for each in range(12)
            ],
        )

    def _row(self, number: int, name: str, dark_s: float | None) -> LiveNode:
        zone = number % len(ZONES)
        fine = LiveNode(name, zone, WORST_FIRST.index("healthy"), self.pods, 0)
        if zone or dark_s is None:
            return fine
        silent_s = number / len(self.names) * SILENT_SECONDS
        if dark_s < silent_s:
            return fine
        begun_s = self.now_s - dark_s + silent_s
        if dark_s < (15 if number < len(self.names) // 2 else 20):
            state = WORST_FIRST.index("silent")
            left = round(begun_s + 25, 1)
            return LiveNode(name, 0, state, self.pods, 0, "SetNodeCondition", left, left + 5)
        at_s = round(begun_s + 325, 1)
        state = WORST_FIRST.index("unreachable")
        action = f"DeletePod default/web-{number}"
        return LiveNode(name, 0, state, self.pods, self.pods, action, at_s, at_s)

    def changes(self, number: int) -> list[dict[str, Any]]:
        """Twenty changes of one step."""
        return [
            {
                "id": number * 20 + each,
                "atS": self.now_s,
                "controller": "node-lifecycle",
                "action": "TaintNode",
                "kind": "Node",
                "namespace": "",
                "name": self.names[(number * 20 + each) * 3 % len(self.names)],
                "outcome": "confirmed" if each % 2 else "would",
                "reason": "Its kubelet was not heard of for longer than the grace period allows.",
                "cause": number * 20 + each - 1,
                "node": "",
                "taint": "",
            }
            for each in range(20)
        ]


def told_once(answer: Answer) -> Stream:
    """A stream that says an answer and nothing else."""

    async def told(query: Query) -> AsyncGenerator[dict[str, Any]]:
        yield await answer(query)

    return told


async def no_other_clusters(query: Query) -> dict[str, Any]:
    """No other daemon runs."""
    return {"items": []}


class Told:
    """The page's server, and the stream that it sends. `bytes`: of all deltas; `answers`,
    `streams`: to questions.
    """

    def __init__(
        self,
        zone: DarkZone,
        answers: Mapping[str, Answer] | None = None,
        streams: Mapping[str, Stream] | None = None,
    ) -> None:
        self.answers = {"clusters": no_other_clusters, **(answers or {})}
        self.streams = streams or {}
        self.zone = zone
        self.known = zone.frame()
        self.bytes = 0
        self.broadcast = Broadcast(self.snapshot)

    def snapshot(self) -> dict[str, Any]:
        """The snapshot that a page begins with."""
        return {**self.known.snapshot(), "epochS": 0, "works": [], "changes": []}

    @asynccontextmanager
    async def served(self) -> AsyncIterator[str]:
        """The address with its token."""
        sessions = Sessions(time.monotonic)
        once = {name: told_once(answer) for name, answer in self.answers.items()}
        streams = {**once, **self.streams}
        endpoint = PageEndpoint(self.answers, streams, self.broadcast, sessions)
        await endpoint.start(listen(0))
        try:
            yield f"http://127.0.0.1:{endpoint.port}/#token={sessions.token()}"
        finally:
            await endpoint.close()

    async def tell(self, seconds: float, *, dark: bool) -> None:
        """Send the changes of so many seconds, twice a second."""
        for number in _steps(seconds):
            began = time.monotonic()
            if dark:
                self.tell_frame(number * STEP_SECONDS, changes=number, situated=True)
            else:
                self.tell_frame()
            await asyncio.sleep(max(0.0, began + STEP_SECONDS - time.monotonic()))

    def tell_frame(
        self, dark_s: float | None = None, *, changes: int = 0, situated: bool = False
    ) -> None:
        """Send what differs half a second later, with the changes of that number. `situated`: with
        what the top of the page says of it.
        """
        self.zone.now_s += STEP_SECONDS
        frame = self.zone.frame(dark_s)
        if situated and dark_s is not None:
            frame = replace(frame, situation=self.zone.situation(dark_s))
        self._tell(frame, self.zone.changes(changes) if changes else [])

    def tell_row(self, name: str, state: str) -> None:
        """Send a node that is in another state, without a clock."""
        self.zone.now_s += STEP_SECONDS
        frame = self.zone.frame()
        row = replace(frame.nodes[name], state=WORST_FIRST.index(state))
        self._tell(replace(frame, nodes=frame.nodes | {name: row}), [])

    def _tell(self, frame: LiveFrame, changes: list[dict[str, Any]]) -> None:
        self.known, told = delta(self.known, frame)
        if changes:
            told |= {"changes": changes}
        if not told:
            self.broadcast.whisper("tick", {"now": frame.now_s})
            return
        told = {"now": frame.now_s, **told}
        self.bytes += len(msgspec.json.encode(told))
        self.broadcast.publish("delta", told)


def _steps(seconds: float) -> Iterator[int]:
    yield from range(1, round(seconds / STEP_SECONDS) + 1)


def run(nodes: int, pods: int, seed: int, stopwatch: Stopwatch) -> dict[str, object]:
    """One browser. `seed` is not used."""
    return asyncio.run(_run(DarkZone(nodes, pods), stopwatch))


async def _run(zone: DarkZone, stopwatch: Stopwatch) -> dict[str, object]:
    told = Told(zone)
    snapshot = msgspec.json.encode(told.snapshot())
    async with told.served() as url, browser() as window:
        await window.look(1280, 900)
        await window.go(url)
        await window.until("return document.querySelectorAll('.zone').length === 3")
        await told.tell(3.0, dark=False)
        with stopwatch:
            async with traced(window) as ended:
                await told.tell(QUIET_SECONDS, dark=False)
                quiet = await ended()
            told.bytes = 0
            async with traced(window) as ended:
                await told.tell(DARK_SECONDS, dark=True)
                dark = await ended()
        legend = await window.text("#legend")
        if f"unreachable {zone.dark}" not in legend:
            raise BenchFailed(f"the page does not show the lost nodes: {legend}")
        if await window.run("return document.getElementById('now').hidden"):
            raise BenchFailed("the page does not say what happens")
        first = await window.run(FIRST)
        heap = await _heap_bytes(window)
    return {
        "snapshotBytes": len(snapshot),
        "snapshotGzipBytes": len(gzip.compress(snapshot)),
        "darkBytes": told.bytes,
        "firstWallMilliseconds": round(first),
        "quietFrameMilliseconds95": quiet.frame(0.95),
        "frameMilliseconds95": dark.frame(0.95),
        "longestTaskMilliseconds": round(dark.tasks[-1], 1),
        "quietThreadShare": round(sum(quiet.tasks) / 1000 / QUIET_SECONDS, 4),
        "threadShare": round(sum(dark.tasks) / 1000 / DARK_SECONDS, 4),
        "heapMegabytes": round(heap / 1e6, 1),
    }


async def _heap_bytes(window: Browser) -> float:
    await window.devtools("HeapProfiler.collectGarbage")
    await window.devtools("Performance.enable")
    found = (await window.devtools("Performance.getMetrics"))["metrics"]
    return float(next(each["value"] for each in found if each["name"] == "JSHeapUsedSize"))
