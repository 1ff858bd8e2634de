"""`drain-plan` and the real `kubectl drain` of a user who may read all kinds but one.

What kubectl reads before it touches a pod decides about the whole node: without it kubectl evicts
nothing there, and no plan may say that the drain finishes. Budgets are read by the API server, so
that who may not read them drains all the same; but how long that takes, the plan cannot know.
"""

import asyncio
import json
from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest

from kubectl_nodelife.kube.kinds import KINDS, group_of
from tests.acts.program import Ended, nodelife
from tests.real.control_plane import ControlPlane, control_plane
from tests.real.drain_objects import Setup, daemon_set, deployment, guarded
from tests.real.drain_runs import outcome_of, pods_of, prepare, run
from tests.real.kubelets import Kubelets

RBAC = "rbac.authorization.k8s.io"
READ = ["get", "list", "watch"]


class Case(NamedTuple):
    """The kind that may not be read, and whether kubectl drains the node all the same."""

    hidden: str
    drains: bool

    @property
    def user(self) -> str:
        """The user that may not read it."""
        return f"without-{self.hidden.lower()}"


CASES = [Case("DaemonSet", drains=False), Case("PodDisruptionBudget", drains=True)]


def of(case: Case) -> Setup:
    """A cluster of two nodes of its own: a guarded Deployment and a DaemonSet."""
    objects = (*guarded(deployment("web", 4), maxUnavailable=4), daemon_set("agent"))
    nodes: dict[str, Any] = {"a1": {}, "a2": {}}
    return Setup(case.user, objects, (6, 6), "--ignore-daemonsets", nodes=nodes, later={})


@pytest.fixture(scope="module")
def plane() -> Iterator[ControlPlane]:
    with (
        control_plane(controller_manager=[], scheduler=True) as plane,
        Kubelets(plane.api, renew_every_s=5.0) as kubelets,
    ):
        prepare(plane, kubelets, tuple(map(of, CASES)))
        for case in CASES:
            allow(plane, case)
        yield plane


def allow(plane: ControlPlane, case: Case) -> None:
    """The user may do what a drain does, and read every kind but one."""
    rules = [
        {"apiGroups": [group_of(kind.api_version)], "resources": [kind.plural], "verbs": READ}
        for kind in KINDS
        if kind.name != case.hidden
    ]
    rules.append({"apiGroups": [""], "resources": ["nodes", "pods"], "verbs": ["patch"]})
    rules.append({"apiGroups": [""], "resources": ["pods/eviction"], "verbs": ["create"]})
    made = {"apiVersion": f"{RBAC}/v1", "metadata": {"name": case.user}}
    role = {"apiGroup": RBAC, "kind": "ClusterRole", "name": case.user}
    subjects = [{"apiGroup": RBAC, "kind": "User", "name": case.user}]
    path = f"/apis/{RBAC}/v1"
    plane.api.create(f"{path}/clusterroles", {**made, "kind": "ClusterRole", "rules": rules})
    binding = {**made, "kind": "ClusterRoleBinding", "roleRef": role, "subjects": subjects}
    plane.api.create(f"{path}/clusterrolebindings", binding)


def plan(plane: ControlPlane, case: Case, *words: str) -> Ended:
    """What `drain-plan` says to that user."""
    node = of(case).node("a1")
    asked = ("drain-plan", node, "--ignore-daemonsets", "--no-daemon", *words)
    return asyncio.run(nodelife(str(plane.kubeconfig), str(plane.folder), *asked))


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.hidden)
def test_a_plan_without_a_kind_is_never_ready_and_kubectl_decides(
    plane: ControlPlane, case: Case
) -> None:
    everything = plan(plane, case, "-o", "json")
    assert json.loads(everything.out)["verdict"] == "ready", everything
    seen = plan(plane, case, "-o", "json", "--as", case.user)
    planned = json.loads(seen.out)
    assert planned["verdict"] == "unknown", seen
    assert [kind["kind"] for kind in planned["notEvaluated"]] == [case.hidden]
    first, *_ = plan(plane, case, "--as", case.user).out.splitlines()
    assert "not everything was read" in first

    setup = of(case)
    before = {pod["metadata"]["uid"] for pod in pods_of(plane, setup.name)}
    outcome = outcome_of(
        plane, setup.name, run(plane, f"{setup.command()} --timeout=20s --as={case.user}", 60.0)
    )
    assert (outcome["exitCode"] == 0) == case.drains, outcome
    assert bool(outcome["accepted"]) == case.drains
    if not case.drains:
        assert "cannot get resource" in "".join(outcome["stderr"])
        assert {pod["metadata"]["uid"] for pod in pods_of(plane, setup.name)} == before
