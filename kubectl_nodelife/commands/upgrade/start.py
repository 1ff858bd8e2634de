"""`kubectl nodelife upgrade plan`: what an upgrade will do, how long, how low the cluster gets;
`start`: show the plan, ask, and lead the run; `prove`: only the proof, on nodes as they are;
`preview`: what a newer release changes for this cluster's nodes.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import click

from kubectl_nodelife.commands import writing
from kubectl_nodelife.commands.flags import (
    Connection,
    Output,
    Where,
    connection_flags,
    gathered_flags,
    max_file_size,
    output_flags,
    strict_files,
    where_flags,
)
from kubectl_nodelife.commands.upgrade.flags import policy_flags, policy_of, split_dumps
from kubectl_nodelife.commands.upgrade.orders import RunRead, read_run
from kubectl_nodelife.errors import EXIT_FAILED, EXIT_NO, BadInput, Failed, NotFound, Refused
from kubectl_nodelife.kube.names import parse_names
from kubectl_nodelife.kube.times import SECOND_NS, parse_duration
from kubectl_nodelife.report import terminal
from kubectl_nodelife.report.live_line import progress_bar

if TYPE_CHECKING:
    from kubectl_nodelife.commands.cluster.look import DrainLook
    from kubectl_nodelife.controllers.upgrade.document import RunDocument
    from kubectl_nodelife.controllers.upgrade.memory import UpgradePorts
    from kubectl_nodelife.controllers.upgrade.policy import UpgradePolicy
    from kubectl_nodelife.kube.node import Lease, Node
    from kubectl_nodelife.sim.upgrade_course import PlayedRun
    from kubectl_nodelife.upgrade.findings import UpgradePlan


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

    Nothing is written; -o json holds each write that a run would make to a node. -f names a file of
    kind Upgrade, or a dump to plan for.

    \b
    Examples:
      kubectl nodelife upgrade plan -l pool=blue --run ./upgrade-node --target bootID=changed
      kubectl nodelife upgrade plan -l pool=blue --wait --target kubeletVersion=v1.36.3 -o wide
      kubectl nodelife upgrade plan -f upgrade.yaml -f dump.json -o html
    """
    from kubectl_nodelife.commands.cluster.look import check_pods_read, kubectl_flags, no_node
    from kubectl_nodelife.daemon.permissions import rights

    given, dumps = split_dumps(given)
    policy = policy_of(given, connection)
    where = Where(connection, dumps, now, profile=profile, assignments=assignments)
    where.lead_here()
    look = look_for_upgrade(where, read)
    check_pods_read(look.snapshot)
    upgrade_plan = planned(policy, look)
    if not upgrade_plan.nodes:
        raise no_node(policy.selector)
    flags = kubectl_flags(connection.for_kubectl(), look.source)
    upgrade_plan.rights = [right.can_i(flags) for right in rights(policy)]
    terminal.warn(*look.warnings)
    terminal.write(rendered(upgrade_plan, look.source, output))
    return EXIT_NO if exit_code and (upgrade_plan.undone or upgrade_plan.refusals) else 0


def planned(policy: UpgradePolicy, look: DrainLook) -> UpgradePlan:
    """The plan, with a progress bar while the run is played. Raises BadInput, NotFound."""
    from kubectl_nodelife.upgrade.plan import make_upgrade_plan

    nodes = look.snapshot.nodes
    check_named(policy, nodes)
    with progress_bar("playing the run", len(_selected(policy, nodes.values()))) as step:
        return make_upgrade_plan(look.snapshot, policy, look.settings, step)


def check_named(policy: UpgradePolicy, nodes: Collection[str]) -> None:
    """Raises NotFound where the order names a node that is not there, to be left out as well."""
    from kubectl_nodelife.controllers.upgrade.claims import named_nodes

    for name in named_nodes(policy):
        if name not in nodes:
            raise NotFound("nodes", name, among=nodes)


def rendered(upgrade_plan: UpgradePlan, source: dict[str, Any], output: Output) -> str:
    """The plan's text in one of FORMATS."""
    from kubectl_nodelife.report.upgrade_plan import html_page, upgrade_plan_page

    if output.format == "html":
        return html_page(upgrade_plan, source)
    return output.render(upgrade_plan_page(upgrade_plan, source))


def look_for_upgrade(where: Where, read_all: str = "") -> DrainLook:
    """As `look_for_drain`. Raises NodelifeError."""
    import asyncio

    from kubectl_nodelife.commands.cluster.look import look_for_drain

    look = look_for_drain(where, read_all)
    if where.filename:
        return look
    leases = asyncio.run(_read_leases(where.connection))
    return look._replace(snapshot=look.snapshot.changed(leases))


