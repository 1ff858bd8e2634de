"""A scenario's `upgrade` and `upgradeCommand`: what is read, and what is refused with its place."""

from typing import Any

import pytest

from kubectl_nodelife.controllers.upgrade.policy import PAUSE_IMAGE, WorkMode
from kubectl_nodelife.errors import BadInput
from kubectl_nodelife.kube.times import MINUTE_NS, SECOND_NS
from kubectl_nodelife.sim.events import (
    UpgradeCommandEvent,
    UpgradeEvent,
    WorkAssumptions,
    WorkFault,
)
from tests.sim.documents import node, scenario


def read(**event: Any) -> Any:
    events = [{"at": "1m", **event}]
    return scenario(objects=[node("b7")], events=events).events[0].what


def test_a_whole_upgrade() -> None:
    found = read(
        upgrade={
            "selector": "pool=blue",
            "policy": {"maxUnavailable": "10%", "canary": 2, "soak": "3m"},
            "work": {
                "mode": "reboot",
                "duration": "8m",
                "jitter": "2m",
                "down": "3m",
                "seed": 1,
                "daemonPods": "30s",
            },
            "faults": [{"nodes": ["b7"], "how": "never-returns", "times": 1}],
        }
    )
    assert isinstance(found, UpgradeEvent)
    policy = found.policy
    assert (policy.selector, policy.canary, policy.soak_ns) == ("pool=blue", 2, 3 * MINUTE_NS)
    assert (policy.work.mode, policy.canary_image) == (WorkMode.RUN, PAUSE_IMAGE)
    assert found.work == WorkAssumptions(
        duration_ns=8 * MINUTE_NS,
        jitter_ns=2 * MINUTE_NS,
        down_ns=3 * MINUTE_NS,
        daemon_pods_ns=30 * SECOND_NS,
        seed=1,
    )
    assert found.faults == (WorkFault(("b7",), "never-returns", 1),)


def test_a_replacement_is_started_by_nobody_of_ours() -> None:
    found = read(upgrade={"nodes": ["b7"], "work": {"mode": "replace"}})
    assert found.policy.work.mode is WorkMode.REPLACE
    assert not found.policy.work.runs_command


def test_a_command() -> None:
    assert read(upgradeCommand="leader-dies") == UpgradeCommandEvent("leader-dies")


@pytest.mark.parametrize(
    "event, place",
    [
        ({"upgrade": {}}, "upgrade"),
        ({"upgrade": {"selector": "a=b", "policy": {"canery": 1}}}, "upgrade.policy"),
        ({"upgrade": {"selector": "a=b", "policy": {"soak": "0s"}}}, "upgrade.policy"),
        ({"upgrade": {"selector": "a=b", "work": {"mode": "dance"}}}, "upgrade.work.mode"),
        (
            {"upgrade": {"selector": "a=b", "faults": [{"nodes": ["b7"], "how": "x"}]}},
            "upgrade.faults[0].how",
        ),
        ({"upgradeCommand": "stop"}, "upgradeCommand"),
    ],
)
def test_what_is_wrong_is_named_with_its_place(event: dict[str, Any], place: str) -> None:
    with pytest.raises(BadInput, match=rf"spec\.events\[0\]\.{place.replace('[', '.')[:12]}"):
        read(**event)
