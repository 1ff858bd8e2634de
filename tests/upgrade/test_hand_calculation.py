"""The run of 500 nodes that one calculates by hand, played by the controller.

Fourteen minutes from claim to release, 50 nodes at once at most. Six steps of growth take twenty
minutes each: 14, one of watching the node, and the soak of five. Then zone after zone, 50 at once.
"""

from collections.abc import Iterator

from kubectl_nodelife.controllers.upgrade.counts import CLUSTER, NodeScope
from kubectl_nodelife.controllers.upgrade.policy import policy_from
from kubectl_nodelife.drain.snapshot import PlanSnapshot
from kubectl_nodelife.engine.settings import make_settings
from kubectl_nodelife.kube.codec import decode
from kubectl_nodelife.kube.meta import KubeObject
from kubectl_nodelife.kube.times import MINUTE_NS, SECOND_NS
from kubectl_nodelife.sim.events import UpgradeEvent, WorkAssumptions
from kubectl_nodelife.upgrade.plan import play_run
from tests.sim.documents import node

NODES = {"a": 167, "b": 167, "c": 166}
SETTINGS = make_settings("newest")
START_NS = 1_800_000_000 * SECOND_NS
WORK_NS = 766 * SECOND_NS
"""With drain, return and proof it makes fourteen minutes."""


def nodes() -> Iterator[KubeObject]:
    for zone, count in NODES.items():
        for number in range(count):
            made = node(f"{zone}{number:03}", zone=zone)
            made["metadata"]["labels"]["pool"] = "p"
            yield decode("Node", made)


def test_500_nodes_as_calculated_by_hand() -> None:
    policy = policy_from({"selector": "pool=p", "work": {"mode": "run", "command": "-"}})
    event = UpgradeEvent(policy, WorkAssumptions(duration_ns=WORK_NS))
    course = play_run(PlanSnapshot(nodes(), START_NS), event, SETTINGS)
    assert abs(course.end_ns / MINUTE_NS - 287) < 1
    lowest = {scope: low.available for scope, low in course.lowest.items()}
    assert lowest[CLUSTER] == lowest[NodeScope("pool", "p")] == 450
    assert [step.width for step in course.steps] == [1, 2, 4, 8, 16, 32, 0, 0, 0]
    begins = [round(step.start_ns / MINUTE_NS) for step in course.steps]
    assert begins == [0, 20, 40, 60, 80, 100, 120, 168, 230]
    assert [len(step.names) for step in course.steps[6:]] == [104, 167, 166]
    assert all("done" in turn.at for turn in course.turns.values())
