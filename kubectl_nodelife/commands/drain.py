"""`kubectl nodelife drain-plan`: will this drain finish, how long, and what stops it; and `drain`:
carry that plan out, and say how it kept to it. With kubectl drain's flags, and our own waves'.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

import click

from kubectl_nodelife.commands import ask
from kubectl_nodelife.commands.flags import (
    Connection,
    Output,
    Where,
    connection_flags,
    gathered_flags,
    output_flags,
    waiting_ns,
    where_flags,
)
from kubectl_nodelife.commands.several_clusters import several_clusters
from kubectl_nodelife.commands.writing import (
    CLIENT,
    SERVER,
    ActFlags,
    act_flags,
    is_confirmed,
    run_interruptible,
    session_of,
)
from kubectl_nodelife.drain import CORDON_BY_WAVE, CORDON_FIRST
from kubectl_nodelife.errors import EXIT_FAILED, BadInput, Failed, Refused
from kubectl_nodelife.report import terminal

if TYPE_CHECKING:
    from kubectl_nodelife.acts.drain import Drain, DrainOrder, Replan
    from kubectl_nodelife.acts.session import ActOrder
    from kubectl_nodelife.commands.cluster.look import DrainLook
    from kubectl_nodelife.drain.results import DrainPlan, WaveOptions
    from kubectl_nodelife.report.live_line import LiveLine
    from kubectl_nodelife.sim.kubectl.options import DrainOptions


FORMATS = ("table", "wide", "json", "yaml", "name", "commands", "html", "markdown")
_QUESTION = "drain_plan"
_OF_WAVES = ("max_per_zone", "low_water", "cordon")


class DrainFlags(NamedTuple):
    """The flags as given; a question to the daemon holds them so."""

    force: bool = False
    ignore_daemonsets: bool = False
    delete_emptydir_data: bool = False
    grace_period: int = -1
    timeout: str = "0s"
    disable_eviction: bool = False
    pod_selector: str = ""
    skip_wait_for_delete_timeout: int = 0
    max_parallel: int | None = None
    max_per_zone: int | None = None
    low_water: float | None = None
    cordon: str | None = None
    maintenance: str = "0s"

    def options(self) -> DrainOptions:
        """kubectl drain's flags. Raises BadInput."""
        from kubectl_nodelife.kube.selectors import parse_selector
        from kubectl_nodelife.sim.kubectl.options import DrainOptions

        try:
            parse_selector(self.pod_selector)
        except ValueError as error:
            raise BadInput(
                f"--pod-selector=<pod_selector> must be a valid label selector: {error}",
                on="--pod-selector",
            ) from None
        return DrainOptions(
            force=self.force,
            ignore_daemonsets=self.ignore_daemonsets,
            delete_emptydir_data=self.delete_emptydir_data,
            grace_period_seconds=self.grace_period,
            timeout_ns=waiting_ns(self.timeout, "--timeout"),
            disable_eviction=self.disable_eviction,
            pod_selector=self.pod_selector,
            skip_wait_seconds=self.skip_wait_for_delete_timeout,
        )

    def waves(self) -> WaveOptions | None:
        """The options of our own waves, None without --max-parallel. Raises BadInput."""
        maintenance_ns = waiting_ns(self.maintenance, "--maintenance")
        if self.max_parallel is None:
            given = [field for field in _OF_WAVES if getattr(self, field) is not None]
            if maintenance_ns:
                given.append("maintenance")
            if given:
                remedy = "give --max-parallel N too"
                raise BadInput("is about waves", on=_spelled(given[0]), remedy=remedy)
            return None
        for field in ("max_parallel", "max_per_zone"):
            if (nodes := getattr(self, field)) is not None and nodes < 1:
                raise BadInput("must be at least 1", on=_spelled(field))
        if self.low_water is not None and not 0 <= self.low_water < 100:
            raise BadInput("is a percentage from 0 to 100", on="--low-water")
        from kubectl_nodelife.drain.results import WaveOptions

        return WaveOptions(
            self.max_parallel, self.max_per_zone, self.low_water, maintenance_ns, self.cordon
        )


def _spelled(field: str) -> str:
    return "--" + field.replace("_", "-")


drain_flags = gathered_flags(
    "flags",
    DrainFlags,
    f"""
--force                 As kubectl drain: pods without a controller too.
--ignore-daemonsets     As kubectl drain.
--delete-emptydir-data  As kubectl drain.
--grace-period=SECONDS  As kubectl drain.
--timeout=DURATION      As kubectl drain: per node.
--disable-eviction      As kubectl drain: delete, no budgets.
--pod-selector=SELECTOR  As kubectl drain.
--skip-wait-for-delete-timeout=SECONDS  As kubectl drain.
--max-parallel=N        Waves of our own, of up to N nodes.
--max-per-zone=N        With waves: up to N nodes of a zone.
--low-water=PERCENT     With waves: free capacity to keep.
--cordon=[{CORDON_FIRST}|{CORDON_BY_WAVE}]  With waves: all nodes first, or those of a wave
    when it begins; else the better.
--maintenance=DURATION  With waves: a node's time out.
""",
    max_parallel={"type": int},
    max_per_zone={"type": int},
    low_water={"type": float},
)


