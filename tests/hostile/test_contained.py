"""A bug at one node, and one object that cannot be read: what they hold up, and what goes on."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kubectl_nodelife.controllers.nodelifecycle import eviction, monitor
from kubectl_nodelife.engine.events import Unreadable
from kubectl_nodelife.live.source import Happened
from tests.daemon.lab import Lab, lease, make_lab, node, pod, run

N1 = ("Node", ("", "n1"))
BAD_POD = Unreadable("Pod", ("default", "p1"), "w", related=(N1,))
BAD_LEASE = Unreadable("Lease", ("kube-node-lease", "n1"), "w", related=(N1,))


LIVING = ("n3", "n4", "n5")


async def two_fall_silent(lab: Lab) -> None:
    """Five nodes with a pod each, of which two will not be heard of any more."""
    names = ("n1", "n2", *LIVING)
    pods = [pod(f"p{name[1:]}", name) for name in names]
    await lab.begin(*map(node, names), *map(lease, names), *pods)
    await lab.after(45, *names)


def by_target(rows: list[tuple[str, str, str]]) -> dict[str, set[str]]:
    found: dict[str, set[str]] = {}
    for action, target, _ in rows:
        found.setdefault(target, set()).add(action)
    return found


def test_a_bug_at_one_node_leaves_the_others_their_pass(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = monitor.update_node_health
    broken = True

    def fails(seen: Any, *args: Any, **more: Any) -> Any:
        if broken and seen.name == "n1":
            raise KeyError("n1")
        return real(seen, *args, **more)

    monkeypatch.setattr(monitor, "update_node_health", fails)

    async def story() -> None:
        nonlocal broken
        lab = make_lab(tmp_path)
        await two_fall_silent(lab)
        await lab.after(120, *LIVING)
        told = by_target(await lab.told(outcome="would"))
        assert {"SetNodeCondition", "AddTaint"} <= told["n2"]
        assert "MarkPodNotReady" in told["p2"]
        assert set(told) == {"n2", "p2"}
        bugs = lab.watcher.host.cache.quarantine.bugs
        assert list(bugs) == [("node-lifecycle", N1)]
        broken = False
        await lab.after(30, *LIVING)
        assert not bugs, "the next pass looks at it again"
        told = by_target(await lab.told(outcome="would"))
        assert {"SetNodeCondition", "AddTaint"} <= told["n1"]
        assert "MarkPodNotReady" in told["p1"]

    run(story())


def test_a_bug_at_one_node_does_not_block_its_zones_queue(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = eviction.swap_taints

    def fails(seen: Any, *args: Any, **more: Any) -> Any:
        if seen.name == "n1":
            raise KeyError("n1")
        return real(seen, *args, **more)

    monkeypatch.setattr(eviction, "swap_taints", fails)

    async def story() -> None:
        lab = make_lab(tmp_path)
        await two_fall_silent(lab)
        await lab.after(120, *LIVING)
        taints = [c.name for c in await lab.changes() if c.action == "AddTaint"]
        assert sorted(taints) == ["n1", "n2", "n2"], "NoSchedule alone is the node worker's"

    run(story())


def test_an_unreadable_pod_leaves_its_node_to_be_decided_on(tmp_path: Path) -> None:
    async def story() -> None:
        lab = make_lab(tmp_path)
        await two_fall_silent(lab)
        await lab.see(pod("p4", "n1"))
        await lab.tell(Happened("Pod", [BAD_POD]))
        await lab.after(500, *LIVING)
        told = by_target(await lab.told(outcome="would"))
        assert {"SetNodeCondition", "AddTaint"} <= told["n1"]
        assert {"MarkPodNotReady", "DeletePod"} <= told["p4"]
        assert "p1" not in told

    run(story())


def test_an_unreadable_lease_is_no_silence(tmp_path: Path) -> None:
    async def story() -> None:
        lab = make_lab(tmp_path)
        await two_fall_silent(lab)
        await lab.tell(Happened("Lease", [BAD_LEASE]))
        await lab.after(500, *LIVING)
        told = by_target(await lab.told(outcome="would"))
        assert not {"n1", "p1"} & set(told)
        assert "DeletePod" in told["p2"]

    run(story())
