"""`kubectl nodelife daemon`: start, stop and look at the process that watches a cluster; pause and
resume what it enforces, or what every writer of the cluster does.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any, Final, TextIO

import click

from kubectl_nodelife.commands import ask, daemon_install
from kubectl_nodelife.commands.flags import (
    Connection,
    Output,
    SpellingGroup,
    connection_arguments,
    connection_flags,
    output_flags,
)
from kubectl_nodelife.commands.writing import need_terminal
from kubectl_nodelife.daemon import client, paths
from kubectl_nodelife.daemon.flags import DEFAULTS, DaemonFlags, Options, flags_named
from kubectl_nodelife.daemon.instance import (
    AlreadyRuns,
    Instance,
    instances,
    read_secrets,
    restart,
    spawn,
)
from kubectl_nodelife.document import document
from kubectl_nodelife.errors import (
    EXIT_DONE,
    EXIT_FAILED,
    EXIT_UNREACHABLE,
    BadInput,
    Failed,
    NodelifeError,
    Refused,
    Unreachable,
)
from kubectl_nodelife.kube.names import counted
from kubectl_nodelife.report import terminal
from kubectl_nodelife.report.formats import NONE, Block, Page, Table, columns

SYNC_SECONDS = 5.0
"""How long `start` waits to see the cluster read; larger ones go on being read behind it."""

_TAIL_LINES = 50
_LOOK_SECONDS = 0.3

_GROWING_SECONDS: Final = 0.3


@click.group(cls=SpellingGroup)
@connection_flags
def daemon(connection: Connection) -> None:
    """A process of yours that watches one cluster, thinks along in dry-run, and answers at once.

    It writes nothing to the cluster, unless it is started with --enforce. There is one for each
    cluster and user.
    """


@daemon.command("start")
@flags_named()
@connection_flags
def start(flags: DaemonFlags, connection: Connection) -> None:
    """Start the daemon of this cluster behind the terminal, if it does not run yet.

    \b
    Examples:
      kubectl nodelife daemon start
      kubectl nodelife daemon start --set node-monitor-grace-period=40s
      kubectl nodelife daemon start --metrics-bind-address 127.0.0.1:9876
    """
    flags.check()
    if (words := flags.notify.argv()) and shutil.which(words[0]) is None:
        raise BadInput(f"{words[0]} is not on PATH", on="--notify")
    cluster, instance = _instance(connection)
    if flags.orders.controllers:
        flags = _confirm_enforcing(flags, cluster)
    try:
        instance.refuse_second(flags.arguments())
        spawn(_run_arguments(connection, flags), _log(instance), flags.secrets(connection.token))
    except AlreadyRuns as already:
        terminal.note(f"{already}: nothing to do")
        return
    _report_start(cluster, instance)


def begin(connection: Connection) -> None:
    """Start the daemon of this cluster for a verb that needs one. Raises NodelifeError."""
    cluster, instance = _instance(connection)
    with contextlib.suppress(AlreadyRuns):
        spawn(_run_arguments(connection), _log(instance), DEFAULTS.secrets(connection.token))
    _report_start(cluster, instance, terminal.note)  # stdout is for the verb's own answer


@daemon.command("run")
@flags_named()
@click.option("--in-cluster", is_flag=True, help="As the service account of this pod.")
@click.option("--ready-fd", type=int, hidden=True, help="Where to say that it is ready.")
@click.option("--secrets-fd", type=int, hidden=True, help="Where a token is read from.")
@connection_flags
def run(
    ready_fd: int | None,
    secrets_fd: int | None,
    in_cluster: bool,
    flags: DaemonFlags,
    connection: Connection,
) -> int:
    """Be the daemon of this cluster, in the foreground, until interrupted.

    \b
    Examples:
      kubectl nodelife daemon run --context production
      kubectl nodelife daemon run --enforce=daemonset --assume-stopped=daemonset --yes
    """
    from kubectl_nodelife.commands.answering.for_daemon import make_answers
    from kubectl_nodelife.daemon.process import run_daemon

    refuse_via(connection)
    secrets = read_secrets(secrets_fd)
    connection = connection._replace(
        token=secrets.get("token", connection.token), in_cluster=in_cluster
    )
    flags = flags.with_secrets(secrets)
    flags.check()
    if flags.orders.controllers:
        flags = _confirm_enforcing(flags, ask.resolve(connection))
    options = Options(
        overrides=connection,
        environ=dict(os.environ),
        flags=flags,
        arguments=tuple(_run_arguments(connection, flags)),
        ready_fd=ready_fd,
        report=_write_line,
    )
    return run_daemon(options, make_answers)


def _confirm_enforcing(flags: DaemonFlags, cluster: paths.CachedIdentity) -> DaemonFlags:
    """Ask a person before anything is enforced; the flags with that yes. Raises Refused."""
    if flags.orders.yes:
        return flags
    need_terminal("this cluster is not written to", cluster.server, "give --yes")
    names = ",".join(flags.orders.controllers)
    question = f"Enforce {names} on {cluster.context or 'the cluster'} ({cluster.server})?"
    if not click.confirm(question, err=True):
        raise Refused("not confirmed", on=cluster.server)
    return flags.confirmed()


@daemon.command("stop")
@click.option("--all", "every", is_flag=True, help="All daemons of yours.")
@click.option("--force", is_flag=True, help="By signals, where it does not listen.")
@connection_flags
def stop(every: bool, force: bool, connection: Connection) -> int:
    """End the daemon of this cluster, in good order.

    \b
    Examples:
      kubectl nodelife daemon stop
      kubectl nodelife daemon stop --all
    """
    refuse_via(connection)
    chosen = _all_instances() if every else [_instance(connection)[1]]
    ended = [instance for instance in chosen if instance.stop(force=force, warn=_note_leftover)]
    if not ended:
        terminal.note("no daemon runs")
        return EXIT_UNREACHABLE
    return EXIT_DONE


def _note_leftover(line: str) -> None:
    terminal.note(f"stays behind: {line}")


@daemon.command("restart")
@click.option("--webhook", metavar="URL", default="", help="The one that it was started with.")
@connection_flags
def restart_command(webhook: str, connection: Connection) -> None:
    """End the daemon of this cluster and start it with the flags that it had.

    \b
    Example:
      kubectl nodelife daemon restart
    """
    cluster, instance = _instance(connection)
    flags = DEFAULTS.with_secrets({"webhook": webhook})
    restart(instance, _log(instance), flags.secrets(connection.token))
    _report_start(cluster, instance)


@daemon.command("status")
@output_flags()
@connection_flags
def status(output: Output, connection: Connection) -> int:
    """Show all daemons of yours and how they are. Exits with 3 where none runs.

    With --via: the daemon in the cluster.

    \b
    Examples:
      kubectl nodelife daemon status
      kubectl nodelife daemon status -o wide
    """

    if connection.via:
        items = [{**(ask.ask(connection, "health") or {}), "running": True}]
    else:
        items = [_health(instance) for instance in _all_instances()]
    for item in items:
        for warning in (*item.get("warnings", ()), *not_enforced(item)):
            terminal.warn(f"{item.get('context') or item['identity']}: {warning}")
    if not items:
        terminal.note("no daemon runs")
    if items or output.format in ("json", "yaml"):
        output.show(daemons_page(items))
    if not any(item["running"] for item in items):
        return EXIT_UNREACHABLE
    return EXIT_DONE if all(state_of(item) in AT_WORK for item in items) else EXIT_FAILED


@daemon.command("logs")
@click.option("-f", "--follow", is_flag=True, help="Go on as lines come.")
@click.option("--tail", type=int, default=_TAIL_LINES, show_default=True, help="Lines; -1: all.")
@connection_flags
def logs(follow: bool, tail: int, connection: Connection) -> None:
    """Show the log of this cluster's daemon.

    \b
    Example:
      kubectl nodelife daemon logs -f
    """
    path = _log(_instance(connection)[1])
    for text in log_lines(path, tail, follow):
        terminal.write(text)
        terminal.flush()


daemon.add_command(daemon_install.install)


def _write_line(line: str) -> None:
    terminal.write(f"{line}\n")
    terminal.flush()


def _run_arguments(connection: Connection, flags: DaemonFlags = DEFAULTS) -> list[str]:
    """The arguments of a daemon like this one, without secrets."""
    words = ["daemon", "run", *connection_arguments(connection)]
    words += ["--in-cluster"] if connection.in_cluster else []
    return words + flags.arguments()


def _instance(connection: Connection) -> tuple[paths.CachedIdentity, Instance]:
    """The daemon of the cluster that the flags mean, whether or not it runs. Raises Refused for one
    that is reached through the API server.
    """
    refuse_via(connection)
    runtime = paths.make_private(paths.runtime_folder(os.environ))
    cluster = ask.resolve(connection)
    return cluster, Instance(runtime, cluster.identity)


def _all_instances() -> list[Instance]:
    runtime = paths.folder_of_sockets(os.environ)
    return instances(runtime) if runtime else []


def _log(instance: Instance) -> str:
    return paths.log_path(dict(os.environ), instance.runtime, instance.identity)


def _health(instance: Instance) -> dict[str, Any]:
    """The daemon's own word, or its card with an error."""
    card = instance.read_card()
    try:
        return {**client.ask(instance.socket, "health", seconds=2.0), "running": True}
    except NodelifeError as error:
        what = str(error) if instance.is_taken() else "it ended without saying so"
        return {
            **card,
            "identity": instance.identity,
            "running": instance.is_taken(),
            "error": what,
            "warnings": [what],
        }