@click.command("drain-plan")
@click.argument("nodes", nargs=-1, metavar="[NODE...]")
@click.option("--read", metavar="KINDS", default="", help="Kinds of which a dump has all.")
@click.option("-l", "--selector", help="Nodes with these labels, as in kubectl.")
@click.option("--all", "all_nodes", is_flag=True, help="All nodes.")
@drain_flags
@click.option("--exit-code", is_flag=True, help="Exit with 4 if the drain cannot finish.")
@output_flags(*FORMATS)
@where_flags("no_daemon", "profile")
@several_clusters("nodes that this drain does not empty")
def drain_plan(
    nodes: tuple[str, ...],
    read: str,
    selector: str | None,
    all_nodes: bool,
    exit_code: bool,
    output: Output,
    where: Where,
    flags: DrainFlags,
) -> int:
    """Will `kubectl drain` of these nodes finish, when, and if never, what exactly stops it?

    Nothing is written. The flags of kubectl drain mean what they mean there. Answered by the daemon
    where one watches the cluster, else by a first look at it, and it says which.

    \b
    Examples:
      kubectl nodelife drain-plan a1 --ignore-daemonsets
      kubectl nodelife drain-plan -l pool=blue --max-parallel 3 --max-per-zone 1 -f dump.json
      kubectl nodelife drain-plan a1 -o html -f dump/ > plan.html
    """
    flags.options(), flags.waves()  # refused here rather than where they are used
    if read and not where.filename:
        raise BadInput("is for dumps", on="--read", remedy="name a dump with -f")
    query = {
        "node": nodes,
        "selector": selector,
        "all": all_nodes,
        **flags._asdict(),
        "read": read,
        **(where.connection.for_kubectl() if output.format == "commands" else {}),
        **output.query(),
    }
    where = where.of_forked_answer()
    return ask.answer(where, _QUESTION, query, exit_code=exit_code, seconds=ask.FORKED_SECONDS)


PROGRESS_S: Final = 0.5


@click.command()
@click.argument("nodes", nargs=-1, metavar="[NODE...]")
@click.option("-l", "--selector", help="Nodes with these labels, as in kubectl.")
@click.option("--all", "all_nodes", is_flag=True, help="All nodes.")
@drain_flags
@click.option(
    "--chunk-size", type=click.IntRange(min=0), default=500, metavar="N", help="As kubectl drain."
)
@click.option(
    "--uncordon-on-abort",
    is_flag=True,
    help="When interrupted, take back the cordon of what this run cordoned and did not drain.",
)
@click.option("--profile", metavar="v1.N", help="Kubernetes release whose behaviour is followed.")
@act_flags
@connection_flags
def drain(
    nodes: tuple[str, ...],
    selector: str | None,
    all_nodes: bool,
    chunk_size: int,
    uncordon_on_abort: bool,
    profile: str | None,
    act: ActFlags,
    connection: Connection,
    flags: DrainFlags,
) -> int:
    """Drain nodes as drain-plan says: show the plan, ask, cordon, and evict wave by wave.

    The flags of kubectl drain mean what they mean there; --max-parallel N cuts waves of our own.
    Pods go through the Eviction API only, each by its uid. A plan that cannot be carried out is
    not begun, unless --timeout ends it. Interrupted, it says what it has cordoned; run again, it
    goes on. Exits with 1 where a node is not drained.

    \b
    Examples:
      kubectl nodelife drain worker-1 --ignore-daemonsets
      kubectl nodelife drain -l pool=blue --max-parallel 3 --ignore-daemonsets --yes
      kubectl nodelife drain worker-1 --ignore-daemonsets --dry-run=server
    """
    from kubectl_nodelife.acts.drain import DrainOrder
    from kubectl_nodelife.commands.cluster.look import choose_nodes, look_for_drain
    from kubectl_nodelife.drain.plan import planned

    options, waves = flags.options(), flags.waves()
    where = Where(connection, profile=profile)
    seen = look_for_drain(where)
    names = choose_nodes(seen.snapshot, nodes, selector, all_nodes)
    options = options.of_release(seen.settings.profile)
    plan = planned(seen.snapshot, names, options, waves)
    show_plan(plan, seen)
    check_plan(plan, act, has_timeout=bool(options.timeout_ns))
    if act.dry_run == CLIENT:
        terminal.write("".join(f"{line} (dry run)\n" for line in would(plan)))
        return 0
    if not _is_confirmed(names, seen, act):
        terminal.note("not confirmed: nothing was sent")
        return 0
    order = DrainOrder(plan, options, waves, chunk_size)
    replan = replanner(where, options, waves)
    return carry_out(order, replan, connection, act, uncordon=uncordon_on_abort)


