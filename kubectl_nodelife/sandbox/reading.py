"""Get, list and watch, of the objects that a request's selectors choose, as objects or as tables.

Lists page by key with a token that holds the version of the first page; watches replay the log from
a version on and then follow it. Label and field selectors make one filter of objects
(`read_filter`). Follows apiserver's cacher (pkg/storage/cacher) as clients see it: bookmarks,
initial events, 410 for versions that the log no longer has.

Server-side tables are how `kubectl get` gets its columns. They follow
pkg/printers/internalversion/printers.go for nodes, pods, DaemonSets, budgets and leases; other
kinds get name and age. Left out: the details of a pod's status column (init containers,
signals).
"""

from __future__ import annotations

import asyncio
import base64
import binascii
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from typing import Any, NamedTuple

import msgspec

from kubectl_nodelife.kube import selectors
from kubectl_nodelife.kube.kinds import Kind
from kubectl_nodelife.kube.meta import KubeObject
from kubectl_nodelife.kube.pod import TERMINAL_PHASES
from kubectl_nodelife.kube.times import human_duration, parse_time
from kubectl_nodelife.kube.workload import Event
from kubectl_nodelife.sandbox.status import StatusError, bad_request, expired, invalid
from kubectl_nodelife.sandbox.store import (
    ADDED,
    DELETED,
    MODIFIED,
    Collection,
    ObjectStore,
    StoreChange,
    StoredObject,
    event_line,
)

_INITIAL_AT_ONCE = 500
_INITIAL_EVENTS_END = {"k8s.io/initial-events-end": "true"}

Filter = Callable[[KubeObject], bool]
# `kubectl describe` asks for the events of an object by these.
_EVENT_FIELDS: Mapping[str, Callable[[Event], str]] = {
    "involvedObject.kind": lambda e: e.involved_object.kind,
    "involvedObject.namespace": lambda e: e.involved_object.namespace,
    "involvedObject.name": lambda e: e.involved_object.name,
    "involvedObject.uid": lambda e: e.involved_object.uid,
    "reason": lambda e: e.reason,
    "type": lambda e: e.type,
}


class Accept(NamedTuple):
    """The form of answer that the client asks for: a Table, and what it includes of each object."""

    as_table: bool = False
    include: str = "Metadata"


class WatchPlan(NamedTuple):
    """A watch as asked for. `version` None: begin with all objects as they are now."""

    resource: Kind
    filter: Filter | None
    version: int | None
    mark_initial_end: bool
    bookmarks: bool
    timeout_s: float


