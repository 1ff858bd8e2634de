"""Judges whether the cluster's controllers diverge from our copy: findings, one sentence, and the
document of `diverge`.

The sentence names the most likely explanation. Where writes are missing it is, in this order: the
process does nothing (its lease says so, or nothing is written at all), one controller does nothing
while others do, and before either is likely, only that a write is due.

Of what other writers did to nodes, one thing is a difference: only the node lifecycle controller
sets its taints, so that one added or removed by another writer, which the node's conditions do not
ask for, is reported as one. Everything else (other taints, cordons, drains, deleted nodes) is
allowed and reported as a note, because it explains what the controllers do next.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

from kubectl_nodelife.document import document
from kubectl_nodelife.engine.pace import FLAG
from kubectl_nodelife.kube import times
from kubectl_nodelife.kube.names import counted
from kubectl_nodelife.kube.wellknown import CONTROLLER_MANAGERS, NO_EXECUTE, NO_SCHEDULE
from kubectl_nodelife.outlook.diverge import observations, overdue
from kubectl_nodelife.outlook.diverge.setting_estimates import (
    A_SECOND,
    DEFAULT_GRACES_NS,
    GRACE,
    RATE,
    SECONDARY_RATE,
    guesses,
    value_text,
)
from kubectl_nodelife.outlook.replay.replay_line import of_manager, owner_of_taint

AGREES, DIFFERS, NOT_EVALUATED = "agrees", "differs", "not-evaluated"

# Ours -> the name that --controllers takes
UPSTREAM_NAMES: Final = {
    "node-lifecycle": "node-lifecycle-controller",
    "taint-eviction": "taint-eviction-controller",
    "pod-gc": "pod-garbage-collector-controller",
}

_ORDER: Final = (
    observations.STALLED,
    observations.DISABLED,
    observations.SETTINGS,
    observations.MISSING,
    observations.LATE,
    observations.EARLY,
    observations.EXTRA,
)


_LEASE: Final = ("Lease", "kube-system", observations.MANAGER)
_ACTIONS: Final = {
    observations.TAINTED: "AddTaint",
    observations.UNTAINTED: "RemoveTaint",
    observations.CORDONED: "Cordon",
    observations.REMOVED: "DeleteNode",
    observations.DRAINED: "EvictPod",
}


def divergence_judgement(record: observations.Observations, now_ns: int) -> observations.Judgement:
    """Hold our copy's record against the cluster's, as of now."""
    blind, guessed = record.blind(), guesses(record)
    count = overdue.due_writes(record, now_ns, _delays(guessed))
    lags = () if blind else count.lags
    recent = tuple(lag for lag in lags if lag.due_ns + lag.lag_ns >= record.since_ns)
    differences = [
        *_of_the_manager(record, recent, now_ns),
        *(_of_guess(guess) for guess in guessed if not guess.fits),
        *_of_lags(recent),
        *record.reported,
        *others(record),
        *_of_leaders(record),
    ]
    differences.sort(key=lambda f: (f.note, _rank(f), -(f.seen_ns or f.expected_ns or 0)))
    verdict = DIFFERS if any(not f.note for f in differences) else AGREES
    if verdict == AGREES and (blind or not record.evaluated):
        verdict = NOT_EVALUATED
    return observations.Judgement(
        verdict=verdict,
        because=_because(record, verdict, differences, count),
        findings=tuple(differences),
        guesses=guessed,
        expected=count.in_time,
        open=count.open,
        not_evaluated=(*[f"nothing is judged now: {blind}"] * bool(blind), *record.not_evaluated),
    )


def _rank(finding: observations.Divergence) -> int:
    return _ORDER.index(finding.kind) if finding.kind in _ORDER else len(_ORDER)


def _delays(guessed: Iterable[observations.SettingEstimate]) -> overdue.SettingDelays:
    """By how much the estimated settings make writes later than the assumed ones do."""
    grace_ns, token_ns, qps = 0, None, None
    for guess in guessed:
        if guess.flag == GRACE and not guess.fits:
            grace_ns = max(0, round(guess.likely - guess.assumed))
        elif guess.flag in (RATE, SECONDARY_RATE) and not guess.fits:
            token_ns = round(times.SECOND_NS / guess.likely)
        elif guess.flag == FLAG and not guess.fits:
            qps = guess.likely
    return overdue.SettingDelays(grace_ns, token_ns, qps)


# What does nothing


def _of_the_manager(
    record: observations.Observations, lags: Sequence[overdue.OverdueWrite], now_ns: int
) -> Iterator[observations.Divergence]:
    """STALLED or DISABLED: what the lease and the silence say of the process and its parts."""
    waiting = list(overdue.still_open(lags))
    due_ns = overdue.earliest(waiting)
    if record.blind() or (record.lease.error and not _would_be_noticed(record, due_ns)):
        return
    stale_ns = record.lease.stale_ns()
    contradicted = (record.last_write_ns or 0) > record.lease.renewed_ns + record.lease.duration_ns
    if stale_ns is not None and not contradicted:
        holder = f", held by {record.lease.holder}" if record.lease.holder else ""
        why = f"(not renewed for {_for(stale_ns)}{holder})"
        yield _stalled(record, waiting, now_ns, why, observations.CERTAIN)
    elif due_ns is not None:
        if record.lease.error and _all_silent(record, _by_no_rate(waiting), now_ns):
            why = f"(its Lease gives no answer: {record.lease.error})"
            yield _stalled(record, waiting, now_ns, why, observations.LIKELY)
        else:
            yield from _silent_controllers(record, waiting, now_ns)


def _by_no_rate(waiting: Iterable[overdue.OverdueWrite]) -> list[overdue.OverdueWrite]:
    """Those that no eviction rate holds back: a zone whose rate is lower, or 0, than is assumed
    waits with its taints while the controller is at work.
    """
    return [
        lag
        for lag in waiting
        if lag.write.action != "AddTaint" or not lag.write.what.endswith(NO_EXECUTE)
    ]


def _all_silent(
    record: observations.Observations, waiting: Sequence[overdue.OverdueWrite], now_ns: int
) -> bool:
    """True if no controller at all wrote since one of these was due, for longer than other settings
    explain; in a dump, if none was at work when the first of them was.
    """
    dues = [lag.due_ns for lag in waiting]
    if record.one_moment:
        return bool(dues) and not _wrote(record, record.last_write_ns, min(dues))
    last_ns, patience_ns = record.last_write_ns or 0, _patience_ns(record)
    return any(now_ns - due_ns > patience_ns and last_ns < due_ns for due_ns in dues)


def _patience_ns(record: observations.Observations) -> int:
    """So long a silence may last that is due to settings other than those assumed."""
    return max(record.assumed.grace_ns, DEFAULT_GRACES_NS[0])


def _wrote(record: observations.Observations, last_ns: int | None, due_ns: int) -> bool:
    """True if what wrote last at `last_ns` was at work when that was due: in the pass, which may
    begin a period before ours, that should have made that write too, or later.
    """
    return last_ns is not None and last_ns >= due_ns - record.assumed.period_ns - overdue.LATENCY_NS


def _would_be_noticed(record: observations.Observations, since_ns: int | None) -> bool:
    """True if a manager that works since then would have been noticed, though its lease says
    nothing. In a dump it would where it wrote before, and others wrote since then.
    """
    if not record.one_moment:
        return True
    wrote, since_others_ns = record.last_write_ns is not None, record.last_sign_of_others_ns or 0
    return wrote and since_ns is not None and since_others_ns > since_ns


def _stalled(
    record: observations.Observations,
    waiting: Sequence[overdue.OverdueWrite],
    now_ns: int,
    why: str,
    sure: str,
) -> observations.Divergence:
    writes = sum(1 + lag.follow for lag in waiting)
    due_ns = overdue.earliest(waiting)
    if due_ns is None:
        message = f"kube-controller-manager is stopped or has lost its lease {why}; nothing is due"
    else:
        since_ns = record.last_write_ns or record.watched_since_ns(now_ns)
        were = "1 was" if writes == 1 else f"{writes} were"
        silent = {lag.write.controller for lag in waiting}
        or_else = ""
        if sure != observations.CERTAIN and len(silent) == 1:
            or_else = f", or {silent.pop()} alone is disabled or stuck"
        message = (
            f"kube-controller-manager has made no write for {_for(now_ns - since_ns)} while "
            f"{were} due: it is stopped or has lost its lease{or_else} {why}"
        )
    return observations.Divergence(
        *(observations.STALLED, *_LEASE, message, sure),
        count=max(1, writes),
        expected_ns=due_ns,
        because="; ".join(dict.fromkeys(lag.write.because for lag in waiting[:3])),
        seen_ns=record.last_write_ns,
    )


def _silent_controllers(
    record: observations.Observations, waiting: Sequence[overdue.OverdueWrite], now_ns: int
) -> Iterator[observations.Divergence]:
    """Controllers that wrote nothing since they should, for longer than other settings explain."""
    for name in dict.fromkeys(lag.write.controller for lag in waiting):
        mine = [lag for lag in waiting if lag.write.controller == name]
        due_ns = overdue.earliest(_by_no_rate(mine)) or now_ns
        wrote = _wrote(record, record.last_writes.get(name), due_ns)
        patience = _patience_ns(record) + (overdue.GC_NS if name == observations.POD_GC else 0)
        if wrote or now_ns - due_ns <= patience:
            continue
        upstream = UPSTREAM_NAMES.get(name, name)
        alive = f"its lease is renewed by {record.lease.holder}"
        if record.lease.error:
            alive = "others of its controllers write"
        writes = sum(1 + lag.follow for lag in mine)
        message = (
            f"{name} has made no write for {_for(now_ns - due_ns)} while {writes} "
            f"{'was' if writes == 1 else 'were'} due, but kube-controller-manager runs ({alive}): "
            f"{name} is disabled (--controllers=-{upstream}) or stuck"
        )
        yield observations.Divergence(
            *(observations.DISABLED, "Controller", "", name, message, observations.LIKELY),
            controller=name,
            count=writes,
            expected_ns=due_ns,
            because=mine[0].write.because,
        )


# Settings, writes, leaders


def _of_guess(guess: observations.SettingEstimate) -> observations.Divergence:
    likely, assumed = (value_text(guess.flag, value) for value in (guess.likely, guess.assumed))
    words = {observations.POSSIBLE: "may be", observations.LIKELY: "is likely"}
    word = words.get(guess.sure, "is")
    message = f"{guess.flag} {word} {likely} (we assume {assumed}): {guess.seen}"
    return observations.Divergence(
        *(observations.SETTINGS, "Flag", "", guess.flag, message, guess.sure),
        detail=f"{likely} instead of {assumed}",
        count=guess.samples,
    )


def _of_lags(lags: Iterable[overdue.OverdueWrite]) -> Iterator[observations.Divergence]:
    """One finding for each kind of write and node; pods of a node together."""
    alike: dict[tuple[str, ...], list[overdue.OverdueWrite]] = {}
    for lag in lags:
        write = lag.write
        where = write.name if write.kind == "Node" else f"{write.node} "
        key = (lag.state, write.controller, write.action, write.what, where)
        alike.setdefault(key, []).append(lag)
    for group in alike.values():
        yield _of_group(sorted(group, key=lambda lag: (lag.due_ns, lag.write.id)))


def _of_group(group: Sequence[overdue.OverdueWrite]) -> observations.Divergence:
    first = group[0]
    write, count = first.write, len(group)
    lag_ns = max(lag.lag_ns for lag in group)
    what = f"{write.action} {write.what}".strip()
    where = f"{write.namespace}/{write.name}".removeprefix("/")
    where = f"{count} pods of {write.node}" if count > 1 else where
    match first.state:
        case "open":
            message = f"{what} on {where} is due for {_for(lag_ns)} and has not come"
            more = sum(lag.follow for lag in group)
            message += f"; {more} more {'depends' if more == 1 else 'depend'} on it" if more else ""
        case "never":
            message = f"{what} on {where} was due for {_for(lag_ns)}, and never came"
        case _:
            message = f"{what} on {where} came {_for(lag_ns)} after it was due"
    came = first.state == overdue.CAME
    kind = observations.LATE if came else observations.MISSING
    return observations.Divergence(
        *(kind, write.kind, write.namespace, write.name, message, observations.LIKELY),
        node=write.node,
        count=count,
        controller=write.controller,
        action=write.action,
        detail=write.what,
        expected_ns=first.due_ns,
        because=write.because,
        seen_ns=write.settled_ns if came else None,
    )


def _of_leaders(record: observations.Observations) -> Iterator[observations.Divergence]:
    for at_ns, holder in record.leaders:
        if at_ns >= record.since_ns:
            message = (
                f"{holder or 'no process'} leads now: a new leader gives every node a fresh grace "
                "period, and takes off the NoExecute taints of all that it finds"
            )
            yield observations.Divergence(
                *(observations.RESTARTED, *_LEASE, message, observations.CERTAIN),
                note=True,
                detail=holder,
                seen_ns=at_ns,
            )


def _because(
    record: observations.Observations,
    verdict: str,
    differences: Sequence[observations.Divergence],
    count: overdue.DueWrites,
) -> str:
    """The summary sentence."""
    notes = sum(f.note for f in differences)
    others_did = f"; {counted(notes, 'note')} on others" if notes else ""
    if verdict == NOT_EVALUATED:
        why = record.blind() or "none of the controllers can be followed"
        return f"nothing was evaluated: {why}"
    if verdict == DIFFERS:
        first, *rest = (f for f in differences if not f.note)
        return first.message + (f" (and {len(rest)} more)" if rest else "")
    if count.in_time:
        writes = counted(count.in_time, "write")
        return f"the controllers do what our copy does: {writes} came when due{others_did}"
    if record.one_moment:
        return f"nothing that was due is undone; {_manager_runs(record.lease)}{others_did}"
    return f"nothing differs; no write was due{others_did}"


def _manager_runs(lease: observations.LeaseObservation) -> str:
    """Whether the manager is alive, where nothing is due; a Lease that ran out is a finding."""
    unknown = lease.error or ("" if lease.holder else "nobody holds its Lease")
    if unknown:
        return f"whether kube-controller-manager runs is not known: {unknown}"
    return f"kube-controller-manager runs: {lease.holder} renews its Lease"


def _for(span_ns: int) -> str:
    """A span of time in whole seconds, or finer where it is short."""
    step = times.SECOND_NS if span_ns >= 10 * times.SECOND_NS else 100 * times.MILLISECOND_NS
    return times.format_duration(max(0, span_ns) // step * step)


def others(record: observations.Observations) -> Iterator[observations.Divergence]:
    """Findings from what was seen, one for each node and thing done, oldest first."""
    alike: dict[tuple[str, ...], list[observations.ObservedWrite]] = {}
    for seen in sorted(record.observed, key=lambda s: s.at_ns):
        if seen.at_ns >= record.since_ns and _is_reportable(seen):
            detail = "" if seen.what == observations.DRAINED else seen.detail
            alike.setdefault((seen.what, seen.node, detail, _manager(seen)), []).append(seen)
    for group in alike.values():
        yield _finding(group)


def _manager(seen: observations.ObservedWrite) -> str:
    return seen.author.manager if seen.author is not None else ""


def _is_reportable(seen: observations.ObservedWrite) -> bool:
    manager = _manager(seen)
    if seen.what in (observations.CORDONED, observations.REMOVED, observations.DRAINED):
        return True
    if seen.what not in (observations.TAINTED, observations.UNTAINTED):
        return False
    if seen.own:
        return not seen.explained and manager not in ("", *CONTROLLER_MANAGERS)
    keeps_pods_off = seen.detail.endswith((f":{NO_EXECUTE}", f":{NO_SCHEDULE}"))
    return (
        seen.what == observations.TAINTED and keeps_pods_off and manager not in CONTROLLER_MANAGERS
    )


def _finding(group: list[observations.ObservedWrite]) -> observations.Divergence:
    first = group[0]
    of_taint = first.what in (observations.TAINTED, observations.UNTAINTED)
    own = first.own and of_taint
    is_sure = first.author is not None or first.what != observations.TAINTED
    sure = observations.CERTAIN if is_sure else observations.LIKELY
    kind = observations.EXTRA if own else observations.OTHER_ACTOR
    return observations.Divergence(
        *(kind, "Node", "", first.node, _message(group), sure),
        node=first.node,
        note=not own,
        count=len(group),
        controller=observations.LIFECYCLE if own else "",
        action=_ACTIONS[first.what],
        detail=first.detail if of_taint else "",
        seen_ns=first.at_ns,
        author=first.author,
    )


def _message(group: list[observations.ObservedWrite]) -> str:
    seen = group[0]
    by = f" by {of_manager(seen.author.manager)}" if seen.author is not None else ""
    ready = {"True": "Ready", "": "without a status"}.get(seen.ready, f"Ready={seen.ready}")
    match seen.what:
        case "tainted" if seen.own:
            return (
                f"taint {seen.detail} of {seen.node} ({ready}) was added{by}; node-lifecycle adds "
                "it only where the node's conditions ask for it, and takes it off again"
            )
        case "untainted":
            return (
                f"taint {seen.detail} of {seen.node} ({ready}) was taken off{by}, while the node's "
                "conditions ask for it; node-lifecycle puts it back"
            )
        case "tainted":
            return f"{seen.node} was tainted {seen.detail}{by or _owner(seen.detail)}"
        case "cordoned":
            return f"{seen.node} was cordoned{by}"
        case "drained":
            pods = counted(len(group), "pod")
            return f"{pods} of {seen.node} left through the Eviction API: it is being drained"
    who = by or ": a person, an autoscaler or a cloud controller; no controller here does that"
    return f"node {seen.node} ({ready}) was deleted{who}"


def _owner(taint: str) -> str:
    """Whose taint it is by its key, where no author is named."""
    owner = owner_of_taint(taint)
    return f" ({owner})" if owner else " by another client"


def divergence_document(
    judgement: observations.Judgement,
    record: observations.Observations,
    now_ns: int,
    source: dict[str, Any],
) -> dict[str, Any]:
    """The Divergence document."""
    lease = record.lease
    manager: dict[str, Any] = {"holder": lease.holder or None}
    if lease.renewed_ns:
        manager["renewedTime"] = times.format_micro_time(lease.renewed_ns)
    manager["staleSeconds"] = times.in_seconds(lease.stale_ns())
    if lease.error:
        manager["error"] = lease.error
    return document(
        "Divergence",
        source=source,
        time=times.format_micro_time(now_ns),
        since=times.format_micro_time(record.since_ns),
        verdict=judgement.verdict,
        because=judgement.because,
        writes={"onTime": judgement.expected, "open": judgement.open},
        settings=[_setting(guess, record) for guess in judgement.guesses],
        manager=manager,
        items=[_item(finding) for finding in judgement.findings],
        notEvaluated=list(judgement.not_evaluated),
        unwatched=[_span(span) for span in record.unwatched],
    )


def _setting(
    guess: observations.SettingEstimate, record: observations.Observations
) -> dict[str, Any]:
    unit = 1 if guess.flag in A_SECOND else times.SECOND_NS
    return {
        "flag": guess.flag,
        "assumed": value_text(guess.flag, guess.assumed),
        "origin": record.assumed.origins.get(guess.flag, ""),
        "agrees": guess.fits,
        "likely": value_text(guess.flag, guess.likely),
        "low": round(guess.low / unit, 3),
        "high": round(guess.high / unit, 3),
        "samples": guess.samples,
        "sure": guess.sure,
        "seen": guess.seen,
    }


def _item(finding: observations.Divergence) -> dict[str, Any]:
    named = {"kind": finding.object_kind, "namespace": finding.namespace, "name": finding.name}
    item: dict[str, Any] = {
        "kind": finding.kind,
        "note": finding.note,
        "object": {key: value for key, value in named.items() if value},
        "count": finding.count,
        "sure": finding.sure,
        "message": finding.message,
    }
    more = {
        "node": finding.node,
        "controller": finding.controller,
        "action": finding.action,
        "detail": finding.detail,
        "expectedTime": _time(finding.expected_ns),
        "expectedBecause": finding.because,
        "seenTime": _time(finding.seen_ns),
        "by": _entries_by(finding.author),
    }
    return item | {key: value for key, value in more.items() if value}


def _span(span: observations.UnwatchedSpan) -> dict[str, Any]:
    end = None if span.end_ns is None else times.format_micro_time(span.end_ns)
    return {"from": times.format_micro_time(span.begin_ns), "to": end, "because": span.why}


def _time(instant_ns: int | None) -> str:
    return "" if instant_ns is None else times.format_micro_time(instant_ns)


def _entries_by(author: observations.WriteAuthor | None) -> dict[str, str]:
    if author is None:
        return {}
    time = times.format_micro_time(author.time_ns) if author.time_ns else ""
    entry = {"manager": author.manager, "operation": author.operation, "time": time}
    return {key: value for key, value in entry.items() if value}
