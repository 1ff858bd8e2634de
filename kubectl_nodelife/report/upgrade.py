"""The page of `upgrade status`: run, leader, gates, budgets, and a line for each node in work; and
those of `upgrade preview` and `options --profile`: what a release changes, what it defaults to.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial
from typing import Any, Final

import msgspec

from kubectl_nodelife.document import document
from kubectl_nodelife.engine.settings import Profile
from kubectl_nodelife.kube.names import counted, first_names
from kubectl_nodelife.kube.times import human_seconds
from kubectl_nodelife.outlook.releases import Applied, ReleasePreview, defaults
from kubectl_nodelife.report.formats import Block, Page, Table, Widths, columns
from kubectl_nodelife.report.terminal import BAD, GOOD, WARN, ColoredText, this_screen

_COLUMNS: Final = columns("node | pool | zone | state | since | left | try* | cordon* | because")
_BUDGET_COLUMNS: Final = columns("scope | nodes | available | at least | max out | slots")
_CHECK_COLUMNS: Final = columns("node | check | result | because | shows:1")
_SHOWN: Final = 5
_HIDDEN: Final = frozenset({"Waiting", "Skipped"})
_OVER: Final = ("Finished", "Aborted")
_RESULTS: Final = {"passed": GOOD, "waits": WARN}
_TONES: Final = {"Done": GOOD, "Failed": BAD, "Held": WARN, "Gone": WARN, "Unreadable": BAD}


def upgrade_status_page(status: dict[str, Any], *, named: bool = False) -> Page:
    """An UpgradeStatus document as an answer; names: node/NAME. `named`: of named nodes alone."""
    return Page(
        partial(_blocks, status, named),
        lambda: status,
        lambda: (f"node/{node['name']}" for node in status["nodes"]),
    )


def _blocks(status: dict[str, Any], named: bool, *, wide: bool) -> Iterator[Block]:
    """The run, what holds it, its nodes, their checks, and the budgets."""
    all_of_it = wide or named
    yield "\n".join(_answer(status))
    yield "\n".join(_details(status))
    nodes = [n for n in status["nodes"] if all_of_it or n["state"] not in _HIDDEN]
    yield Table(_COLUMNS, [_row(node) for node in nodes])
    if len(nodes) < len(status["nodes"]):
        hidden = len(status["nodes"]) - len(nodes)
        wait = "waits or is skipped" if hidden == 1 else "wait or are skipped"
        yield f"{counted(hidden, 'more node')} {wait} (-o wide shows them)"
    if all_of_it:
        checks = [_check(node["name"], check) for node in nodes for check in node["checks"]]
        yield Table(_CHECK_COLUMNS, checks)
    if not named:
        yield Table(_BUDGET_COLUMNS, [_budget(budget) for budget in status["budgets"]])
    yield "\n".join(f"not evaluated: {text}" for text in status["notEvaluated"])


class StatusFollower:
    """The news since the last look, for `status -w`: lines about the run, and a row for each
    node whose state, try or awaited check has changed. What changes by time alone is not shown.
    """

    def __init__(self, status: dict[str, Any], *, wide: bool) -> None:
        self._status, self._wide, self._widths = status, wide, Widths()

    def news(self, status: dict[str, Any]) -> str:
        """The new lines; "" for none."""
        before, self._status = self._status, status
        told, gates = set(_run_lines(before)), _gate_lines(_lasting(status))
        new = [f"{line}\n" for line in _run_lines(status) if line not in told]
        opened = [line for gate, line in _gate_lines(_lasting(before)).items() if gate not in gates]
        new += [f"no longer: {line}\n" for line in opened]
        were, are = _stages(before), _stages(status)
        changed = [n for n in status["nodes"] if are[n["name"]] != were.get(n["name"])]
        table = Table(_COLUMNS, [_row(node) for node in changed])
        new += table.lines(self._widths, wide=self._wide, screen=this_screen())
        return "".join(new)


def _stages(status: dict[str, Any]) -> dict[str, tuple[object, ...]]:
    """Of each node its state, its try, and the check that it waits for."""
    return {
        node["name"]: (node["state"], node.get("try"), node["because"].partition(":")[0])
        for node in status["nodes"]
    }


def _run_lines(status: dict[str, Any]) -> list[str]:
    """The words about the run, without what changes by time alone."""
    shown = _lasting(status)
    return [*_answer(shown), *_details(shown)]


def _lasting(status: dict[str, Any]) -> dict[str, Any]:
    """The status without what changes by time alone."""
    leader = {**status["leader"], "renewedSecondsAgo": None}
    gates = [{**gate, "toldSecondsAgo": None} for gate in status["gates"]]
    lasting = {**status, "leader": leader, "gates": gates, "holds": [], "counts": {}}
    return {**lasting, "estimate": None, "lowest": {"byPool": {}}}


def _answer(status: dict[str, Any]) -> Iterable[str]:
    """The run and why, how much is left, and what a person has to decide."""
    if not status["run"]:
        yield "No upgrade is under way, and the result of none is kept."
        return
    because = f": {status['because']}" if status["because"] else ""
    yield f"Run {status['run']} is {status['phase']}{because}{_asked(status['request'])}"
    if (estimate := status["estimate"]) is not None:
        yield _estimate(estimate, is_led=status["leader"]["alive"])
    elif status["counts"]:
        yield _counts(status["counts"])
    if asked := _asked_of_a_person(status):
        yield asked


def _asked(request: dict[str, Any] | None) -> str:
    """What is asked of the run's leader, which has not taken it up."""
    if request is None:
        return ""
    because = f" ({request['because']})" if request["because"] else ""
    return f"; {request['verb']} is asked for, and no leader has taken it up{because}"


