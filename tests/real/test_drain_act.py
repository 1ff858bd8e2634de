"""`drain` carried out on a real control plane: it does what its plan promised, wave by wave."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass

import pytest

from tests.acts.program import Ended, nodelife
from tests.real.audited import Write, writes
from tests.real.control_plane import ControlPlane, control_plane
from tests.real.drain_act_setups import RECORDED
from tests.real.drain_objects import Setup
from tests.real.drain_runs import just_before, node_of, pods_of, prepare
from tests.real.kubelets import Kubelets

AT_A_TIME = 4
WHOLE_GRACE_S = 3600.0
NOT_BEGUN = {"bare-pod-without-force", "daemonset-without-flag", "emptydir-without-flag"}
NOT_DRAINED = {
    "budget-never",
    "dead-kubelet",
    "finalizer-holds",
    "replacement-cannot-land",
    "two-budgets-on-one-pod",
    "unready-if-healthy-budget",
}


@dataclass
class Acted:
    """A set-up, and how its drain ended."""

    setup: Setup
    plane: ControlPlane
    ended: Ended

    def written(self) -> list[Write]:
        """Our accepted writes to the set-up's nodes and pods."""
        ours = []
        for write in writes(self.plane.audit()):
            here = write.namespace == self.setup.name or write.name.startswith(
                f"{self.setup.name}-a"
            )
            if here and write.accepted and write.agent.startswith("kubectl-nodelife/"):
                ours.append(write)
        return ours


def act(plane: ControlPlane, setup: Setup) -> Acted:
    just_before(plane, setup)
    folder = plane.folder / f"acts-{setup.name}"
    folder.mkdir()
    names = [setup.node(name) for name in setup.drained]
    words = ("drain", *names, *setup.flags.split(), "--yes")
    return Acted(setup, plane, asyncio.run(nodelife(str(plane.kubeconfig), str(folder), *words)))


@pytest.fixture(scope="module")
def acts() -> Iterator[dict[str, Future[Acted]]]:
    with (
        control_plane(controller_manager=[], scheduler=True) as plane,
        Kubelets(plane.api, renew_every_s=5.0, stop_s=WHOLE_GRACE_S, tick_s=0.25) as kubelets,
        ThreadPoolExecutor(AT_A_TIME) as pool,
    ):
        prepare(plane, kubelets, RECORDED)
        yield {setup.name: pool.submit(act, plane, setup) for setup in RECORDED}


@pytest.fixture(params=[pytest.param(s, id=s.name) for s in RECORDED])
def case(request: pytest.FixtureRequest, acts: dict[str, Future[Acted]]) -> Acted:
    return acts[request.param.name].result()


def test_it_does_what_its_plan_promised(case: Acted) -> None:
    ended, name = case.ended, case.setup.name
    if name in NOT_BEGUN:
        assert ended.code == 1 and "nothing was touched" in ended.err, ended
        assert case.written() == []
    elif name in NOT_DRAINED:
        assert ended.code == 1 and "not drained: " in ended.out, ended
    else:
        assert ended.code == 0, ended
        waves = re.findall(r"^\d+ +\S+-a\d .*$", ended.out, re.MULTILINE)
        assert len(waves) == len(case.setup.drained)
        assert all(wave.endswith("drained, as promised") for wave in waves), waves
        nodes = {case.setup.node(node) for node in case.setup.drained}
        left = [p for p in pods_of(case.plane, name) if p["spec"].get("nodeName") in nodes]
        assert all("agent" in pod["metadata"]["name"] for pod in left)


def test_nothing_but_cordons_and_evictions_is_sent(case: Acted) -> None:
    kinds = {(w.verb, w.resource, w.subresource) for w in case.written()}
    assert kinds <= {("patch", "nodes", ""), ("create", "pods", "eviction")}
    if case.setup.name not in NOT_BEGUN:
        for name in case.setup.drained:
            node = node_of(case.plane, case.setup.node(name))
            assert node["spec"]["unschedulable"], "a failed drain uncordons nothing"
