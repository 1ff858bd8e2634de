"""How long a node is expected to be out of service: what windows and plans reckon with."""

from __future__ import annotations

from typing import Final

from kubectl_nodelife.controllers.upgrade.policy import UpgradePolicy, WorkMode
from kubectl_nodelife.kube.times import MINUTE_NS, SECOND_NS

DEFAULT_WORK_NS: Final = 10 * MINUTE_NS
"""Where nobody has said how long the work takes."""


def expected_work_ns(policy: UpgradePolicy) -> int:
    """How long the work on a node is expected to take."""
    if policy.work.mode is WorkMode.NOTHING:
        return 0
    return policy.expect_work_ns or DEFAULT_WORK_NS


def high_estimate_ns(policy: UpgradePolicy, drain_seconds: float) -> int:
    """The high estimate of one node: drain, work, return and proof."""
    back_ns = policy.ready_for_ns + MINUTE_NS
    return int(drain_seconds * SECOND_NS) + expected_work_ns(policy) + back_ns
