"""`kubectl nodelife upgrade pause`: no claim, eviction or work any more until `resume`."""

from __future__ import annotations

import click

from kubectl_nodelife.commands.flags import Connection, connection_flags
from kubectl_nodelife.commands.upgrade.run import (
    ask_leader,
    has_holder,
    order_flags,
    order_session,
)
from kubectl_nodelife.commands.writing import run_interruptible
from kubectl_nodelife.report import terminal


@click.command("pause")
@click.option("--because", default="", metavar="TEXT", help="The reason, which status shows.")
@order_flags
@connection_flags
def pause(because: str, lease_namespace: str, insecure: bool, connection: Connection) -> int:
    """Pause a run: nothing more is claimed, evicted or begun until `upgrade resume`.

    What is in work is waited for, proven and released. Nobody need lead the run for it.

    \b
    Examples:
      kubectl nodelife upgrade pause --because storage-rebuilds
    """
    from kubectl_nodelife.acts.upgrade.run_edits import edit_run, pause_request, pausing, read_lease
    from kubectl_nodelife.daemon.enforce.announcer import user_and_host

    reason = f"paused by {user_and_host()}" + (f": {because}" if because else "")

    async def work() -> int:
        session = order_session(connection, lease_namespace, insecure=insecure)
        async with session as (opened, carrier):
            lease = await read_lease(opened, lease_namespace)
            if not has_holder(lease):
                await edit_run(opened, carrier, lease_namespace, pausing(reason), reason)
                terminal.write("paused; the run has no leader\n")
                return 0
            request = pause_request(reason, user_and_host())
            if await ask_leader(opened, carrier, lease_namespace, request):
                terminal.write("paused; what is in work is proven and released\n")
                return 0
            terminal.warn("the leader has not answered: the next leader of the run will pause it")
            return 0

    return run_interruptible(work)
