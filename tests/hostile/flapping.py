"""Nodes whose kubelets stop and begin again, over and over, about when they are called lost.

An enforcing daemon (`battery.Stand`, on virtual time) writes that nodes are lost while their
kubelets come back. Each such write is judged as it arrives at the server; one that arrives less
than the grace period after its kubelet was heard there is sorted by when that was:

- *before the decision was kept*: the renewal or the status was in the daemon's own cache when the
  intent went to the disk. There is none of these: what is known is not written against.
- *on its way*: the server had heard the kubelet, and the watch had not told the daemon when it
  wrote its intent down. Upstream's informers are behind in the same way.
- *after*: it was heard when the intent was on the disk already. Upstream's `monitorNodeHealth`
  sends what it has decided without another look, and has the same window.

By hand: `python -m tests.hostile.flapping --nodes 1000`.
"""

import argparse
import json
import random
import time
from collections import Counter
from typing import Any, NamedTuple

from kubectl_nodelife.daemon.intents import Intent
from kubectl_nodelife.kube.times import SECOND_NS
from tests.enforce.simulated_api import Fault, Sent
from tests.enforce.simulated_daemon import Disk, Process
from tests.enforce.simulation import GRACE_S, play, story
from tests.enforce.virtual_time import EPOCH_NS
from tests.hostile.battery import Scenario, Stand

KNOWN, ON_ITS_WAY, AFTER = "before the decision was kept", "on its way", "after"
FLAPS_UNTIL_S = 90.0
PODS_EACH = 2
_SLACK_NS = SECOND_NS // 2


class Early(NamedTuple):
    """A node called lost `heard_s` after its kubelet was heard."""

    node: str
    heard_s: float
    sort: str


class Flapping(Stand):
    """`called_lost`: how many such writes arrived. `early`: those that the truth contradicts."""

    def __init__(self, nodes: int, seed: int = 1) -> None:
        super().__init__(Scenario("flapping", story=lambda number: _story(nodes, number)), seed)
        self.called_lost = 0
        self.early: list[Early] = []
        self._kept: dict[str, tuple[int, int]] = {}  # node -> when its intent was written, heard
        self._slow = random.Random(seed)

    def _made(self, disk: Disk) -> Process:
        process = super()._made(disk)
        begin, task_of = process.intents.begin, process.enforcement

        async def kept(intent: Intent) -> int:
            if intent.kind == "Node" and '"SetNodeConditions"' in intent.action:
                task = task_of._task
                assert task is not None
                cache, now_ns = task.host.cache, self.world.now_ns
                heartbeat, node = cache.heartbeat(intent.name), cache.node(intent.name)
                renewal = heartbeat.renewal(now_ns) if heartbeat is not None else None
                ready = node.ready() if node is not None else None
                posted_ns = int(ready.last_heartbeat_time or 0) if ready is not None else 0
                self._kept[intent.name] = now_ns, max(int((renewal or (0, 0))[0] or 0), posted_ns)
            return await begin(intent)

        process.intents.begin = kept  # type: ignore[method-assign]
        return process

    def _fault(self, sent: Sent) -> Fault:
        """A server that is busy: up to 50 ms for each request."""
        return Fault(delay_ns=self._slow.randrange(50_000_000))

    def _judge_inside(self, process: Process, sent: Sent) -> None:
        super()._judge_inside(process, sent)
        path = sent.url.partition("?")[0].split("/")
        if sent.method != "PATCH" or path[-1] != "status" or path[-3] != "nodes":
            return
        if b'"NodeStatusUnknown"' not in (sent.content or b""):
            return
        self.called_lost += 1
        self.server.live()
        now_ns, name = self.world.now_ns, path[-2]
        heard_ns = self._heard_ns(name)
        if now_ns - heard_ns >= GRACE_S * SECOND_NS - _SLACK_NS:
            return
        kept_ns, known_ns = self._kept[name]
        sort = KNOWN if known_ns >= heard_ns else AFTER if heard_ns >= kept_ns else ON_ITS_WAY
        self.early.append(Early(name, (now_ns - heard_ns) / 1e9, sort))

    def _heard_ns(self, name: str) -> int:
        """When the server heard that kubelet last."""
        leases = self.server.store.collections["Lease"].entries
        lease: Any = leases["kube-node-lease", name].obj
        node: Any = self.server.store.collections["Node"].entries["", name].obj
        ready = node.ready()
        posted = ready.last_heartbeat_time if ready is not None else 0
        return max(int(lease.spec.renew_time or 0), int(posted or 0), EPOCH_NS)

    @property
    def sorts(self) -> dict[str, int]:
        """How many of which."""
        found = Counter(early.sort for early in self.early)
        return {sort: found[sort] for sort in (KNOWN, ON_ITS_WAY, AFTER)}


def _story(nodes: int, seed: int) -> bytes:
    """Kubelets are silent for about as long as it takes to be called lost, three or four times."""
    dice = random.Random(seed)
    told: dict[str, Any] = json.loads(story(seed))
    zones = "abc"
    told["spec"]["generate"] |= {
        "zones": len(zones),
        "nodesPerZone": -(-nodes // len(zones)),
        "podsPerNode": PODS_EACH,
        "tolerationSeconds": 300,
    }
    told["spec"]["objects"] = []
    events: list[tuple[int, Any]] = []
    names = [f"{zone}{i}" for i in range(1, -(-nodes // len(zones)) + 1) for zone in zones]
    for name in names:
        at_s = dice.uniform(5, 20)
        while at_s < FLAPS_UNTIL_S:
            back_s = at_s + dice.uniform(GRACE_S + 1, GRACE_S + 4)
            for second, word in ((at_s, "stop"), (back_s, "start")):
                kubelet = {"nodes": [name], "heartbeats": word}
                at_ms = round(second * 1000)
                events.append((at_ms, {"at": f"{at_ms}ms", "kubelet": kubelet}))
            at_s = back_s + dice.uniform(4, 12)
    told["spec"]["events"] = [event for _, event in sorted(events, key=lambda e: e[0])]
    return json.dumps(told).encode()


def main() -> None:
    """One play, told as JSON."""
    parser = argparse.ArgumentParser(prog="python -m tests.hostile.flapping")
    parser.add_argument("--nodes", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    began = time.monotonic()
    stand = Flapping(given.nodes, given.seed)
    played = play(stand, given.seed)
    told = {
        "nodes": given.nodes,
        "judgedWrites": stand.judged.total(),
        "calledLost": stand.called_lost,
        "early": stand.sorts,
        "latestHeardSeconds": max((round(e.heard_s, 3) for e in stand.early), default=0.0),
        "otherRules": [text for text in played.broken if "called lost" not in text][:10],
        "seconds": round(time.monotonic() - began),
    }
    print(json.dumps(told, indent=2))


if __name__ == "__main__":
    main()