def _asked_of_a_person(status: dict[str, Any]) -> str:
    """The nodes that wait for a person, with what to type; or that a run which is not over has no
    leader; "" for neither.
    """
    bad, is_over = _in_state(status, "Failed", "Held"), status["phase"] in _OVER
    if bad and is_over:
        return f"Left out of service: {first_names(bad, _SHOWN)}: kubectl nodelife upgrade clean"
    if bad:
        names = ",".join(bad) if len(bad) <= _SHOWN else "all"
        return (
            f"Decide on {first_names(bad, _SHOWN)}: kubectl nodelife upgrade resume --retry {names}"
            " (or --assume-done NODES: prove them as they are; --skip NODES: leave them out)"
        )
    return "" if is_over or status["leader"]["alive"] else _leader(status["leader"])


def _details(status: dict[str, Any]) -> Iterable[str]:
    """The leader, and what holds the run or was left out of it."""
    if not status["run"]:
        return
    leader = _leader(status["leader"])
    if status["phase"] not in _OVER and leader != _asked_of_a_person(status):
        yield leader
    if status["phase"] in ("Running", "Paused"):
        yield _step(status["step"])
    yield from _gate_lines(status).values()
    held: dict[str, list[str]] = {}
    for hold in status["holds"]:
        held.setdefault(hold["because"], []).append(hold["what"])
    for because, names in list(held.items())[:_SHOWN]:
        yield f"Waits: {first_names(names, _SHOWN)}: {because}"
    if skipped := [n for n in status["nodes"] if n["state"] == "Skipped"]:
        whose = [f"{node['name']} ({node['because']})" for node in skipped]
        yield f"Skipped: {first_names(whose, _SHOWN, '; ')}"
    bad = _in_state(status, "Failed", "Held")
    if gone := [name for name in status["failures"] if name not in bad]:
        yield f"Failed, and not there any more: {', '.join(gone)}"
    if status["counts"] and status["estimate"] is not None:
        yield _counts(status["counts"])
    for pool, low in status["lowest"]["byPool"].items():
        what = f"{low['available']} available at {low['at']}"
        yield f"Lowest so far in pool {pool or '(none)'}: {what}"


def _gate_lines(status: dict[str, Any]) -> dict[tuple[str, str], str]:
    """Each gate that holds the run and why -> the line that says so, and how old the news is."""
    lines = {}
    for gate in status["gates"] if status["run"] else ():
        if gate["because"] == status["because"]:
            continue  # a pause: the first line says it
        ago = gate["toldSecondsAgo"]
        reported = "" if ago is None else f" (reported {_span(ago)} ago)"
        line = f"Held by gate {gate['gate']}{reported}: {gate['because']}"
        lines[gate["gate"], gate["because"]] = line
    return lines


def _counts(counts: dict[str, int]) -> str:
    return "Nodes: " + ", ".join(f"{n} {state}" for state, n in counts.items())


def _in_state(status: dict[str, Any], *states: str) -> list[str]:
    """The nodes in these states, by name, state by state."""
    nodes = status["nodes"]
    return [node["name"] for state in states for node in nodes if node["state"] == state]


def _estimate(estimate: dict[str, Any], *, is_led: bool) -> str:
    spans = [_span(estimate[f"{end}Seconds"]) for end in ("expected", "low", "high")]
    told = "" if is_led else f" (foretold {_span(estimate['toldSecondsAgo'])} ago)"
    return (
        f"Left: {counted(estimate['nodes'], 'node')}, about {spans[0]} ({spans[1]} to {spans[2]})"
        f" from {estimate['from']}{told}; {estimate['assumptions'][0]}"
    )


