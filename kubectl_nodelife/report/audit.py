"""The pages of `audit` and `repair`: findings, what each class means, and the requests."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator
from functools import partial
from typing import Final

from kubectl_nodelife.kube.names import counted, first_names
from kubectl_nodelife.kube.times import age, due_in, format_time, human_duration
from kubectl_nodelife.outlook.audit.classes import NOTE, NOTES, QUIET
from kubectl_nodelife.outlook.audit.document import PodAudit
from kubectl_nodelife.outlook.audit.findings import PodFinding
from kubectl_nodelife.outlook.audit.repair_plan import RepairStep
from kubectl_nodelife.report.formats import Block, Page, Table, columns
from kubectl_nodelife.report.terminal import BAD, WARN, ColoredText
from kubectl_nodelife.workloads.force_advice import ForceAdvice

_COLUMNS = columns("namespace | pod | class | age:3 | node:2 | because | do* | evidence*")
_STEP_COLUMNS = columns("namespace | pod | class | outcome | because")
_MANY = 4


def audit_page(answer: PodAudit) -> Page:
    """A `PodAudit` as an answer. Names: pod/NAMESPACE/NAME of each pod with a finding; trouble: how
    many findings are more than a note."""
    pods = dict.fromkeys(f"pod/{f.pod.namespace}/{f.pod.name}" for f in answer.audit.findings)
    return Page(partial(_audit, answer), answer.document, lambda: pods, answer.wrong)


def _audit(answer: PodAudit, *, wide: bool) -> Iterator[Block]:
    """The sum, the findings, a paragraph for each class among them, the advice, and what an outage
    would bring."""
    findings, now_ns = answer.audit.findings, answer.now_ns
    yield _sum(answer)
    shown = [[f] for f in findings] if wide else list(_folded(findings))
    yield Table(_COLUMNS, [_row(group, now_ns) for group in shown])
    for name in NOTES:
        of_class = [f for f in findings if f.name == name]
        if of_class:
            yield _about_class(name, of_class)
    yield from _advice(findings)
    yield from (f"Beforehand: {sentence}." for sentence in answer.beforehand)


def repair_page(
    steps: list[RepairStep], document: dict[str, object], *, dry_run: bool = True
) -> Page:
    """The steps of a repair as an answer. Names: pod/NAMESPACE/NAME of each pod to which something
    would be sent."""
    pods = dict.fromkeys(
        f"pod/{step.finding.pod.namespace}/{step.finding.pod.name}"
        for step in steps
        if step.request is not None
    )
    return Page(partial(_repair, steps, dry_run=dry_run), lambda: document, lambda: pods)


def _repair(steps: list[RepairStep], *, dry_run: bool, wide: bool) -> Iterator[Block]:
    """Each step in a line, then the requests in full."""
    reasons = [_because(step) for step in steps if step.request is None]
    would = len(steps) - len(reasons)
    sent = f"{counted(would, 'request')} {'is' if would == 1 else 'are'} to be sent"
    sent = f"{sent}, {counted(len(reasons), 'finding')} refused"
    if reasons:
        ((most, count),) = Counter(reasons).most_common(1)
        sent += f", {'' if count == len(reasons) else f'{count} of them '}because {most}"
    dry = "; nothing was sent (dry run)" if dry_run else ""
    yield f"{sent}{dry}." if steps else "There is nothing to repair."
    yield Table(_STEP_COLUMNS, [_step_row(step) for step in steps])
    for step in steps:
        if step.request is not None:
            request = step.request
            body = json.dumps(request.body, indent=2)
            yield (
                f"{request.method} {request.path}\n"
                f"Content-Type: {request.content_type}\n{body}\n{step.command}"
            )


def _folded(findings: Iterable[PodFinding]) -> Iterator[list[PodFinding]]:
    """Each finding by itself, but notes of one class about many pods of one node together."""
    alike: dict[object, list[PodFinding]] = {}
    for number, finding in enumerate(findings):
        is_note = finding.note.severity == NOTE
        key = (finding.name, finding.pod.spec.node_name) if is_note else number
        alike.setdefault(key, []).append(finding)
    for group in alike.values():
        yield from [group] if len(group) >= _MANY else [[finding] for finding in group]


def _row(group: list[PodFinding], now_ns: int) -> list[object]:
    finding = group[0]
    spaces = list(dict.fromkeys(f.pod.namespace for f in group))
    return [
        spaces[0] if len(spaces) == 1 else f"{len(spaces)} namespaces",
        finding.pod.name if len(group) == 1 else f"{len(group)} pods",
        ColoredText(finding.name, WARN if finding.note.severity == NOTE else BAD),
        age(finding.since_ns, now_ns),
        finding.pod.spec.node_name,
        finding.because + _eviction(finding, now_ns),
        finding.what_to_do,
        "; ".join(f"{field}={value}" for field, value in finding.evidence),
    ]


def _eviction(finding: PodFinding, now_ns: int) -> str:
    eviction = finding.eviction
    if eviction is None:
        return ""
    if finding.taint_due_ns is not None:
        late = human_duration(now_ns - finding.taint_due_ns)
        since = f"overdue since {format_time(finding.taint_due_ns)} ({late})"
        return f"; {eviction.because.partition(':')[0]}, which is {since}"
    if eviction.due_ns is None:
        return f"; {eviction.because.partition(':')[0]}"
    if finding.is_overdue:
        late = human_duration(now_ns - eviction.due_ns)
        return f"; its deletion is overdue since {format_time(eviction.due_ns)} ({late})"
    return f"; evicted {due_in(eviction.due_ns - now_ns)}"


def _sum(answer: PodAudit) -> str:
    """How many pods have a finding, and what is said of all others; the numbers add up."""
    audit = answer.audit
    wrong = [f for f in audit.findings if f.note.severity != NOTE]
    notes = [f for f in audit.findings if f.note.severity == NOTE]
    pods = len({f.pod.key for f in wrong})
    are, say = ("is", "says") if pods == 1 else ("are", "say")
    answer_line = (
        f"{counted(pods, 'pod')} {are} stuck, or {say} what is not so: "
        f"{counted(len(wrong), 'finding')} ({_classes(wrong)})."
        if pods
        else "No pod is stuck, and none says what is not so."
    )
    if notes:
        noted = counted(len({f.pod.key for f in notes}), "pod")
        answer_line += f" Good to know of {noted}: {_classes(notes)}."
    ok, unknown, unheard = (audit.counts.get(name, 0) for name in QUIET)
    if not audit.findings and unknown > ok:
        answer_line = "Nothing was found, but most pods say too little to be judged."
    parts = [f"{counted(ok, 'pod')} {'is' if ok == 1 else 'are'} consistent"]
    if unheard:
        verb = "does" if len(audit.unheard) == 1 else "do"
        where = f"{counted(len(audit.unheard), 'node')} that {verb} not report"
        parts.append(f"{unheard} on {where}, so that what they say may be old")
    if unknown:
        parts.append(f"{unknown} {'says' if unknown == 1 else 'say'} too little")
    if audit.waiting:
        many = sum(audit.waiting.values())
        reasons = ", ".join(f"{count} {reason}" for reason, count in audit.waiting.items())
        waits = "waits" if many == 1 else "wait"
        parts.append(f"of those without a finding {many} {waits} ({reasons})")
    return f"{answer_line}\n{'; '.join(parts)}."


def _classes(findings: Iterable[PodFinding]) -> str:
    """How many of which class, as in `2 orphaned, 1 gates`."""
    shown = Counter(finding.name for finding in findings)
    return ", ".join(f"{count} {name}" for name, count in shown.items())


def _step_row(step: RepairStep) -> list[object]:
    pod = step.finding.pod
    outcome = "refused" if step.request is None else f"would {step.request.method}"
    return [pod.namespace, pod.name, step.finding.name, outcome, _because(step)]


def _because(step: RepairStep) -> str:
    return "; ".join(step.refusals) or step.finding.because


def _about_class(name: str, findings: list[PodFinding]) -> str:
    note = NOTES[name]
    issues = list(dict.fromkeys(issue for f in findings for issue in f.known_issues))
    lines = [f"{name} ({len(findings)}): {note.meaning}.", f"Do: {_remedy(findings)}."]
    lines.append(f"Risk: {note.risk}.")
    if issues:
        lines.append(f"Known: {', '.join(issues)}.")
    return "\n  ".join(lines)


_REMEDIES: Final = 2
"""So many different remedies of a class are said one by one."""


def _remedy(findings: list[PodFinding]) -> str:
    """The advice: that for a kubelet that reports differs from that for one that is gone."""
    remedies = list(dict.fromkeys(finding.what_to_do for finding in findings))
    if len(remedies) == 1:
        return remedies[0]
    if all(finding.advice is not None for finding in findings):
        return "what is said below of each under 'May it be forced?'"
    if len(remedies) <= _REMEDIES:
        named = {
            remedy: first_names([f.pod.name for f in findings if f.what_to_do == remedy], 2)
            for remedy in remedies
        }
        return "; ".join(f"of {names}: {remedy}" for remedy, names in named.items())
    return findings[0].note.remedy


def _advice(findings: Iterable[PodFinding]) -> Iterator[str]:
    """One paragraph for the pods of one node of which the same is to be said."""
    alike: dict[tuple[object, ...], list[PodFinding]] = {}
    for finding in findings:
        advice = finding.advice
        if advice is not None:
            key = (finding.pod.spec.node_name, advice.force_delete, advice.evidence_missing)
            alike.setdefault(key, []).append(finding)
    for group in alike.values():
        advice = group[0].advice
        if advice is not None:
            yield "\n".join(_advice_lines(group, advice))


def _advice_lines(group: list[PodFinding], advice: ForceAdvice) -> Iterator[str]:
    pods = ", ".join(f"{f.pod.namespace}/{f.pod.name}" for f in group)
    yield f"May it be forced? {pods}:"
    yield f"  force delete: {advice.force_delete.replace('-', ' ')}"
    yield f"  out-of-service taint: {advice.out_of_service_taint.replace('-', ' ')}"
    hazards = dict.fromkeys(h for f in group if f.advice for h in f.advice.hazards)
    for title, entries in (
        ("found", advice.evidence_found),
        ("missing", advice.evidence_missing),
        ("hazard", tuple(hazards)),
        ("command", advice.commands[:1]),
        ("undo", advice.undo),
    ):
        for entry in entries:
            yield f"  {title}: {entry}"