def _report_start(
    cluster: paths.CachedIdentity, instance: Instance, say: Callable[[str], None] = _write_line
) -> None:
    """Wait a little for the first sight of the cluster, and say how it went."""
    end = time.monotonic() + SYNC_SECONDS
    health: dict[str, Any] = {}
    while not health.get("synced") and time.monotonic() < end:
        time.sleep(_LOOK_SECONDS)
        try:
            health = client.ask(instance.socket, "health")
        except client.NotRunning:
            raise Failed("the daemon has ended again", on=_log(instance)) from None
    terminal.warn(*health.get("warnings", ()))
    where = f"{cluster.context or 'the cluster'} ({cluster.server})"
    counts = {k["kind"]: k for k in health.get("kinds", ())}
    if health.get("synced") and state_of(health) != "not watching":
        nodes = counted(counts["Node"]["objects"], "node")
        pods = counted(counts["Pod"]["objects"], "pod")
        say(f"watching {where}: {nodes}, {pods}; pid {health['pid']}")
        return
    if health.get("synced"):
        say(f"started, and may not read the nodes of {where}; pid {health['pid']}")
        return
    errors = [k["error"] for k in counts.values() if k["error"]]
    say(f"started, still reading {where}; pid {health.get('pid', '?')}")
    if errors:
        terminal.warn(errors[0])


