"""A dry run of each work mode to its end, in virtual time, on a cluster that nothing changes."""

from __future__ import annotations

from typing import Any, cast

import pytest

from kubectl_nodelife.acts.upgrade.dry_run import DryRun
from kubectl_nodelife.acts.upgrade.live_cache import LiveCache
from kubectl_nodelife.controllers.upgrade.document import RunDocument
from kubectl_nodelife.controllers.upgrade.policy import policy_digest
from kubectl_nodelife.kube.times import MINUTE_NS, SECOND_NS
from tests.upgrade.stand import Stand

JOB = {
    "apiVersion": "batch/v1",
    "kind": "Job",
    "metadata": {"name": "work"},
    "spec": {"template": {"spec": {"containers": [{"name": "c", "image": "tool"}]}}},
}
WORK_NS = 4 * MINUTE_NS


class Observed:
    """What is seen of a cluster that nobody changes, and the clock."""

    def __init__(self, stand: Stand) -> None:
        self.cache, self._stand = stand.cache, stand
        self.clock = self

    def now_ns(self) -> int:
        return self._stand.now_ns

    def blind(self) -> str:
        return ""

    def unread(self) -> dict[str, str]:
        return {}


def played(minutes: int = 120, **policy: Any) -> tuple[Stand, list[str], int | None, float]:
    """The stand, what was told, the exit code, and how many minutes it took."""
    stand = Stand(nodes=["a", "b"], maxUnavailable=1, grown=False, **policy)
    stand.add_nodes("a", "b", "c", "d")
    stand.add_daemon_set()
    for name in "abcd":
        stand.add_pod(f"cni-{name}", name, owner="cni", kind="DaemonSet")
    for number in range(4):
        stand.add_pod(f"web-{number}", "ab"[number % 2], owner="web")
    before = {kind: dict(store) for kind, store in stand.cache.objects.items()}
    run = RunDocument(run="dry", policy=policy_digest(stand.policy))
    told: list[str] = []
    one = DryRun(
        cast(LiveCache, Observed(stand)),
        stand.policy,
        stand._ports(),
        run,
        WORK_NS,
        told.append,
    )
    began, code = stand.now_ns, None
    while code is None and stand.now_ns < began + minutes * MINUTE_NS:
        code = one.step()
        stand.now_ns += SECOND_NS
    after = {kind: dict(store) for kind, store in stand.cache.objects.items()}
    assert after == before, "nothing is laid into what is observed"
    return stand, told, code, (stand.now_ns - began) / MINUTE_NS


MODES: dict[str, dict[str, Any]] = {
    "run": {"target": ["bootID=changed"]},
    "run without a target": {},
    "job": {"work": {"mode": "job", "manifest": JOB}},
    "wait for a condition": {"work": {"mode": "wait"}, "target": ["condition:Patched=True"]},
    "wait for a label": {"work": {"mode": "wait"}, "target": ["label:patched=yes"]},
    "replace": {"work": {"mode": "replace"}},
    "replace by a command": {"work": {"mode": "replace", "command": "true"}},
    "nothing": {"work": {"mode": "nothing"}},
}


@pytest.mark.parametrize("mode", MODES)
def test_each_mode_ends_after_the_assumed_time(mode: str) -> None:
    _, told, code, minutes = played(**MODES[mode])
    assert code == 0, told[-8:]
    assert sum("claimed" in line for line in told) == 2
    assert sum("released" in line for line in told) == 2, told
    works = 0 if mode == "nothing" else 2 * WORK_NS / MINUTE_NS
    assert works < minutes < works + 25
    assert all(line.startswith("(dry run) ") for line in told)


def test_evicted_pods_come_back_elsewhere_and_hold_no_gate() -> None:
    _, told, code, minutes = played(soak="20m", target=["bootID=changed"])
    assert code == 0 and minutes > 25
    evicted = [line for line in told if "evicted" in line]
    assert len(evicted) >= 4 and not any("displaced" in line for line in told)


def test_a_dry_run_that_would_pause_after_failures_ends() -> None:
    _, told, code, _ = played(returnTimeout="30s", readyFor="60s")
    assert code == 1 and any("Failed" in line for line in told), told
