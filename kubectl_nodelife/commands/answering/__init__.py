"""Answers that the daemon gives, or the command itself where no daemon runs: a module a question.
Each takes a `ClusterView` and the query as it comes over the socket, and makes the text, so that
the answer is the same from either. `for_daemon` registers them, `ask` calls them without one.

Here are the questions, a field for each flag; the query that carries one to a daemon, as words by
key; and the response's keys.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar, get_origin, get_type_hints

from kubectl_nodelife.errors import BadInput
from kubectl_nodelife.report import terminal
from kubectl_nodelife.report.formats import FORMATTERS, PARTS, Output
from kubectl_nodelife.report.terminal import LeadingFlags, Screen

if TYPE_CHECKING:
    from kubectl_nodelife.daemon.changes import ChangeFilter

Query = Mapping[str, list[str]]
T = TypeVar("T", bound=NamedTuple)

Response = dict[str, Any]
"""`text` for stdout, `warnings` and `note` for stderr, `inTrouble` for --exit-code."""


SUMMARY, NODES, STATUS, HISTORY, UNDO = "counts", "nodes", "status", "history", "undo"
QUESTION = "daemonset"
"""The daemon's name for all of them; one of the five words says which."""


class StatusQuestion(NamedTuple):
    """Which nodes of `status`, in which order, and with which columns of labels. `fields`: a field
    selector; `most`: so many are shown, 0 for all.
    """

    node: tuple[str, ...] = ()
    selector: str = ""
    fields: str = ""
    label: tuple[str, ...] = ()
    labels: bool = False
    sort: str = ""
    trouble: bool = False
    most: int = 0


class SetQuestion(NamedTuple):
    """What of which DaemonSets. `about`: one of the five words. `namespace` "": all; `name` "": all
    sets, or those that `selector` chooses; `revision` 0: none; `timeout`: seconds to watch, 0 for
    ever.
    """

    about: str = ""
    namespace: str = ""
    name: str = ""
    selector: str | None = None
    revision: int = 0
    timeout: float = 0


class ExplainQuestion(NamedTuple):
    """Of which object; `taint`: what it would do. `more`: the daemon may list what it does not
    watch.
    """

    kind: str = ""
    namespace: str = ""
    name: str = ""
    taint: str = ""
    more: bool = False


class ChangesQuestion(NamedTuple):
    """Which changes; "" and None do not restrict. `node`: the node and its pods; `namespace` goes
    with `pod`; `since` and `until`: ns before now.
    """

    outcome: str = ""
    node: str = ""
    namespace: str = ""
    pod: str = ""
    since: int | None = None
    until: int | None = None

    @property
    def one_pod(self) -> tuple[str, str] | None:
        """Namespace and name of the pod that is meant; None: all."""
        return (self.namespace, self.pod) if self.pod else None

    def chosen(self, now_ns: int) -> ChangeFilter:
        """The choice of a journal whose clock shows `now_ns`."""
        from kubectl_nodelife.daemon.changes import ChangeFilter

        return ChangeFilter(
            since_ns=None if self.since is None else now_ns - self.since,
            outcome=self.outcome,
            node=self.node,
            pod=self.one_pod,
            until_ns=None if self.until is None else now_ns - self.until,
        )


class QuestionFlags(NamedTuple):
    """The flags of `what-if` as given: how far to look, at what, what exit code 4 stands for."""

    until: str | None = None
    each: str | None = None
    late: str = "silent"
    exit_code: bool = False
    fail_on: str = ""
    ignored: tuple[str, ...] = ()
    why: tuple[str, ...] = ()
    enforced: bool = False
    jobs: int | None = None

    def until_ns(self) -> int | None:
        """The horizon; None where none is given. Raises BadInput."""
        if self.until is None:
            return None
        from kubectl_nodelife.commands.flags import duration_ns
        from kubectl_nodelife.kube.times import SECOND_NS

        until_ns = duration_ns(self.until, "--until")
        if not SECOND_NS <= until_ns <= 24 * 3600 * SECOND_NS:
            raise BadInput(f"{self.until} is not between 1s and 24h", on="--until")
        return until_ns

    def conditions(self) -> list[str]:
        """The words of --fail-on. Raises BadInput."""
        from kubectl_nodelife.outlook.what_if import CONDITIONS

        words = [word.strip() for word in self.fail_on.split(",") if word.strip()]
        for word in words:
            if word not in CONDITIONS:
                remedy = f"known: {', '.join(CONDITIONS)}"
                raise BadInput(f"no {word!r}", on="--fail-on", remedy=remedy)
        return [*words, *(["zero", "drain"] if self.exit_code else [])]


class ActsFile(NamedTuple):
    """A file of acts for `what-if`: its name, and the events in it as they are written."""

    name: str
    events: list[Any]


def asked(question: NamedTuple, output: Output) -> dict[str, Any]:
    """The query of a question whose answer is shown so."""
    return {**question._asdict(), **output.query()}


def as_sent(query: Mapping[str, Any]) -> Query:
    """The query as the daemon gets it: every value as words, None and "" left out."""
    sent: dict[str, list[str]] = {}
    for key, value in query.items():
        values = value if isinstance(value, (list, tuple)) else (value,)
        words = [_word(v) for v in values if v is not None and v != ""]
        if words:
            sent[key] = words
    return sent


def _word(value: object) -> str:
    return ("true" if value else "false") if isinstance(value, bool) else str(value)


def word(query: Query, key: str) -> str:
    """The last word given for the key, "" for none."""
    values = query.get(key)
    return values[-1] if values else ""


def lead_to_asker(query: Query) -> None:
    """Let the commands of the answer lead to the cluster by the flags of the one who asks; by the
    daemon's own where it is a page, which says none."""
    if text := word(query, "leading"):
        terminal.choose_leading_flags(LeadingFlags.of_query(text))


def number(query: Query, key: str) -> int:
    """The last whole number given for the key, 0 for none. Raises BadInput."""
    text = word(query, key)
    if text and not (text.removeprefix("-").isdecimal() and text.isascii() and len(text) < 20):
        raise BadInput(f"{text[:40]!r} is not a whole number", on=key)
    return int(text or 0)


def flags_of(query: Query, flags: type[T]) -> T:
    """The flags that the query has by `_asdict()`, else their defaults. Raises BadInput."""
    import msgspec

    types = get_type_hints(flags)
    given = dict(flags._field_defaults)
    for field in flags._fields:
        if field in query:
            several = get_origin(types[field]) is tuple
            value = query[field] if several else word(query, field)
            try:
                given[field] = msgspec.convert(value, types[field], strict=False)
            except msgspec.ValidationError as error:
                raise BadInput(f"the daemon cannot read it: {error}", on=field) from None
    return flags._make(given[field] for field in flags._fields)


def output_of(query: Query) -> Output:
    """How the answer is to be shown, as a table where nothing is said. Raises BadInput."""
    output = word(query, "output") or "table"
    if output not in FORMATTERS and output not in PARTS:
        raise BadInput(f"the daemon does not know the format {output!r}", on="--output")
    screen = Screen(number(query, "width"), word(query, "color") == "true")
    return Output(output, word(query, "headers") != "false", screen)
