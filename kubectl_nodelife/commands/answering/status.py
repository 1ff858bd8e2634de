"""Answers `status`: the nodes asked for and all zones, as a page, or as what is new on it."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping, Sequence
from functools import partial

from msgspec.structs import replace

from kubectl_nodelife.commands import answering
from kubectl_nodelife.commands.cluster.look import KindsToRead
from kubectl_nodelife.kube.names import counted, first_names
from kubectl_nodelife.kube.node import Node, Taint, zone_display
from kubectl_nodelife.kube.times import SECOND_NS, due_in, due_within, format_time, human_duration
from kubectl_nodelife.outlook.eviction_forecast import Range
from kubectl_nodelife.outlook.status import (
    KINDS,
    NodeEntry,
    NodeLifeStatus,
    lifecycle_conditions,
    missing_parts,
    status_steps,
    urgency,
)
from kubectl_nodelife.outlook.view import ClusterView
from kubectl_nodelife.outlook.zone import ZoneBrake, ZoneOutlook
from kubectl_nodelife.report import formats
from kubectl_nodelife.report.terminal import BAD, ENDLESS, GOOD, WARN, ColoredText
from kubectl_nodelife.workloads.foreign_taints import foreign_marks

NOTHING_TO_SHOW = ("table", "wide", "name", "markdown")
"""The formats that show nothing at all where no node is left."""


def reading(query: answering.Query) -> KindsToRead:
    """Nodes, their Leases, and pods."""
    return KindsToRead(KINDS, ("Node",), missing_parts=missing_parts, manager_role=True)


def steps(view: ClusterView, query: answering.Query) -> Generator[None, None, NodeLifeStatus]:
    """The status, a step a node. Raises BadInput, Failed."""
    question = answering.flags_of(query, answering.StatusQuestion)
    return status_steps(
        view,
        question.node,
        question.selector,
        field_selector=question.fields,
        sort_by=question.sort,
        trouble=question.trouble,
    )


def response_of(status: NodeLifeStatus, query: answering.Query) -> answering.Response:
    """The status as text. Raises BadInput."""
    output, question = (
        answering.output_of(query),
        answering.flags_of(query, answering.StatusQuestion),
    )
    text = ""
    if status.nodes or output.format not in NOTHING_TO_SHOW:
        text = output.render(status_page(status, question))
    none = "No node is in trouble." if question.trouble else "No resources found"
    return {
        "text": text,
        "warnings": status.warnings,
        "note": "" if status.nodes else none,
        "inTrouble": status.in_trouble(),
    }


def answer(view: ClusterView, query: answering.Query) -> answering.Response:
    """The status of the nodes asked for. Raises BadInput, Failed."""
    return response_of(finished(steps(view, query)), query)


def finished(made: Generator[None, None, NodeLifeStatus]) -> NodeLifeStatus:
    """The result of all steps, taken at once."""
    while True:
        try:
            next(made)
        except StopIteration as end:
            status: NodeLifeStatus = end.value
            return status


class StatusLines:
    """Remembers what was shown, and makes text of what is new."""

    def __init__(self, query: answering.Query) -> None:
        self._question = question = answering.flags_of(query, answering.StatusQuestion)
        self._output = answering.output_of(query)
        self._widths = formats.Widths(headers=self._output.headers)
        self._gone = "deleted"
        if question.trouble:
            self._gone = "not in trouble any more, or deleted"
        elif question.selector or question.fields:
            self._gone = "not selected any more, or deleted"
        self._nodes: dict[str, object] = {}
        self._zones: dict[str, str] = {}

    def news(self, status: NodeLifeStatus) -> str:
        """The progress to show now, "" for none."""
        fingerprints = {n.outlook.node.name: _fingerprint(n) for n in status.nodes}
        changed = [n for n in status.nodes if self._nodes.get(_name(n)) != fingerprints[_name(n)]]
        gone = sorted(self._nodes.keys() - fingerprints.keys())
        zones = list(self._zone_changes(status))
        self._nodes = fingerprints
        if not (changed or gone or zones):
            return ""
        shown = replace(status, nodes=changed, deleted=gone)
        if self._output.format not in ("table", "wide"):
            return self._output.render(status_page(shown, self._question))
        shown = _ordered(shown, self._question)
        lines = _table_of(shown, shown.nodes, self._question).lines(
            self._widths,
            wide=self._output.format == "wide",
            screen=self._output.screen or ENDLESS,
        )
        return "".join([*lines, *(f"{name}: {self._gone}\n" for name in gone), *zones])

    def _zone_changes(self, status: NodeLifeStatus) -> list[str]:
        states = {zone.name: zone.state for zone in status.zones}
        before, self._zones = self._zones, states
        if not before:
            return []
        changed = [zone for zone in status.zones if before.get(zone.name) != zone.state]
        lines = [
            f"zone {z.name}: {before.get(z.name, 'new')} -> {z.state}: {z.why}\n" for z in changed
        ]
        return lines + [f"zone {name} is gone\n" for name in sorted(before.keys() - states.keys())]


def _fingerprint(node: NodeEntry) -> object:
    """The facts by which a node is worth another line: all but the time that goes by."""
    outlook, verdict = node.outlook, node.verdict
    return (
        verdict.state,
        verdict.next.act if verdict.next is not None else "",
        outlook.ready,
        outlook.node.spec.taints,
        outlook.node.spec.unschedulable,
        outlook.queued is not None,
        bool(outlook.timers),
    )


def _name(node: NodeEntry) -> str:
    return node.outlook.node.name


_MOST_TEXT = 120
_PREFIX = "node.kubernetes.io/"
_ROLE = "node-role.kubernetes.io/"

_NODE_COLUMNS = formats.columns(
    "name | zone* | roles* | age* | version* | ready | reason* | message* | lease age:4 | "
    "status age* | unknown in:3 | taints:5 | pods | next eviction | verdict | because* | "
    "losing it*"
)
_ZONE_COLUMNS = formats.columns(
    "zone | state | nodes | not ready | threshold:4 | rate:1 | queue:3 | health* | "
    "evictions* | why | brake*"
)
_CLOCKS = ("node-monitor-grace-period", "node-eviction-rate", "pod-eviction-timeout")
_MOST_NAMED = 3
_DEFAULT = "default of "
MANY_NODES = 50
"""From so many nodes on the page begins with those that are in trouble."""

_TONES = {
    "healthy": GOOD,
    "cordoned": WARN,
    "tainted": WARN,
    "pressure": WARN,
    "no-network": WARN,
    "silent": WARN,
}


def _table_of(
    status: NodeLifeStatus, nodes: Sequence[NodeEntry], question: answering.StatusQuestion
) -> formats.Table:
    """The table of these nodes, with the columns of labels that are asked for, as in kubectl."""
    rows = [_node_row(n, status.now_ns, status.pods_read) for n in nodes]
    extra = [formats.Column(key.rpartition("/")[2]) for key in question.label]
    extra += [formats.Column("labels")] if question.labels else []
    for row, node in zip(rows, nodes, strict=True) if extra else ():
        labels = node.outlook.node.metadata.labels or {}
        row += [labels.get(key, "") for key in question.label]
        row += [format_labels(labels)] if question.labels else []
    return formats.Table((*_NODE_COLUMNS, *extra), rows)


def _ordered(status: NodeLifeStatus, question: answering.StatusQuestion) -> NodeLifeStatus:
    """The status with its nodes in the order in which they are shown: those in trouble first where
    there are many, unless an order was chosen."""
    many = len(status.nodes) > MANY_NODES and not question.sort
    return replace(status, nodes=sorted(status.nodes, key=urgency)) if many else status


def status_page(by_name: NodeLifeStatus, question: answering.StatusQuestion) -> formats.Page:
    """A `NodeLifeStatus` as an answer. Names: node/NAME of each; trouble: how many are in it.

    A page has as many nodes as are asked for; documents and lists of names have all.
    """
    status = _ordered(by_name, question)
    return formats.Page(
        partial(_blocks, status, question),
        by_name.document,
        lambda: (f"node/{n.outlook.node.name}" for n in status.nodes),
        lambda: sum(n.in_trouble() for n in status.nodes),
    )


def _blocks(
    status: NodeLifeStatus, question: answering.StatusQuestion, *, wide: bool
) -> Iterator[formats.Block]:
    """The lines on what is wrong, on zones, nodes and settings."""
    yield _headline(status)
    rows = [_zone_row(z, status.brakes[z.key], status.now_ns) for z in status.zones]
    yield formats.Table(_ZONE_COLUMNS, rows)
    most = max(0, question.most) or len(status.nodes)
    yield _table_of(status, status.nodes[:most], question)
    if rest := status.nodes[most:]:
        yield _left_out(rest)
    flags = status.settings.items()
    if wide:
        yield "\n".join(f"{k}={v['value']} ({v['origin']})" for k, v in flags)
    else:
        yield _assumed(status)


def _left_out(nodes: Sequence[NodeEntry]) -> str:
    """How many nodes stand in no row, and what shows them."""
    trouble = sum(n.in_trouble() for n in nodes)
    if not trouble:
        return f"{counted(len(nodes), 'more node')} that are not in trouble: --all shows them."
    well = len(nodes) - trouble
    return (
        f"{counted(trouble, 'more node')} in trouble, {well} not: --all shows them, --trouble "
        "those in trouble; -o name and -o json have all."
    )


def _headline(status: NodeLifeStatus) -> str:
    """How many nodes are in trouble, what comes next for the worst, and where to read on."""
    trouble = sorted((n for n in status.nodes if n.in_trouble()), key=urgency)
    many = counted(status.asked, "node")
    seen = not status.source.get("standsStill")
    one, more = ("is", "are") if seen else ("was", "were")
    if trouble and all(n.outlook.doubt for n in trouble):
        one = more = "may be"
    when = "" if seen else " when the cluster was last seen"
    closed = _closed(status) + _without_node(status)
    if not trouble:
        said = f"None of {many} {one} in trouble{when}{_clocks_ahead(status)}"
        unheard = all(map(_is_unheard, status.nodes)) and bool(status.nodes)
        return f"{said}{', as far as Ready shows' if unheard else ''}.{closed}"
    worst = trouble[0]
    name = worst.outlook.node.name
    state = f"{'was' if one == 'was' else 'is'} {name}: {worst.verdict.state}{_doubt(worst)}"
    return (
        f"{len(trouble)} of {many} {one if len(trouble) == 1 else more} in trouble{when}; "
        f"the worst {state}{_next(worst)}{_also_overdue(worst, trouble[1:])}."
        f"{closed}{_zones_change(status)}\n"
        f"Why: kubectl nodelife explain node {name}"
    )


def _doubt(worst: NodeEntry) -> str:
    """What one look cannot tell of it; "" for nothing."""
    return f": {worst.outlook.doubt}" if worst.outlook.doubt else ""


def _zones_change(status: NodeLifeStatus) -> str:
    """What becomes of each zone in which silent nodes are too many; "" for none."""
    return "".join(
        f" Zone {zone.name or formats.NONE}: {coming}."
        for zone in status.zones
        if zone.foretold.silent and (coming := zone.coming(status.now_ns))
    )


def _closed(status: NodeLifeStatus) -> str:
    """How many nodes other parties' marks close to new pods, and whose these are; "" for none."""
    owners: dict[str, set[str]] = {}
    for node in (node for node in status.nodes if node.outlook.node.spec.taints):
        for mark in foreign_marks(node.outlook.node, status.now_ns):
            if mark.closed:
                owners.setdefault(mark.owner, set()).add(node.outlook.node.name)
    names = set().union(*owners.values())
    if not names:
        return ""
    if len(owners) == 1:
        what = f"closed to new pods by {next(iter(owners))}"
        are = "is" if len(names) == 1 else "are"
        return f" {len(names)} of {counted(status.asked, 'node')} {are} {what}."
    take = "takes" if len(names) == 1 else "take"
    whose = ", ".join(f"{len(nodes)} by {owner}" for owner, nodes in sorted(owners.items()))
    return f" {len(names)} of {counted(status.asked, 'node')} {take} no ordinary pod: {whose}."


