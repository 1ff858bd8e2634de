"""The roles of an upgrade: all that its preflight asks for, and nothing that it can do without."""

import json
from typing import Any

import pytest
from click.testing import CliRunner

from kubectl_nodelife.cli import main
from kubectl_nodelife.commands.rbac import rbac
from kubectl_nodelife.controllers.upgrade.policy import NodeWork, UpgradePolicy, WorkMode
from kubectl_nodelife.daemon.permissions import ENFORCE_LEASE, rights

JOB = NodeWork(WorkMode.JOB, manifest={"metadata": {"namespace": "infra"}})
EVERYTHING = UpgradePolicy(work=NodeWork(WorkMode.JOB))


def listed(*words: str) -> list[dict[str, Any]]:
    """The objects that are printed."""
    outcome = CliRunner().invoke(rbac, ["-o", "json", *words])
    assert outcome.exit_code == 0, outcome.output
    items: list[dict[str, Any]] = json.loads(outcome.output)["items"]
    return items


def granted(*words: str) -> set[tuple[str, str, str, str]]:
    """(namespace, group, resource, verb) of each role."""
    return {
        (item["metadata"].get("namespace", ""), group, resource, verb)
        for item in listed("--upgrade", *words)
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


@pytest.mark.parametrize(
    "words, lease",
    [(("--upgrade",), "kubectl-nodelife-upgrade"), (("--mode", "enforce"), ENFORCE_LEASE)],
)
def test_no_other_lease_of_its_namespace_can_be_written_and_no_other_config_map_read(
    words: tuple[str, ...], lease: str
) -> None:
    """In kube-system there are the Leases of kube-controller-manager and kube-scheduler. Only
    `create` cannot be limited to a name.
    """
    roles = [item for item in listed(*words) if item["kind"] == "Role"]
    rules = [rule for role in roles for rule in role["rules"]]
    leases = [rule for rule in rules if rule["resources"] == ["leases"]]
    assert {tuple(rule.get("resourceNames", rule["verbs"])) for rule in leases} == {
        ("create",),
        (lease,),
    }
    maps = [rule for rule in rules if rule["resources"] == ["configmaps"]]
    assert [rule["resourceNames"] for rule in maps] == [["nodelife-stop"]]
    everywhere = [rule for item in listed(*words) for rule in item.get("rules", ())
                  if item["kind"] == "ClusterRole" and rule["resources"] == ["leases"]]  # fmt: skip
    assert [set(rule["verbs"]) for rule in everywhere] == [{"get", "list", "watch"}]


def test_rights_to_a_name_are_asked_for_by_that_name() -> None:
    """Asked without it, RBAC denies what it grants for the name alone."""
    (asked,) = (right for right in rights(UpgradePolicy()) if right.resource == "configmaps")
    assert asked.name == "nodelife-stop"
    line = "kubectl auth can-i get configmaps/nodelife-stop --namespace=kube-system"
    assert asked.can_i() == line
    by_name = {r.verb for r in rights(UpgradePolicy()) if r.name == "kubectl-nodelife-upgrade"}
    assert by_name == {"delete", "get", "patch", "update"}


def test_the_jobs_namespace_is_asked_for_and_can_be_named() -> None:
    asked = {(r.verb, r.namespace) for r in rights(UpgradePolicy(work=JOB)) if r.group == "batch"}
    assert {verb for verb, namespace in asked if not namespace} == {"list", "watch"}
    assert {verb for verb, namespace in asked if namespace == "infra"} == {
        "create",
        "delete",
        "get",
    }
    assert ("infra", "batch", "jobs", "create") in granted("--namespace", "infra")
