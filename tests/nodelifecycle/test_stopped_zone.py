"""What is said of a zone that was stopped, and to which its state gives a rate again."""

import pytest

from kubectl_nodelife.controllers.nodelifecycle import NodeLifecycleController
from kubectl_nodelife.controllers.nodelifecycle.zones import NORMAL
from kubectl_nodelife.engine.cache import Cache
from kubectl_nodelife.engine.settings import make_settings
from kubectl_nodelife.kube.meta import ObjectMeta
from kubectl_nodelife.kube.node import Node, NodeCondition
from kubectl_nodelife.outlook.node import Outlook
from kubectl_nodelife.outlook.zone import zones

STAYS = "a rate of 1 does not start it again"


@pytest.mark.parametrize(
    ("rate", "expected", "stays"),
    [
        pytest.param("0.1", 0.1, False, id="any other rate starts it"),
        pytest.param("1", 0.0, True, id="a stopped limiter calls its rate 1, so 1 is no change"),
    ],
)
def test_a_zone_that_was_stopped(rate: str, expected: float, stays: bool) -> None:
    settings = make_settings("v1.36", {"node-eviction-rate": float(rate)})
    lifecycle = NodeLifecycleController(settings)
    memory = lifecycle.memory
    ready = NodeCondition(type="Ready", status="True")
    zone = memory.zones.count(Node(metadata=ObjectMeta(name="a1")), ready)
    memory.zones.ensure(zone)
    memory.zones.states[zone] = NORMAL
    for qps in (0, settings.node_eviction_rate):  # all zones were dark, and one is not any more
        memory.zones.queues[zone].swap_limiter(qps, 0)
    (found,) = zones(Outlook(Cache(), settings, lifecycle, None, 0))
    assert (found.rate, STAYS in found.why) == (expected, stays)
