"""The pages of `daemonset`.

A pod template is printed as `kubectl rollout history --revision` and `kubectl describe` do it; that
follows `DescribePodTemplate` in staging/src/k8s.io/kubectl/pkg/describe/describe.go: two spaces a
level, a tab between a name and its value. Templates come as the API writes them. Left out on
purpose: the details of volume types other than those of `_VOLUMES`, whose fields are listed as they
stand, and the values that resource field references would have.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec

from kubectl_nodelife.kube.meta import LabelSelector
from kubectl_nodelife.kube.names import counted, first_names
from kubectl_nodelife.kube.selectors import format_selector
from kubectl_nodelife.kube.times import age, human_seconds
from kubectl_nodelife.kube.workload import default_pod_template
from kubectl_nodelife.outlook.daemonset import rollout_outlook
from kubectl_nodelife.outlook.daemonset.summary import (
    SetSummary,
    history_document,
    rollback_document,
    rollout_document,
    summaries_document,
    truth_table_document,
)
from kubectl_nodelife.outlook.daemonset.truth_table import NodeRow, PodCell
from kubectl_nodelife.outlook.daemonset.view import NOT_SCHEDULED
from kubectl_nodelife.outlook.explain import ExplainedQuestion
from kubectl_nodelife.report.explanation import explained
from kubectl_nodelife.report.formats import NONE, UNKNOWN, Block, Column, Page, Table, columns

Json = Mapping[str, Any]

_SKIPPED_ANNOTATION: Final = "kubectl.kubernetes.io/last-applied-configuration"
_LONGEST_ANNOTATION: Final = 140

# source -> (what kubectl calls it, field -> (its name there, what stands in for nothing))
_VOLUMES: Final[dict[str, tuple[str, dict[str, tuple[str, str]]]]] = {
    "hostPath": (
        "HostPath (bare host directory volume)",
        {"path": ("Path", ""), "type": ("HostPathType", NONE)},
    ),
    "emptyDir": (
        "EmptyDir (a temporary directory that shares a pod's lifetime)",
        {"medium": ("Medium", ""), "sizeLimit": ("SizeLimit", "<unset>")},
    ),
    "secret": (
        "Secret (a volume populated by a Secret)",
        {"secretName": ("SecretName", ""), "optional": ("Optional", "false")},
    ),
    "configMap": (
        "ConfigMap (a volume populated by a ConfigMap)",
        {"name": ("Name", ""), "optional": ("Optional", "false")},
    ),
    "persistentVolumeClaim": (
        "PersistentVolumeClaim (a reference to a PersistentVolumeClaim in the same namespace)",
        {"claimName": ("ClaimName", ""), "readOnly": ("ReadOnly", "false")},
    ),
}


def describe_pod_template(template: Json) -> str:
    """The text, without a newline at its end."""
    return "\n".join(_lines(template))


def _lines(template: Json) -> Iterator[str]:
    meta, spec = template.get("metadata") or {}, template.get("spec") or {}
    yield "Pod Template:"
    yield from _pairs("Labels", meta.get("labels"))
    if meta.get("annotations"):
        yield from _annotations(meta["annotations"])
    if spec.get("serviceAccountName"):
        yield f"  Service Account:\t{spec['serviceAccountName']}"
    if spec.get("initContainers"):
        yield from _containers("Init Containers", spec["initContainers"])
    yield from _containers("Containers", spec.get("containers") or ())
    yield from _volumes(spec.get("volumes") or ())
    if spec.get("topologySpreadConstraints"):
        yield from _topology_spread(spec["topologySpreadConstraints"])
    if spec.get("priorityClassName"):
        yield f"  Priority Class Name:\t{spec['priorityClassName']}"
    yield from _pairs("Node-Selectors", spec.get("nodeSelector"))
    yield from _column("Tolerations", [_toleration(t) for t in _by_key(spec.get("tolerations"))])


def _column(title: str, values: list[str]) -> Iterator[str]:
    """The title with the first value behind it and the others below."""
    first, *rest = values or [NONE]
    yield f"  {title}:\t{first}"
    for value in rest:
        yield f"\t{value}"


def _pairs(title: str, pairs: Json | None) -> Iterator[str]:
    yield from _column(title, [f"{key}={value}" for key, value in sorted((pairs or {}).items())])


def _annotations(annotations: Json) -> Iterator[str]:
    lines: list[str] = []
    for key, value in sorted(annotations.items()):
        if key == _SKIPPED_ANNOTATION:
            continue
        text = str(value).removesuffix("\n")
        if len(text) + len(key) + 2 > _LONGEST_ANNOTATION or "\n" in text:
            lines.append(f"{key}:")
            lines += [f"  {_shortened(line)}" for line in text.split("\n")]
        else:
            lines.append(f"{key}: {text}")
    yield from _column("Annotations", lines)


def _shortened(line: str) -> str:
    most = _LONGEST_ANNOTATION - 2
    return line if len(line) <= most else line[:most] + "..."


def _containers(label: str, containers: Any) -> Iterator[str]:
    yield f"  {label}:" + ("" if containers else f" {NONE}")
    for container in containers:
        yield f"   {container.get('name', '')}:"
        yield f"    Image:\t{container.get('image', '')}"
        ports = container.get("ports") or ()
        yield _ports("Port", [(p.get("containerPort", 0), p) for p in ports])
        yield _ports("Host Port", [(p.get("hostPort", 0), p) for p in ports])
        for title, field in (("Command", "command"), ("Args", "args")):
            if container.get(field):
                yield f"    {title}:"
                for word in container[field]:
                    yield from (f"      {line}" for line in str(word).split("\n"))
        resources = container.get("resources") or {}
        for title, field in (("Limits", "limits"), ("Requests", "requests")):
            if resources.get(field):
                yield f"    {title}:"
                for name, amount in sorted(resources[field].items()):
                    yield f"      {name}:\t{amount}"
        for title in ("Liveness", "Readiness", "Startup"):
            probe = container.get(f"{title.lower()}Probe")
            if probe is not None:
                yield f"    {title}:\t{_probe(probe)}"
        yield from _environment(container)
        yield from _mounts(container)


def _ports(title: str, numbered: list[tuple[Any, Json]]) -> str:
    ports = [
        f"{number}/{port.get('protocol', 'TCP')}" + (f" ({port['name']})" if "name" in port else "")
        for number, port in numbered
    ]
    return f"    {title}{'s' if len(ports) > 1 else ''}:\t{', '.join(ports) or NONE}"


def _probe(probe: Json) -> str:
    attributes = (
        f"delay={probe.get('initialDelaySeconds', 0)}s timeout={probe.get('timeoutSeconds', 1)}s"
        f" period={probe.get('periodSeconds', 10)}s #success={probe.get('successThreshold', 1)}"
        f" #failure={probe.get('failureThreshold', 3)}"
    )
    if "exec" in probe:
        return f"exec [{' '.join(probe['exec'].get('command') or ())}] {attributes}"
    if "httpGet" in probe:
        get = probe["httpGet"]
        scheme = str(get.get("scheme", "HTTP")).lower()
        path = get.get("path", "")
        return f"http-get {scheme}://{get.get('host', '')}:{get.get('port')}{path} {attributes}"
    if "tcpSocket" in probe:
        socket = probe["tcpSocket"]
        return f"tcp-socket {socket.get('host', '')}:{socket.get('port')} {attributes}"
    if "grpc" in probe:
        grpc = probe["grpc"]
        return f"grpc <pod>:{grpc.get('port')} {grpc.get('service', '')} {attributes}"
    return f"unknown {attributes}"


def _environment(container: Json) -> Iterator[str]:
    sources = container.get("envFrom") or ()
    if sources:
        yield "    Environment Variables from:"
        for source in sources:
            kind = "ConfigMap" if "configMapRef" in source else "Secret"
            reference = source.get("configMapRef") or source.get("secretRef") or {}
            with_prefix = f" with prefix '{source['prefix']}'" if source.get("prefix") else ""
            yield f"      {reference.get('name', '')}\t{kind}{with_prefix}\t{_optional(reference)}"
    variables = container.get("env") or ()
    yield "    Environment:" + ("" if variables else f"\t{NONE}")
    for variable in variables:
        first, *rest = _value(variable).split("\n")
        yield f"      {variable.get('name', '')}:\t{first}"
        yield from (f"      \t{line}" for line in rest)


def _value(variable: Json) -> str:
    source = variable.get("valueFrom")
    if source is None:
        return str(variable.get("value", ""))
    if "fieldRef" in source:
        field = source["fieldRef"]
        return f" ({field.get('apiVersion', 'v1')}:{field.get('fieldPath', '')})"
    if "resourceFieldRef" in source:
        return f" ({source['resourceFieldRef'].get('resource', '')})"
    secret = source.get("secretKeyRef")
    where = secret or source.get("configMapKeyRef") or {}
    of = "in secret" if secret else "of config map"
    key, name = where.get("key", ""), where.get("name", "")
    return f"<set to the key '{key}' {of} '{name}'>\t{_optional(where)}"


def _optional(reference: Json) -> str:
    return f"Optional: {str(bool(reference.get('optional'))).lower()}"


def _mounts(container: Json) -> Iterator[str]:
    mounts = container.get("volumeMounts") or ()
    yield "    Mounts:" + ("" if mounts else f"\t{NONE}")
    for mount in sorted(mounts, key=lambda m: str(m.get("mountPath", ""))):
        flags = "ro" if mount.get("readOnly") else "rw"
        if mount.get("subPath"):
            flags += f',path="{mount["subPath"]}"'
        yield f"      {mount.get('mountPath', '')} from {mount.get('name', '')} ({flags})"


def _volumes(volumes: Any) -> Iterator[str]:
    yield "  Volumes:" + ("" if volumes else f"\t{NONE}")
    for volume in volumes:
        yield f"   {volume.get('name', '')}:"
        source = next((key for key in volume if key != "name"), "")
        fields = volume.get(source) or {}
        if source not in _VOLUMES:
            yield f"    Type:\t{source[:1].upper() + source[1:] or '<unknown>'}"
            yield from (f"    {key}:\t{value}" for key, value in fields.items())
            continue
        kind, names = _VOLUMES[source]
        yield f"    Type:\t{kind}"
        for field, (name, nothing) in names.items():
            value = fields.get(field, nothing)
            yield f"    {name}:\t{str(value).lower() if isinstance(value, bool) else value}"


def _topology_spread(constraints: Any) -> Iterator[str]:
    lines = []
    for constraint in sorted(constraints, key=lambda c: str(c.get("topologyKey", ""))):
        line = (
            f"{constraint.get('topologyKey', '')}:{constraint.get('whenUnsatisfiable', '')}"
            f" when max skew {constraint.get('maxSkew', 0)} is exceeded"
        )
        if constraint.get("labelSelector") is not None:
            selector = msgspec.convert(constraint["labelSelector"], LabelSelector)
            line += f" for selector {format_selector(selector)}"
        lines.append(line)
    yield from _column("Topology Spread Constraints", lines)


def _by_key(tolerations: Any) -> list[Json]:
    return sorted(tolerations or (), key=lambda toleration: str(toleration.get("key", "")))


def _toleration(toleration: Json) -> str:
    text = str(toleration.get("key", ""))
    if toleration.get("value"):
        text += f"={toleration['value']}"
    if toleration.get("effect"):
        text += f":{toleration['effect']}"
    if toleration.get("operator") == "Exists" and not toleration.get("value"):
        text += " op=Exists" if text else "op=Exists"
    if toleration.get("tolerationSeconds") is not None:
        text += f" for {toleration['tolerationSeconds']}s"
    return text


_SET_COLUMNS = columns(
    "name | desired | current:3 | ready | up-to-date:5 | available:4 | misscheduled:6 | "
    "strategy* | age* | odd"
)
_NODE_COLUMNS = columns(
    "node | want to run | should schedule | continue running | pod | revision:4 | "
    "ready | rule:2 | about:3 | because* | next"
)
_REVISION_COLUMNS = columns("revision:4 | change-cause | age* | hash* | pods | changed")
_BUDGET_COLUMNS = columns("node | counts as | because")


def summary_page(
    summaries: Sequence[SetSummary],
    source: dict[str, Any],
    now_ns: int,
    namespaces: bool,
    warnings: Sequence[str] = (),
    sections: Sequence[ExplainedQuestion] = (),
) -> Page:
    """Sets with their counts: a line a set; what is odd beyond the first sentence follows below. Of
    one set asked for by name its `sections`. The document is a DaemonSetList of our own kind."""

    def blocks(*, wide: bool) -> Iterator[Block]:
        if sections and not wide:
            namespace, name = summaries[0].daemon_set.key
            yield from explained("DaemonSet", namespace, name, sections)
            return
        yield _headline(summaries)
        columns = (Column("namespace"), *_SET_COLUMNS) if namespaces else _SET_COLUMNS
        yield Table(columns, [_set_row(s, now_ns, namespaces) for s in summaries])
        for summary in summaries:
            if len(summary.odd) > 1:
                name = f"{summary.daemon_set.namespace}/{summary.daemon_set.name}"
                yield f"{name}:\n" + "\n".join(f"  {sentence}" for sentence in summary.odd)

    return Page(
        blocks,
        lambda: summaries_document(summaries, source, warnings),
        lambda: (f"daemonset.apps/{s.daemon_set.name}" for s in summaries),
    )


def _set_row(summary: SetSummary, now_ns: int, namespaces: bool) -> list[object]:
    daemon_set, counted = summary.daemon_set, summary.counted
    status = daemon_set.status if counted is None else counted
    updated: object = status.updated_number_scheduled
    if counted is not None and not summary.updated_known:
        updated = UNKNOWN
    odd = summary.odd[0] if summary.odd else NONE
    if len(summary.odd) > 1:
        odd += f" (and {len(summary.odd) - 1} more)"
    row: list[object] = [
        daemon_set.name,
        status.desired_number_scheduled,
        status.current_number_scheduled,
        status.number_ready,
        updated,
        status.number_available,
        status.number_misscheduled,
        daemon_set.spec.update_strategy.type,
        age(daemon_set.metadata.creation_timestamp, now_ns),
        odd,
    ]
    return [daemon_set.namespace, *row] if namespaces else row


def _headline(summaries: Sequence[SetSummary]) -> str:
    """How many of the sets are not as they should be, the first of them, and where to read on."""
    odd = [summary for summary in summaries if summary.odd]
    many = counted(len(summaries), "DaemonSet")
    if not odd:
        return f"Nothing is odd about {many}: each node that should run its pod has one at work."
    first = odd[0].daemon_set
    has = "is" if len(odd) == 1 else "are"
    return (
        f"{len(odd)} of {many} {has} not as it should be; the first is {first.namespace}/"
        f"{first.name}: {odd[0].odd[0]}.\n"
        f"Why: kubectl nodelife daemonset {first.name} -n {first.namespace} --nodes"
    )


def _where_it_runs(summary: SetSummary, rows: Sequence[NodeRow]) -> str:
    """On how many nodes the set should run and does, and what its controller does next."""
    wanted = [row for row in rows if row.should_run]
    ready = [row for row in wanted if any(pod.ready for pod in row.has)]
    name = f"{summary.daemon_set.namespace}/{summary.daemon_set.name}"
    shown = counted(len(rows), "node")
    text = f"{name} should run on {len(wanted)} of {shown} and is Ready on {len(ready)} of those"
    coming = [f"{row.next} ({row.node})" for row in rows if row.next]
    return text + (f"; next: {first_names(coming, 2, '; ')}." if coming else "; nothing is due.")


def truth_table_page(summary: SetSummary, rows: Sequence[NodeRow], source: dict[str, Any]) -> Page:
    """One set's truth table: a line a node, the events FailedPlacement of 1.11, then what is odd.
    Names: node/NAME of each node that should run a pod."""

    def blocks(*, wide: bool) -> Iterator[Block]:
        yield _where_it_runs(summary, rows)
        yield Table(_NODE_COLUMNS, [_node_row(row) for row in rows])
        failed = (why for row in rows for why in row.failed_placements)
        yield "\n".join(f"FailedPlacement: {why}" for why in failed)
        yield "\n".join(summary.odd)

    return Page(
        blocks,
        lambda: truth_table_document(summary, rows, source),
        lambda: (f"node/{row.node}" for row in rows if row.should_run),
    )


def _node_row(row: NodeRow) -> list[object]:
    return [
        row.node,
        row.should_run,
        row.should_schedule,
        row.should_continue,
        ",".join(_pod(pod) for pod in row.has) or NONE,
        ",".join(pod.revision or NONE for pod in row.has) or NONE,
        ",".join("true" if pod.ready else "false" for pod in row.has) or NONE,
        row.rule,
        row.subject or NONE,
        row.because,
        row.next or NONE,
    ]


def _pod(pod: PodCell) -> str:
    """The pod with its trouble; the scheduler's long reason stands below the table."""
    trouble = pod.trouble if pod.scheduled or pod.terminating else NOT_SCHEDULED
    return f"{pod.name} ({trouble})" if trouble else pod.name


