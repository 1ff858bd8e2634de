"""A fifth of a cluster is lost at once, behind a slow API server: each of its pods is marked.

Of 2,000 marks most wait longer than a monitor period for their turn, while the watch may be far
behind the writes that called their nodes lost. None of that is a reason to leave one out.
"""

from typing import Any

import msgspec

from kubectl_nodelife.daemon.flags import Orders
from kubectl_nodelife.kube.times import MILLISECOND_NS, SECOND_NS
from tests.enforce.ends import unmarked_pods
from tests.enforce.simulated_api import Fault, Sent
from tests.enforce.simulation import CONTROLLERS, Run, play, story

_NODES, _LOST, _PODS = 300, 200, 10


class SlowServer(Run):
    """A write of a pod takes a quarter of a second; the watch of Nodes is silent for a while."""

    def __init__(self, told: bytes) -> None:
        super().__init__(1, told=told)
        self.orders = Orders(CONTROLLERS, CONTROLLERS, "restart", "upstream")
        self.world.at(self.world.now_ns + 20 * SECOND_NS, self._lag)

    def _end_s(self) -> float:
        # Eight workers take 63 s for all marks, and nothing is sent while Nodes are blind.
        return 140

    def _lag(self) -> None:
        for process in self.processes:
            process.watches.hang("Node", 12 * SECOND_NS)

    def _fault(self, sent: Sent) -> Fault:
        slow = sent.method != "GET" and "/pods/" in sent.url
        return Fault(delay_ns=250 * MILLISECOND_NS if slow else 0)


def _story() -> bytes:
    told: dict[str, Any] = msgspec.json.decode(story(1))
    told["spec"] |= {
        "objects": [],
        "generate": {
            "zones": 3,
            "nodesPerZone": _NODES // 3,
            "podsPerNode": _PODS,
            "daemonSets": 0,
            "tolerationSeconds": 300,
            "seed": 1,
        },
    }
    names = [f"{zone}{i}" for zone in "abc" for i in range(1, _LOST // 3 + 2)][:_LOST]
    told["spec"]["events"] = [{"at": "15s", "kubelet": {"nodes": names, "heartbeats": "stop"}}]
    return msgspec.json.encode(told)


def test_two_thousand_marks_behind_a_slow_api_server_all_arrive() -> None:
    run = SlowServer(_story())
    assert play(run, 1).broken == []
    pods = [e["objectRef"]["name"] for e in run.server.audit if _is_mark(e)]
    assert len(set(pods)) == _LOST * _PODS
    assert not list(unmarked_pods(run.server.store))


def _is_mark(entry: dict[str, Any]) -> bool:
    status = (entry["requestObject"] or {}).get("status") or {}
    of_pods = entry["objectRef"]["resource"] == "pods" and entry["responseStatus"]["code"] == 200
    types = [c["type"] for c in status.get("conditions") or []]
    return of_pods and types == ["Ready"] and "node-lifecycle" in entry["userAgent"]