async def _read_leases(connection: Connection) -> list[Lease]:
    """Those of the Leases that may be read; a plan says of the others that it does not know."""
    from kubectl_nodelife.commands.cluster.direct import bulk_client, target_of
    from kubectl_nodelife.kube.kinds import kind_named
    from kubectl_nodelife.kube.node import Lease
    from kubectl_nodelife.live.listwatch import Listing, list_or_refusal
    from kubectl_nodelife.live.requests import Resource
    from kubectl_nodelife.upgrade.findings import LEASES

    leases: list[Lease] = []
    async with bulk_client(target_of(connection)) as client:
        for name in LEASES:  # by a list, since `rbac` grants readers no get
            one = Resource(kind_named("Lease"), "kube-system", fields=f"metadata.name={name}")
            found = await list_or_refusal(client, one)
            if isinstance(found, Listing):
                leases += [lease for lease in found.objects if isinstance(lease, Lease)]
    return leases


NOT_PLANNED_ON: Final = ("VolumeAttachment", "CSINode")
"""Kinds that the leader follows beside those that a plan reads."""

WRITES_A_NODE: Final = 20
"""PATCHes, canary, Lease and Job of one node, with a new try and a new leader."""


class LeadFlags(NamedTuple):
    """The flags of all verbs that lead."""

    yes: bool = False
    assignments: tuple[str, ...] = ()
    insecure: bool = False
    lease_duration: str = "60s"


lead_flags = gathered_flags(
    "lead",
    LeadFlags,
    f"""
{writing.YES_FLAG}
--set=FLAG=VALUE           A setting; repeatable.
{writing.INSECURE_FLAG}
--lease-duration=DURATION  How long a leader that does not renew keeps the Lease.
""",
    lease_duration={"show_default": True},
)
"""Gives a command these flags; its callback gets one argument, `lead`."""


def _lead_run(
    policy: UpgradePolicy,
    look: DrainLook,
    nodes: Sequence[Node],
    connection: Connection,
    flags: LeadFlags,
    **how: bool,
) -> int:
    """Lead the run; the exit code. `how`: as `LeadOrder` has it. Raises NodelifeError."""
    import asyncio

    from kubectl_nodelife.acts.upgrade import leader
    from kubectl_nodelife.commands.cluster.direct import target_of

    order = leader.LeadOrder(
        policy,
        look.settings,
        _ports(policy, look),
        nodes,
        target_of(connection),
        writing.environ(),
        writing.identity_of(connection),
        _most_writes(policy, look),
        flags.insecure,
        parse_duration(flags.lease_duration),
        **how,
    )
    try:
        return asyncio.run(leader.lead(order, _write_line, terminal.warn))
    except asyncio.CancelledError:
        raise KeyboardInterrupt from None


def show_course(course: PlayedRun) -> int:
    """Say what the leader of a played run decides, and when; the exit code that the run has."""
    from kubectl_nodelife.acts.upgrade.sentences import sentences_of
    from kubectl_nodelife.controllers.upgrade.document import OVER, RunPhase
    from kubectl_nodelife.engine.actions import RecordEvent

    terminal.write("\n")  # after the plan
    for at_ns, action in course.decided:
        for line in sentences_of(action) if not isinstance(action, RecordEvent) else ():
            _write_line(f"(dry run) {line}", at_ns)
    if course.phase not in OVER and course.phase != RunPhase.PAUSED:
        for name, hold in sorted(course.held.items()):
            terminal.warn(f"node {name} is never claimed: {hold.because}")
    failed = any(turn.failed for turn in course.turns.values())
    return EXIT_FAILED if failed or course.phase not in OVER else 0


def _ports(policy: UpgradePolicy, look: DrainLook) -> UpgradePorts:
    from kubectl_nodelife.controllers.upgrade.controller import READS
    from kubectl_nodelife.controllers.upgrade.fleet import reported_addresses
    from kubectl_nodelife.upgrade.answers import make_ports

    snapshot = look.snapshot
    read = {kind for kind in READS if kind in NOT_PLANNED_ON or snapshot.was_read(kind)}
    addresses = {node.uid: reported_addresses(node) for node in snapshot.nodes.values()}
    return make_ports(policy, look.settings, read)._replace(planned_addresses=addresses)


def _selected(policy: UpgradePolicy, nodes: Iterable[Node]) -> list[Node]:
    """The nodes that the run is about."""
    from kubectl_nodelife.controllers.upgrade.claims import is_selected

    return [node for node in nodes if is_selected(node, policy)]


def _most_writes(policy: UpgradePolicy, look: DrainLook) -> int:
    """Twice what a run over the nodes with their pods writes at most."""
    chosen, pods_on = _selected(policy, look.snapshot.nodes.values()), look.snapshot.cache.pods_on
    return 2 * sum(WRITES_A_NODE + len(pods_on(node.name)) for node in chosen) + 100


