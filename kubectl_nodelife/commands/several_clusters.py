"""Asks one question of several clusters: `--contexts a,b,'prod-*'` and `--all-contexts`.

Each cluster is asked by a process of its own, which runs this same command line for one context and
returns its page in parts; here they become one page (`report/clusters.py`), one list of
documents, one exit code. So a cluster that hangs, wants a login or is gone costs its own line and
delays no other. What `kubectl config get-contexts` lists can be named, also by a pattern.

Credential plugins never get the terminal (`live/plugin.py`), so that those of several clusters may
run at once. Nothing heavy is imported before several clusters are asked for.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple

import click

from kubectl_nodelife.commands.flags import Callback, Connection, lead_to
from kubectl_nodelife.errors import (
    EXIT_DONE,
    EXIT_FAILED,
    EXIT_NO,
    EXIT_UNREACHABLE,
    BadInput,
    NodelifeError,
)
from kubectl_nodelife.report.formats import Output

TYPE_CHECKING = False  # as typing's, without importing typing: `status` is on the quick path
if TYPE_CHECKING:
    import subprocess
    from concurrent.futures import Future

    from kubectl_nodelife.live.kubeconfig import KubeConfig
    from kubectl_nodelife.report.clusters import ClusterAnswer

_TIMEOUT: Final = "--cluster-timeout"

CONTEXT_VARIABLE: Final = "NODELIFE_ANSWER_FOR_CONTEXT"
"""Names to a process that is started here the one context that it answers for."""

_FORMAT_OF_CHILD: Final = {
    "table": "parts",
    "wide": "parts-wide",
    "markdown": "parts",
    "json": "json",
    "yaml": "json",
    "name": "name",
}


class SeveralClusters(NamedTuple):
    """The flags as given. `cluster_timeout`: how long one may take, as text."""

    contexts: str | None = None
    all_contexts: bool = False
    parallel: int = 8
    cluster_timeout: str = "10s"


def several_clusters() -> Callable[[Callback], Callback]:
    """Give a command the flags of this file. Stands next to the function, below all other flags.

    The command's function must take `output`, and `where` or `connection`.
    """

    def decorate(callback: Callback) -> Callback:
        @functools.wraps(callback)
        def for_each_cluster(*args: Any, **kwargs: Any) -> Any:
            given = SeveralClusters(*(kwargs.pop(name) for name in SeveralClusters._fields))
            context = os.environ.get(CONTEXT_VARIABLE)
            if context is not None:
                return callback(*args, **_for_one(kwargs, context))
            if given.contexts is None and not given.all_contexts:
                return callback(*args, **kwargs)
            return _ask_all(given, kwargs)

        decorated: Callback = for_each_cluster
        for option in reversed(_options()):
            decorated = option(decorated)
        return decorated

    return decorate


def _options() -> Sequence[Callable[[Callback], Callback]]:
    return (
        click.option(
            "--contexts", metavar="NAMES", help="Ask these clusters, such as a,b,'prod-*'."
        ),
        click.option("--all-contexts", is_flag=True, help="Ask the cluster of each context."),
        click.option(
            "--parallel",
            type=click.IntRange(1, 64),
            default=8,
            metavar="N",
            help="How many clusters are asked at once (8).",
        ),
        click.option(
            _TIMEOUT,
            default="10s",
            metavar="DURATION",
            help="How long one of several clusters may take (10s).",
        ),
    )


def _for_one(kwargs: Mapping[str, Any], context: str) -> dict[str, Any]:
    """The arguments of a command that answers for one of several contexts."""
    changed = dict(kwargs)
    output: Output = changed["output"]
    changed["output"] = Output(_FORMAT_OF_CHILD[output.format], output.headers)
    if "where" in changed:
        where = changed["where"]
        changed["where"] = where._replace(connection=where.connection._replace(context=context))
    else:
        changed["connection"] = changed["connection"]._replace(context=context)
    lead_to(_connection_of(changed))
    return changed


def _ask_all(given: SeveralClusters, kwargs: Mapping[str, Any]) -> int:
    """Ask, show, and return the exit code. Raises BadInput."""
    from kubectl_nodelife.commands.flags import duration_ns
    from kubectl_nodelife.report import terminal
    from kubectl_nodelife.report.clusters import ClustersPage

    connection, output = _connection_of(kwargs), kwargs["output"]
    _refuse_contradictions(given, kwargs, connection, output)
    seconds = duration_ns(given.cluster_timeout, _TIMEOUT) / 1e9
    clusters = _clusters(given, connection, by_namespace=kwargs.get("all_namespaces") is False)
    answers = _ask_in_parallel(clusters, given.parallel, seconds)
    for answer in answers:
        for line in answer.notes:
            terminal.note(f"{answer.context}: {line}")
    if output.format == "name":
        terminal.write("".join(_prefixed(answer) for answer in answers))
    else:
        output.show(ClustersPage(answers))
    return exit_code_of([answer.code for answer in answers])


def exit_code_of(codes: Sequence[int]) -> int:
    """0 where a cluster answered, 4 where one of them says no; else 3 where none can be reached, a
    code that all have, or 1."""
    if any(code in (EXIT_DONE, EXIT_NO) for code in codes):
        return EXIT_NO if EXIT_NO in codes else EXIT_DONE
    return codes[0] if len(set(codes)) == 1 else EXIT_FAILED


def _prefixed(answer: ClusterAnswer) -> str:
    return "".join(f"{answer.context}\t{name}\n" for name in answer.text.splitlines())


def _connection_of(kwargs: Mapping[str, Any]) -> Connection:
    found: Connection = kwargs["where"].connection if "where" in kwargs else kwargs["connection"]
    return found


def _refuse_contradictions(
    given: SeveralClusters, kwargs: Mapping[str, Any], connection: Connection, output: Output
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
        f"{flag} and --watch": kwargs.get("watch"),
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
    if output.format not in _FORMAT_OF_CHILD:
        formats = ", ".join(_FORMAT_OF_CHILD)
        raise BadInput("is for one cluster", on=f"-o {output.format}", remedy=f"use {formats}")


class _Cluster(NamedTuple):
    """A cluster: the contexts that mean it, in the order in which they are tried. `error`: why its
    context leads nowhere."""

    names: tuple[str, ...]
    error: NodelifeError | None = None


def _clusters(
    given: SeveralClusters, connection: Connection, *, by_namespace: bool
) -> list[_Cluster]:
    """The clusters of the contexts that are meant, each once; `by_namespace`: once for each
    namespace of a context. Raises BadInput."""
    from kubectl_nodelife.live.kubeconfig import kubeconfig_files, load_kubeconfig
    from kubectl_nodelife.live.target import resolve

    files = kubeconfig_files(connection.kubeconfig, os.environ)
    config = load_kubeconfig(files, must_exist=bool(connection.kubeconfig))
    found: dict[object, _Cluster] = {}
    for name in _contexts(given, config):
        try:
            target = resolve(config, connection._replace(context=name))
        except BadInput as error:
            found[name] = _Cluster((name,), error)
            continue
        key = repr((target.cluster, target.namespace if by_namespace else ""))
        names = (*found[key].names, name) if key in found else (name,)
        found[key] = _Cluster(names)
    return list(found.values())


def _contexts(given: SeveralClusters, config: KubeConfig) -> list[str]:
    """The names of the contexts, in the order given, of a pattern by name. Raises BadInput."""
    import fnmatch

    known = sorted(config.contexts)
    if not known:
        files = os.pathsep.join(config.files) or "the kubeconfig"
        raise BadInput("it has no contexts", on=files, remedy="see 'kubectl config get-contexts'")
    if given.all_contexts:
        return known
    chosen: dict[str, None] = {}
    for word in filter(None, (part.strip() for part in (given.contexts or "").split(","))):
        matched = [word] if word in config.contexts else fnmatch.filter(known, word)
        if not matched:
            raise BadInput(
                f'no context "{word}"', on="--contexts", remedy=f"known: {', '.join(known)}"
            )
        chosen.update(dict.fromkeys(matched))
    if not chosen:
        raise BadInput("names no context", on="--contexts", remedy=f"known: {', '.join(known)}")
    return list(chosen)


def _ask_in_parallel(
    clusters: Sequence[_Cluster], parallel: int, seconds: float
) -> list[ClusterAnswer]:
    """The clusters' answers, in the order of the clusters."""
    from concurrent.futures import ThreadPoolExecutor, as_completed

    from kubectl_nodelife.report.live_line import progress_bar

    children: list[subprocess.Popen[str]] = []
    with ThreadPoolExecutor(parallel) as pool:
        asked: list[Future[ClusterAnswer]] = [
            pool.submit(_ask_one, cluster, seconds, children) for cluster in clusters
        ]
        try:
            with progress_bar("asking clusters", len(asked)) as step:
                for done, _ in enumerate(as_completed(asked), 1):
                    step(done)
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            for child in children:
                _end(child)
            raise
    return [answer.result() for answer in asked]


