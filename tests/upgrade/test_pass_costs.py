"""A pass costs by what has changed: nodes that are as they were are not read again."""

from typing import Any

import pytest

from kubectl_nodelife.controllers.upgrade import fleet
from kubectl_nodelife.controllers.upgrade.counts import NodeCounts
from kubectl_nodelife.controllers.upgrade.marks import NodeState
from tests.upgrade.stand import Stand


def test_a_pass_reads_and_counts_the_nodes_that_changed(monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[str] = []
    added: list[str] = []
    read_node, add = fleet.read_node, NodeCounts._add

    def reading(node: Any, *more: Any, **named: Any) -> fleet.NodeReading:
        read.append(node.name)
        return read_node(node, *more, **named)

    def adding(counts: NodeCounts, node: Any, sign: int) -> None:
        added.append(node.name)
        add(counts, node, sign)

    monkeypatch.setattr(fleet, "read_node", reading)
    monkeypatch.setattr(NodeCounts, "_add", adding)
    s = Stand(maxUnavailable=1)
    names = [f"n{i:02}" for i in range(40)]
    s.add_nodes(*names)
    s.settle()
    (claimed,) = s.claimed()
    assert set(read) == set(added) == set(names)
    read.clear()
    added.clear()
    s.run(30)
    assert set(read) <= {claimed} and set(added) <= {claimed}
    assert s.state(claimed) in (NodeState.WORKING, NodeState.SETTLING)
