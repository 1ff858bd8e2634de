"""The writing that `repair`, `daemonset undo`, `drain` and `upgrade` share: flags, the question,
the session; and for the first two sending what was shown, and what came of each request.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple, TypeVar

import click

from kubectl_nodelife.commands.flags import Connection, gathered_flags
from kubectl_nodelife.errors import EXIT_FAILED, BadInput, Refused
from kubectl_nodelife.report import terminal

if TYPE_CHECKING:
    from contextlib import AbstractAsyncContextManager

    from kubectl_nodelife.acts.session import ActOrder, ActSession
    from kubectl_nodelife.daemon.permissions import Right
    from kubectl_nodelife.engine.actions import Action, RollBackDaemonSet
    from kubectl_nodelife.engine.calls import Result
    from kubectl_nodelife.kube.meta import KubeObject
    from kubectl_nodelife.kube.workload import DaemonSet
    from kubectl_nodelife.outlook.audit.repair_plan import RepairStep


NONE, CLIENT, SERVER = "none", "client", "server"
MAX_WRITES: Final = 500

T = TypeVar("T")


# Lines of a table of flags, for all verbs that write.
YES_FLAG: Final = "--yes -y  Do not ask."
INSECURE_FLAG: Final = "--insecure-enforce  Without verified TLS; labs only."

ROLLOUT = "rollout"
Show = Callable[[str], None]


class ActFlags(NamedTuple):
    """The flags as given."""

    yes: bool = False
    dry_run: str = NONE
    max_writes: int = MAX_WRITES
    insecure: bool = False

    @property
    def unasked(self) -> bool:
        """True if nobody need say yes before something is sent."""
        return self.yes or self.dry_run == SERVER


act_flags = gathered_flags(
    "act",
    ActFlags,
    f"""
{YES_FLAG}
--dry-run=[{NONE}|{CLIENT}|{SERVER}]  client: only show; server: have the API server check
    each request.
