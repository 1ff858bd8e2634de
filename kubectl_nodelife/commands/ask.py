"""Finds the cluster's daemon and asks it, or answers without one: the quick path of live verbs.

Nothing heavy is imported unless the kubeconfig must be read, which is only when it has changed. An
answer is accepted only from a daemon that watches the server that the flags select.
"""

from __future__ import annotations

import os
import time

from kubectl_nodelife.daemon import client, paths
from kubectl_nodelife.errors import EXIT_NO, BadInput, Failed, NodelifeError, Unreachable
from kubectl_nodelife.report import terminal
from kubectl_nodelife.report.terminal import this_screen

FIRST_LOOK = "a first look, not through a daemon that has watched for longer (daemon start)"

_FIRST_LOOK_EVERY_S = 60
_DRAWN_EVERY_S = 1.0
_LEFT = "no daemon watches this cluster: the journal is what the last one has left"
_FIRST_LOOK_FILE = "first-look"
FORKED_SECONDS = 75.0
"""How long a daemon is given for a forked answer: its child has a minute, and lists come before."""

TYPE_CHECKING = False  # as typing's, without importing typing: this is on the quick path
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from typing import Any, NoReturn

    from kubectl_nodelife.commands.answering import ChangesQuestion
    from kubectl_nodelife.commands.flags import Connection, Where
    from kubectl_nodelife.commands.via import ViaEndpoint


class DaemonEndpoint:
    """The way to one cluster's daemon."""

    __slots__ = ("known", "socket")

    def __init__(self, socket: str | client.Way, known: paths.CachedIdentity) -> None:
        self.socket = socket
        self.known = known

    def check(self, answer: dict[str, Any]) -> None:
        """Raises Failed where the answer is from a daemon that watches another cluster."""
        server = answer.get("server")
        if server != self.known.server:
            raise Failed(
                f"the daemon watches {server}, but the kubeconfig means {self.known.server}",
                on=str(self.socket),
                remedy="run: kubectl nodelife daemon restart",
            )

    def replace(self, other: client.OtherProtocol, token: str | None) -> None:
        """Start the daemon anew, by the program that is here now. Raises NodelifeError."""
        from kubectl_nodelife.daemon.instance import Instance, restart

        terminal.note(f"{other.what}: it is started anew")
        runtime, identity = os.path.dirname(str(self.socket)), self.known.identity
        log = paths.log_path(dict(os.environ), runtime, identity)
        restart(Instance(runtime, identity), log, {"token": token} if token else {})


def resolve(connection: Connection, runtime: str = "") -> paths.CachedIdentity:
    """Read the kubeconfig; slow. With `runtime` the finding is kept there. Raises BadInput."""
    from kubectl_nodelife.live.kubeconfig import kubeconfig_files
    from kubectl_nodelife.live.target import cluster_identity, find_target

    overrides = connection._replace(namespace=None)
    target = find_target(overrides, os.environ)
    cluster = paths.CachedIdentity(
        cluster_identity(target), target.server, target.context, target.namespace
    )
    if target.files and runtime:
        files = kubeconfig_files(overrides.kubeconfig, os.environ)
        authority = target.cluster.certificate_authority
        paths.remember(
            runtime, connection, os.environ, cluster, (*files, *([authority] if authority else []))
        )
    return cluster


def find(connection: Connection) -> DaemonEndpoint | ViaEndpoint | None:
    """The way to the daemon of the cluster that the flags mean; None: certainly none runs.

    Raises BadInput where the flags mean no cluster, Failed where our folder is another user's;
    with --via, NodelifeError where that daemon cannot be reached.
    """
    if connection.via:
        from kubectl_nodelife.commands.via import find as find_via

        return find_via(connection, resolve)
    runtime = paths.folder_of_sockets(os.environ)
    if not runtime:
        return None
    cached = paths.recall(runtime, connection, os.environ)
    if cached is None:
        cached = resolve(connection, runtime)
    return DaemonEndpoint(paths.socket_path(runtime, cached.identity), cached)


def ask(
    connection: Connection, question: str, seconds: float = client.ANSWER_SECONDS, **query: Any
) -> dict[str, Any] | None:
    """The daemon's answer, waited for so long; None where none runs.

    A daemon of another protocol is replaced, once, with a word on stderr. Raises NodelifeError.
    """
    line = find(connection)
    if line is None:
        return None
    try:
        answer = client.ask(line.socket, question, seconds, **query)
    except client.NotRunning:
        return None
    except client.OtherProtocol as other:
        line.replace(other, connection.token)
        answer = client.ask(line.socket, question, seconds, **query)
    line.check(answer)
    return answer