def _ask_one(
    cluster: _Cluster,
    seconds: float,
    children: list[subprocess.Popen[str]],
) -> ClusterAnswer:
    """The answer by the first of the cluster's contexts that gives one, else the first's error."""
    from kubectl_nodelife.report.clusters import ClusterAnswer

    name = ", ".join(cluster.names)
    if cluster.error is not None:
        return ClusterAnswer(name, cluster.error.exit_code, "", error=str(cluster.error))
    failed = None
    for context in cluster.names:
        child = _start(context)
        children.append(child)
        answer = _answer_of(child, name, seconds)
        if not answer.error:
            return answer
        failed = failed or answer
    assert failed is not None
    return failed


def _start(context: str) -> subprocess.Popen[str]:
    """This command line again, for one context."""
    import subprocess
    import sys

    from kubectl_nodelife.daemon.spawning import own_command

    return subprocess.Popen(
        [*own_command(), *sys.argv[1:]],
        env={**os.environ, CONTEXT_VARIABLE: context},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
        start_new_session=True,  # so that it ends together with the plugins that it has started
    )


def _answer_of(child: subprocess.Popen[str], name: str, seconds: float) -> ClusterAnswer:
    import subprocess

    from kubectl_nodelife.report.clusters import ClusterAnswer

    try:
        text, stderr = child.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        _end(child)
        error = f"no answer within {seconds:g}s; give it longer by {_TIMEOUT}"
        return ClusterAnswer(name, EXIT_UNREACHABLE, "", error=error)
    lines = stderr.splitlines()
    if child.returncode in (EXIT_DONE, EXIT_NO):
        return ClusterAnswer(name, child.returncode, text, notes=tuple(lines))
    errors = [line.removeprefix("error: ") for line in lines if line.startswith("error: ")]
    error = (errors or lines or [f"it ended with exit code {child.returncode}"])[-1]
    return ClusterAnswer(name, child.returncode, "", error=error)


def _end(child: subprocess.Popen[str]) -> None:
    """End the process and all that it has started."""
    import signal

    try:
        os.killpg(child.pid, signal.SIGKILL)
    except ProcessLookupError:
        return
    child.wait()
