"""A daemon that is late with what it reads: what waits in a queue is no silence."""

from pathlib import Path

from kubectl_nodelife.engine.events import Put
from kubectl_nodelife.live.news import WatchNews
from tests.daemon.lab import SECOND, T0, lease, make_lab, node


async def test_heartbeats_that_wait_to_be_read_are_no_silence(tmp_path: Path) -> None:
    lab = make_lab(tmp_path)
    await lab.begin(node("n1"), node("n2"), lease("n1"), lease("n2"))
    await lab.after(60, "n1", "n2")
    began = lab.steady
    lab.pass_by(120)  # busy with something else; meanwhile each lease came every ten seconds
    queue = lab.feed.queue
    for late in range(10, 121, 10):
        for name in ("n1", "n2"):
            renewed = lab.version(lease(name, lab.now - T0 - (120 - late) * SECOND))
            seen = began + late * SECOND
            queue.put_nowait(WatchNews("Lease", [Put("Lease", renewed)], seen))
    while not queue.empty():
        await lab.tell(queue.get_nowait())
        assert await lab.told() == []
    await lab.after(49)
    assert await lab.told() == []
    await lab.after(7)
    assert ("SetNodeCondition", "n1", "would") in await lab.told()


async def test_a_node_that_speaks_has_its_grace_period_left(tmp_path: Path) -> None:
    lab = make_lab(tmp_path)
    await lab.begin(node("n1"), lease("n1"))
    left = []
    for _ in range(30):
        await lab.after(2, "n1")
        outlook = lab.look().outlook
        there = outlook.cache.node("n1")
        assert there is not None
        unknown_in = outlook.node(there).unknown_in
        assert unknown_in is not None
        left.append(unknown_in.low_ns / SECOND)
    # the lease is renewed every 10 s, and a pass every 5 s sees it
    assert 40 <= min(left) < max(left) == 50