def rollout_page(outlook: rollout_outlook.RolloutOutlook, source: dict[str, Any]) -> Page:
    """`daemonset status`: kubectl's sentence, then next, what is waited for, how long, and what
    uses the budget."""

    def blocks(*, wide: bool) -> Iterator[Block]:
        yield outlook.state.message
        yield "\n".join(_rollout_sentences(outlook))
        if outlook.old_nodes:
            rows = [[user.node, user.counts_as, user.because] for user in outlook.used]
            yield Table(_BUDGET_COLUMNS, rows)

    return Page(
        blocks,
        lambda: rollout_document(outlook, source),
        lambda: [f"daemonset.apps/{outlook.view.daemon_set.name}"],
    )


def rollout_news(outlook: rollout_outlook.RolloutOutlook) -> str:
    """The page without its table, for following."""
    lines = [outlook.state.message.rstrip("\n"), *(f"  {s}" for s in _rollout_sentences(outlook))]
    return "\n".join(lines) + "\n"


def _rollout_sentences(outlook: rollout_outlook.RolloutOutlook) -> Iterator[str]:
    verdict = outlook.verdict
    if verdict.because:
        yield f"{verdict.verdict}: {verdict.because}"
    if verdict.way_out:
        yield f"way out: {verdict.way_out}"
    if outlook.missing_parts:
        yield outlook.missing_parts
    for sentence in outlook.odd:
        yield f"odd: {sentence}"
    if not outlook.old_nodes:
        return
    have = "still has" if outlook.old_nodes == 1 else "still have"
    yield f"{counted(outlook.old_nodes, 'node')} {have} a pod of another revision"
    for sentence in outlook.next:
        yield f"next: {sentence}"
    for sentence in outlook.loses:
        yield f"lost: {sentence}"
    for sentence in outlook.waits_for:
        yield f"waits: {sentence}"
    if outlook.estimate is not None:
        yield _duration(outlook.estimate)