def _without_node(status: NodeLifeStatus) -> str:
    """Pods of nodes of which there is no object; "" for none."""
    lost = status.absent
    if not lost:
        return ""
    pods = sum(lost.values())
    names = first_names(sorted(lost), _MOST_NAMED)
    have = "has" if len(lost) == 1 else "have"
    are = "is" if pods == 1 else "are"
    return f" {counted(pods, 'pod')} {are} on {names}, which {have} no Node object."


def _also_overdue(worst: NodeEntry, others: Sequence[NodeEntry]) -> str:
    """The other nodes for which a controller does not do its work; "" for none."""
    said = []
    for node in others:
        late = node.verdict.next
        if late is not None and late.overdue_since_ns is not None:
            whose = f"{late.pod} on " if late.pod else ""
            since = format_time(late.overdue_since_ns)
            said.append(f"{whose}{node.outlook.node.name} since {since}")
    upcoming = worst.verdict.next
    too = " too" if upcoming is not None and upcoming.overdue_since_ns is not None else ""
    return f"; overdue{too}: {first_names(said, _MOST_NAMED)}" if said else ""


def _clocks_ahead(status: NodeLifeStatus) -> str:
    """The nodes whose clocks are ahead, each by how much; "" for none."""
    ahead = ((n.outlook, n.outlook.clock_ahead_ns(status.now_ns)) for n in status.nodes)
    said = [
        f"; {of_node.node.name}: its clock is {human_duration(by_ns)} ahead of the others"
        for of_node, by_ns in ahead
        if by_ns
    ]
    return "".join(said[:_MOST_NAMED]) + ("; ..." if len(said) > _MOST_NAMED else "")


