"""Whatever the weather, every plan ends: see `storms.py`. A failure names its seed."""

import json
from collections import Counter
from collections.abc import Iterable

import pytest

from kubectl_nodelife.daemon.changes import WOULD, ChangeRecord
from kubectl_nodelife.daemon.journal import open_journal
from kubectl_nodelife.engine.settlement import CONFIRMED
from tests.daemon.lab import Lab
from tests.daemon.storms import Beside
from tests.deep import first_few

NOBODY_ACTS = range(100)
CONTROLLERS_ACT = range(1000, 1100)


async def played(seed: int, *, acts: bool) -> tuple[Beside, list[ChangeRecord], list[ChangeRecord]]:
    """The changes of a daemon that saw the storm, and of one that begins when all is over."""
    beside = Beside(seed, acts=acts)
    lab = Lab(open_journal(":memory:"), beside.settings)
    await beside.play(lab)
    fresh = Lab(open_journal(":memory:"), beside.settings)
    await beside.join(fresh)
    await fresh.after(2 * beside.settings.node_monitor_grace_period_ns / 10**9, *beside.nodes())
    return beside, await lab.changes(), await fresh.changes()


def still_open(changes: Iterable[ChangeRecord]) -> Counter[tuple[str, str, str]]:
    """What is planned and has not ended; the names of pods that would be made are made up, and an
    Event's message tells them.
    """
    return Counter(
        (c.action, "" if c.action == "CreatePod" else c.name, _without_message(c.detail))
        for c in changes
        if c.outcome == WOULD
    )


def _without_message(detail: str) -> str:
    fields = json.loads(detail) if detail else {}
    fields.pop("message", None)
    return json.dumps(fields)


@pytest.mark.parametrize("seed", first_few(NOBODY_ACTS, 2))
async def test_where_nobody_acts_all_is_withdrawn_and_nothing_is_confirmed(seed: int) -> None:
    beside, changes, fresh = await played(seed, acts=False)
    left = still_open(changes) - still_open(fresh)
    assert not left
    assert {c.controller for c in changes if c.outcome == WOULD} <= {"daemonset"}
    confirmed = {c.name for c in changes if c.outcome == CONFIRMED}
    assert confirmed <= beside.deleted_by_hand()


@pytest.mark.parametrize("seed", first_few(CONTROLLERS_ACT, 2))
async def test_where_controllers_act_only_what_is_to_come_is_left(seed: int) -> None:
    beside, changes, fresh = await played(seed, acts=True)
    left = still_open(changes) - still_open(fresh)
    assert not left
    confirmed_at = Counter(
        (c.controller, c.action, c.uid, c.detail, c.settled_ns)
        for c in changes
        if c.outcome == CONFIRMED and c.kind in ("Node", "Pod") and c.action != "RecordEvent"
    )
    assert not [told for told, times in confirmed_at.items() if times > 1]
    written = {a.target[1][1] for _, a in beside.did}
    nameless = ("SetZoneState", "CreatePod")  # a new pod has the name that its maker gives it
    ended = (c for c in changes if c.outcome == CONFIRMED and c.action not in nameless)
    assert {c.name for c in ended} <= written | beside.deleted_by_hand()
