"""`kubectl nodelife upgrade plan`: what an upgrade will do, how long, how low the cluster gets."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING, Any, Final

import click

from kubectl_nodelife.commands.cluster.file_size import max_file_size, strict_files
from kubectl_nodelife.commands.cluster.where import Where
from kubectl_nodelife.commands.flags import Connection, Output, connection_flags, output_flags
from kubectl_nodelife.commands.upgrade.flags import policy_flags, policy_of, split_dumps
from kubectl_nodelife.commands.upgrade.run import selected_names
from kubectl_nodelife.errors import EXIT_NO, Failed, NotFound
from kubectl_nodelife.report import terminal
from kubectl_nodelife.report.live_line import progress_bar

if TYPE_CHECKING:
    from kubectl_nodelife.commands.cluster.drain import DrainLook
    from kubectl_nodelife.controllers.upgrade.policy import UpgradePolicy
    from kubectl_nodelife.kube.node import Lease
    from kubectl_nodelife.upgrade.forecast import UpgradePlan


FORMATS: Final = ("table", "wide", "json", "yaml", "name", "html", "markdown")


@click.command("plan")
@policy_flags
@max_file_size
@strict_files
@click.option("--read", metavar="KINDS", default="", help="Kinds of which a dump has all.")
@click.option("--profile", metavar="v1.N", help="Kubernetes release whose behaviour is followed.")
@click.option("--now", metavar="TIME", help="The dump's moment, RFC 3339.")
@click.option(
    "--set", "assignments", multiple=True, metavar="FLAG=VALUE", help="A setting; repeatable."
)
@click.option("--exit-code", is_flag=True, help="Exit with 4 if a node cannot be done.")
@output_flags(*FORMATS)
@connection_flags
def plan(
    given: dict[str, Any],
    read: str,
    profile: str | None,
    now: str | None,
    assignments: tuple[str, ...],
    exit_code: bool,
    output: Output,
    connection: Connection,
) -> int:
    """Which nodes an upgrade does, in which order, how long it takes, and how low the cluster gets.

    Nothing is written; -o json holds each write that a run would make. -f names a file of kind
    Upgrade, or a dump to plan for.

    \b
    Examples:
      kubectl nodelife upgrade plan -l pool=blue --run ./upgrade-node --target bootID=changed
      kubectl nodelife upgrade plan -l pool=blue --wait --target kubeletVersion=v1.36.3 -o wide
      kubectl nodelife upgrade plan -f upgrade.yaml -f dump.json -o html
    """
    from kubectl_nodelife.commands.cluster.drain import check_pods_read, kubectl_flags
    from kubectl_nodelife.daemon.permissions import rights

    given, dumps = split_dumps(given)
    policy = policy_of(given, connection)
    where = Where(connection, dumps, now, profile=profile, assignments=assignments)
    found = look_for_upgrade(where, read)
    check_pods_read(found.snapshot)
    check_named(policy, found.snapshot.nodes)
    made = planned(policy, found)
    if not made.nodes:
        raise Failed(
            "no node matches", on=f"--selector {policy.selector}", remedy="check the labels"
        )
    flags = kubectl_flags(connection.for_kubectl(), found.source)
    made.rights = [right.can_i(flags) for right in rights(policy)]
    for warning in found.warnings:
        terminal.warn(warning)
    terminal.write(rendered(made, found.source, output))
    return EXIT_NO if exit_code and (made.undone or made.refusals) else 0


def planned(policy: UpgradePolicy, look: DrainLook) -> UpgradePlan:
    """The plan, with a progress bar while the run is played. Raises BadInput."""
    from kubectl_nodelife.upgrade.plan import make_upgrade_plan

    nodes = len(selected_names(policy, look))
    with progress_bar("playing the run", nodes) as step:
        return make_upgrade_plan(look.snapshot, policy, look.settings, step)


def check_named(policy: UpgradePolicy, nodes: Collection[str]) -> None:
    """Raises NotFound where the order names a node that is not there, to be left out as well."""
    from kubectl_nodelife.controllers.upgrade.claims import named_nodes

    for name in named_nodes(policy):
        if name not in nodes:
            raise NotFound("nodes", name, among=nodes)


def rendered(made: UpgradePlan, source: dict[str, Any], output: Output) -> str:
    """The plan's text in one of FORMATS."""
    from kubectl_nodelife.report.upgrade_plan import UpgradePlanPage

    if output.format == "html":
        from kubectl_nodelife.report.upgrade_html import page

        return page(made, source)
    return output.render(UpgradePlanPage(made, source))


def look_for_upgrade(where: Where, read_all: str = "") -> DrainLook:
    """As `look_for_drain`. Raises NodelifeError."""
    import asyncio

    from kubectl_nodelife.commands.cluster.drain import look_for_drain

    look = look_for_drain(where, read_all)
    if where.filename:
        return look
    leases = asyncio.run(_read_leases(where.connection))
    return look._replace(snapshot=look.snapshot.changed(leases))


async def _read_leases(connection: Connection) -> list[Lease]:
    """Those of the Leases that are there and may be read; a plan says of the others that it does
    not know.
    """
    from kubectl_nodelife.commands.cluster.direct import bulk_client, target_of
    from kubectl_nodelife.kube.decode import decode_json
    from kubectl_nodelife.kube.kinds import kind_named
    from kubectl_nodelife.kube.node import Lease
    from kubectl_nodelife.live.client import ApiError
    from kubectl_nodelife.live.requests import Resource, get_url
    from kubectl_nodelife.upgrade.findings import LEASES

    found = []
    async with bulk_client(target_of(connection)) as client:
        for name in LEASES:
            url = get_url(Resource(kind_named("Lease"), "kube-system"), name)
            try:
                found.append(decode_json(Lease, await client.read(url)))
            except ApiError as error:
                if error.code not in (403, 404):
                    raise
    return found