class Reader:
    """Answers reads from a store. `bookmark_s`: how often quiet watchers get a bookmark."""

    def __init__(self, store: ObjectStore) -> None:
        self._store = store
        self.bookmark_s = 60.0

    def list_body(
        self, resource: Kind, namespace: str, query: Mapping[str, str], accept: Accept, now_ns: int
    ) -> bytes:
        """The JSON of a list. Raises StatusError."""
        entries, meta = self.select(resource, namespace, query)
        if accept.as_table:
            return msgspec.json.encode(table(resource, entries, meta, now_ns, accept.include))
        return b'{"kind":"%sList","apiVersion":"%s","metadata":%s,"items":[%s]}' % (
            resource.name.encode(),
            resource.api_version.encode(),
            msgspec.json.encode(meta),
            b",".join([entry.raw for entry in entries]),
        )

    def select(
        self, resource: Kind, namespace: str, query: Mapping[str, str]
    ) -> tuple[list[StoredObject], dict[str, Any]]:
        """(the objects of a list request, the list's metadata). Raises StatusError."""
        collection = self._store.collections[resource.name]
        wanted = read_filter(resource, namespace, query)
        limit = _number(query, "limit")
        after, version = None, self._store.version
        if query.get("continue"):
            after, version = _read_token(query["continue"])
            if version < collection.oldest:
                raise expired("The provided continue parameter is too old.")
        keys, behind = collection.page(after, limit, namespace)
        entries = [collection.entries[key] for key in keys]
        if wanted is not None:
            entries = [entry for entry in entries if wanted(entry.obj)]
        meta: dict[str, Any] = {"resourceVersion": str(version)}
        if behind and keys:
            meta["continue"] = _token(keys[-1], version)
            if not query.get("labelSelector") and not query.get("fieldSelector"):
                meta["remainingItemCount"] = behind
        return entries, meta

    def plan_watch(self, resource: Kind, namespace: str, query: Mapping[str, str]) -> WatchPlan:
        """The terms of a watch request. Raises StatusError: 400, 410, 422, 504."""
        collection = self._store.collections[resource.name]
        text = query.get("resourceVersion", "")
        initial = query.get("sendInitialEvents") == "true"
        if initial and query.get("resourceVersionMatch") != "NotOlderThan":
            raise invalid(resource, "", "resourceVersionMatch", "Required value")
        if text and not text.isdecimal():
            raise bad_request(f"Invalid value: {text!r}: it is not a resource version")
        version: int | None = int(text or 0)
        if version and version > self._store.version:
            message = f"Too large resource version: {version}, current: {self._store.version}"
            raise StatusError(504, "Timeout", message, retry_after_s=1)
        if initial or not version:
            version = None
        elif version < collection.oldest:
            raise expired(f"too old resource version: {version} ({collection.oldest})")
        return WatchPlan(
            resource,
            read_filter(resource, namespace, query),
            version,
            initial,
            query.get("allowWatchBookmarks") == "true",
            _number(query, "timeoutSeconds") or 1800,
        )

    async def watch(
        self, plan: WatchPlan, accept: Accept, now_ns: Callable[[], int]
    ) -> AsyncIterator[bytes]:
        """The stream's pieces, each of whole lines, until the time asked for is over."""
        collection = self._store.collections[plan.resource.name]
        form = object_form(plan.resource, accept, now_ns)
        loop = asyncio.get_running_loop()
        ends = loop.time() + plan.timeout_s
        version = plan.version
        if version is None:
            version = self._store.version
            for entries in _initial(plan, collection):
                yield b"".join(event_line(ADDED, form(entry)) for entry in entries)
            if plan.mark_initial_end:
                yield self._bookmark(plan.resource, version, _INITIAL_EVENTS_END)
        quiet_since = loop.time()
        while True:
            changed = collection.changed
            if version < collection.oldest:
                yield event_line("ERROR", msgspec.json.encode(expired().document()))
                return
            changes = list(collection.since(version))
            if changes:
                version = changes[-1].version
                lines = b"".join(
                    event_line(type_, form(change.entry)) if accept.as_table else change.line(type_)
                    for change in changes
                    if (type_ := _seen_as(change, plan.filter))
                )
                if lines:
                    yield lines
                    quiet_since = loop.time()
                    continue  # what came meanwhile
            now = loop.time()
            if now >= ends:
                return
            if plan.bookmarks and now - quiet_since >= self.bookmark_s:
                version = max(version, self._store.version)
                yield self._bookmark(plan.resource, version)
                quiet_since = now
            until = min(ends, quiet_since + self.bookmark_s)
            try:
                async with asyncio.timeout_at(until):
                    await changed.wait()
            except TimeoutError:
                continue

    def _bookmark(
        self, resource: Kind, version: int, annotations: dict[str, str] | None = None
    ) -> bytes:
        meta: dict[str, Any] = {"resourceVersion": str(version), "creationTimestamp": None}
        if annotations:
            meta["annotations"] = annotations
        document = {"kind": resource.name, "apiVersion": resource.api_version, "metadata": meta}
        return event_line("BOOKMARK", msgspec.json.encode(document))


def object_form(
    resource: Kind, accept: Accept, now_ns: Callable[[], int]
) -> Callable[[StoredObject], bytes]:
    """What a client gets of one object: the object itself, or a Table of it."""

    def rows(entry: StoredObject) -> bytes:
        meta = {"resourceVersion": str(entry.version)}
        return msgspec.json.encode(table(resource, [entry], meta, now_ns(), accept.include))

    return rows if accept.as_table else lambda entry: entry.raw


def _initial(plan: WatchPlan, collection: Collection) -> Iterator[list[StoredObject]]:
    """All objects, some at a time; what changes meanwhile comes after them from the log."""
    wanted = plan.filter
    keys = list(collection.keys())
    for start in range(0, len(keys), _INITIAL_AT_ONCE):
        entries = map(collection.entries.get, keys[start : start + _INITIAL_AT_ONCE])
        yield [
            entry
            for entry in entries
            if entry is not None and (wanted is None or wanted(entry.obj))
        ]


def _seen_as(change: StoreChange, wanted: Filter | None) -> str:
    """The type of the event that a watcher with that filter gets for the change, "" for none."""
    if wanted is None:
        return change.type
    now = change.type != DELETED and wanted(change.entry.obj)
    before = change.old is not None and wanted(change.old.obj)
    if now:
        return MODIFIED if before else ADDED
    return DELETED if before else ""


def _number(query: Mapping[str, str], name: str) -> int:
    text = query.get(name, "")
    if text and not text.isdecimal():
        raise bad_request(f"{name} {text!r} is not a number")
    return int(text or 0)


def _token(key: tuple[str, str], version: int) -> str:
    return base64.urlsafe_b64encode(msgspec.json.encode([*key, version])).decode()


def _read_token(text: str) -> tuple[tuple[str, str], int]:
    try:
        namespace, name, version = msgspec.json.decode(
            base64.urlsafe_b64decode(text), type=tuple[str, str, int]
        )
    except (binascii.Error, msgspec.MsgspecError, ValueError):
        raise bad_request("continue key is not valid") from None
    return (namespace, name), version