def _duration(estimate: rollout_outlook.RolloutEstimate) -> str:
    low = human_seconds(estimate.low_seconds)
    high = human_seconds(estimate.high_seconds)
    return f"about {low} to {high} more: {estimate.basis}"


def history_page(
    namespace: str,
    name: str,
    rows: Sequence[rollout_outlook.RevisionRow],
    source: dict[str, Any],
    now_ns: int,
    only: int = 0,
) -> Page:
    """`daemonset history`: all revisions in a table, or changes and template of the one of number
    `only`; 0: all."""
    rows = [row for row in rows if only in (0, row.revision.revision)]

    def blocks(*, wide: bool) -> Iterator[Block]:
        yield f"daemonset.apps/{name}" + (f" with revision #{only}" if only else "")
        if not only:
            yield Table(_REVISION_COLUMNS, [_revision_row(row, now_ns) for row in rows])
            return
        for row in rows:
            yield describe_pod_template(default_pod_template(row.document()["template"]))
            changes = [f"  {change}" for change in row.changes]
            if changes:
                yield "Changed from the revision before:\n" + "\n".join(changes)

    return Page(
        blocks,
        lambda: history_document(namespace, name, rows, source),
        lambda: (f"controllerrevision.apps/{row.revision.name}" for row in rows),
    )