def replanner(where: Where, options: DrainOptions, waves: WaveOptions | None) -> Replan:
    """Plans anew, of another look at the cluster, while the drain goes on."""
    import asyncio

    from kubectl_nodelife.commands.cluster.look import look_for_drain
    from kubectl_nodelife.drain.plan import planned

    async def replan(names: Sequence[str]) -> DrainPlan:
        look = await asyncio.to_thread(look_for_drain, where)
        return planned(look.snapshot, names, options, waves)

    return replan


def show_plan(plan: DrainPlan, seen: DrainLook) -> None:
    """Print the plan, and on stderr what to know about it."""
    from kubectl_nodelife.report.drain import drain_page
    from kubectl_nodelife.report.formats import render

    terminal.warn(*seen.warnings, *plan.warnings)
    terminal.write(render(drain_page(plan, seen.source), "table"))


def _is_confirmed(names: Sequence[str], seen: DrainLook, act: ActFlags) -> bool:
    many = f"{len(names)} nodes" if len(names) > 1 else f"node {names[0]}"
    question = f"Drain {many} of {seen.source.get('context') or seen.server} as planned?"
    return is_confirmed(act.unasked, question, seen.server)


def check_plan(plan: DrainPlan, act: ActFlags, *, has_timeout: bool) -> None:
    """A plan that cannot be carried out, or is too large, is not begun. Raises Failed, Refused."""
    from kubectl_nodelife.acts.drain import why_not
    from kubectl_nodelife.drain.results import KEPT, NEVER, REFUSED
    from kubectl_nodelife.report.drain import headline

    if plan.verdict == REFUSED:
        raise Failed(f"nothing was touched: {headline(plan)}")
    if plan.verdict == NEVER and not has_timeout:
        raise Failed(
            f"nothing was touched, for this drain would never end: {why_not(plan)}",
            remedy="repair that, or give --timeout to try for so long",
        )
    writes = len(plan.nodes) + sum(pod.verdict != KEPT for pod in plan.pods())
    if writes > act.max_writes and act.dry_run != CLIENT:
        raise Refused(
            f"this drain needs {writes} writes, and {act.max_writes} are allowed",
            remedy=f"give --max-writes {writes}, or fewer nodes",
        )


def would(plan: DrainPlan) -> list[str]:
    """kubectl's lines of a client-side dry run, less its mark."""
    from kubectl_nodelife.drain.results import KEPT

    lines = [f"node/{node.name} cordoned" for node in plan.nodes]
    for wave in plan.waves:
        lines += [f"evicting pod {p.namespace}/{p.name}" for p in wave.pods if p.verdict != KEPT]
        lines += [f"node/{name} drained" for name in wave.nodes]
    return lines


def carry_out(
    order: DrainOrder, replan: Replan, connection: Connection, act: ActFlags, *, uncordon: bool
) -> int:
    """Drain, with a line of progress; the exit code. Raises NodelifeError."""
    import asyncio

    from kubectl_nodelife.acts.drain import Drain
    from kubectl_nodelife.report.drain import drain_run_text
    from kubectl_nodelife.report.live_line import LiveLine

    line = LiveLine()

    async def work() -> int:
        writing = act_order(order.options, act)
        async with session_of(connection, writing, line.warn) as session:
            drain = Drain(session, order, replan, line.write, line.note)
            progress = asyncio.create_task(_show_progress(drain, line))
            try:
                done = await drain.run()
            except BaseException:
                line.show("")
                await asyncio.shield(_abort(drain, line, uncordon=uncordon))
                raise
            finally:
                progress.cancel()
                line.show("")
            if not writing.dry_run:
                terminal.write(drain_run_text(drain.runs))
            return 0 if done else EXIT_FAILED

    return run_interruptible(work)


def act_order(options: DrainOptions, act: ActFlags) -> ActOrder:
    """The rights that a drain needs."""
    from kubectl_nodelife.acts.node_drain import DRAIN
    from kubectl_nodelife.acts.session import ActOrder
    from kubectl_nodelife.daemon.permissions import Right

    removal = ("pods", "", "delete") if options.disable_eviction else ("pods", "eviction", "create")
    rights = (
        Right("", "nodes", "", "get"),
        Right("", "nodes", "", "patch"),
        Right("", "pods", "", "get"),
        Right("", "pods", "", "list"),
        Right("", *removal),
        Right("apps", "daemonsets", "", "get"),
    )
    dry_run = act.dry_run == SERVER
    return ActOrder(DRAIN, rights, ("policy/v1",), act.max_writes, dry_run, act.insecure)


async def _abort(drain: Drain, line: LiveLine, *, uncordon: bool) -> None:
    """Say what stays behind, or take it back."""
    cordoned = [node.name for node in drain.cordoned if node.name not in drain.drained]
    line.note(
        f"broken off; cordoned by this run and not drained: {', '.join(cordoned) or 'no node'}"
    )
    if cordoned and uncordon:
        await drain.uncordon()
    elif cordoned:
        line.note(
            f"to take that back: kubectl uncordon {shlex.join(cordoned)}; to go on: run it again"
        )


async def _show_progress(drain: Drain, line: LiveLine) -> None:
    import asyncio

    while True:
        line.show(drain.progress())
        await asyncio.sleep(PROGRESS_S)
