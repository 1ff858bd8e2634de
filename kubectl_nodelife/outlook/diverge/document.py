"""`diverge`: what differs from our copy of the controllers' logic, as a document."""

from __future__ import annotations

from typing import Any

from kubectl_nodelife.document import document
from kubectl_nodelife.kube.times import SECOND_NS, format_micro_time
from kubectl_nodelife.outlook.diverge.observations import (
    Divergence,
    Judgement,
    Observations,
    SettingEstimate,
    UnwatchedSpan,
    WriteAuthor,
)
from kubectl_nodelife.outlook.diverge.setting_estimates import RATE, SECONDARY_RATE, value_text


def divergence_document(
    judgement: Judgement, record: Observations, now_ns: int, source: dict[str, Any]
) -> dict[str, Any]:
    """The Divergence document."""
    lease = record.lease
    manager: dict[str, Any] = {"holder": lease.holder or None}
    if lease.renewed_ns:
        manager["renewedTime"] = format_micro_time(lease.renewed_ns)
    stale_ns = lease.stale_ns()
    manager["staleSeconds"] = None if stale_ns is None else round(stale_ns / SECOND_NS, 3)
    if lease.error:
        manager["error"] = lease.error
    return document(
        "Divergence",
        source=source,
        time=format_micro_time(now_ns),
        since=format_micro_time(record.since_ns),
        verdict=judgement.verdict,
        because=judgement.because,
        writes={"onTime": judgement.expected, "open": judgement.open},
        settings=[_setting(guess, record) for guess in judgement.guesses],
        manager=manager,
        items=[_item(finding) for finding in judgement.findings],
        notEvaluated=list(judgement.not_evaluated),
        unwatched=[_span(span) for span in record.unwatched],
    )


def _setting(guess: SettingEstimate, record: Observations) -> dict[str, Any]:
    unit = 1 if guess.flag in (RATE, SECONDARY_RATE) else SECOND_NS
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


def _item(finding: Divergence) -> dict[str, Any]:
    named = {
        "kind": finding.object_kind,
        "namespace": finding.namespace,
        "name": finding.name,
    }
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
        "by": _by(finding.author),
    }
    return item | {key: value for key, value in more.items() if value}


def _span(span: UnwatchedSpan) -> dict[str, Any]:
    end = None if span.end_ns is None else format_micro_time(span.end_ns)
    return {"from": format_micro_time(span.begin_ns), "to": end, "because": span.why}


def _time(instant_ns: int | None) -> str:
    return "" if instant_ns is None else format_micro_time(instant_ns)


def _by(author: WriteAuthor | None) -> dict[str, str]:
    if author is None:
        return {}
    time = format_micro_time(author.time_ns) if author.time_ns else ""
    made = {"manager": author.manager, "operation": author.operation, "time": time}
    return {key: value for key, value in made.items() if value}
