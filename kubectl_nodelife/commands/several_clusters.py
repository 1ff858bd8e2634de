"""Asks one question of several clusters: `--contexts a,b,'prod-*'` and `--all-contexts`.

All are asked at once, each by a thread of this process (`asking_clusters.py`) that runs the same
verb for one context; what they write becomes one page, one list of documents, one exit code. What
has not answered in time is left, so a cluster that hangs, wants a login or is gone delays no other.
What `kubectl config get-contexts` lists can be named, also by a pattern.

Nothing heavy is imported before several clusters are asked for.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple

import click

from kubectl_nodelife.commands import flags
from kubectl_nodelife.errors import EXIT_DONE, EXIT_FAILED, EXIT_NO, BadInput
from kubectl_nodelife.report.formats import Output, Page
from kubectl_nodelife.report.terminal import escape_json, this_screen

TYPE_CHECKING = False  # as typing's, without importing typing: `status` is on the quick path
if TYPE_CHECKING:
    from typing import NoReturn

    from kubectl_nodelife.commands.asking_clusters import AskedCluster, ClusterAnswer, Verb
    from kubectl_nodelife.live.kubeconfig import KubeConfig
    from kubectl_nodelife.live.target import Target

_TIMEOUT: Final = "--cluster-timeout"
_MOST: Final = 1024
_DRAWN_EVERY_S: Final = 1.0

_FORMAT_OF_ONE: Final = {
    "table": "parts",
    "wide": "parts-wide",
    "markdown": "parts",
    "json": "json",
    "yaml": "json",
    "name": "name",
}


class SeveralClusters(NamedTuple):
    """The flags as given. `cluster_timeout`: how long all of them together may take, as text."""

    contexts: str | None = None
    all_contexts: bool = False
    parallel: int = _MOST
    cluster_timeout: str = "5s"


_several_flags: Final = flags.gathered_flags(
    "given",
    SeveralClusters,
    """