def _revision_row(row: rollout_outlook.RevisionRow, now_ns: int) -> list[object]:
    first = str(row.changes[0]) if row.changes else NONE
    more = f" (and {len(row.changes) - 1} more)" if len(row.changes) > 1 else ""
    number = f"{row.revision.revision}{' (current)' if row.current else ''}"
    pods = UNKNOWN if row.pods is None else row.pods
    old = age(row.revision.metadata.creation_timestamp, now_ns)
    return [number, row.cause, old, row.document()["hash"], pods, first + more]


def undo_page(
    outlook: rollout_outlook.UndoOutlook, source: dict[str, Any], *, dry_run: bool = True
) -> Page:
    """`daemonset undo`: the patch that would be sent, and what follows."""
    name = outlook.view.daemon_set.name

    def blocks(*, wide: bool) -> Iterator[Block]:
        """kubectl's sentence, the changes, the effects, the patch."""
        import yaml

        if dry_run:
            yield f"daemonset.apps/{name} {outlook.plan.message} (dry run)"
        elif outlook.plan.skipped:
            yield f"daemonset.apps/{name} {outlook.plan.message}"
        if outlook.plan.skipped:
            return
        if outlook.changes:
            yield "Changes:\n" + "\n".join(f"  {change}" for change in outlook.changes)
        yield "Then:\n" + "\n".join(f"  {effect}" for effect in outlook.effects)
        patch = yaml.safe_dump(outlook.plan.patch, sort_keys=False).rstrip("\n")
        yield f"Patch (strategic merge):\n{patch}"

    return Page(
        blocks,
        lambda: rollback_document(outlook, source, dry_run=dry_run),
        lambda: [f"daemonset.apps/{name}"],
    )
