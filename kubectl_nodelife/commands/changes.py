"""`kubectl nodelife changes`: what the daemon would have changed, with reasons, and how it ended;
of a dump, what was changed and by whom.

What a controller does alike to many objects, without a long pause, is one line, and the newest
stand first; `-o wide` has a line for each change, in order of time.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from functools import partial
from typing import Any, Final

import click

from kubectl_nodelife.commands import ask, flags
from kubectl_nodelife.commands.answering import ChangesQuestion
from kubectl_nodelife.commands.several_clusters import several_clusters
from kubectl_nodelife.document import document
from kubectl_nodelife.errors import BadInput
from kubectl_nodelife.kube.names import counted, first_names, shown_object
from kubectl_nodelife.report import terminal
from kubectl_nodelife.report.formats import Block, Column, Page, Table, Widths, columns
from kubectl_nodelife.report.terminal import ENDLESS, Screen, this_screen

_COLUMNS = columns(
    "time | outcome | settled* | controller* | action | object | detail | reason:1 | id* | cause*"
)
_ONE_LINE = columns(
    "time | outcome | settled* | controller* | action | object | detail:1 | reason:2 | id* | cause*"
)
"""Of a page that is drawn each second: a change is one line, whatever gives way for it."""

_BY = Column("by")
_PREFIX = "node.kubernetes.io/"
_NOT_KNOWN = "not known"
_OUTCOMES = {
    "would": "planned (would)",
    "confirmed": "confirmed by the cluster",
    "decided": "decided, of which a cluster shows nothing",
}
_DAY = len("2026-11-21T")
_NAMED = 2
_OF_GROUPS = ("time", "settled", "object", "detail", "reason")
_MOST_LINES = 17
"""So many lines of a terminal the table takes, which leaves the page 25 with what stands around."""
_PAUSE_S = 10.0
"""So soon the next of its kind must follow to stand in one line: kube-controller-manager's clients
make twenty requests a second, and one pod that is marked or evicted takes up to three."""


def changes_page(
    items: Sequence[dict[str, Any]],
    source: dict[str, Any],
    *,
    briefly: bool = False,
    screen: Screen = ENDLESS,
) -> Page:
    """A list of changes as an answer. Names: kind/name of each object, as often as it changed.

    `briefly`: instants are shown to the second, as on a screen that is drawn each second.
    `screen`: of what is older only as much is shown as has room on this one.
    """
    return Page(
        partial(_blocks, items, briefly, screen),
        lambda: document("ChangeList", source=source, items=list(items)),
        lambda: (shown_object(item["object"]).lower() for item in items),
    )


def _blocks(
    items: Sequence[dict[str, Any]], briefly: bool, screen: Screen, *, wide: bool
) -> Iterator[Block]:
    """How many of which outcome, and the last; then one table: of writes that were seen, with
    whose they are."""
    if items:
        yield _headline(items)
    if briefly:
        items = [{**item, **_to_the_second(item)} for item in items]
    days = {item["time"][:_DAY] for item in items}
    begin = 0 if len(days) > 1 else _DAY
    grouped = not (wide or briefly)
    groups = _alike(items)[::-1] if grouped else [[item] for item in items]
    rows = [_group_row(group, begin) if grouped else _row(group[0], begin) for group in groups]
    if any("by" in item for item in items):
        whose = [group[0]["by"]["name"] for group in groups]
        rows = [[*row[:2], by, *row[2:]] for row, by in zip(rows, whose, strict=True)]
        table = Table((*_COLUMNS[:2], _BY, *_COLUMNS[2:]), rows)
    else:
        table = Table(_ONE_LINE if briefly else _COLUMNS, rows)
    if grouped and screen.width:
        table = _newest(table, screen)
    yield table
    if older := groups[len(list(table.rows)) :]:
        many = counted(sum(len(group) for group in older), "older change")
        yield f"{many} in {counted(len(older), 'line')}: -v 1 shows all"
    elif len(rows) < len(items):
        yield f"{len(items)} changes in {len(rows)} lines (-o wide has a line for each)"


def _newest(table: Table, screen: Screen) -> Table:
    """As many of its first rows as have room, and at least one."""
    rows = list(table.rows)[:_MOST_LINES]
    while len(rows) > 1 and table._replace(rows=rows).text(screen=screen).count("\n") > _MOST_LINES:
        rows = rows[:-1]
    return table._replace(rows=rows)


def _headline(items: Sequence[dict[str, Any]]) -> str:
    """How many changes, from when to when, what came of them, and the last one."""
    counts: dict[str, int] = {}
    for item in items:
        counts[item["outcome"]] = counts.get(item["outcome"], 0) + 1
    by_time = sorted(items, key=lambda item: str(item["time"]))
    last = by_time[-1]
    begin, end = _clock(by_time[0]["time"]), _clock(last["time"])
    which = ", ".join(f"{count} {_OUTCOMES.get(name, name)}" for name, count in counts.items())
    many = "1 change was" if len(items) == 1 else f"{len(items)} changes were"
    when = f"at {begin}" if begin == end else f"from {begin} to {end}"
    doer = last["by"]["name"] if "by" in last else last["controller"]
    whose = "The last, by whom is not known" if doer == _NOT_KNOWN else f"The last is of {doer}"
    details = first_names(list(_detail(last["action"], last["detail"])), _NAMED)
    what = f"{last['action']} {details}".rstrip()
    return (
        f"{many} seen or planned {when}: {which}.\n{whose}: {what}, {shown_object(last['object'])}."
    )


def _to_the_second(item: dict[str, Any]) -> dict[str, str]:
    """Its instants without a fraction."""
    times = {key: str(item.get(key, "")) for key in ("time", "settledTime")}
    return {k: f"{t.partition('.')[0]}Z" if "." in t else t for k, t in times.items()}


def _row(item: dict[str, Any], begin: int) -> list[object]:
    """`begin`: where in an instant that what is shown of it begins: the day, or the time."""
    return [
        _clock(item["time"])[begin:],
        item["outcome"],
        _clock(item.get("settledTime", ""))[begin:],
        item["controller"],
        _action(item),
        shown_object(item["object"]),
        ",".join(_detail(item["action"], item["detail"])),
        item["reason"],
        item["id"],
        item["cause"],
    ]


def _action(item: dict[str, Any]) -> str:
    """The action, and of an Event how often it came."""
    count = item.get("count") or 1
    return f"{item['action']} (x{count})" if count > 1 else str(item["action"])


def _alike(items: Sequence[dict[str, Any]]) -> list[list[dict[str, Any]]]:
    """The changes that stand in one line each, in the order in which the first of each came."""
    groups: list[list[dict[str, Any]]] = []
    open_groups: dict[tuple[object, ...], list[dict[str, Any]]] = {}
    for item in items:
        by = item["by"]["name"] if "by" in item else ""
        action, kind = item["action"], item["object"]["kind"]
        key = (item["outcome"], item["controller"], action, by, kind)
        group = open_groups.get(key)
        if group is None or _seconds_between(group[-1], item) >= _PAUSE_S:
            group = open_groups[key] = []
            groups.append(group)
        group.append(item)
    return groups


def _seconds_between(one: Mapping[str, Any], other: Mapping[str, Any]) -> float:
    first, second = (datetime.fromisoformat(str(each["time"])) for each in (one, other))
    return (second - first).total_seconds()


def _group_row(group: Sequence[dict[str, Any]], begin: int) -> list[object]:
    """The row of changes that are alike: from when to when, which objects, the first reason."""
    row, last = _row(group[0], begin), _row(group[-1], begin)
    headers = [column.header.lower() for column in _COLUMNS]
    time, settled, which, detail, reason = map(headers.index, _OF_GROUPS)
    for at in (time, settled):
        if row[at] != last[at]:
            row[at] = f"{row[at]} to {last[at]}"
    objects = dict.fromkeys(shown_object(each["object"]) for each in group)
    row[which], row[detail] = first_names(list(objects), _NAMED), _group_detail(group)
    if any(each["reason"] != row[reason] for each in group):
        row[reason] = f"{row[reason]} (and alike)"
    return row


def _group_detail(group: Sequence[dict[str, Any]]) -> str:
    """The first details of changes that are alike, each once; of what is due from when to when."""
    if any("due" in item["detail"] for item in group):
        spans = [next(iter(_detail(item["action"], item["detail"]))) for item in group]
        return " to ".join(dict.fromkeys((spans[0], spans[-1])))
    if group[0]["action"] == "RecordEvent":  # whose messages name each object once more
        details = [str(item["detail"].get("reason", "")) for item in group]
    else:
        details = [text for item in group for text in _detail(item["action"], item["detail"])]
    return first_names(list(dict.fromkeys(details)), _NAMED)


def _clock(time: str) -> str:
    """The instant to the millisecond, as far as it has them: `2026-11-21T14:43:50.123Z`."""
    whole, dot, fraction = time.partition(".")
    milliseconds = fraction[:3].strip("0Z") and fraction[:3]
    return f"{whole}.{milliseconds}Z" if milliseconds else f"{whole}Z" if dot else time


_CONDITIONS = ("SetNodeCondition", "SetPodCondition", "MarkPodNotReady")


def _detail(action: str, detail: dict[str, Any]) -> Iterable[str]:
    """The detail in as few words as possible."""
    if action in ("AddTaint", "RemoveTaint"):
        value = f"={detail['value']}" if detail.get("value") else ""
        yield f"{detail['key'].removeprefix(_PREFIX)}{value}:{detail['effect']}"
    elif action in _CONDITIONS and "type" in detail:
        reason = f" ({detail['reason']})" if detail.get("reason") else ""
        yield f"{detail['type']}={detail['status']}{reason}"
    elif action == "SetZoneState":
        yield f"{detail['from']} to {detail['to']} at {detail['rate']:g}/s"
    else:
        for key, value in detail.items():
            if key == "due":
                yield f"due {_clock(value)}"
            elif key == "told":
                yield value
            elif not isinstance(value, (list, dict)):
                yield f"{key}={value}"


OUTCOMES = (
    *("would", "applied", "confirmed", "decided", "superseded", "failed", "held", "sent"),
    "attempted",
)


_AHEAD_NS: Final = 5 * 10**9
"""Clocks of kubelets and of the server differ a little."""


@click.command()
@click.argument("subject", nargs=-1, metavar="[NODE | pod NAME]")
@click.option("-w", "--watch", is_flag=True, help="Go on: each change as it comes and ends.")
@click.option("--since", metavar="DURATION", help="Only what was decided since, such as 10m.")
@click.option(
    "--outcome", type=click.Choice(OUTCOMES), metavar="WORD", help=f"One of {', '.join(OUTCOMES)}."
)
@flags.output_flags("table", "wide", "json", "yaml", "name", "markdown")
@flags.where_flags()
@several_clusters()
def changes(
    subject: tuple[str, ...],
    watch: bool,
    since: str | None,
    outcome: str | None,
    output: flags.Output,
    where: flags.Where,
) -> None:
    """Say what the controllers would change, or have changed, when, why, and how it ended.

    `would`: planned, and the cluster does not show it; `confirmed`: the cluster shows it, done by
    another; `decided`: a timer was set, a node queued, and what follows is confirmed;
    `superseded`: overtaken by something else; `applied`, `failed`, `held`: of what was written, by
    an enforcing daemon or by `repair`, `daemonset undo` and `drain`. With -f: what the dump's
    Events, managedFields and conditions tell was done to nodes and pods, and by whom.

    \b
    Examples:
      kubectl nodelife changes --since 10m
      kubectl nodelife changes -w
      kubectl nodelife changes node worker-1 --outcome would
      kubectl nodelife changes pod web-0 -n shop -o json
      kubectl nodelife changes node worker-1 -f must-gather.tar.gz
    """
    where.check()
    connection = where.connection
    node, namespace, pod = ask.node_or_pod(subject, where)
    since_ns = flags.duration_ns(since, "--since") if since else None
    question = ChangesQuestion(outcome or "", node, namespace, pod, since_ns)
    if where.filename:
        _of_dump(where, question, watch, output)
        return
    if watch:
        _watch(connection, question, output)
        return
    kept = ask.kept_changes(connection, question)
    if kept["source"]["kind"] is None:
        if not kept["acts"]:
            raise ask.no_daemon()
        kept["source"]["kind"] = "journal"
    terminal.warn(*kept["warnings"])
    items = sorted([*kept["items"], *kept["acts"]], key=lambda item: str(item["time"]))
    _show(items, kept["source"], output)


def _show(items: list[dict[str, Any]], source: dict[str, Any], output: flags.Output) -> None:
    if not items:
        terminal.note("No changes found")
        if output.format in ("table", "wide", "name", "markdown"):
            return
    cut = output.format == "table" and not terminal.is_verbose()
    output.show(changes_page(items, source, screen=this_screen() if cut else ENDLESS))


def _of_dump(
    where: flags.Where, question: ChangesQuestion, watch: bool, output: flags.Output
) -> None:
    """Show the changes in a dump. Raises BadInput."""
    if watch:
        raise BadInput("a dump does not change", on="--watch", remedy="leave -w away, or -f")
    answer = changes_of_dump(where.filename, where.now, question)
    terminal.warn(*answer["warnings"])
    _show(answer["items"], answer["source"], output)


def _watch(connection: flags.Connection, question: ChangesQuestion, output: flags.Output) -> None:
    ask.refuse_whole_documents(output.format)
    if output.format in ("table", "wide") and this_screen().width:
        ask.draw_each_second(lambda: _drawn(connection, question, output), newest_last=True)
    answers = ask.follow(connection, "changes", **question._asdict())
    if answers is None:
        raise ask.no_daemon()
    widths = Widths(headers=output.headers)
    for answer in ask.for_ever(answers):
        terminal.warn(*answer.get("warnings", ()))
        items = answer["items"]
        if output.format == "json":
            lines = (terminal.json_line(document("Change", **item)) for item in items)
            terminal.write("".join(lines))
        elif output.format == "name":
            terminal.write("".join(f"{name}\n" for name in changes_page(items, {}).names()))
        else:
            table, wide = Table(_COLUMNS, [_row(i, _DAY) for i in items]), output.format == "wide"
            terminal.write("".join(table.lines(widths, wide=wide, screen=this_screen())))
        terminal.flush()


def _drawn(
    connection: flags.Connection, question: ChangesQuestion, output: flags.Output
) -> dict[str, Any] | None:
    """The changes as they stand now, each on one line."""
    answer = ask.ask(connection, "changes", **question._asdict())
    if answer is None:
        return None
    items = sorted(answer["items"], key=lambda item: str(item["time"]))
    text = output.render(changes_page(items, {}, briefly=True)) if items else "No changes yet"
    return {"text": text, "warnings": answer.get("warnings", ())}


def changes_of_dump(
    filename: Sequence[str], now: str | None, question: ChangesQuestion
) -> dict[str, Any]:
    """The answer that a daemon would give: items, source, warnings.

    `since` is counted back from the dump's moment. Raises BadInput.
    """
    from kubectl_nodelife.commands.answering.replay import traces_of_dump
    from kubectl_nodelife.outlook.replay.lines import changes_seen
    from kubectl_nodelife.outlook.replay.timeline import ReplayFilter, timeline

    traces = traces_of_dump(filename, now)
    since_ns = 0 if question.since is None else traces.now_ns - question.since
    until_ns = traces.now_ns + _AHEAD_NS
    wanted = ReplayFilter(since_ns, until_ns, question.node, question.one_pod)
    items = changes_seen(timeline(traces.sources, wanted))
    chosen = [item for item in items if question.outcome in ("", item["outcome"])]
    return {"items": chosen, "source": traces.source, "warnings": traces.warnings}
