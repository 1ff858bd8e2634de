"""What the last word of a command line may become: verbs, flags, and values by what they stand for.

click says which parameter the word belongs to. What that parameter stands for follows from its
metavar, which --help shows as well: one table, and a test that every metavar has a row in it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

import click
from click.shell_completion import CompletionItem, _resolve_context, _resolve_incomplete

from kubectl_nodelife.commands.completing import names
from kubectl_nodelife.commands.flags import Connection
from kubectl_nodelife.kube.wellknown import LABEL_ZONE

Candidate = tuple[str, str]
"""What the word becomes, and a description, which may be empty."""

# Directives of cobra's completions.go.
FILES: Final = 0
NO_SPACE: Final = 2
NO_FILES: Final = 4
FOLDERS: Final = 16

Source = Callable[[click.Context, str], Iterable[Candidate]]

_FLAG_SOURCES: Final[Mapping[str, Source]] = {
    "--context": lambda ctx, _: names.contexts(_connection(ctx)),
    "--cluster": lambda ctx, _: names.clusters(_connection(ctx)),
    "--user": lambda ctx, _: names.users(_connection(ctx)),
    "--namespace": lambda ctx, word: names.ask(_connection(ctx), "namespaces", word),
    "--selector": lambda ctx, word: names.ask(_connection(ctx), "zones", word),
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

_METAVAR_SOURCES: Final[Mapping[str, Source]] = {
    "FLAG=VALUE": lambda *_: names.settings(),
    "v1.N": lambda *_: names.profiles(),
    "WHAT": lambda *_: [("node", ""), ("zone", ""), ("label=", ""), ("pair-of", "")],
    "WHERE": lambda *_: [("local", "processes of this machine"), ("dask://", "a scheduler")],
    "ACT [TARGET...]": lambda ctx, word: _acts(ctx, word),
    "NS/KIND/NAME|node/NAME": lambda ctx, word: _as_named("node", _nodes(ctx, word[5:])),
    "NODE": lambda ctx, word: names.ask(_connection(ctx), "nodes", word),
    "NODE...": lambda ctx, word: _without_given(ctx, "nodes", _nodes(ctx, word)),
    "[NODE...]": lambda ctx, word: _without_given(ctx, "nodes", _nodes(ctx, word)),
    "[POD...]": lambda ctx, word: _without_given(ctx, "pods", _pods(ctx, word)),
    "[NAME]": lambda ctx, word: _sets(ctx, word),
    "NS": lambda ctx, word: names.ask(_connection(ctx), "namespaces", word),
    "KIND NAME": lambda ctx, word: _subject(ctx, word, ("node", "pod")),
    "[node NAME | pod NAME]": lambda ctx, word: _subject(ctx, word, ("node", "pod")),
    "KIND NAME...": lambda ctx, word: _subject(ctx, word, _EXPLAINED),
    "daemonset NAME": lambda ctx, word: _subject(ctx, word, ("daemonset",)),
}

FILE_METAVARS: Final = frozenset({"PATH", "FILE", "SCENARIO"})
FOLDER_FLAGS: Final = frozenset({"--cache-dir"})


def is_known(metavar: str) -> bool:
    """True if something can be said about a parameter of that metavar."""
    return metavar in _METAVAR_SOURCES or metavar in FILE_METAVARS


def candidates(command: click.Command, before: list[str], word: str) -> tuple[list[Candidate], int]:
    """The candidates for `word` behind the words `before`, and the directives for the shell.

    Of `--flag=word` only the value is completed, as in cobra: its shell scripts add `--flag=`.
    """
    of_help = before[:1] == ["help"]  # `help VERB` shows what `VERB --help` does: see cli
    ctx = _resolve_context(command, {}, "kubectl nodelife", before[1:] if of_help else before)
    subject, rest = _resolve_incomplete(ctx, before, word)
    directive: int = NO_FILES
    found: list[Candidate] = []
    if not isinstance(subject, click.Parameter):
        found = _items(subject.shell_complete(ctx, rest))
    elif not of_help:
        directive, found = _values(ctx, subject, rest)
    fitting = [(value, said) for value, said in found if value.startswith(rest)]
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
    if metavar in _METAVAR_SOURCES:
        return NO_FILES, list(_METAVAR_SOURCES[metavar](ctx, word))
    if metavar in FILE_METAVARS:
        return FILES, []
    return NO_FILES, _items(param.shell_complete(ctx, word))


def _items(items: Iterable[CompletionItem]) -> list[Candidate]:
    return [(str(item.value), item.help or "") for item in items if item.type == "plain"]


def _connection(ctx: click.Context) -> Connection:
    """The connection flags that stand on the line so far."""
    merged = Connection()
    chain: list[click.Context] = []
    at: click.Context | None = ctx
    while at is not None:
        chain.insert(0, at)
        at = at.parent
    for one in chain:
        given: dict[str, Any] = {f: one.params[f] for f in Connection._fields if f in one.params}
        merged = merged.overridden_by(Connection(**given))
    return merged


def _nodes(ctx: click.Context, word: str) -> Iterable[Candidate]:
    return names.ask(_connection(ctx), "nodes", word)


def _pods(ctx: click.Context, word: str) -> Iterable[Candidate]:
    return names.ask(_connection(ctx), "pods", word)


def _sets(ctx: click.Context, word: str) -> Iterable[Candidate]:
    everywhere = bool(ctx.params.get("all_namespaces"))
    return names.ask(_connection(ctx), "daemonsets", word, everywhere=everywhere)


def _subject(ctx: click.Context, word: str, kinds: tuple[str, ...]) -> Iterable[Candidate]:
    """The kind first, then the name of one."""
    given = next((v for k, v in ctx.params.items() if k == "subject" and v), ())
    if not given:
        return [(kind, "") for kind in kinds]
    if len(given) > 1:
        return []
    source = {"node": _nodes, "pod": _pods, "daemonset": _sets}.get(given[0])
    return source(ctx, word) if source is not None else []


def _acts(ctx: click.Context, word: str) -> Iterable[Candidate]:
    """What goes on with an act of what-if: its verb, what it is about, a name of that."""
    given = list(ctx.params.get("words") or ())
    while "--and" in given:
        del given[: given.index("--and") + 1]
    if not given:
        return [(verb, "") for verb in _ACTS]
    verb, named = given[0], [w for w in given[1:] if not w.startswith("-")]
    if verb == "set":
        return [("toleration-seconds=", ""), *names.settings()]
    if verb == "delete" and named[:1] == ["pod"]:
        return names.ask(_connection(ctx), "pods", word)
    if named[:1] == ["link"]:
        named = named[1:]
    first = _ACTS.get(verb, ()) if len(given) == 1 else ()
    if verb == "lose" and given[1:] == ["link"]:
        first = ("node", "zone")
    if first:
        return [(kind, "") for kind in first]
    if named[:1] == ["zone"]:
        return _zones(ctx, word)
    return [node for node in _nodes(ctx, word) if node[0] not in named]


def _zones(ctx: click.Context, word: str) -> Iterable[Candidate]:
    """The zones, which are told as selectors of their nodes."""
    label = f"{LABEL_ZONE}="
    found = names.ask(_connection(ctx), "zones", label + word)
    return [(selector.removeprefix(label), said) for selector, said in found]


def _as_named(kind: str, found: Iterable[Candidate]) -> Iterable[Candidate]:
    return [(f"{kind}/{name}", said) for name, said in found]


def _without_given(
    ctx: click.Context, param: str, found: Iterable[Candidate]
) -> Iterable[Candidate]:
    given = set(ctx.params.get(param) or ())
    return [candidate for candidate in found if candidate[0] not in given]