def follow(connection: Connection, question: str, **query: Any) -> Iterator[dict[str, Any]] | None:
    """The daemon's answers as they come; None where none runs."""
    line = find(connection)
    if line is None or ask(connection, "hello") is None:
        return None
    return _checked(line, client.follow(line.socket, question, watch=True, **query))


def no_daemon(why: str = "") -> Unreachable:
    """The refusal of what only a daemon can answer; `why` follows."""
    what = "no daemon runs for this cluster" + (f", {why}" if why else "")
    return Unreachable(what, remedy="run: kubectl nodelife daemon start")


def answer(
    where: Where,
    question: str,
    query: dict[str, Any],
    *,
    exit_code: bool = False,
    seconds: float = client.ANSWER_SECONDS,
) -> int:
    """Print the answer of a dump, of the daemon, which is given so many seconds, or of a first
    look; the exit code. Raises NodelifeError.
    """
    where.check()
    query = {**query, **on_this_screen()}
    if not where.filename:
        response = None if where.direct else ask(where.connection, question, seconds, **query)
        if response is not None:
            return show(response, exit_code=exit_code)
    response = _direct_answer(where, question, query)
    if not where.filename:
        say_first_look(FIRST_LOOK)
    return show(response, exit_code=exit_code)


def _direct_answer(where: Where, question: str, query: dict[str, Any]) -> dict[str, Any]:
    """Answer from a dump or one direct look at the cluster. `question`: the module in `answering/`
    that says what must be read for it, and answers; only that is imported. Raises NodelifeError.
    """
    from importlib import import_module

    from kubectl_nodelife.commands.answering import as_sent
    from kubectl_nodelife.commands.cluster.look import look

    asked = import_module(f"kubectl_nodelife.commands.answering.{question}")
    sent = as_sent(query)
    response: dict[str, Any] = asked.answer(look(where, asked.reading(sent)), sent)
    return response


def followed_answer(
    where: Where, question: str, query: dict[str, Any], *, exit_code: bool = False
) -> int:
    """As `answer`, of a daemon that makes it in a forked child (`daemon.forked_answers`) and also
    says how far it is, which is shown meanwhile. Raises NodelifeError.
    """
    where = where.of_forked_answer()
    asked = {**query, **on_this_screen()}
    told = None if where.direct or where.filename else follow(where.connection, question, **asked)
    if told is None:
        return answer(where, question, query, exit_code=exit_code)
    from kubectl_nodelife.kube.times import human_seconds
    from kubectl_nodelife.report.live_line import LiveLine

    line, first = LiveLine(), ""
    response: dict[str, Any] = {}
    for response in told:
        progress = response.get("progress")
        if progress and not first:
            first = progress["first"]
            line.say(first)
        line.show(f"{progress['says']} ({human_seconds(progress['seconds'])})" if progress else "")
    return show(response, exit_code=exit_code)


def kept_changes(connection: Connection, question: ChangesQuestion) -> dict[str, Any]:
    """What the daemon has in its journal, or what the last one has left of it: `items`, `warnings`,
    and the `source`, whose `kind` is None where there is no journal. `acts`: the writes that
    `repair`, `daemonset undo` and `drain` have made from this machine. Raises NodelifeError.
    """
    from sqlite3 import Error

    from kubectl_nodelife.daemon.changes import changes_of_acts, document, read_only

    answer = ask(connection, "changes", **question._asdict())
    cluster = resolve(connection) if (line := find(connection)) is None else line.known
    path = paths.journal_path(dict(os.environ), cluster.identity)
    folder, wanted = os.path.dirname(path), question.chosen(time.time_ns())
    kept = answer or {"items": [], "server": cluster.server, "identity": cluster.identity}
    kind: str | None = "daemon"
    if answer is None:
        try:
            kept["items"] = [document(change) for change in read_only(path, wanted)]
            kind, kept["warnings"] = "journal", [_LEFT]
        except (OSError, Error):
            kind = None
    return {
        "items": kept["items"],
        "warnings": kept.get("warnings", ()),
        "source": {"kind": kind, "server": kept["server"], "identity": kept["identity"]},
        "acts": changes_of_acts(folder, wanted) if folder else [],
    }