--max-writes=N  So many writes at most.
{INSECURE_FLAG}
""",
    dry_run={"is_flag": False, "flag_value": CLIENT},
    max_writes={"type": click.IntRange(min=0), "show_default": True},
)
"""Gives a command the flags of an act; its callback gets one argument, `act`."""


def not_for_dumps(filename: tuple[str, ...], act: ActFlags) -> None:
    """Raises BadInput where something is to be sent to a dump."""
    if filename and act.yes:
        raise BadInput("a dump cannot be written to", on="--yes", remedy="leave -f out")
    if filename and act.dry_run == SERVER:
        raise BadInput("a dump has no API server", on="--dry-run=server", remedy="leave -f out")


def need_terminal(so_far: str, server: str, remedy: str) -> None:
    """Raises Refused where no person can be asked. `so_far`: what has come of it then."""
    if not sys.stdin.isatty():
        raise Refused(f"{so_far}: there is no terminal to ask on", on=server, remedy=remedy)
    terminal.flush()


def is_confirmed(
    unasked: bool,
    question: str,
    server: str,
    remedy: str = "give --yes to send it, or --dry-run=client only to see it",
) -> bool:
    """True if the person says yes, or need not be asked. Raises Refused where none can be."""
    if unasked:
        return True
    need_terminal("nothing is sent", server, remedy)
    return click.confirm(terminal.printable(question), err=True)


def run_interruptible(work: Callable[[], Awaitable[T]]) -> T:
    """Run a coroutine that SIGINT and SIGTERM cancel: it may clean up before it ends.

    Where SIGINT is ignored by inheritance, as in the background of a script, it stays so, which is
    said: the same Ctrl-C may be meant for something else.
    """
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        terminal.note(
            "Ctrl-C (SIGINT) is ignored, as it was when this was started; end it with: "
            f"kill {os.getpid()}"
        )

    import asyncio

    async def main() -> T:
        task = asyncio.current_task()
        assert task is not None
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
        return await work()

    try:
        return asyncio.run(main())
    except asyncio.CancelledError:
        raise KeyboardInterrupt from None


def identity_of(connection: Connection) -> str:
    """The name of the cluster and user, under which journals are kept."""
    from kubectl_nodelife.commands import ask

    return ask.resolve(connection).identity


def session_of(
    connection: Connection, order: ActOrder, warn: Show
) -> AbstractAsyncContextManager[ActSession]:
    """`act_session` on the cluster that the flags mean. Raises NodelifeError."""
    from kubectl_nodelife.acts.session import act_session
    from kubectl_nodelife.commands.cluster.direct import target_of

    target = target_of(connection)
    return act_session(order, target, environ(), identity_of(connection), warn)


def environ() -> dict[str, str]:
    """The environment as it is."""
    return dict(os.environ)


class Ordered(NamedTuple):
    """One write that was shown, of the object as judged. `done`: what is said where it worked.

    `after_s`: so long after the first one at the earliest.
    """

    action: Action
    seen: KubeObject
    name: str
    done: str
    after_s: int = 0


def send_repairs(
    steps: Sequence[RepairStep], connection: Connection, act: ActFlags, show: Show
) -> int:
    """Ask, and send the request of each step that has one. The exit code. Raises NodelifeError."""
    from kubectl_nodelife.daemon.permissions import Right
    from kubectl_nodelife.engine.actions import SetPodReady
    from kubectl_nodelife.outlook.audit.repair_plan import REPAIR

    orders = [_repair(step, step.action) for step in steps if step.action is not None]
    if not orders:
        return 0
    rights = {
        Right("", "pods", "status", "patch", order.seen.namespace)
        if isinstance(order.action, SetPodReady)
        else Right("", "pods", "", "delete", order.seen.namespace)
        for order in orders
    }
    return _send(REPAIR, orders, tuple(sorted(rights)), connection, act, show)


def send_rollback(
    daemon_set: DaemonSet, action: RollBackDaemonSet, connection: Connection, act: ActFlags
) -> int:
    """Ask, and send the patch. The exit code. Raises NodelifeError."""
    from kubectl_nodelife.daemon.permissions import Right

    right = Right("apps", "daemonsets", "", "patch", daemon_set.namespace)
    order = Ordered(action, daemon_set, f"daemonset.apps/{daemon_set.name}", "rolled back")
    return _send(ROLLOUT, [order], (right,), connection, act, terminal.write)


def _repair(step: RepairStep, action: Action) -> Ordered:
    from kubectl_nodelife.engine.actions import SetPodReady

    pod, done = step.finding.pod, "deleted"
    if isinstance(action, SetPodReady):
        done = "set ready" if action.status == "True" else "set not ready"
    return Ordered(action, pod, f"pod/{pod.namespace}/{pod.name}", done, step.not_before_s)


def _send(
    who: str,
    orders: Sequence[Ordered],
    rights: tuple[Right, ...],
    connection: Connection,
    act: ActFlags,
    show: Show,
) -> int:
    import asyncio

    from kubectl_nodelife.acts.session import ActOrder, make_carrier
    from kubectl_nodelife.commands.cluster.direct import target_of

    target = target_of(connection)
    many = "this request" if len(orders) == 1 else f"these {len(orders)} requests"
    question = f"Send {many} to {target.context or target.server}?"
    if not is_confirmed(act.unasked, question, target.server):
        terminal.note("not confirmed: nothing was sent")
        return 0
    dry_run = act.dry_run == SERVER
    order = ActOrder(who, rights, max_writes=act.max_writes, dry_run=dry_run, insecure=act.insecure)

    async def work() -> int:
        async with session_of(connection, order, terminal.warn) as session:
            carrier = make_carrier(session, note_held)
            suffix = " (server dry run)" if dry_run else ""
            failed = 0

            async def one(ordered: Ordered) -> None:
                nonlocal failed
                await asyncio.sleep(ordered.after_s)
                result = await carrier.carry_out(ordered.action, ordered.seen)
                failed += not result.ok
                if result.ok:
                    show(f"{ordered.name} {ordered.done}{suffix}\n")
                else:
                    terminal.note(f"error: {ordered.name}: {_why(result)}")

            try:
                await asyncio.gather(*map(one, orders))
            finally:
                await asyncio.shield(carrier.stop())
            return EXIT_FAILED if failed else 0

    return run_interruptible(work)


def note_held(action: Action, because: str) -> None:
    """Say that a guard holds the action."""
    terminal.note(f"held: {because}")


def _why(result: Result) -> str:
    from kubectl_nodelife.engine.events import NOT_SENT

    if result.code == NOT_SENT:
        return f"not sent: {result.message}"
    if result.code == 409:
        return f"it has changed since it was judged; run the command again ({result.message})"
    code = f" (HTTP {result.code})" if result.code else ""
    return f"{result.message or result.reason}{code}"
