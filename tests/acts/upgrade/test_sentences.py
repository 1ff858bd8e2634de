"""What `start` prints of each decision: a sentence, whatever record the decision makes."""

from __future__ import annotations

import pytest

from kubectl_nodelife.acts.upgrade.sentences import SENTENCES, sentences_of
from kubectl_nodelife.engine.actions import Action
from kubectl_nodelife.engine.actions import upgrades as upgrade

WHO = {"controller": "upgrade", "because": "it is its turn"}


@pytest.mark.parametrize(
    "action, sentence",
    [
        (
            upgrade.ClaimNode(**WHO, node="b7", to="Draining", unschedulable=True),
            "node b7: cordoned, now Draining: it is its turn",
        ),
        (
            upgrade.ClaimNode(**WHO, node="b7", to="Draining"),
            "node b7: now Draining: it is its turn",
        ),
        (
            upgrade.RestoreNode(**WHO, node="b7", from_="Draining", unschedulable=False),
            "node b7: uncordoned, marks taken off: it is its turn",
        ),
        (
            upgrade.SetGate(controller="upgrade", because="a is sick", gate="zone", holds=True),
            "gate zone closes: a is sick",
        ),
        (
            upgrade.SetGate(
                controller="upgrade", because="no longer: zone a is sick", gate="zone", holds=False
            ),
            "gate zone opens, closed till now: zone a is sick",
        ),
        (
            upgrade.UpdateRun(
                **WHO, namespace="kube-system", name="l", annotations={}, step=1, window=2
            ),
            "the run: step 1 begins, with 2 nodes at most",
        ),
        (
            upgrade.UpdateRun(
                **WHO, namespace="kube-system", name="l", annotations={}, phase="Paused"
            ),
            "the run: now Paused: it is its turn",
        ),
    ],
)
def test_a_decision_is_told_as_a_sentence(action: Action, sentence: str) -> None:
    assert list(sentences_of(action)) == [sentence]


def test_each_record_of_an_upgrade_has_its_sentence() -> None:
    found = [f for f in vars(upgrade).values() if getattr(f, "__module__", "") == upgrade.__name__]
    actions = {f for f in found if isinstance(f, type) and issubclass(f, Action)}
    records = {found.__name__ for found in actions if not found.__subclasses__()}
    assert len(records) > 10
    assert records - SENTENCES.keys() == {"SetGate", "UpdateRun", "FailWithoutMark"}
    assert {"SetUpgradePhase", "SetWindow", "FailNode"} <= SENTENCES.keys(), "these are theirs"
