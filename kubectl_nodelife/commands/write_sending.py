"""Sends what `repair` and `rollout undo` have shown, and says what came of each request."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import NamedTuple

from kubectl_nodelife.acts.carrier import HELD, make_carrier
from kubectl_nodelife.acts.session import ActOrder, act_session
from kubectl_nodelife.commands.cluster.direct import target_of
from kubectl_nodelife.commands.flags import Connection
from kubectl_nodelife.commands.write_flags import (
    SERVER,
    ActFlags,
    environ,
    identity_of,
    is_confirmed,
    run_interruptible,
)
from kubectl_nodelife.daemon.cluster_checks import Right
from kubectl_nodelife.engine.actions import Action, RollBackDaemonSet, SetPodReady
from kubectl_nodelife.engine.calls import Result
from kubectl_nodelife.errors import EXIT_FAILED
from kubectl_nodelife.kube.meta import KubeObject
from kubectl_nodelife.kube.workload import DaemonSet
from kubectl_nodelife.outlook.audit.repair_plan import REPAIR, RepairStep
from kubectl_nodelife.report import terminal

ROLLOUT = "rollout"
Say = Callable[[str], None]


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
    steps: Sequence[RepairStep], connection: Connection, act: ActFlags, say: Say
) -> int:
    """Ask, and send the request of each step that has one. The exit code. Raises NodelifeError."""
    orders = [_repair(step, step.action) for step in steps if step.action is not None]
    if not orders:
        return 0
    rights = {
        Right("", "pods", "status", "patch", order.seen.namespace)
        if isinstance(order.action, SetPodReady)
        else Right("", "pods", "", "delete", order.seen.namespace)
        for order in orders
    }
    return _send(REPAIR, orders, tuple(sorted(rights)), connection, act, say)


def send_rollback(
    daemon_set: DaemonSet, action: RollBackDaemonSet, connection: Connection, act: ActFlags
) -> int:
    """Ask, and send the patch. The exit code. Raises NodelifeError."""
    right = Right("apps", "daemonsets", "", "patch", daemon_set.namespace)
    order = Ordered(action, daemon_set, f"daemonset.apps/{daemon_set.name}", "rolled back")
    return _send(ROLLOUT, [order], (right,), connection, act, terminal.write)


def _repair(step: RepairStep, action: Action) -> Ordered:
    pod = step.finding.pod
    done = "set ready" if isinstance(action, SetPodReady) and action.status == "True" else "deleted"
    if isinstance(action, SetPodReady) and action.status != "True":
        done = "set not ready"
    return Ordered(action, pod, f"pod/{pod.namespace}/{pod.name}", done, step.not_before_s)


def _send(
    who: str,
    orders: Sequence[Ordered],
    rights: tuple[Right, ...],
    connection: Connection,
    act: ActFlags,
    say: Say,
) -> int:
    target = target_of(connection)
    many = "this request" if len(orders) == 1 else f"these {len(orders)} requests"
    if not is_confirmed(act, f"Send {many} to {target.context or target.server}?", target.server):
        terminal.note("not confirmed: nothing was sent")
        return 0
    order = ActOrder(
        who,
        rights,
        max_writes=act.max_writes,
        dry_run=act.dry_run == SERVER,
        insecure=act.insecure,
    )

    async def work() -> int:
        session = act_session(order, target, environ(), identity_of(connection), terminal.warn)
        async with session as open_session:
            carrier = make_carrier(open_session, _tell_held)
            suffix = " (server dry run)" if order.dry_run else ""
            failed = 0

            async def one(ordered: Ordered) -> None:
                nonlocal failed
                await asyncio.sleep(ordered.after_s)
                result = await carrier.carry_out(ordered.action, ordered.seen)
                failed += not result.ok
                if result.ok:
                    say(f"{ordered.name} {ordered.done}{suffix}\n")
                else:
                    terminal.note(f"error: {ordered.name}: {_why(result)}")

            try:
                await asyncio.gather(*map(one, orders))
            finally:
                await asyncio.shield(carrier.stop())
            return EXIT_FAILED if failed else 0

    return run_interruptible(work)


def _tell_held(action: Action, because: str) -> None:
    terminal.note(f"held: {because}")


def _why(result: Result) -> str:
    if result.code == HELD:
        return f"not sent: {result.message}"
    if result.code == 409:
        return f"it has changed since it was judged; run the command again ({result.message})"
    code = f" (HTTP {result.code})" if result.code else ""
    return f"{result.message or result.reason}{code}"