def read_filter(resource: Kind, namespace: str, query: Mapping[str, str]) -> Filter | None:
    """The filter of the request's selectors and namespace; None: everything. Raises StatusError."""
    parts: list[Filter] = []
    if namespace:
        parts.append(lambda obj: obj.metadata.namespace == namespace)
    labels, fields = query.get("labelSelector", ""), query.get("fieldSelector", "")
    try:
        if labels:
            selector = selectors.parse_selector(labels)
            parts.append(lambda obj: selectors.matches(selector, obj.metadata.labels))
    except ValueError as error:
        raise bad_request(f"unable to parse requirement: {error}") from None
    try:
        if fields:
            parts.append(_field_filter(resource, fields))
    except ValueError:
        unknown = fields.partition("=")[0].rstrip("!")
        raise bad_request(f"field label not supported: {unknown}") from None
    if not parts:
        return None
    return lambda obj: all(part(obj) for part in parts)


def _field_filter(resource: Kind, text: str) -> Filter:
    if resource.name != "Event":
        wanted = selectors.parse_field_selector(text, resource.type)
        return lambda obj: selectors.matches_fields(wanted, obj)
    terms: list[tuple[Callable[[Any], str], bool, str]] = []
    others = []
    for term in filter(None, text.split(",")):
        field, _, value = term.partition("=")
        equal = not field.endswith("!")
        read = _EVENT_FIELDS.get(field.removesuffix("!"))
        if read is None:
            others.append(term)
        else:
            terms.append((read, equal, value.removeprefix("=")))
    rest = selectors.parse_field_selector(",".join(others), resource.type)
    return lambda obj: (
        all((read(obj) == value) == equal for read, equal, value in terms)
        and selectors.matches_fields(rest, obj)
    )


Document = dict[str, Any]
_NONE = "<none>"
_ROLE = "node-role.kubernetes.io/"


def table(
    resource: Kind,
    entries: list[StoredObject],
    meta: Document,
    now_ns: int,
    include: str = "Metadata",
) -> Document:
    """A `meta.k8s.io/v1` Table of these objects. `include`: what of each object goes along."""
    columns, wide, cells = _SHAPES.get(resource.name, (("Name", "Age"), (), _other_cells))
    return {
        "kind": "Table",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": meta,
        "columnDefinitions": [
            {
                "name": name,
                "type": "string",
                "format": "name" if name == "Name" else "",
                "description": "",
                "priority": int(place >= len(columns)),
            }
            for place, name in enumerate((*columns, *wide))
        ],
        "rows": [_row(entry, cells, now_ns, include) for entry in entries],
    }


def _row(entry: StoredObject, cells: Cells, now_ns: int, include: str) -> Document:
    document = entry.document()
    row: Document = {"cells": cells(document, now_ns)}
    if include == "Object":
        row["object"] = msgspec.Raw(entry.raw)
    elif include != "None":
        row["object"] = {
            "kind": "PartialObjectMetadata",
            "apiVersion": "meta.k8s.io/v1",
            "metadata": document["metadata"],
        }
    return row


Cells = Callable[[Document, int], list[Any]]


def _age(document: Document, now_ns: int) -> str:
    return _since(document["metadata"].get("creationTimestamp"), now_ns)


def _since(stamp: str | None, now_ns: int) -> str:
    return human_duration(now_ns - parse_time(stamp)) if stamp else "<unknown>"


def _other_cells(document: Document, now_ns: int) -> list[Any]:
    return [document["metadata"]["name"], _age(document, now_ns)]


def _node_cells(node: Document, now_ns: int) -> list[Any]:
    """Follows `printNode`."""
    status, labels = node.get("status") or {}, node["metadata"].get("labels") or {}
    states = [
        "Ready" if c.get("status") == "True" else "NotReady"
        for c in status.get("conditions") or ()
        if c.get("type") == "Ready"
    ] or ["Unknown"]
    if (node.get("spec") or {}).get("unschedulable"):
        states.append("SchedulingDisabled")
    roles = {key.removeprefix(_ROLE) for key in labels if key.startswith(_ROLE)}
    roles |= {labels.get("kubernetes.io/role", "")}
    about = status.get("nodeInfo") or {}
    addresses = {a.get("type"): a.get("address") for a in status.get("addresses") or ()}
    image, kernel, runtime = (
        about.get(key) or "<unknown>"
        for key in ("osImage", "kernelVersion", "containerRuntimeVersion")
    )
    if architecture := about.get("architecture"):
        kernel += f" ({architecture})"
    name, named = node["metadata"]["name"], ",".join(sorted(filter(None, roles))) or _NONE
    row = [name, ",".join(states), named, _age(node, now_ns), about.get("kubeletVersion", "")]
    at = [addresses.get(type_) or _NONE for type_ in ("InternalIP", "ExternalIP")]
    return [*row, *at, image, kernel, runtime]


