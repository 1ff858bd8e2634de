"""Which decisions a daemon takes for those that the one before it had recorded."""

from typing import Any

from msgspec.structs import replace

from kubectl_nodelife.daemon.changes import ChangeRecord
from kubectl_nodelife.daemon.ledger import Ledger
from kubectl_nodelife.engine.actions import Action, CreatePod, DeletePod
from kubectl_nodelife.kube.node import Taint
from tests.daemon.lab import T0, unreachable
from tests.daemon.plans import tainted


def recorded(*actions: Action) -> list[ChangeRecord]:
    ledger = Ledger()
    for action in actions:
        ledger.note(action, T0, "", "")
    return ledger.take_batch()[0]


def after_a_restart(*, before: Action, now: Action) -> tuple[list[int], list[int]]:
    """(ids of the changes that are told anew, ids of those that are left of the time before)"""
    ledger = Ledger(10, recorded(before))
    ledger.note(replace(now, id=0), T0 + 1, "", "")
    return [c.id for c in ledger.take_batch()[0]], [c.id for c in ledger.inherited()]


def create(owner_uid: str, **fields: Any) -> CreatePod:
    made = {"controller": "daemonset", "because": "the node has none", **fields}
    pod = {"namespace": "d", "pod": "ds-x7k2p", "node": "n1", "manifest": {}}
    return CreatePod(**made, **pod, owner="ds", owner_uid=owner_uid, revision="5f")


def delete(*taints: Taint, **fields: Any) -> DeletePod:
    made = {"controller": "taint-eviction", "because": "its time is over", **fields}
    return DeletePod(**made, namespace="d", pod="p", pod_uid="u", taints=taints)


def test_alike_in_words_but_of_another_owner_is_another_action() -> None:
    told, left = after_a_restart(before=create("uid-of-old-set"), now=create("uid-of-new-set"))
    assert (told, left) == ([10], [0])


def test_the_same_action_in_other_words_is_not_told_again() -> None:
    one, other = unreachable("NoExecute"), Taint("node.kubernetes.io/not-ready", "", "NoExecute")
    now = delete(other, because="it tolerates the taint for 0s")
    assert after_a_restart(before=delete(one), now=now) == ([], [])


def test_two_records_of_one_action_are_taken_up_together() -> None:
    ledger = Ledger(10, recorded(tainted(), tainted(name="n2")))
    ledger.note(tainted(), T0 + 1, "", "")
    assert [c.id for c in ledger.inherited()] == [2, 3]
    for change in list(ledger.inherited()):
        ledger.settle_inherited(change, "superseded", T0 + 2, "the node is gone")
    assert list(ledger.inherited()) == []


def test_two_alike_of_a_journal_are_two_and_both_come_to_an_end() -> None:
    ledger = Ledger(10, [c for _ in "ab" for c in recorded(delete())])
    ledger.note(delete(), T0 + 1, "", "")
    assert len(list(ledger.inherited())) == 1


def test_a_row_without_identity_is_nobody_elses() -> None:
    old = [replace(change, identity="") for change in recorded(delete(), create("u"))]
    ledger = Ledger(10, old)
    ledger.note(delete(), T0 + 1, "", "")
    assert [c.id for c in ledger.inherited()] == [0, 1]