def _write_line(text: str, at_ns: int | None = None) -> None:
    """A line with its time, by default now; in a log, and on another day, with its date too."""
    from kubectl_nodelife.report.terminal import this_screen

    now = time.localtime()
    at = now if at_ns is None else time.localtime(at_ns / SECOND_NS)
    is_short = this_screen().width and at[:3] == now[:3]
    stamp = "%H:%M:%S" if is_short else "%Y-%m-%dT%H:%M:%S%z"
    terminal.write(f"{time.strftime(stamp, at)} {terminal.printable(text)}\n")
    terminal.flush()


@click.command("start")
@policy_flags
@click.option("--dry-run", is_flag=True, help="Say what is done when; send nothing but reads.")
@click.option("--resume", is_flag=True, help="Go on with the run under way, by this order.")
@lead_flags
@connection_flags
def start(
    given: dict[str, Any], dry_run: bool, resume: bool, lead: LeadFlags, connection: Connection
) -> int:
    """Upgrade nodes: show the plan, ask for the number of nodes, and lead the run to its end.

    The state of the run stands on the nodes and on its Lease: typed again after a crash, on any
    machine, with the same nodes, work and policy, it goes on. The first Ctrl-C pauses and waits for
    what is in work, the second leaves at once. Exits with 1 where the run pauses after failures or
    ends with nodes Failed or Held, with 5 where it is refused or another leader has taken over.
    --resume ends a pause of the run as `upgrade resume` does; work and policy may be others then.
    --dry-run plays the run on a copy of the cluster as it is, and prints what the leader would do,
    and when; --expect-work is how long the work then takes.

    \b
    Examples:
      kubectl nodelife upgrade start -l pool=blue --run ./upgrade-node --target bootID=changed
      kubectl nodelife upgrade start -f upgrade.yaml --yes
      kubectl nodelife upgrade start -f upgrade.yaml --dry-run
    """
    import asyncio

    from kubectl_nodelife.acts.upgrade.lease import check_start, document_or_refused, foreign_marks

    policy = policy_of(given, connection)
    if dry_run and resume:
        raise BadInput("--dry-run and --resume exclude each other")
    read = asyncio.run(read_run(connection, policy.lease_namespace))
    goes_on = ""
    if not dry_run:
        goes_on = check_start(read.lease, read.nodes, policy, read.now_ns, resumes=resume)
    look = look_for_upgrade(Where(connection, assignments=lead.assignments))
    run = document_or_refused(read.lease)
    terminal.warn(*look.warnings, *filter(None, [foreign_marks(read.nodes, run)]))
    if goes_on and run is not None:
        _show_run(policy, look, read, run, resumes=resume)
        todo = len(_selected(policy, read.nodes))
    else:
        upgrade_plan = _show_plan(policy, look)
        if dry_run:
            return show_course(upgrade_plan.course)
        todo = len(upgrade_plan.done)
    if not is_confirmed(lead.yes, todo, look.server):
        terminal.note("not confirmed: nothing was changed")
        return 0
    return _lead_run(policy, look, read.nodes, connection, lead, resumes=resume)


def _show_run(
    policy: UpgradePolicy, look: DrainLook, read: RunRead, run: RunDocument, *, resumes: bool
) -> None:
    """Show the run that is gone on with. Raises Refused for a target of a wrong version."""
    from kubectl_nodelife.acts.upgrade.lease import differences
    from kubectl_nodelife.outlook.upgrade_status import upgrade_status
    from kubectl_nodelife.report.formats import render
    from kubectl_nodelife.report.upgrade import upgrade_status_page
    from kubectl_nodelife.upgrade.findings import REFUSED_BY, version_skew

    for finding in version_skew(look.settings, policy):
        if finding.severity == REFUSED_BY:
            raise Refused(finding.text, on="--target")
    if resumes and (other := differences(run, policy)):
        terminal.note(f"run {run.run} goes on by another order: {other}")
    status = upgrade_status(read.nodes, read.lease, read.now_ns, read.source)
    terminal.write(render(upgrade_status_page(status), "table"))


def _show_plan(policy: UpgradePolicy, look: DrainLook) -> UpgradePlan:
    """Make the plan and show it. Raises Failed, Refused, NotFound."""
    upgrade_plan = planned(policy, look)
    if not upgrade_plan.nodes:
        raise Failed("no node matches", on="--selector", remedy="check the labels")
    terminal.write(rendered(upgrade_plan, look.source, Output("table")))
    if upgrade_plan.refusals:
        raise Refused("; ".join(upgrade_plan.refusals), on=look.server)
    return upgrade_plan