def _assumed(status: NodeLifeStatus) -> str:
    """Which times rest on settings that were not given; "" where none does."""
    origins = {
        str(setting["origin"])
        for flag, setting in status.settings.items()
        if flag in _CLOCKS and str(setting["origin"]).startswith(_DEFAULT)
    }
    flags = [
        f"{flag}={setting['value']}"
        for flag, setting in status.settings.items()
        if flag in _CLOCKS and str(setting["origin"]) in origins
    ]
    if not flags:
        return ""
    whose = ", ".join(sorted(origins))
    return f"times assume {', '.join(flags)} ({whose}); --set FLAG=VALUE assumes others"


def _node_row(status: NodeEntry, now_ns: int, pods_read: bool) -> list[object]:
    outlook, verdict = status.outlook, status.verdict
    node, created = outlook.node, outlook.node.metadata.creation_timestamp
    pods = str(len(outlook.pods)) if pods_read else formats.UNKNOWN
    no_timer = formats.NONE if pods_read else formats.UNKNOWN
    if outlook.timers:
        pods += f" ({len(outlook.timers)} evicting)"
    unknown_in = outlook.unknown_in
    next_eviction_ns = outlook.next_eviction_in(now_ns)
    return [
        node.name,
        zone_display(outlook.zone),
        ",".join(roles(node)),
        formats.NONE if created is None else human_duration(now_ns - created),
        node.status.node_info.kubelet_version,
        outlook.ready or formats.UNKNOWN,
        outlook.reason,
        shortened(outlook.message) or formats.NONE,
        formats.UNKNOWN if outlook.lease_age_ns is None else human_duration(outlook.lease_age_ns),
        formats.UNKNOWN if outlook.status_age_ns is None else human_duration(outlook.status_age_ns),
        formats.NONE if unknown_in is None else _due(unknown_in).removeprefix("in "),
        ",".join(short_taint(t) for t in node.spec.taints) + _cordon(status),
        pods,
        _late_eviction(status)
        or (no_timer if next_eviction_ns is None else due_in(next_eviction_ns)),
        _verdict(status),
        "; ".join([verdict.because, *lifecycle_conditions(node)]),
        status.if_lost.effect if status.if_lost.lost else formats.NONE,
    ]


