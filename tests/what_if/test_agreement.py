"""What `status` and `explain` say of a node that may be lost is what `what-if` plays of it."""

import pytest

from kubectl_nodelife.engine.cache import Cache
from kubectl_nodelife.engine.settings import Settings
from kubectl_nodelife.kube.times import SECOND_NS
from kubectl_nodelife.outlook.node import Outlook, join_controllers
from kubectl_nodelife.outlook.what_if.acts import read_acts
from kubectl_nodelife.outlook.what_if.answer import make_answer
from kubectl_nodelife.outlook.what_if.document import WhatIf
from kubectl_nodelife.outlook.what_if.question import Plays, Question, play
from kubectl_nodelife.outlook.zone import LossByZone
from tests.deep import first_few
from tests.what_if.stand import ALL_KINDS
from tests.what_if.test_proofs import _of

PLACES = ["two-zones", *first_few([f"seed {seed}" for seed in range(24)], 8)]


class Asked:
    """A cluster, its outlook, and the loss of each of its nodes."""

    def __init__(self, where: str) -> None:
        self.cluster, self.settings, self.now_ns = _of(where)
        self.outlook = self._outlook(self.cluster, self.settings)

    def _outlook(self, cluster: Cache, settings: Settings) -> Outlook:
        return join_controllers(cluster.copy(), settings, self.now_ns)[0]

    def lost(self, node: str) -> tuple[Plays, WhatIf]:
        """What comes of its loss."""
        acts = read_acts(["lose", "node", node], self.cluster, beta_zone_labels_only=False)
        question = Question(
            self.cluster, self.settings, self.now_ns, ALL_KINDS, acts, 900 * SECOND_NS
        )
        plays = play(question)
        return plays, make_answer(plays, acts, self.settings, source={}, moment={}, warnings=())


@pytest.mark.parametrize("where", PLACES)
def test_a_node_turns_unknown_when_status_says(where: str) -> None:
    asked, judged = Asked(where), 0
    for name, node in asked.cluster.nodes.items():
        told = asked.outlook.node(node)
        if told.unknown_in is None or told.ready != "True":
            continue
        (found,) = [n for n in asked.lost(name)[1].nodes if n.name == name]
        assert found.unknown_seconds is not None
        at_ns = round(found.unknown_seconds * SECOND_NS)
        assert told.unknown_in.low_ns <= at_ns <= told.unknown_in.high_ns, name
        judged += 1
    assert judged >= 2


@pytest.mark.parametrize("where", PLACES[1:])
def test_its_zone_is_then_as_status_says(where: str) -> None:
    asked = Asked(where)
    losses = LossByZone(asked.outlook)
    for name, node in asked.cluster.nodes.items():
        told, answer = losses.of(node), asked.lost(name)[1]
        last = {zone.name: zone.states[-1] for zone in answer.zones}.get(name.rstrip("0123456789"))
        assert (last.state if last else "Normal", last.rate if last else told.before) == (
            told.state,
            told.rate,
        ), name


def test_timers_run_out_when_explain_says() -> None:
    asked = Asked("two-zones")
    plays, _ = asked.lost("worker-b1")
    deleted = {
        (record.object.namespace, record.object.name): record.at
        for record in reversed(plays.baseline.records)
        if record.action == "DeletePod" and record.controller == "taint-eviction"
    }
    timers = [t for node in asked.cluster.nodes.values() for t in asked.outlook.timers(node)]
    for timer in timers:
        seconds = (timer.due_ns - asked.now_ns) / SECOND_NS
        assert abs(deleted[timer.namespace, timer.name] - max(0.0, seconds)) <= 0.001
    assert timers
