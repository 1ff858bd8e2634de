"""What `start` prints of each decision: a sentence, whatever record the decision makes."""

import pytest

from kubectl_nodelife.acts.upgrade.sentences import SENTENCES, Waits, sentences_of
from kubectl_nodelife.controllers.upgrade.marks import TRANSITIONS
from kubectl_nodelife.engine.actions import Action
from kubectl_nodelife.engine.actions import upgrades as upgrade

WHO = {"controller": "upgrade", "because": "it is its turn"}


@pytest.mark.parametrize(
    "action, sentence",
    [
        (
            upgrade.NodeMarkPatch(
                **WHO, record="ClaimNode", node="b7", to="Draining", unschedulable=True
            ),
            "node b7: cordoned, now Draining: it is its turn",
        ),
        (
            upgrade.NodeMarkPatch(**WHO, record="ClaimNode", node="b7", to="Draining"),
            "node b7: now Draining: it is its turn",
        ),
        (
            upgrade.NodeMarkPatch(
                **WHO, record="RestoreNode", node="b7", from_="Draining", unschedulable=False
            ),
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
    makes = {"CreateForNode", "DeleteForNode", "NodeMarkPatch"}
    assert records - SENTENCES.keys() == {"SetGate", "UpdateRun", "FailWithoutMark", *makes}
    theirs = {"SetUpgradePhase", "SetWindow", *(row.record for row in TRANSITIONS)}
    made = {f"{does}{what}" for does in ("Create", "Delete") for what in ("Canary", "Job")}
    assert theirs | made <= SENTENCES.keys()


COLD = "nothing was seen for 9s: watching for {}s more first"
STOP = "the ConfigMap kube-system/nodelife-stop is there"


@pytest.mark.parametrize(
    "moments, told",
    [
        pytest.param([("", ""), ("", "")], ["", ""], id="nothing-to-wait-for"),
        pytest.param(
            [(COLD.format(3), ""), (COLD.format(2), ""), ("", "")],
            [f"waits: {COLD.format(3)}", "", "sees the whole cluster"],
            id="seconds-that-count-down-are-one-reason",
        ),
        pytest.param(
            [(COLD.format(3), ""), (COLD.format(2), STOP), ("", STOP), ("", "")],
            [f"waits: {COLD.format(3)}", f"waits: {STOP}", "", "sees the whole cluster"],
            id="a-stop-is-told-to-a-leader-that-waits-already",
        ),
        pytest.param(
            [("", STOP), (COLD.format(4), STOP), (COLD.format(2), ""), ("", "")],
            [f"waits: {STOP}", "", f"waits: {COLD.format(2)}", "sees the whole cluster"],
            id="what-is-left-to-wait-for-after-a-stop",
        ),
        pytest.param(
            [("", "the Lease is not held"), ("", STOP)],
            ["waits: the Lease is not held", f"waits: {STOP}"],
            id="one-stop-after-another",
        ),
    ],
)
def test_each_reason_to_wait_is_told_once(moments: list[tuple[str, str]], told: list[str]) -> None:
    waits = Waits()
    assert [waits.line(*moment) for moment in moments] == told