def _late_eviction(status: NodeEntry) -> str:
    """That pods of it should have been evicted; "" where none should."""
    late = status.verdict.next
    if late is None or late.overdue_since_ns is None:
        return ""
    return "overdue" if late.pod else ""


def format_labels(labels: Mapping[str, str]) -> str:
    """As `kubectl get --show-labels` has them."""
    return ",".join(f"{key}={value}" for key, value in sorted(labels.items()))


def roles(node: Node) -> list[str]:
    """As `kubectl get nodes` has them: by `findNodeRoles` of its printers."""
    names = set()
    for label, value in (node.metadata.labels or {}).items():
        if label.startswith(_ROLE) and len(label) > len(_ROLE):
            names.add(label.removeprefix(_ROLE))
        elif label == "kubernetes.io/role" and value:
            names.add(value)
    return sorted(names)


def _is_unheard(status: NodeEntry) -> bool:
    """True of a node that looks healthy, and of which no sign of life was read."""
    return status.verdict.state == "healthy" and status.outlook.sign_age_ns is None


def _verdict(status: NodeEntry) -> str:
    """The state and what comes next. A node is called healthy only where its life was seen."""
    outlook, verdict = status.outlook, status.verdict
    if _is_unheard(status):
        unseen = "no lease read" if outlook.leases_count else "no heartbeat read"
        return ColoredText(f"Ready ({unseen}){_next(status)}", WARN)
    return ColoredText(verdict.state + _next(status), _TONES.get(verdict.state, BAD))


