"""How long the phases of a node take, at least, as expected, and at most."""

from __future__ import annotations

from typing import Final

from kubectl_nodelife.controllers.upgrade.expected import expected_work_ns
from kubectl_nodelife.controllers.upgrade.policy import UpgradePolicy
from kubectl_nodelife.controllers.upgrade.ports import DrainVerdict
from kubectl_nodelife.kube.times import SECOND_NS
from kubectl_nodelife.sim.kubectl.options import DrainOptions
from kubectl_nodelife.upgrade.course import PhaseTimes

SETTLE_EXTRA_NS: Final = 2 * SECOND_NS
"""Beside `--ready-for`: the checks are looked at every few seconds."""
THREE_RENEWALS_NS: Final = 30 * SECOND_NS
"""Check S2 at the kubelet's interval of 10 s; at least none, for kubelets may be set to less."""
CANARY_NS: Final = 14 * SECOND_NS
"""Scheduled, started, 10 s without a restart, deleted."""
_WORK_RANGE: Final = {True: (0.8, 1.25), False: (0.5, 2.0)}
"""The work's length at least and at most, as shares; True: somebody said how long it takes."""


def phase_times(policy: UpgradePolicy) -> tuple[PhaseTimes, PhaseTimes, PhaseTimes]:
    """The phases at least, as expected, and at most."""
    work = expected_work_ns(policy)
    least, most = _WORK_RANGE[policy.expect_work_ns is not None]
    settle = max(policy.ready_for_ns, THREE_RENEWALS_NS)
    return (
        PhaseTimes(int(work * least), policy.ready_for_ns, 11 * SECOND_NS),
        PhaseTimes(work, settle + SETTLE_EXTRA_NS, CANARY_NS),
        PhaseTimes(
            min(int(work * most), policy.work_timeout_ns),
            min(settle + 60 * SECOND_NS, policy.return_timeout_ns),
            min(60 * SECOND_NS, policy.prove_timeout_ns),
        ),
    )


def shorter(played_ns: int, verdict: DrainVerdict, options: DrainOptions) -> int:
    """The least that a drain takes which took so long when it was played."""
    return min(played_ns, int((verdict.low_seconds + 1.0) * SECOND_NS))


def longer(played_ns: int, verdict: DrainVerdict, options: DrainOptions) -> int:
    """The most that it takes, within the drain's time limit."""
    high_ns = max(int(1.1 * played_ns) + 10 * SECOND_NS, int(verdict.high_seconds * SECOND_NS))
    return min(high_ns, options.timeout_ns or high_ns)