def is_confirmed(yes: bool, nodes: int, server: str) -> bool:
    """True if the number of nodes was typed. Raises Refused without a terminal."""
    if yes:
        return True
    writing.need_terminal("nothing is changed", server, "give --yes to begin")
    typed = click.prompt(
        f"Type the number of nodes to be upgraded ({nodes}) to begin", default="", err=True
    )
    return str(typed).strip() == str(nodes)


@click.command("prove")
@click.argument("nodes", nargs=-1, metavar="NODE...")
@click.option("--prove-timeout", metavar="DURATION", help="For the proof [5m].")
@click.option("--ready-for", metavar="DURATION", help="Ready without a break for [1m].")
@click.option("--canary-image", metavar="IMAGE", help="The canary's; else a pause image.")
@click.option("--lease-namespace", metavar="NS", help="Of the run's Lease [kube-system].")
@lead_flags
@connection_flags
def prove(
    nodes: tuple[str, ...],
    prove_timeout: str | None,
    ready_for: str | None,
    canary_image: str | None,
    lease_namespace: str | None,
    lead: LeadFlags,
    connection: Connection,
) -> int:
    """Prove that nodes are usable: a canary pod is scheduled there, runs, and is stopped.

    For new or repaired nodes, those too that a run has left Failed and cordoned: these stay
    cordoned. Nobody is evicted; the node has a taint for minutes, and no mark of the proof stays.
    Exits with 1 where a node is not proven. For one of a run under way: `resume --assume-done`.

    \b
    Examples:
      kubectl nodelife upgrade prove worker-7
      kubectl nodelife upgrade prove worker-7 worker-8 --canary-image registry.k8s.io/pause:3.10
    """
    from kubectl_nodelife.commands.cluster.look import look_for_drain
    from kubectl_nodelife.controllers.upgrade.policy import policy_from

    if not nodes:
        raise BadInput("no node is named", remedy="give NODE...")
    names = parse_names(nodes)
    flags = {
        "proveTimeout": prove_timeout,
        "readyFor": ready_for,
        "canaryImage": canary_image,
        "leaseNamespace": lease_namespace,
        "namespace": connection.namespace,
    }
    given = {name: value for name, value in flags.items() if value is not None}
    at_once = {"maxParallel": len(names), "maxUnavailable": len(names)}
    mode = {"work": {"mode": "nothing"}, "includeControlPlane": True}
    policy = policy_from({"nodes": names, **mode, **at_once, **given})
    look = look_for_drain(Where(connection, assignments=lead.assignments))
    check_named(policy, look.snapshot.nodes)
    many = f"{len(names)} nodes" if len(names) > 1 else f"node {names[0]}"
    question = f"Taint {many} of {look.server} and run a canary there?"
    if not writing.is_confirmed(lead.yes, question, look.server, "give --yes to send it"):
        terminal.note("not confirmed: nothing was changed")
        return 0
    there = list(look.snapshot.nodes.values())
    return _lead_run(policy, look, there, connection, lead, proof_only=True)


@click.command("preview")
@click.argument("release", required=False, metavar="v1.N")
@output_flags("table", "wide", "json", "yaml", "name", "markdown")
@where_flags("profile", "assignments")
def preview(release: str | None, output: Output, where: Where) -> int:
    """Say what upgrading the control plane changes for nodes, taints, pods, DaemonSets and drains.

    Of all that differs between the cluster's release and the one named (by default the next), only
    what concerns something here is shown, and what it concerns. Changes of kubelets are those that
    come when the nodes follow. Nothing is written.

    \b
    Examples:
      kubectl nodelife upgrade preview
      kubectl nodelife upgrade preview v1.38 -o wide
      kubectl nodelife upgrade preview v1.37 -f dump.json
    """
    from kubectl_nodelife.commands.cluster.look import KindsToRead, look
    from kubectl_nodelife.engine.settings import Profile, parse_profile
    from kubectl_nodelife.kube.kinds import kind_named
    from kubectl_nodelife.outlook.releases import KINDS
    from kubectl_nodelife.outlook.releases import preview as previewed
    from kubectl_nodelife.report.upgrade import preview_page

    view = look(where, KindsToRead(KINDS, needed=("Node",)))
    terminal.warn(*view.warnings)
    for kind in view.unread:
        terminal.warn(f"{kind_named(kind).resource} were not read: what concerns them is left out")
    before = view.settings.profile
    try:
        target = Profile(before.minor + 1) if release is None else parse_profile(release)
    except ValueError as error:
        raise BadInput(str(error)) from None
    if target.minor <= before.minor:
        what = f"{target.name} is not newer than the cluster's {before.name}"
        raise BadInput(what, remedy="name a newer release")
    if (stand_in := target.stands_in()) is not None:
        terminal.warn(stand_in)
    output.show(preview_page(previewed(view.objects, view.settings, target)))
    return 0
