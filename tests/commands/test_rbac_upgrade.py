"""The roles of an upgrade: all that its preflight asks for, and nothing that it can do without."""

from __future__ import annotations

import json
from typing import Any

import pytest
from click.testing import CliRunner

from kubectl_nodelife.cli import main
from kubectl_nodelife.commands.rbac import rbac
from kubectl_nodelife.controllers.upgrade.policy import NodeWork, UpgradePolicy, WorkMode
from kubectl_nodelife.daemon.permissions import rights

JOB = NodeWork(WorkMode.JOB, manifest={"metadata": {"namespace": "infra"}})
EVERYTHING = UpgradePolicy(work=NodeWork(WorkMode.JOB), canary_service=True, conditions=True)


def granted(*words: str) -> set[tuple[str, str, str, str]]:
    """(namespace, group, resource, verb) of each role."""
    outcome = CliRunner().invoke(rbac, ["--upgrade", "-o", "json", *words])
    assert outcome.exit_code == 0, outcome.output
    items: list[dict[str, Any]] = json.loads(outcome.output)["items"]
    return {
        (item["metadata"].get("namespace", ""), group, resource, verb)
        for item in items
        for rule in item.get("rules", ())
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }


@pytest.mark.parametrize("policy", [UpgradePolicy(), EVERYTHING])
def test_what_the_preflight_asks_for_is_granted(policy: UpgradePolicy) -> None:
    roles = granted()
    for right in rights(policy):
        name = f"{right.resource}/{right.subresource}" if right.subresource else right.resource
        wanted = {(where, right.group, name, right.verb) for where in ("", right.namespace)}
        assert wanted & roles, str(right)


def test_nothing_is_deleted_outside_the_namespaces_of_ours() -> None:
    everywhere = {(resource, verb) for where, _, resource, verb in granted() if not where}
    assert not any(verb in ("delete", "update") for _, verb in everywhere)
    assert ("pods", "create") not in everywhere and ("pods/eviction", "create") in everywhere


def test_config_maps_are_read_where_the_kill_switch_is_alone() -> None:
    for words in ((), ("--lease-namespace", "ops")):
        where = {
            namespace for namespace, _, resource, _ in granted(*words) if resource == "configmaps"
        }
        assert where == {"kube-system"}


@pytest.mark.parametrize("words", [(), ("--lease-namespace", "ops"), ("--enforce=pod-gc",)])
def test_enforcing_reads_no_other_config_map_either(
    words: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["rbac", "--mode", "enforce", *words, "-o", "json"]) == 0
    items = json.loads(capsys.readouterr().out)["items"]
    where = {
        (item["kind"], item["metadata"].get("namespace", ""), *rule["verbs"])
        for item in items
        for rule in item.get("rules", ())
        if "configmaps" in rule["resources"]
    }
    assert where == {("Role", "kube-system", "get")}


def test_the_jobs_namespace_is_asked_for_and_can_be_named() -> None:
    asked = {(r.verb, r.namespace) for r in rights(UpgradePolicy(work=JOB)) if r.group == "batch"}
    assert {verb for verb, namespace in asked if not namespace} == {"list", "watch"}
    assert {verb for verb, namespace in asked if namespace == "infra"} == {
        "create",
        "delete",
        "get",
    }
    assert ("infra", "batch", "jobs", "create") in granted("--namespace", "infra")
