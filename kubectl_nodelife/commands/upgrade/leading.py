"""The shared part of `upgrade start`, `resume`, `abort` and `prove`: becoming the run's leader.

In the foreground, or with `--detach` as a process apart from this terminal: the same command in a
session of its own, with its output in a log in the private state folder. Work and policy reach it
through a pipe, as a token does: anyone on the machine can read a process's arguments. It says
through another pipe when it leads, or why it does not.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import click

from kubectl_nodelife.commands.flags import Connection, connection_arguments, gathered_flags
from kubectl_nodelife.commands.writing import environ, identity_of
from kubectl_nodelife.daemon.paths import journal_path
from kubectl_nodelife.daemon.spawning import notify_parent, read_secrets, spawn
from kubectl_nodelife.errors import (
    EXIT_FAILED,
    NodelifeError,
    Refused,
)
from kubectl_nodelife.kube.times import SECOND_NS
from kubectl_nodelife.report import terminal

if TYPE_CHECKING:
    from kubectl_nodelife.acts.upgrade.opening import PauseImages
    from kubectl_nodelife.acts.upgrade.running import Opening
    from kubectl_nodelife.commands.cluster.drain import DrainLook
    from kubectl_nodelife.controllers.upgrade.policy import UpgradePolicy
    from kubectl_nodelife.controllers.upgrade.ports import UpgradePorts
    from kubectl_nodelife.sim.upgrade_course import Course


NOT_PLANNED_ON: Final = ("VolumeAttachment", "CSINode")
"""Kinds that the leader follows beside those that a plan reads."""

WRITES_A_NODE: Final = 20
"""PATCHes, canary, Lease and Job of one node, with a new try and a new leader."""


class LeadFlags(NamedTuple):
    """The flags of all verbs that lead."""

    yes: bool
    insecure: bool
    lease_duration: str
    assignments: tuple[str, ...]


_LEAD_OPTIONS = (
    click.option("--yes", "-y", is_flag=True, help="Do not ask."),
    click.option(
        "--set", "assignments", multiple=True, metavar="FLAG=VALUE", help="A setting; repeatable."
    ),
    click.option(
        "--insecure-enforce", "insecure", is_flag=True, help="Without verified TLS; labs only."
    ),
    click.option(
        "--lease-duration",
        default="60s",
        show_default=True,
        metavar="DURATION",
        help="How long a leader that does not renew keeps the Lease.",
    ),
)

lead_flags = gathered_flags("lead", LeadFlags, _LEAD_OPTIONS)
"""Gives a command these flags; its callback gets one argument, `lead`."""


def lead_run(
    policy: UpgradePolicy,
    look: DrainLook,
    images: PauseImages,
    opening: Opening,
    connection: Connection,
    flags: LeadFlags,
) -> int:
    """Lead the run in the foreground; the exit code. Raises NodelifeError."""
    import asyncio

    from kubectl_nodelife.acts.upgrade.running import LeadOrder
    from kubectl_nodelife.acts.upgrade.running import lead as lead_the_run
    from kubectl_nodelife.commands.cluster.direct import target_of
    from kubectl_nodelife.kube.times import parse_duration

    order = LeadOrder(
        policy,
        look.settings,
        _ports(policy, look, images),
        opening,
        target_of(connection),
        environ(),
        identity_of(connection),
        _most_writes(policy, look),
        flags.insecure,
        parse_duration(flags.lease_duration),
    )
    try:
        return asyncio.run(lead_the_run(order, _write_line, terminal.warn))
    except asyncio.CancelledError:
        raise KeyboardInterrupt from None


def show_course(course: Course) -> int:
    """Say what the leader of a played run decides, each line with its time; the exit code that
    the run would have.
    """
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


def _ports(policy: UpgradePolicy, look: DrainLook, images: PauseImages) -> UpgradePorts:
    from kubectl_nodelife.controllers.upgrade.ports import READS
    from kubectl_nodelife.controllers.upgrade.working import claims_of
    from kubectl_nodelife.upgrade.ports import make_ports

    snapshot = look.snapshot
    read = {kind for kind in READS if kind in NOT_PLANNED_ON or snapshot.was_read(kind)}
    claims = {node.uid: claims_of(node) for node in snapshot.nodes.values()}
    return make_ports(policy, look.settings, images, read)._replace(planned_claims=claims)


def images_of(connection: Connection, policy: UpgradePolicy) -> PauseImages:
    """The pause images that nodes have, where the policy names no image. Raises NodelifeError."""
    import asyncio

    from kubectl_nodelife.acts.upgrade.opening import PauseImages, read_pause_images
    from kubectl_nodelife.commands.cluster.direct import bulk_client, target_of

    if policy.canary_image or policy.canary_template:
        return PauseImages({})

    async def read() -> PauseImages:
        async with bulk_client(target_of(connection)) as client:
            return await read_pause_images(client, policy.pause_repository)

    return asyncio.run(read())


def checked_images(
    connection: Connection, policy: UpgradePolicy, look: DrainLook, *, claims: bool = True
) -> PauseImages:
    """As `images_of`. Raises BadInput where nodes may be taken and one would have no canary."""
    images = images_of(connection, policy)
    if claims:
        images.check(policy, selected_names(policy, look))
    return images


def selected_names(policy: UpgradePolicy, look: DrainLook) -> list[str]:
    """The nodes that the run is about."""
    from kubectl_nodelife.controllers.upgrade.selection import is_selected

    return [name for name, node in look.snapshot.nodes.items() if is_selected(node, policy)]


def _most_writes(policy: UpgradePolicy, look: DrainLook) -> int:
    """Twice what a run over the nodes with their pods writes at most."""
    nodes = selected_names(policy, look)
    pods = sum(len(look.snapshot.pods_by_node.get(name, ())) for name in nodes)
    return 2 * (WRITES_A_NODE * len(nodes) + pods) + 100


def _write_line(text: str, at_ns: int | None = None) -> None:
    """A line with its time, by default now; in a log, which may be days long, and on another day
    than today, with its date too.
    """
    from kubectl_nodelife.report.screen import this_screen

    now = time.localtime()
    at = now if at_ns is None else time.localtime(at_ns / SECOND_NS)
    is_short = this_screen().width and at[:3] == now[:3]
    stamp = "%H:%M:%S" if is_short else "%Y-%m-%dT%H:%M:%S%z"
    terminal.write(f"{time.strftime(stamp, at)} {terminal.printable(text)}\n")
    terminal.flush()


READY_SECONDS: Final = 180.0
"""A leader before us may be waited for first."""


class DetachFlags(NamedTuple):
    """`--detach`, and the pipes of the process that it begins."""

    detach: bool
    ready_fd: int | None
    secrets_fd: int | None


NOT_DETACHED: Final = DetachFlags(False, None, None)


_DETACH_OPTIONS = (
    click.option("--detach", is_flag=True, help="Lead in the background, with a log."),
    click.option("--ready-fd", type=int, hidden=True, help="Where to say that it leads."),
    click.option("--secrets-fd", type=int, hidden=True, help="Where its order is read from."),
)

detach_flags = gathered_flags("detached", DetachFlags, _DETACH_OPTIONS)
"""Gives a command these flags; its callback gets one argument, `detached`."""


def detach(verb: str, order: Mapping[str, Any], connection: Connection, flags: LeadFlags) -> int:
    """Begin the leader behind the terminal, and say how to look at it and how to end it.

    `order`: what the verb receives. Raises NodelifeError with what it says where it does not
    lead.
    """
    log = _log_path(connection)
    words = ["upgrade", verb, "--yes", f"--lease-duration={flags.lease_duration}"]
    words += [f"--set={assignment}" for assignment in flags.assignments]
    words += ["--insecure-enforce"] if flags.insecure else []
    handed_over = {"token": connection.token, "order": dict(order)}
    report = spawn(
        [*words, *connection_arguments(connection)],
        log,
        handed_over,
        who="the leader",
        seconds=READY_SECONDS,
    )
    terminal.write(f"run {report.get('run')}: led in the background by process {report.get('pid')}")
    terminal.write(f"its log: {log}")
    terminal.write(
        "`kubectl nodelife upgrade status -w` shows it, `upgrade pause` and `upgrade abort` end it"
    )
    return 0


def _log_path(connection: Connection) -> str:
    """Beside the journals of this cluster and user. Raises Refused where there is no folder."""
    folder = os.path.dirname(journal_path(environ(), identity_of(connection)))
    if not folder:
        raise Refused(
            "there is no folder for the leader's log and journal",
            on="--detach",
            remedy="set NODELIFE_STATE_DIR to a folder of yours",
        )
    return f"{folder}/upgrade.log"


class StartingTerminal:
    """The process that began this one in the background, and waits for the outcome.

    Where there is none, nothing is reported.
    """

    def __init__(self, flags: DetachFlags) -> None:
        self._ready_fd = flags.ready_fd
        self._handed_over: dict[str, Any] = dict(read_secrets(flags.secrets_fd))

    @property
    def order(self) -> dict[str, Any] | None:
        """The order that was passed; None where none was."""
        return self._handed_over.get("order")

    def with_token(self, connection: Connection) -> Connection:
        """The connection, with the token that was passed."""
        return connection._replace(token=self._handed_over.get("token") or connection.token)

    @contextlib.contextmanager
    def reporting_errors(self) -> Iterator[None]:
        """Report errors inside to it as well."""
        try:
            yield
        except NodelifeError as error:
            self._send({"error": error.document()})
            raise

    def report_leading(self, run: str) -> None:
        """The Lease is ours, and the run is open."""
        self._send({"run": run, "pid": os.getpid()})

    def _send(self, word: dict[str, Any]) -> None:
        notify_parent(self._ready_fd, word)
        self._ready_fd = None