def watch(where: Where, question: str, query: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The daemon's answers as they come. Raises BadInput where there is none to give them."""
    check_watch(where, query)
    query = {**query, **on_this_screen()}
    answers = follow(where.connection, question, **query)
    if answers is None:
        raise _only_a_daemon_watches()
    return answers


def check_watch(where: Where, query: dict[str, Any]) -> None:
    """Raises BadInput for what cannot be watched."""
    refuse_whole_documents(str(query["output"]))
    if where.filename:
        raise BadInput("a dump does not change", on="--watch")
    where.check()
    if where.direct:
        raise _only_a_daemon_watches()


def _only_a_daemon_watches() -> BadInput:
    remedy = "run: kubectl nodelife daemon start"
    return BadInput("watching is the daemon's work", on="--watch", remedy=remedy)


def on_this_screen() -> dict[str, Any]:
    """The screen, and the flags that lead here, as parts of a query: text is made where the answer
    is."""
    screen, flags = this_screen(), terminal.leading_flags()
    return {
        "width": screen.width or None,
        "color": screen.color or None,
        "leading": flags.query() if flags is not None else "-",
    }


def refuse_whole_documents(output: str) -> None:
    """Raises BadInput for a format of which a stream's pieces, one after another, are none."""
    if output in ("yaml", "markdown"):
        raise BadInput("is not for watching", on=f"-o {output}", remedy="use -o json")


def namespace_for(where: Where) -> str:
    """The namespace that is meant: the flags' or the context's. Raises BadInput."""
    if where.connection.namespace or where.filename:
        return where.connection.namespace or "default"
    line = None if where.direct else find(where.connection)
    if line is not None:
        return line.known.namespace
    from kubectl_nodelife.commands.cluster.direct import target_of

    return target_of(where.connection).namespace


def node_or_pod(words: Sequence[str], where: Where) -> tuple[str, str, str]:
    """The node, or the namespace and the name of the pod, that `NODE | pod NAME` means; "" for the
    rest. Raises BadInput."""
    from kubectl_nodelife.kube.names import NODE, POD, parse_subject

    if not words:
        return "", "", ""
    kind, namespace, name = parse_subject(words, (NODE, POD), NODE)
    if kind == NODE:
        return name, "", ""
    return "", namespace or namespace_for(where), name


def for_ever(answers: Iterator[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Answers that only end with the daemon. Raises Unreachable when they do."""
    yield from answers
    raise _ended()


def _ended() -> Unreachable:
    remedy = "see 'kubectl nodelife daemon logs'"
    return Unreachable("the daemon has ended: no more lines come", remedy=remedy)


def show(answer: dict[str, object], *, exit_code: bool = False) -> int:
    """Print the answer, and return the exit code."""
    warnings = answer.get("warnings")
    terminal.warn(*(warnings if isinstance(warnings, list) else ()))
    if answer.get("note"):
        terminal.note(str(answer["note"]))
    terminal.write(str(answer.get("text", "")))
    return EXIT_NO if exit_code and answer.get("inTrouble") else 0


def _checked(
    line: DaemonEndpoint | ViaEndpoint, answers: Iterator[dict[str, Any]]
) -> Iterator[dict[str, Any]]:
    for answer in answers:
        line.check(answer)
        yield answer


def say_first_look(text: str) -> None:
    """Put the line on stderr, unless it was put there within the last minute, which the age of an
    empty file beside the daemons' sockets tells; where there can be none, each time.
    """
    path = os.path.join(paths.runtime_folder(os.environ), _FIRST_LOOK_FILE)
    if not _shown_lately(path):
        terminal.note(text)


def _shown_lately(path: str) -> bool:
    folder = os.path.dirname(path)
    try:
        paths.make_private(folder)
        age = time.time() - os.stat(path).st_mtime if os.path.exists(path) else None
        if age is not None and 0 <= age < _FIRST_LOOK_EVERY_S:
            return True
        with open(path, "w"):
            os.utime(path)
    except (OSError, NodelifeError):
        pass
    return False


def draw_each_second(
    ask: Callable[[], dict[str, Any] | None], *, newest_last: bool = False
) -> NoReturn:
    """Draw `text` of what `ask` gives, for ever. `newest_last`: of more lines than the terminal has
    the last ones are shown. Where stdout is no terminal, verbs append what is new instead. Raises
    Unreachable once the daemon has ended.
    """
    from kubectl_nodelife.report.live_line import LiveScreen

    screen = LiveScreen(newest_last=newest_last)
    drawn = False
    while True:
        response = ask()
        if response is None and drawn:
            raise _ended()
        if response is None:
            raise no_daemon()
        for warning in response.get("warnings", ()):
            if not terminal.was_warned(warning):
                terminal.warn(warning)
                screen.begin_anew()
        screen.show(str(response.get("text") or response.get("note") or ""))
        drawn = True
        time.sleep(_DRAWN_EVERY_S)