@daemon.command("pause")
@click.option("--for", "duration", default="", metavar="DURATION", help="Go on after this time.")
@click.option("--everyone", is_flag=True, help="Every writer of this cluster, on any machine.")
@connection_flags
def pause(duration: str, everyone: bool, connection: Connection) -> None:
    """Stop what the daemon enforces at once; a restart of the daemon does not end it.

    \b
    Examples:
      kubectl nodelife daemon pause
      kubectl nodelife daemon pause --everyone
    """
    refuse_via(connection)
    if everyone:
        _change_kill_switch(connection, make=True)
    else:
        query: dict[str, Any] = {"for": duration} if duration else {}
        terminal.write(f"{_ordered(connection, 'pause', **query)['paused']}\n")


@daemon.command("resume")
@click.option("--everyone", is_flag=True, help="Every writer of this cluster, on any machine.")
@connection_flags
def resume(everyone: bool, connection: Connection) -> None:
    """Let the daemon go on, after a pause or after something that needs a person's word.

    \b
    Examples:
      kubectl nodelife daemon resume
      kubectl nodelife daemon resume --everyone
    """
    refuse_via(connection)
    if everyone:
        _change_kill_switch(connection, make=False)
    else:
        _ordered(connection, "resume")
        terminal.write("resumed\n")