def _cordon(status: NodeEntry) -> str:
    """A cordoned node whose taint is missing shows all the same that it is cordoned."""
    node = status.outlook.node
    tainted = any(t.key == f"{_PREFIX}unschedulable" for t in node.spec.taints)
    if not node.spec.unschedulable or tainted:
        return ""
    return " (cordoned)" if node.spec.taints else "(cordoned)"


def _next(status: NodeEntry) -> str:
    upcoming = status.verdict.next
    if upcoming is None:
        return ""
    what = upcoming.words.replace(_PREFIX, "")
    if upcoming.overdue_since_ns is not None:
        late = human_duration(upcoming.overdue_ns)
        return f", {what} overdue since {format_time(upcoming.overdue_since_ns)} ({late})"
    if upcoming.in_seconds is None:
        return f", {what}: {upcoming.held}"
    when = due_in(round(upcoming.in_seconds * SECOND_NS))
    if upcoming.within is not None:
        when = _due(upcoming.within)
    return f", {what} {when}"


def _due(span: Range) -> str:
    return due_within(span.low_ns, span.high_ns)


def _zone_row(zone: ZoneOutlook, brake: ZoneBrake, now_ns: int) -> list[object]:
    return [
        zone.name,
        ColoredText(zone.state, GOOD if zone.state == "Normal" else BAD),
        zone.nodes,
        zone.not_ready,
        f"{zone.threshold:g}",
        f"{zone.rate:g}/s",
        len(zone.queued),
        f"{zone.metrics()['zoneHealth']:g}%",
        zone.evictions,
        zone.coming_and_why(now_ns),
        brake.sentence,
    ]


def shortened(text: str) -> str:
    """The text of a cell whose length the cluster decides."""
    return text if len(text) <= _MOST_TEXT else f"{text[: _MOST_TEXT - 3]}..."


def short_taint(taint: Taint) -> str:
    """The taint as text, without the prefix that all of Kubernetes' own share."""
    return str(taint).removeprefix(_PREFIX)
