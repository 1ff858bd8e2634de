"""`audit`: findings about pods as a document, in the order in which they are shown; `repair`: the
request for each of them, or why it is refused.

An audit also says what would go wrong in an outage that has not happened: which DaemonSets would
loop, and how many nodes would be tainted although all of them are silent, since zones are judged
only when the pass that found them lost has written all it has to write
(docs/upstream/brake-comes-late.md). The pass is reckoned (`engine/pace.py`), and held against plays
in tests/pace, since a play of each cluster that is audited would take too long.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator
from typing import Any, Final, cast

import msgspec
from msgspec import to_builtins
from msgspec.structs import replace

from kubectl_nodelife.document import document
from kubectl_nodelife.engine.cache import Cache
from kubectl_nodelife.engine.pace import FASTER_QPS, FLAG, Pace, pace_of
from kubectl_nodelife.engine.settings import Settings
from kubectl_nodelife.kube.meta import LabelSelector
from kubectl_nodelife.kube.names import counted
from kubectl_nodelife.kube.node import zone_key
from kubectl_nodelife.kube.selectors import matches
from kubectl_nodelife.kube.times import SECOND_NS, format_time, human_duration
from kubectl_nodelife.kube.workload import DaemonSet
from kubectl_nodelife.outlook.audit.audit_pods import AuditInput, AuditResult, audit
from kubectl_nodelife.outlook.audit.classes import NOT_EVICTED, WRONG
from kubectl_nodelife.outlook.audit.findings import PodFinding
from kubectl_nodelife.outlook.audit.repair_plan import RepairStep
from kubectl_nodelife.outlook.daemonset.summary import hot_loops_beforehand
from kubectl_nodelife.outlook.eviction_forecast import is_at_work
from kubectl_nodelife.outlook.view import ClusterView

_SHORT_NS: Final = 10 * SECOND_NS


def beforehand(cache: Cache, settings: Settings) -> Iterator[str]:
    """Sentences, one for each thing."""
    yield from _all_silent(cache, settings)
    sets = (cast(DaemonSet, each) for each in cache.all("DaemonSet"))
    yield from hot_loops_beforehand(sets, settings)


def tainted_in_first_pass(cache: Cache, settings: Settings, pace: Pace) -> tuple[int, int]:
    """(length of the pass in ns, nodes tainted in it) where all ready nodes fall silent at once."""
    beta_only = settings.profile.has("beta_zone_labels_only")
    ready = [node for node in cache.nodes.values() if node.is_ready]
    zones = Counter(zone_key(node.metadata.labels, beta_only=beta_only) for node in ready)
    pods = sum(cache.count_on(node.name) for node in ready)
    pass_ns = pace.pass_ns(len(ready), pods)
    rate = settings.node_eviction_rate
    return pass_ns, sum(pace.tainted_in(pass_ns, rate, nodes) for nodes in zones.values())


def _all_silent(cache: Cache, settings: Settings) -> Iterator[str]:
    pace = pace_of(settings)
    if pace is None or not settings.taint_manager:
        return
    pass_ns, tainted = tainted_in_first_pass(cache, settings, pace)
    if not tainted or pass_ns < _SHORT_NS:
        return
    are = "is" if tainted == 1 else "are"
    better = ""
    if pace.qps < FASTER_QPS:
        faster = pace.at(FASTER_QPS)
        _, fewer = tainted_in_first_pass(cache, settings, faster)
        better = f"; {FLAG} {faster.qps:g} makes it {fewer}"
    yield (
        f"if all nodes fall silent at once, about {counted(tainted, 'node')} {are} tainted before"
        f" the pass that finds them lost ends, after {human_duration(pass_ns)}: their pods are"
        f" deleted, although none should be while all zones are dark{better} ({pace.sentence})"
    )


KINDS = ("Node", "Lease", "Pod", "DaemonSet")
"""The kinds that an audit reads."""


class PodAudit(msgspec.Struct, frozen=True):
    """The findings of one look at the cluster. `head`: as of the view; `beforehand`: what would go
    wrong in an outage.
    """

    audit: AuditResult
    head: dict[str, Any]
    now_ns: int
    warnings: tuple[str, ...]
    beforehand: tuple[str, ...] = ()

    def wrong(self) -> int:
        """How many findings are more than a note."""
        return sum(f.note.severity == WRONG for f in self.audit.findings)

    def document(self) -> dict[str, Any]:
        """The PodAudit document."""
        return document(
            "PodAudit",
            **self.head,
            findings=[finding_document(f, self.now_ns) for f in self.audit.findings],
            counts=self.audit.counts,
            waiting=self.audit.waiting,
            beforehand=list(self.beforehand),
            notEvaluated=list(self.audit.not_evaluated),
            warnings=list(self.warnings),
        )


def seen_in(
    view: ClusterView, namespace: str | None, labels: LabelSelector | None = None
) -> AuditInput:
    """The input of an audit: the pods of one namespace or (None) of all, with these labels or
    (None) whatever they have; nodes, Lease renewals."""
    cache = view.cache
    pods = [
        pod
        for pod in cache.pods.values()
        if (namespace is None or pod.namespace == namespace)
        and (labels is None or matches(labels, pod.metadata.labels))
    ]
    renewals = {
        name: renewal[0]
        for name, heartbeat in cache.heartbeats.items()
        if (renewal := heartbeat.renewal(view.now_ns)) is not None
    }
    return AuditInput(
        pods,
        None if "Node" in view.unread else cache.nodes,
        None if "Lease" in view.unread else renewals,
        {each.key[1] for each in view.unreadable if each.kind == "Node"},
    )


def pod_audit(view: ClusterView, seen: AuditInput) -> PodAudit:
    """The audit of what was seen."""
    audited = audit(seen, view.settings, view.now_ns)
    overdue = any(f.is_overdue or f.name == NOT_EVICTED for f in audited.findings)
    if overdue and is_at_work(view.cache.pods.values(), view.now_ns):
        waiting = tuple(
            replace(f, evictions_go_on=True) for f in audited.findings if f.name != NOT_EVICTED
        )
        counts = {name: count for name, count in audited.counts.items() if name != NOT_EVICTED}
        audited = replace(audited, findings=waiting, counts=counts)
    return PodAudit(
        audit=replace(audited, findings=tuple(with_late_taints(view, audited.findings))),
        head=view.head,
        now_ns=view.now_ns,
        warnings=(*view.warnings, *audited.warnings),
        beforehand=tuple(beforehand(view.cache, view.settings)),
    )


def with_late_taints(view: ClusterView, findings: Iterable[PodFinding]) -> Iterator[PodFinding]:
    """The findings; of pods whose node should have been tainted long ago with that moment."""
    for finding in findings:
        node = view.cache.nodes.get(finding.pod.spec.node_name)
        due_ns = None
        if node is not None and finding.awaits_taint:
            due_ns = view.outlook.node(node).taint_overdue_ns
        yield finding if due_ns is None else replace(finding, taint_due_ns=due_ns)


def only(audit: AuditResult, classes: Collection[str]) -> AuditResult:
    """The audit with the findings of these classes alone; all where none is named."""
    if not classes:
        return audit
    chosen = tuple(f for f in audit.findings if f.name in classes)
    return replace(audit, findings=chosen)


def finding_document(finding: PodFinding, now_ns: int) -> dict[str, Any]:
    """One finding; `ageSeconds` and `since` are null where nothing in the objects shows them."""
    pod, since_ns = finding.pod, finding.since_ns
    return {
        "class": finding.name,
        "severity": finding.note.severity,
        "namespace": pod.namespace,
        "name": pod.name,
        "uid": pod.uid,
        "node": pod.spec.node_name,
        "because": finding.because,
        "since": None if since_ns is None else format_time(since_ns),
        "sinceField": finding.since_field or None,
        "ageSeconds": None if since_ns is None else max(0, (now_ns - since_ns) // SECOND_NS),
        "evidence": [{"field": field, "value": value} for field, value in finding.evidence],
        "meaning": finding.note.meaning,
        "knownIssues": list(finding.known_issues),
        "remedy": finding.what_to_do,
        "risk": finding.note.risk,
        "eviction": _eviction_document(finding, now_ns),
        "advice": to_builtins(finding.advice),
    }


def _eviction_document(finding: PodFinding, now_ns: int) -> dict[str, Any] | None:
    eviction = finding.eviction
    if eviction is None:
        return None
    due_ns, comes = eviction.due_ns, dict[str, Any](inSeconds=None)
    if finding.taint_due_ns is not None:
        comes["taintOverdueSince"] = format_time(finding.taint_due_ns)
    elif due_ns is not None and finding.is_overdue:
        comes["overdueSince"] = format_time(due_ns)
    elif due_ns is not None:
        comes["inSeconds"] = max(0, -((now_ns - due_ns) // SECOND_NS))
    return {**comes, "because": eviction.because}


def repair_document(
    steps: Iterable[RepairStep], head: dict[str, Any], mode: str = "dry-run"
) -> dict[str, Any]:
    """The RepairPlan document; `head` is what it shares with the other answers."""
    documents = [_step_document(step) for step in steps]
    return document("RepairPlan", **head, mode=mode, steps=documents)


def _step_document(step: RepairStep) -> dict[str, Any]:
    pod, request = step.finding.pod, step.request
    return {
        "namespace": pod.namespace,
        "name": pod.name,
        "uid": pod.uid,
        "node": pod.spec.node_name,
        "class": step.finding.name,
        "outcome": "refused" if request is None else "would",
        "because": step.finding.because,
        "refusals": list(step.refusals),
        "notBeforeSeconds": None if request is None else step.not_before_s,
        "request": None
        if request is None
        else {
            "verb": request.method,
            "path": request.path,
            "contentType": request.content_type,
            "body": request.body,
        },
        "command": None if request is None else step.command,
    }