def refuse_via(connection: Connection) -> None:
    """Raises Refused where an order would be given to a daemon in the cluster."""
    if connection.via:
        raise Refused(
            "answers come through the API server, orders do not",
            on="--via",
            remedy="give the order in the pod, by kubectl exec; `daemon pause --everyone` without "
            "--via stops every writer of the cluster",
        )


def _ordered(connection: Connection, order: str, **query: Any) -> dict[str, Any]:
    """The daemon's answer to an order, its warning said."""
    answer = client.ask(_instance(connection)[1].socket, order, **query)
    if warning := answer.get("warning"):
        terminal.note(f"warning: {warning}")
    return answer


def _change_kill_switch(connection: Connection, *, make: bool) -> None:
    """Make or delete the ConfigMap that stops every writer, and say so. Raises NodelifeError."""
    import asyncio

    from kubectl_nodelife.daemon.preflight import change_kill_switch
    from kubectl_nodelife.live.target import find_target

    environ = dict(os.environ)
    answer = asyncio.run(change_kill_switch(find_target(connection, environ), environ, make=make))
    name = "configmap kube-system/nodelife-stop"
    if answer.ok:
        terminal.write(f"{name} {'made: every writer stops' if make else 'removed'}\n")
    elif answer.code == (409 if make else 404):
        terminal.note(f"{name} is {'there' if make else 'not there'} already")
    else:
        raise Failed(answer.message, on=name)


def log_lines(path: str, tail: int, follow: bool) -> Iterator[str]:
    """The last lines of the log, then what comes, over rotations. Raises Unreachable."""
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            lines = file.readlines()
            yield "".join(lines if tail < 0 else lines[len(lines) - min(tail, len(lines)) :])
            if follow:
                yield from _growing(file, path)
        while follow:
            with open(path, encoding="utf-8", errors="replace") as file:
                yield from _growing(file, path)
    except OSError as error:
        raise Unreachable(f"the log cannot be read: {error.strerror}", on=path) from None


def _growing(file: TextIO, path: str) -> Iterator[str]:
    """The lines that are added to the file, until another one has taken its place."""
    while True:
        if text := file.read():
            yield text
        elif os.path.exists(path) and not os.path.samestat(os.stat(path), os.fstat(file.fileno())):
            return
        else:
            time.sleep(_GROWING_SECONDS)


_COLUMNS = columns(
    "context | server:3 | state | pid | version* | up:2 | last news | nodes | pods | "
    "profile* | memory* | identity*"
)


AT_WORK = ("watching", "enforcing", "standing by", "warming up", "reading")


def daemons_page(items: Sequence[dict[str, Any]]) -> Page:
    """All daemons as an answer, which is one document even where none runs. Each item is a health
    document, or a card with an `error`. Names: daemon/CONTEXT of each."""
    return Page(
        partial(_blocks, items),
        lambda: document("DaemonList", items=list(items)),
        lambda: (f"daemon/{item.get('context') or item.get('identity')}" for item in items),
    )


def _blocks(items: Sequence[dict[str, Any]], *, wide: bool) -> Iterator[Block]:
    """How many watch, and a line for each; wide: its files, settings and kinds as well."""
    if items:
        yield _headline(items)
    yield Table(_COLUMNS, [_row(item) for item in items])
    if wide:
        for item in items:
            yield "\n".join(_more(item))


def _headline(items: Sequence[dict[str, Any]]) -> str:
    """How many daemons do their work, and what to do about the first that does not."""
    odd = [item for item in items if state_of(item) not in AT_WORK]
    are = "is" if len(items) == 1 else "are"
    if not odd:
        return f"{counted(len(items), 'daemon')} {are} at work."
    first = odd[0]
    where = first.get("context") or first.get("server")
    return (
        f"{len(odd)} of {counted(len(items), 'daemon')} {are} not at work: {where}: "
        f"{state_of(first)}. See kubectl nodelife daemon logs"
    )


