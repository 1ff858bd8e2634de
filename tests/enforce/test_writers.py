"""What a controller's Events wait for: its tokens, and while writes are on their way those."""

import asyncio
from typing import Any, cast

import pytest

from kubectl_nodelife.daemon.enforce.write_gate import controller_writers
from kubectl_nodelife.engine.actions import RecordEvent
from kubectl_nodelife.engine.calls import Answer
from kubectl_nodelife.engine.settings import make_settings
from kubectl_nodelife.kube.times import SECOND_NS
from kubectl_nodelife.live.clock import ServerClock
from kubectl_nodelife.live.writer import Writer
from tests.enforce.virtual_time import VirtualLoop, World


@pytest.mark.parametrize(
    ("writes_end_s", "sent_s"),
    [(0.0, 0.0), (0.5, 0.5), (60.0, 2.0)],
    ids=["nothing else is sent", "writes end soon", "writes go on for a minute"],
)
def test_an_event_gives_way_to_writes(
    writes_end_s: float, sent_s: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = World()
    sent: list[int] = []

    async def call(self: Writer, call: Any, **_: Any) -> Answer:
        sent.append(world.now_ns)
        return Answer(201)

    monkeypatch.setattr(Writer, "call", call)
    began_ns = world.now_ns
    end_ns = began_ns + int(writes_end_s * SECOND_NS)

    async def run() -> None:
        writers = controller_writers(
            ["pod-gc"],
            make_settings("v1.36"),
            cast(Any, None),
            lambda: world.now_ns,
            lambda: world.now_ns,
            ServerClock(),
            lambda: "",
            lambda: world.now_ns < end_ns,
        )
        events = cast(Any, writers["pod-gc"].events)
        events.put(_event())
        sending = asyncio.ensure_future(events.run())
        await events.sent()
        sending.cancel()

    with asyncio.Runner(loop_factory=lambda: VirtualLoop(world)) as runner:
        runner.run(run())
    (at_ns,) = sent
    assert (at_ns - began_ns) / SECOND_NS == pytest.approx(sent_s, abs=0.05)


def _event() -> RecordEvent:
    return RecordEvent(
        controller="pod-gc",
        because="its node is gone",
        kind="Pod",
        name="p",
        namespace="d",
        reason="R",
    )
