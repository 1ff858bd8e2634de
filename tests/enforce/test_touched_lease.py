"""In enforce mode, too, a silent node is lost as the followed release calls it lost.

From v1.37 on the Lease is read before: one that somebody else wrote to keeps its node, and is told
apart from one that its kubelet renewed; deleting it ends that. Before v1.37 it counts for nothing.
"""

from typing import Any

import msgspec
import pytest

from kubectl_nodelife.engine.settings import make_settings
from kubectl_nodelife.kube.node import Node
from kubectl_nodelife.kube.times import SECOND_NS
from tests.enforce.simulated_api import Sent
from tests.enforce.simulation import CONTROLLERS, FLAGS, GRACE_S, Run, play, story
from tests.enforce.virtual_time import EPOCH_NS

LEASE = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/b1"
TOUCHED_S, DELETED_S = 8, 8 + 4 * GRACE_S


def lost(release: str, *, deletes: bool = False) -> dict[str, float]:
    """When each node was marked Unknown: a1 and b1 fall silent, and b1's Lease is touched."""
    told: Any = msgspec.json.decode(story(1))
    silent = {"nodes": ["a1", "b1"], "heartbeats": "stop"}
    told["spec"] |= {"profile": release, "events": [{"at": "6500ms", "kubelet": silent}]}
    run = Run(1, told=msgspec.json.encode(told))
    run.settings = make_settings(release, FLAGS)
    run.orders = run.orders._replace(assume_stopped=CONTROLLERS, begin="join", caps="upstream")

    def touch() -> None:
        headers = {"User-Agent": "kubectl/x", "Content-Type": "application/merge-patch+json"}
        body = msgspec.json.encode({"metadata": {"annotations": {"somebody": "was here"}}})
        run.server.answer(Sent("PATCH", LEASE, body, headers))

    def delete() -> None:
        run.server.answer(Sent("DELETE", LEASE, b"", {"User-Agent": "kubectl/x"}))

    run.world.at(EPOCH_NS + TOUCHED_S * SECOND_NS, touch)
    if deletes:
        run.world.at(EPOCH_NS + round(DELETED_S * SECOND_NS), delete)
    play(run, 1)
    shown = (entry.obj for entry in run.server.store.collections["Node"].entries.values())
    return {
        node.name: ((ready.last_transition_time or 0) - EPOCH_NS) / SECOND_NS
        for node in shown
        if isinstance(node, Node)
        and (ready := node.ready()) is not None
        and ready.status == "Unknown"
    }


@pytest.mark.parametrize(("release", "nodes"), [("v1.36", {"a1", "b1"}), ("v1.37", {"a1"})])
def test_a_silent_node_whose_lease_was_touched(release: str, nodes: set[str]) -> None:
    assert lost(release).keys() == nodes


def test_deleting_the_lease_ends_that() -> None:
    assert lost("v1.37", deletes=True)["b1"] >= DELETED_S - 1
