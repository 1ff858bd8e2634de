"""`kubectl nodelife completion`, which makes TAB complete verbs, flags and names, and what then
completes them: `kubectl nodelife __complete WORD...` prints candidates for the last word.

kubectl completes a plugin's words by a program `kubectl_complete-nodelife` on PATH. krew links one
program for each plugin, so that `install` has to put it there; a wheel brings it along. The form is
the one that kubectl asks for (cobra's completions.go): a candidate a line, with a TAB and a
description, and at the end `:N`, a sum of directives. kubectl does not filter: candidates begin
with the last word here, or with the value in it where it is `--flag=value`.

click says which parameter the word belongs to. What that parameter stands for follows from its
metavar, which --help shows as well: one table, and a test that every metavar has a row in it.
Names of objects come from a daemon that runs, those of contexts from the kubeconfig; everything
heavy is imported where it is needed. A daemon has 200 ms to answer, and none is started, waited for
or complained of on stderr: what cannot be found out has no candidates.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import click
from click.shell_completion import CompletionItem, _resolve_context, _resolve_incomplete

from kubectl_nodelife import PROGRAM, SHIM
from kubectl_nodelife.commands.flags import Connection, DefaultGroup
from kubectl_nodelife.errors import BadInput, Failed, NodelifeError
from kubectl_nodelife.kube.wellknown import LABEL_ZONE
from kubectl_nodelife.report import terminal

if TYPE_CHECKING:
    from kubectl_nodelife.live.kubeconfig import KubeConfig


_MARK = "completion install`"


@click.group()
def completion() -> None:
    """Make TAB complete `kubectl nodelife`: verbs, flags, nodes, pods, namespaces and contexts.

    `install` is all that is needed where kubectl's own completion is set up (kubectl 1.26 or
    newer). The other commands print scripts that complete `kubectl-nodelife` typed as one word.
    """


@completion.command()
def install() -> None:
    """Put kubectl_complete-nodelife beside kubectl-nodelife, where kubectl looks for it.

    \b
    Example:
      kubectl nodelife completion install
    """
    path = os.path.join(_folder(), SHIM)
    there = _on_path(SHIM)
    if there is not None and os.path.normpath(there) != path:
        terminal.write(f"{there} is there already\n")
        return
    if os.path.exists(path) and not _is_ours(path):
        raise Failed("is not a script of ours", on=path, remedy="move it away")
    try:
        with open(path, "w") as file:
            file.write(_script("shim"))
        os.chmod(path, 0o755)
    except OSError as error:
        raise Failed(
            f"cannot be written: {error.strerror}",
            on=path,
            remedy=f"put this elsewhere on PATH: kubectl nodelife completion shim > {SHIM}",
        ) from None
    terminal.write(f"{path} installed\n")


@completion.command()
def uninstall() -> None:
    """Remove what `install` has put there.

    \b
    Example:
      kubectl nodelife completion uninstall
    """
    there = _on_path(SHIM)
    if there is None:
        terminal.write("there is none\n")
        return
    if not _is_ours(there):
        raise Failed("was not made by 'completion install'", on=there)
    try:
        os.unlink(there)
    except OSError as error:
        raise Failed(f"cannot be removed: {error.strerror}", on=there) from None
    terminal.write(f"{there} removed\n")


def _printer(shell: str, example: str) -> click.Command:
    def show() -> None:
        terminal.write(_script(shell))

    title = "Print the script that `install` installs." if shell == "shim" else (
        f"Print a script that completes kubectl-nodelife in {shell}."
    )  # fmt: skip
    words = f"kubectl nodelife completion {shell}"
    return click.command(
        shell, help=f"{title}\n\n\b\nExample:\n  {words}{example}", hidden=shell == "shim"
    )(show)


for _shell, _example in {
    "bash": " > ~/.local/share/bash-completion/completions/kubectl-nodelife",
    "zsh": " > ~/.zfunc/_kubectl-nodelife",
    "fish": " > ~/.config/fish/completions/kubectl-nodelife.fish",
    "powershell": " | Out-String | Invoke-Expression",
    "shim": f" > ~/.local/bin/{SHIM}",
}.items():
    completion.add_command(_printer(_shell, _example))


def _on_path(program: str) -> str | None:
    """Where the program is on PATH; None: nowhere."""
    import shutil  # 20 ms, which no TAB needs

    return shutil.which(program)


def _folder() -> str:
    """Where kubectl found this program."""
    program = _on_path(PROGRAM)
    if program is None:
        raise BadInput(
            f"{PROGRAM} is not on PATH",
            on="completion install",
            remedy="put a link to it there; kubectl finds it no other way either",
        )
    return os.path.dirname(os.path.abspath(program))


def _is_ours(path: str) -> bool:
    try:
        with open(path, errors="replace") as file:
            return _MARK in file.read()
    except OSError:
        return False


def _script(name: str) -> str:
    with open(os.path.join(os.path.dirname(__file__), "shells", name)) as file:
        return file.read()


Candidate = tuple[str, str]
"""The completed word, and a description, which may be empty."""

# Directives of cobra's completions.go.
FILES: Final = 0
NO_SPACE: Final = 2
NO_FILES: Final = 4
FOLDERS: Final = 16

Source = Callable[[click.Context, str], Iterable[Candidate]]

_FLAG_SOURCES: Final[Mapping[str, Source]] = {
    "--context": lambda ctx, _: (
        (n, c.cluster) for n, c in sorted(_kubeconfig(ctx).contexts.items())
    ),
    "--cluster": lambda ctx, _: (
        (n, c.server) for n, c in sorted(_kubeconfig(ctx).clusters.items())
    ),
    "--user": lambda ctx, _: ((name, "") for name in sorted(_kubeconfig(ctx).users)),
    "--namespace": lambda ctx, word: _ask(ctx, "namespaces", word),
    "--selector": lambda ctx, word: _ask(ctx, "zones", word),
}

_EXPLAINED: Final = ("node", "pod", "zone", "daemonset", "budget")

_ACTS: Final[Mapping[str, tuple[str, ...]]] = {
    "lose": ("node", "nodes", "zone", "link"),
    "taint": ("node", "zone"),
    "untaint": ("node",),
    "cordon": (),
    "uncordon": (),
    "drain": (),
    "delete": ("node", "pod"),
    "set": (),
}
"""The verbs of what-if -> what they are about."""

METAVAR_SOURCES: Final[Mapping[str, Source]] = {
    "FLAG=VALUE": lambda *_: _settings(),
    "v1.N": lambda *_: _profiles(),
    "WHAT": lambda *_: [("node", ""), ("zone", ""), ("label=", ""), ("pair-of", "")],
    "WHERE": lambda *_: [("local", "processes of this machine"), ("dask://", "a scheduler")],
    "ACT [TARGET...]": lambda ctx, word: _acts(ctx, word),
    "NS/KIND/NAME|node/NAME": lambda ctx, word: (
        (f"node/{name}", description) for name, description in _ask(ctx, "nodes", word[5:])
    ),
    "NODE": lambda ctx, word: _ask(ctx, "nodes", word),
    "NODE...": lambda ctx, word: _others(ctx, "nodes", word),
    "[NODE...]": lambda ctx, word: _others(ctx, "nodes", word),
    "[POD...]": lambda ctx, word: _others(ctx, "pods", word),
    "DAEMONSET": lambda ctx, word: _ask(ctx, "daemonsets", word),
    "[DAEMONSET]": lambda ctx, word: _ask(ctx, "daemonsets", word),
    "NS": lambda ctx, word: _ask(ctx, "namespaces", word),
    "[NODE | pod NAME]": lambda ctx, word: _node_or_pod(ctx, word),
    "KIND NAME...": lambda ctx, word: _subject(ctx, word, _EXPLAINED),
}

FILE_METAVARS: Final = frozenset({"PATH", "FILE", "SCENARIO"})
FOLDER_FLAGS: Final = frozenset({"--cache-dir"})


SECONDS = 0.2


def complete(command: click.Command, words: Sequence[str]) -> int:
    """Print the candidates for the last of `words`, which may be empty; the exit code."""
    try:
        offered, directive = candidates(command, list(words[:-1]), words[-1] if words else "")
    except Exception:  # a TAB is no place for errors
        return 1
    lines = [f"{value}\t{description}" if description else value for value, description in offered]
    terminal.write("\n".join([*lines, f":{directive}"]) + "\n")
    terminal.flush()
    return 0


def candidates(command: click.Command, before: list[str], word: str) -> tuple[list[Candidate], int]:
    """The candidates for `word` behind the words `before`, and the directives for the shell.

    Of `--flag=word` only the value is completed, as in cobra: its shell scripts add `--flag=`.
    """
    of_help = before[:1] == ["help"]  # `help VERB` shows what `VERB --help` does: see cli
    ctx = _resolve_context(command, {}, "kubectl nodelife", before[1:] if of_help else before)
    subject, rest = _resolve_incomplete(ctx, before, word)
    directive: int = NO_FILES
    offered: list[Candidate] = []
    if not isinstance(subject, click.Parameter):
        offered = _items(subject.shell_complete(ctx, rest))
        if isinstance(subject, DefaultGroup) and not of_help and not rest.startswith("-"):
            offered += _values(ctx, subject.commands[subject.default].params[0], rest)[1]
    elif not of_help:
        directive, offered = _values(ctx, subject, rest)
    fitting = [(value, description) for value, description in offered if value.startswith(rest)]
    if fitting and all(value.endswith("=") for value, _ in fitting):
        directive |= NO_SPACE
    return fitting, directive


def _values(ctx: click.Context, param: click.Parameter, word: str) -> tuple[int, list[Candidate]]:
    metavar = str(param.metavar)
    for flag in param.opts:
        if flag in _FLAG_SOURCES:
            return NO_FILES, list(_FLAG_SOURCES[flag](ctx, word))
        if flag in FOLDER_FLAGS:
            return FOLDERS, []
    if metavar in METAVAR_SOURCES:
        return NO_FILES, list(METAVAR_SOURCES[metavar](ctx, word))
    if metavar in FILE_METAVARS:
        return FILES, []
    return NO_FILES, _items(param.shell_complete(ctx, word))


def _items(items: Iterable[CompletionItem]) -> list[Candidate]:
    return [(str(item.value), item.help or "") for item in items if item.type == "plain"]


def _connection(ctx: click.Context) -> Connection:
    """The connection flags that stand on the line so far."""
    outer = _connection(ctx.parent) if ctx.parent is not None else Connection()
    given: dict[str, Any] = {f: ctx.params[f] for f in Connection._fields if f in ctx.params}
    return outer.overridden_by(Connection(**given))


def _subject(ctx: click.Context, word: str, kinds: tuple[str, ...]) -> Iterable[Candidate]:
    """The kind first, then the name of one."""
    given = next((v for k, v in ctx.params.items() if k == "subject" and v), ())
    if not given:
        return [(kind, "") for kind in kinds]
    if len(given) > 1:
        return []
    asked = {"node": "nodes", "pod": "pods", "daemonset": "daemonsets"}.get(given[0])
    return _ask(ctx, asked, word) if asked is not None else []


def _node_or_pod(ctx: click.Context, word: str) -> Iterable[Candidate]:
    """The kinds and the nodes, of which the name alone is enough; then the name of one."""
    subjects = list(_subject(ctx, word, ("node", "pod")))
    return subjects if ctx.params.get("subject") else [*subjects, *_ask(ctx, "nodes", word)]


def _acts(ctx: click.Context, word: str) -> Iterable[Candidate]:
    """Candidates that go on with an act of what-if: its verb, what it is about, a name of that."""
    given = list(ctx.params.get("words") or ())
    while "--and" in given:
        del given[: given.index("--and") + 1]
    if not given:
        return [(verb, "") for verb in _ACTS]
    verb, named = given[0], [w for w in given[1:] if not w.startswith("-")]
    if verb == "set":
        return [("toleration-seconds=", ""), *_settings()]
    if verb == "delete" and named[:1] == ["pod"]:
        return _ask(ctx, "pods", word)
    if named[:1] == ["link"]:
        named = named[1:]
    first = _ACTS.get(verb, ()) if len(given) == 1 else ()
    if verb == "lose" and given[1:] == ["link"]:
        first = ("node", "zone")
    if first:
        return [(kind, "") for kind in first]
    if named[:1] == ["zone"]:
        return _zones(ctx, word)
    return [node for node in _ask(ctx, "nodes", word) if node[0] not in named]


def _zones(ctx: click.Context, word: str) -> Iterable[Candidate]:
    """The zones, which come as selectors of their nodes."""
    label = f"{LABEL_ZONE}="
    zones = _ask(ctx, "zones", label + word)
    return [(selector.removeprefix(label), description) for selector, description in zones]


def _others(ctx: click.Context, kind: str, word: str) -> Iterable[Candidate]:
    """Names of that kind that are not given yet."""
    given = set(ctx.params.get(kind) or ())
    return [candidate for candidate in _ask(ctx, kind, word) if candidate[0] not in given]


def _ask(ctx: click.Context, kind: str, prefix: str) -> list[Candidate]:
    """The names of that kind that begin so, with descriptions; none where no daemon gives them."""
    from kubectl_nodelife.commands.ask import find
    from kubectl_nodelife.daemon import client

    connection = _connection(ctx)
    everywhere = kind == "daemonsets" and ctx.params.get("all_namespaces")
    try:
        endpoint = find(connection)
        if endpoint is None:
            return []
        namespace = connection.namespace or endpoint.known.namespace
        answer = client.ask(
            endpoint.socket,
            "names",
            seconds=SECONDS,
            kind=kind,
            prefix=prefix,
            namespace="" if everywhere else namespace,
        )
    except NodelifeError:
        return []
    if answer.get("server") != endpoint.known.server:
        return []
    return [(str(name), str(description)) for name, description in answer.get("items", ())]


def _settings() -> Iterable[Candidate]:
    """Candidates for --set, as `flag=`, each with its newest default."""
    from kubectl_nodelife.engine.settings import FLAGS

    return [(f"{flag.name}=", f"default {flag.defaults[-1][1]}") for flag in FLAGS.values()]


def _profiles() -> Iterable[Candidate]:
    """The Kubernetes releases whose behaviour can be followed, newest first."""
    from kubectl_nodelife.engine.settings import BETA, OLDEST, Profile

    newest, oldest = (int(profile.removeprefix("v1.")) for profile in (BETA, OLDEST))
    profiles = [Profile(minor) for minor in range(newest, oldest - 1, -1)]
    return [(profile.name, "beta" if profile.is_beta else "") for profile in profiles]


def _kubeconfig(ctx: click.Context) -> KubeConfig:
    from kubectl_nodelife.live.kubeconfig import kubeconfig_files, load_kubeconfig

    return load_kubeconfig(kubeconfig_files(_connection(ctx).kubeconfig, os.environ))