--contexts=NAMES  Ask these clusters, such as a,b,'prod-*'.
--all-contexts    Ask the cluster of each context.
--parallel=N      How many clusters are asked at once, where memory is short (all).
--cluster-timeout=DURATION  How long several clusters may take together (5s).
""",
    parallel={"type": click.IntRange(1, _MOST)},
)


def several_clusters(
    trouble: str = "", well_by: Sequence[str] = ()
) -> Callable[[flags.Callback], flags.Callback]:
    """Give a command the flags of this file. Stands next to the function, below all other flags.

    The command's function must take `output`, and `where` or `connection`. `trouble`: what its
    pages count as such (`trouble()` of the page), "" where they do not judge. `well_by`: arguments
    without any of which a cluster that has none is but named; empty: all are shown.
    """

    def decorate(callback: flags.Callback) -> flags.Callback:
        @_several_flags
        @functools.wraps(callback)
        def for_each_cluster(*args: Any, given: SeveralClusters, **kwargs: Any) -> Any:
            if given.contexts is None and not given.all_contexts:
                return callback(*args, **kwargs)
            from kubectl_nodelife.commands.asking_clusters import clusters_page

            page = functools.partial(
                clusters_page,
                trouble=trouble,
                well=not well_by or any(kwargs[name] for name in well_by),
                only_trouble=bool(kwargs.get("trouble")),
            )
            return _ask_all(given, callback, kwargs, page)

        return for_each_cluster

    return decorate


def _for_one(kwargs: Mapping[str, Any], context: str, form: str) -> dict[str, Any]:
    """The arguments of a command that answers for one of several contexts, in that format."""
    changed = dict(kwargs)
    changed["output"] = Output(form, changed["output"].headers)
    if "where" in changed:
        where = changed["where"]
        changed["where"] = where._replace(connection=where.connection._replace(context=context))
    else:
        changed["connection"] = changed["connection"]._replace(context=context)
    flags.lead_to(_connection_of(changed))
    return changed


def _ask_all(
    given: SeveralClusters,
    verb: Callable[..., object],
    kwargs: Mapping[str, Any],
    page: Callable[[Sequence[ClusterAnswer]], Page],
) -> int:
    """Ask, show, and return the exit code. Raises BadInput."""
    from kubectl_nodelife.commands.asking_clusters import ask_all, leave, notes_of
    from kubectl_nodelife.report import terminal

    connection, output = _connection_of(kwargs), kwargs["output"]
    _refuse_contradictions(given, kwargs, connection, output)
    seconds = flags.duration_ns(given.cluster_timeout, _TIMEOUT) / 1e9
    clusters = _clusters(given, connection, by_namespace=kwargs.get("all_namespaces") is False)

    def ask_one(context: str) -> object:
        return verb(**_for_one(kwargs, context, _FORMAT_OF_ONE[output.format]))

    if kwargs.get("watch"):
        if "trouble" not in kwargs or not this_screen().width or output.format == "json":
            return _watch(clusters, verb, kwargs)
        kwargs = {**kwargs, "watch": False}
        ask_at_daemon = _only_by_daemon(ask_one, connection)
        _draw(lambda: page(ask_all(clusters, ask_at_daemon, given.parallel, seconds)), output)
    answers = ask_all(clusters, ask_one, given.parallel, seconds)
    for line in notes_of(answers):
        terminal.note(line)
    if output.format == "name":
        terminal.write("".join(_led_by(answer.context, answer.text) for answer in answers))
    else:
        output.show(page(answers))
    return leave(exit_code_of([answer.code for answer in answers]))


def _only_by_daemon(verb: Verb, connection: flags.Connection) -> Verb:
    """The verb where a daemon watches the context's cluster: to look anew each second is no way to
    watch one."""
    from kubectl_nodelife.commands import ask

    def by_daemon(context: str) -> object:
        if ask.ask(connection._replace(context=context), "hello") is None:
            raise ask.no_daemon()
        return verb(context)

    return by_daemon


def _draw(page: Callable[[], Page], output: Output) -> NoReturn:
    """Draw what all answer, each second."""
    import time

    from kubectl_nodelife.report.live_line import LiveScreen

    screen = LiveScreen()
    while True:
        screen.show(output.render(page()))
        time.sleep(_DRAWN_EVERY_S)


def _watch(clusters: Sequence[AskedCluster], verb: Callable[..., object], kwargs: Any) -> int:
    """Show what each cluster's watch writes as it comes, its context before it; the exit code once
    all have ended. Raises BadInput."""
    from kubectl_nodelife.commands import ask
    from kubectl_nodelife.commands.asking_clusters import WrittenText, leave, watch_all
    from kubectl_nodelife.report import terminal

    form = kwargs["output"].format
    ask.refuse_whole_documents(form)
    codes = []
    for news in watch_all(clusters, lambda context: verb(**_for_one(kwargs, context, form))):
        if not isinstance(news, WrittenText):
            codes.append(news.code)
            terminal.note(f"{news.context}: {news.error or 'no more lines come'}")
        elif news.on_stderr:
            terminal.note(f"{news.cluster.name}: {news.text}")
        elif form == "json":
            terminal.write(_with_contexts(news.text, news.cluster.name))
        else:
            terminal.write(_led_by(news.cluster.name, news.text))
        terminal.flush()
    return leave(exit_code_of(codes))


def _with_contexts(text: str, context: str) -> str:
    """The documents of the text, one a line, each with its context."""
    import json

    from kubectl_nodelife.commands.asking_clusters import with_context

    lines, decoder, text = [], json.JSONDecoder(), text.strip()
    while text:
        document, end = decoder.raw_decode(text)
        lines.append(json.dumps(with_context(document, context)))
        text = text[end:].lstrip()
    return escape_json("".join(f"{line}\n" for line in lines))


def exit_code_of(codes: Sequence[int]) -> int:
    """0 where a cluster answered, 4 where one of them says no; else 3 where none can be reached, a
    code that all have, or 1."""
    if any(code in (EXIT_DONE, EXIT_NO) for code in codes):
        return EXIT_NO if EXIT_NO in codes else EXIT_DONE
    return codes[0] if len(set(codes)) == 1 else EXIT_FAILED


def _led_by(context: str, text: str) -> str:
    """The lines of the text, each behind the context and a tab."""
    return "".join(f"{context}\t{line}\n" for line in text.splitlines())


def _connection_of(kwargs: Mapping[str, Any]) -> flags.Connection:
    connection: flags.Connection = (
        kwargs["where"].connection if "where" in kwargs else kwargs["connection"]
    )
    return connection


def _refuse_contradictions(
    given: SeveralClusters, kwargs: Mapping[str, Any], connection: flags.Connection, output: Output
) -> None:
    """Raises BadInput for flags that mean one cluster, or none."""
    flag = "--contexts" if given.contexts is not None else "--all-contexts"
    where = kwargs.get("where")
    one = {
        "--contexts and --all-contexts": given.contexts is not None and given.all_contexts,
        f"{flag} and --context": connection.context,
        f"{flag} and --cluster": connection.cluster,
        f"{flag} and --server": connection.server,
        f"{flag} and -f": where.filename if where is not None else kwargs.get("filename"),
        f"{flag} and --each": getattr(kwargs.get("asked"), "each", None),
    }
    for both, contradicts in one.items():
        if contradicts:
            raise BadInput("only one of the two can be meant", on=both, remedy="leave one away")
    theirs = {
        "--token": connection.token,
        "--user": connection.user,
        "--client-certificate": connection.client_certificate,
        "--client-key": connection.client_key,
    }
    for credential in filter(theirs.get, theirs):
        raise BadInput(
            "every one of these clusters would be shown a credential that is for one",
            on=f"{flag} and {credential}",
            remedy=f"leave {credential} away: each context has its own user",
        )
    if output.format not in _FORMAT_OF_ONE:
        formats = ", ".join(_FORMAT_OF_ONE)
        raise BadInput("is for one cluster", on=f"-o {output.format}", remedy=f"use {formats}")


def _clusters(
    given: SeveralClusters, connection: flags.Connection, *, by_namespace: bool
) -> list[AskedCluster]:
    """The clusters of the contexts that are meant, each once; `by_namespace`: once for each
    namespace of a context. Of the names of one, those first whose daemon runs. Raises BadInput."""
    from msgspec.structs import replace

    from kubectl_nodelife.commands.asking_clusters import AskedCluster
    from kubectl_nodelife.live.kubeconfig import kubeconfig_files, load_kubeconfig
    from kubectl_nodelife.live.target import resolve

    files = kubeconfig_files(connection.kubeconfig, os.environ)
    config = load_kubeconfig(files, must_exist=bool(connection.kubeconfig))
    by_cluster: dict[object, AskedCluster] = {}
    for name in _contexts(given, config):
        try:
            target = resolve(config, connection._replace(context=name))
        except BadInput as error:
            by_cluster[name] = AskedCluster((name,), error)
            continue
        cluster = replace(target.cluster, server=target.server, extensions=())
        key = repr((cluster, target.namespace if by_namespace else ""))
        names = by_cluster[key].names if key in by_cluster else ()
        by_cluster[key] = AskedCluster((name, *names) if _is_watched(target) else (*names, name))
    return list(by_cluster.values())


def _is_watched(target: Target) -> bool:
    """True if a daemon of ours listens for that server as that user."""
    from kubectl_nodelife.daemon.paths import runtime_folder, socket_path
    from kubectl_nodelife.live.target import cluster_identity

    try:
        return os.path.exists(socket_path(runtime_folder(os.environ), cluster_identity(target)))
    except OSError:  # the file of its CA cannot be read, which is said when it is asked
        return False


def _contexts(given: SeveralClusters, config: KubeConfig) -> list[str]:
    """The names of the contexts, in the order given, of a pattern by name. Raises BadInput."""
    import fnmatch

    contexts = sorted(config.contexts)
    if not contexts:
        files = os.pathsep.join(config.files) or "the kubeconfig"
        raise BadInput("it has no contexts", on=files, remedy="see 'kubectl config get-contexts'")
    if given.all_contexts:
        return contexts
    chosen: dict[str, None] = {}
    for word in filter(None, (part.strip() for part in (given.contexts or "").split(","))):
        matched = [word] if word in config.contexts else fnmatch.filter(contexts, word)
        if not matched:
            raise BadInput(
                f'no context "{word}"', on="--contexts", remedy=f"known: {', '.join(contexts)}"
            )
        chosen.update(dict.fromkeys(matched))
    if not chosen:
        raise BadInput("names no context", on="--contexts", remedy=f"known: {', '.join(contexts)}")
    return list(chosen)