def state_of(item: dict[str, Any]) -> str:
    """The daemon's state in a word or two."""
    if item.get("error"):
        return "not answering" if item.get("running") else "ended"
    if not item.get("synced"):
        return "reading"
    nodes: dict[str, Any] = next((k for k in item.get("kinds", ()) if k["kind"] == "Node"), {})
    if item.get("standsStill") or nodes.get("phase") in ("refused", "absent"):
        return "not watching"
    enforcement = item.get("enforcement")
    if enforcement is not None:
        if enforcement.get("standsBy"):
            return "standing by"
        held = not enforcement["enforcing"] or enforcement["breakers"]
        return "not enforcing" if held else "enforcing"
    return "warming up" if item.get("cold") else "watching"


def _row(item: dict[str, Any]) -> list[object]:
    kinds = {k["kind"]: k for k in item.get("kinds", ())}
    return [
        item.get("context"),
        item.get("server"),
        state_of(item),
        item.get("pid"),
        item.get("version"),
        _age(item.get("upSeconds")),
        _age(item.get("lastNewsSeconds")),
        kinds.get("Node", {}).get("objects", NONE),
        kinds.get("Pod", {}).get("objects", NONE),
        item.get("profile"),
        f"{item['residentBytes'] >> 20}Mi" if item.get("residentBytes") else NONE,
        item.get("identity"),
    ]


def _more(item: dict[str, Any]) -> Iterable[str]:
    yield f"{item.get('context') or item.get('identity')}:"
    for name in ("socket", "log", "metrics", "answers"):
        if item.get(name):
            yield f"  {name}: {item[name]}"
    if item.get("ui"):
        yield f"  page: {item['ui']['url']}"
    journal = item.get("journal")
    if journal:
        yield f"  journal: {journal['path']}, {journal['open']} open changes"
    yield from _enforcement(item.get("enforcement"))
    if item.get("controllers"):
        yield f"  controllers: {', '.join(item['controllers'])}"
    for kind in item.get("kinds", ()):
        error = f" ({kind['error']})" if kind["error"] else ""
        yield f"  {kind['kind']}: {kind['phase']}, {counted(kind['objects'], 'object')}{error}"
    for entry in item.get("quarantine", ()):
        yield f"  quarantine: {_quarantined(entry)} since {entry['since']} ({entry['why']})"
    for flag, setting in item.get("settings", {}).items():
        yield f"  {flag}={setting['value']} ({setting['origin']})"


def not_enforced(item: dict[str, Any]) -> list[str]:
    """Why something of what a daemon was ordered to enforce is not sent, a line each."""
    found = item.get("enforcement")
    if found is None or found.get("standsBy"):
        return []
    ended = [f"{part} has ended by a bug of ours" for part in found.get("ended", ())]
    reasons = dict.fromkeys(filter(None, [found["because"], *found["breakers"], *ended]))
    waits = found["breakers"] or ended
    goes_on = "; `kubectl nodelife daemon resume` goes on" if waits else ""
    return [f"not enforced: {because}{goes_on}" for because in reasons]


def _enforcement(found: dict[str, Any] | None) -> Iterable[str]:
    if found is None:
        return
    because = "; ".join(filter(None, [found["because"], *found["breakers"]]))
    held = f" (held: {because})" if because else ""
    yield f"  enforces: {', '.join(found['controllers'])}{held}"
    yield f"  lease: {found['lease']['name']}, held by {found['lease']['holder'] or 'no process'}"
    writes = ", ".join(f"{count} {word}" for word, count in found["writes"].items())
    left = ", ".join(f"{count} {name}" for name, count in found.get("capsLeft", {}).items())
    caps = f"{found['caps']}, left: {left}" if left else found["caps"]
    yield f"  writes: {writes}, {found['inFlight']} on their way; caps: {caps}"


def _quarantined(entry: dict[str, Any]) -> str:
    if "controller" in entry:
        return f"{entry['controller']} at {entry['at']}"
    name = f"{entry['namespace']}/{entry['name']}" if entry["namespace"] else entry["name"]
    return f"{entry['kind']} {name}"


def _age(seconds: float | None) -> str:
    from kubectl_nodelife.kube.times import human_seconds  # heavy for --help

    return NONE if seconds is None else human_seconds(seconds)