def _pod_cells(pod: Document, now_ns: int) -> list[Any]:
    """Follows `printPod`."""
    spec, status = pod.get("spec") or {}, pod.get("status") or {}
    statuses = status.get("containerStatuses") or []
    wanted = len(spec.get("containers") or ()) or 1
    ready = sum(1 for s in statuses if s.get("ready"))
    if not statuses and _condition(status, "Ready") == "True":
        ready = wanted  # a simulated kubelet reports no containers
    restarts = sum(s.get("restartCount", 0) for s in statuses)
    gates = spec.get("readinessGates") or []
    passed = sum(1 for g in gates if _condition(status, g.get("conditionType")) == "True")
    name, reason = pod["metadata"]["name"], _pod_reason(pod, status, statuses)
    places = (status.get("podIP"), spec.get("nodeName"), status.get("nominatedNodeName"))
    where = [place or _NONE for place in places]
    gated = f"{passed}/{len(gates)}" if gates else _NONE
    return [name, f"{ready}/{wanted}", reason, str(restarts), _age(pod, now_ns), *where, gated]


def _pod_reason(pod: Document, status: Document, statuses: list[Document]) -> str:
    phase = str(status.get("phase") or "")
    if "deletionTimestamp" in pod["metadata"] and phase not in TERMINAL_PHASES:
        return "Unknown" if status.get("reason") == "NodeLost" else "Terminating"
    reason = str(status.get("reason") or phase)
    for container in reversed(statuses):
        state = container.get("state") or {}
        for word in ("waiting", "terminated"):
            if (state.get(word) or {}).get("reason"):
                reason = state[word]["reason"]
    return reason


def _condition(status: Document, type_: str | None) -> str:
    for condition in status.get("conditions") or ():
        if condition.get("type") == type_:
            return str(condition.get("status"))
    return ""


_DAEMON_COUNTS = (
    *("desiredNumberScheduled", "currentNumberScheduled", "numberReady"),
    *("updatedNumberScheduled", "numberAvailable"),
)


def _daemon_set_cells(daemon_set: Document, now_ns: int) -> list[Any]:
    status = daemon_set.get("status") or {}
    template = (daemon_set.get("spec") or {}).get("template") or {}
    selector = (template.get("spec") or {}).get("nodeSelector") or {}
    selected = ",".join(f"{k}={v}" for k, v in selector.items()) or _NONE
    counts = [status.get(field, 0) for field in _DAEMON_COUNTS]
    return [daemon_set["metadata"]["name"], *counts, selected, _age(daemon_set, now_ns)]


def _budget_cells(budget: Document, now_ns: int) -> list[Any]:
    spec, status = budget.get("spec") or {}, budget.get("status") or {}
    bounds = [str(spec.get(field, "N/A")) for field in ("minAvailable", "maxUnavailable")]
    allowed = status.get("disruptionsAllowed", 0)
    return [budget["metadata"]["name"], *bounds, allowed, _age(budget, now_ns)]


def _lease_cells(lease: Document, now_ns: int) -> list[Any]:
    holder = (lease.get("spec") or {}).get("holderIdentity") or ""
    return [lease["metadata"]["name"], holder, _age(lease, now_ns)]


def _event_cells(event: Document, now_ns: int) -> list[Any]:
    about = event.get("involvedObject") or {}
    seen = _since(event.get("lastTimestamp") or event.get("eventTime"), now_ns)
    obj = f"{str(about.get('kind', '')).lower()}/{about.get('name', '')}"
    return [seen, event.get("type", ""), event.get("reason", ""), obj, event.get("message", "")]


# kind -> its columns, more of them for -o wide, and what fills them
_SHAPES: dict[str, tuple[tuple[str, ...], tuple[str, ...], Cells]] = {
    "Node": (
        ("Name", "Status", "Roles", "Age", "Version"),
        ("Internal-IP", "External-IP", "OS-Image", "Kernel-Version", "Container-Runtime"),
        _node_cells,
    ),
    "Pod": (
        ("Name", "Ready", "Status", "Restarts", "Age"),
        ("IP", "Node", "Nominated Node", "Readiness Gates"),
        _pod_cells,
    ),
    "DaemonSet": (
        ("Name", "Desired", "Current", "Ready", "Up-to-date", "Available", "Node Selector", "Age"),
        (),
        _daemon_set_cells,
    ),
    "PodDisruptionBudget": (
        ("Name", "Min Available", "Max Unavailable", "Allowed Disruptions", "Age"),
        (),
        _budget_cells,
    ),
    "Lease": (("Name", "Holder", "Age"), (), _lease_cells),
    "Event": (("Last Seen", "Type", "Reason", "Object", "Message"), (), _event_cells),
}
