"""`kubectl nodelife rbac`: the least rights to read everything, to enforce, to upgrade, or to ask a
daemon in the cluster.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import click

from kubectl_nodelife.commands.access_rules import RULES, VIA_RULES, Rule
from kubectl_nodelife.commands.flags import Output, output_flags
from kubectl_nodelife.controllers import controller_names
from kubectl_nodelife.report import terminal

if TYPE_CHECKING:
    from kubectl_nodelife.daemon.permissions import PolicyRule
    from kubectl_nodelife.report.formats import Page

NAME = "nodelife-reader"
ENFORCER = "nodelife-enforcer"
UPGRADER = "nodelife-upgrader"
ASKER = "nodelife-asker"
_KUBE_SYSTEM = "kube-system"
RBAC_GROUP = "rbac.authorization.k8s.io"

Json = dict[str, Any]


def rules_of(rows: Iterable[Rule]) -> list[Json]:
    """The rules of a role."""
    return [
        {"apiGroups": [group], "resources": list(resources), "verbs": list(verbs)}
        for group, resources, verbs in rows
    ]


def roles_page(*objects: Json, is_list: bool = True) -> Page:
    """Objects that grant something: one as a document of its own, or several as a List. Names:
    kind.group/NAME of each."""
    from kubectl_nodelife.report.formats import Page

    listed = {"apiVersion": "v1", "kind": "List", "items": list(objects)} if is_list else objects[0]
    return Page(lambda *, wide: (), lambda: listed, lambda: map(_name_of, objects))


def _name_of(each: Json) -> str:
    group = each["apiVersion"].rpartition("/")[0]
    kind = f"{each['kind']}.{group}" if group else each["kind"]
    return f"{kind.lower()}/{each['metadata']['name']}"


def _object(name: str, namespace: str, kind: str, **fields: Any) -> Json:
    return {
        "apiVersion": f"{RBAC_GROUP}/v1",
        "kind": kind if namespace else f"Cluster{kind}",
        "metadata": {"name": name, **({"namespace": namespace} if namespace else {})},
        **fields,
    }


def _account(name: str, roles: Mapping[str, Iterable[PolicyRule]]) -> Iterator[Json]:
    """A ServiceAccount with roles and bindings.

    The account is in kube-system, so that its Leases and writes go by the API server's priority
    levels of the real controllers. `roles`: namespace -> what is granted in it; "": everywhere.
    """
    account = {"name": name, "namespace": _KUBE_SYSTEM}
    yield {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": account}
    subjects = [{"kind": "ServiceAccount", **account}]
    for namespace, granted in roles.items():
        role = _object(name, namespace, "Role", rules=[rule(row) for row in granted])
        yield role
        of = {"apiGroup": RBAC_GROUP, "kind": role["kind"], "name": name}
        yield _object(name, namespace, "RoleBinding", roleRef=of, subjects=subjects)


def _asker(name: str, namespace: str) -> Iterator[Json]:
    """Roles for people who ask a daemon in this namespace, not bound to a subject yet."""
    from kubectl_nodelife.daemon.permissions import PolicyRule

    yield _object(name, namespace, "Role", rules=rules_of(VIA_RULES))
    cluster = PolicyRule("", "namespaces", "", ("get",), (_KUBE_SYSTEM,))  # its UID tells it
    yield _object(name, "", "Role", rules=[rule(cluster)])


def rule(of: PolicyRule) -> Json:
    """The rule as a role has it."""
    name = f"{of.resource}/{of.subresource}" if of.subresource else of.resource
    granted = {"apiGroups": [of.group], "resources": [name], "verbs": list(of.verbs)}
    return {**granted, "resourceNames": list(of.names)} if of.names else granted


def enforce_roles(controllers: Iterable[str], lease_namespace: str) -> dict[str, list[PolicyRule]]:
    """The rules that enforcing these controllers needs, by namespace; "": everywhere.

    `lease_namespace`: where the Lease of the one writer is.
    """
    from kubectl_nodelife.daemon.permissions import ENFORCE_LEASE_ROWS, KILL_SWITCH, rows

    roles: dict[str, list[PolicyRule]] = {"": list(rows(controllers)), _KUBE_SYSTEM: [KILL_SWITCH]}
    roles.setdefault(lease_namespace, []).extend(ENFORCE_LEASE_ROWS)
    return roles


def _upgrade_roles(lease_namespace: str, namespace: str) -> dict[str, list[PolicyRule]]:
    from kubectl_nodelife.daemon.permissions import (
        CANARIES,
        JOBS,
        KILL_SWITCH,
        LEASE_ROWS,
        cluster_rows,
    )

    roles: dict[str, list[PolicyRule]] = {"": list(cluster_rows()), _KUBE_SYSTEM: [KILL_SWITCH]}
    roles.setdefault(lease_namespace, []).extend(LEASE_ROWS)
    roles.setdefault(namespace, []).extend((CANARIES, JOBS))
    return roles


@click.command()
@click.option("--name", help="The role's name.")
@click.option(
    "--mode",
    type=click.Choice(("dry-run", "enforce", "via")),
    default="dry-run",
    show_default=True,
    help="What it is for.",
)
@click.option("--enforce", metavar="C[,C...]", help="Controllers to be enforced; default: all.")
@click.option("--upgrade", is_flag=True, help="What `upgrade start` and its like need.")
@click.option(
    "--namespace",
    "-n",
    default="nodelife",
    show_default=True,
    metavar="NS",
    help="With --upgrade: where canaries and work Jobs are made; of via: where the daemon is.",
)
@click.option(
    "--lease-namespace",
    default=_KUBE_SYSTEM,
    show_default=True,
    metavar="NS",
    help="Where the Lease of the one writer is.",
)
@output_flags("yaml", "json", "name")
def rbac(
    name: str | None,
    mode: str,
    enforce: str | None,
    upgrade: bool,
    namespace: str,
    lease_namespace: str,
    output: Output,
) -> None:
    """Print the least rights: a ClusterRole that can only read, or what writing needs, or with
    --mode via what asking a daemon in the cluster needs.

    \b
    Examples:
      kubectl nodelife rbac | kubectl apply -f -
      kubectl create clusterrolebinding nodelife --clusterrole=nodelife-reader --user=you
      kubectl nodelife rbac --mode enforce --enforce=daemonset | kubectl apply -f -
      kubectl nodelife rbac --upgrade | kubectl apply -f -
      kubectl nodelife rbac --mode via -n nodelife | kubectl apply -f -
    """
    from kubectl_nodelife.daemon.permissions import WRITES
    from kubectl_nodelife.report.formats import render

    if upgrade:
        account = _account(name or UPGRADER, _upgrade_roles(lease_namespace, namespace))
    elif mode == "enforce":
        controllers = controller_names(enforce or "", "--enforce") or tuple(WRITES)
        account = _account(name or ENFORCER, enforce_roles(controllers, lease_namespace))
    elif mode == "via":
        account = _asker(name or ASKER, namespace)
    else:
        output.show(
            roles_page(_object(name or NAME, "", "Role", rules=rules_of(RULES)), is_list=False)
        )
        return
    objects = list(account)
    if output.format != "yaml":
        output.show(roles_page(*objects))
        return
    texts = (render(roles_page(each, is_list=False), "yaml") for each in objects)
    terminal.write("---\n".join(texts))