def _step(step: dict[str, Any] | None) -> str:
    """Where the run's growth is."""
    if step is None:
        return "A proof alone: no node is drained or worked on"
    names, pool = ", ".join(step["nodes"]), f" of pool {step['pool']}" if step["pool"] else ""
    if step["window"] < 0:
        return "Before the first step: no node was claimed yet"
    if step["window"]:
        limit = counted(step["window"], "node")
        return f"Step {step['k']}{pool} takes {limit}: {names or 'none was chosen yet'}"
    return f"Steps are over{pool}: nodes are taken whenever the limits allow" + (
        f"; chosen: {names}" if names else ""
    )


def _leader(leader: dict[str, Any]) -> str:
    ago = leader["renewedSecondsAgo"]
    since = f" {_span(ago)} ago" if ago is not None else ""
    if not leader["holder"]:
        return f"No leader; the last one left{since}"
    if leader["alive"]:
        return f"Leader {leader['holder']}{f', renewed{since}' if since else ''}"
    return (
        f"No leader: {leader['holder']} {f'last renewed{since}' if since else 'renews no more'}."
        " The same `upgrade start` goes on"
    )


def _row(node: dict[str, Any]) -> tuple[object, ...]:
    deadline = node.get("deadlineSeconds")
    return (
        node["name"],
        node["pool"],
        node["zone"],
        _toned(node["state"], _TONES),
        _span(node.get("sinceSeconds")),
        _span(deadline) if deadline is None or deadline >= 0 else f"-{_span(-deadline)}",
        node.get("try", ""),
        node.get("cordon", ""),
        node["because"],
    )


def _check(name: str, check: dict[str, Any]) -> tuple[object, ...]:
    result = _toned(check["result"], _RESULTS)
    return (name, check["check"], result, check["because"], check["shows"])


def _toned(text: str, tones: dict[str, str]) -> str:
    return ColoredText(text, tones[text]) if text in tones else text


def _budget(budget: dict[str, Any]) -> tuple[object, ...]:
    keys = ("scope", "base", "available", "floor", "mostUnavailable", "slots")
    return tuple(budget[key] for key in keys)


def _span(seconds: int | None) -> str:
    return "" if seconds is None else human_seconds(seconds)


_CHANGE_COLUMNS = columns("release | program | area | change | concerns | names*")
_DEFAULTS = columns("name | default | of | locked*")
_NAMED = 3


def preview_page(shown: ReleasePreview) -> Page:
    """A `ReleasePreview` as an answer; its names are the objects that are concerned, each once."""
    return Page(
        partial(_preview, shown),
        shown.document,
        lambda: dict.fromkeys(name for applied in shown.changes for name in applied.names),
    )


def _preview(shown: ReleasePreview, *, wide: bool) -> Iterator[Block]:
    """How much changes, and each change that concerns something here."""
    yield headline(shown)
    yield Table(_CHANGE_COLUMNS, [_change_row(applied) for applied in shown.changes])


def _change_row(applied: Applied) -> tuple[str, ...]:
    change, names = applied.change, first_names(applied.names, _NAMED)
    concerns = names if names and len(applied.names) <= _NAMED else applied.concerns
    return (
        change.release,
        change.program,
        change.area,
        change.change,
        concerns,
        ", ".join(applied.names),
    )


def headline(shown: ReleasePreview) -> str:
    """How many of the changes apply."""
    beta = ", a beta that may still change" if shown.after.is_beta else ""
    way = f"from {shown.before.name} to {shown.after.name}{beta}"
    if not shown.changes:
        return f"Going {way}, nothing changes for what is here."
    many = counted(len(shown.changes), "change")
    concern = "concerns" if len(shown.changes) == 1 else "concern"
    rest = f"; {shown.elsewhere} more of these releases do not" if shown.elsewhere else ""
    return f"Going {way}, {many} {concern} what is here{rest}."


def defaults_page(profile: Profile) -> Page:
    """The flags and feature gates of a release with their defaults, flags first."""
    flags, gates = defaults(profile)

    def blocks(*, wide: bool) -> Iterator[Block]:
        beta = ", a beta" if profile.is_beta else ""
        yield f"What {profile.name}{beta} does where nobody says otherwise."
        rows = [(d.name, d.default or '""', d.program, d.locked) for d in (*flags, *gates)]
        yield Table(_DEFAULTS, rows)

    def made() -> object:
        both = {"flags": msgspec.to_builtins(flags), "featureGates": msgspec.to_builtins(gates)}
        return document("ReleaseDefaults", profile=profile.name, **both)

    return Page(blocks, made, lambda: (f"flag/{flag.name}" for flag in flags))
