"""The objects that tests are about: makers of plain JSON documents, as the API server has them.

Each maker writes what any such object has, and takes by name what tests vary; what it has no name
for goes into `metadata` and `status`, laid over what the maker wrote, and all other names into
`spec`. What is None or empty is left out, as the API leaves it out. `typed` makes the package's
slice of a document, by the package's own decoder, and `put` the change that tells an engine of it.

An instant is RFC 3339 text, or nanoseconds since the Unix epoch; `ago` counts back from NOW, which
is the one time base. A test that needs an object with something truly its own makes it itself,
under a name that says what is special.
"""

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from kubectl_nodelife.engine.events import Put
from kubectl_nodelife.kube.codec import decode, encode
from kubectl_nodelife.kube.kinds import KINDS
from kubectl_nodelife.kube.meta import ApiStruct
from kubectl_nodelife.kube.times import SECOND_NS, format_micro_time, format_time, parse_time

Document = dict[str, Any]
Instant = str | int
Part = ApiStruct | Mapping[str, Any]
"""A part of an object, a taint say: as the API writes it, or as the package's slice."""

NOW = "2026-11-22T12:00:00Z"
NOW_NS = int(parse_time(NOW))
ROOM = {"cpu": "4", "memory": "8Gi", "pods": "110"}
"""What a node of middling size has for pods."""
VERSIONS = {kind.name: kind.api_version for kind in KINDS}
CONTAINER = {"name": "c", "image": "registry.example/app:1"}
ZONE = "topology.kubernetes.io/zone"
NOT_READY = "node.kubernetes.io/not-ready"
UNREACHABLE = "node.kubernetes.io/unreachable"


def typed(document: Document) -> Any:
    """The package's slice of a document: a Node, a Pod."""
    return decode(document["kind"], document)


def put(document: Document) -> Put:
    """The change that tells an engine of the object."""
    return Put(document["kind"], typed(document))


def ago(seconds: float, since: Instant = NOW_NS) -> int:
    """The instant that many seconds before NOW, in nanoseconds since the Unix epoch."""
    start = int(parse_time(since)) if isinstance(since, str) else since
    return start - round(seconds * SECOND_NS)


def instant(when: Instant) -> str:
    """An instant in whole seconds, as most fields have it."""
    return when if isinstance(when, str) else format_time(when)


def micro(when: Instant) -> str:
    """An instant in microseconds, as a Lease has it."""
    return format_micro_time(int(parse_time(when)) if isinstance(when, str) else when)


def write_list(path: Path, items: Iterable[Document], **metadata: Any) -> str:
    """A dump of the objects, as `kubectl get -o json` prints them; the path for `-f`."""
    listed = {"apiVersion": "v1", "kind": "List", "items": list(items)}
    path.write_text(json.dumps(listed | ({"metadata": metadata} if metadata else {})))
    return str(path)


def of_kind(
    kind: str,
    name: str,
    namespace: str = "",
    *,
    uid: str | None = None,
    version: str = "",
    created: Instant = "",
    labels: Mapping[str, str] | None = None,
    owners: Iterable[Part] = (),
    metadata: Mapping[str, Any] | None = None,
    **parts: Any,
) -> Document:
    """An object of any kind that the package knows. Its uid is made of its name if None is given,
    and it has none if that is empty; `version` is its resourceVersion."""
    own = {
        "name": name,
        "namespace": namespace,
        "uid": f"uid-{name}" if uid is None else uid,
        "resourceVersion": version,
        "creationTimestamp": instant(created) if created != "" else "",
        "labels": labels,
        "ownerReferences": [plain(reference) for reference in owners],
    }
    return {
        "apiVersion": VERSIONS[kind],
        "kind": kind,
        "metadata": {**without_empty(own), **(metadata or {})},
        **{part: value for part, value in parts.items() if value is not None},
    }


def manifest(kind: str, name: str, namespace: str = "", **more: Any) -> Document:
    """An object as somebody writes it into a file: without a uid. `more` is that of `of_kind`."""
    return of_kind(kind, name, namespace, uid="", **more)


def node(
    name: str = "n1",
    ready: str | None = "True",
    reason: str = "",
    *,
    message: str = "",
    heartbeat: Instant | None = None,
    since: Instant | None = None,
    conditions: Iterable[Part] = (),
    taints: Iterable[Part] = (),
    zone: str = "",
    labels: Mapping[str, str] | None = None,
    allocatable: Mapping[str, str] | None = None,
    status: Mapping[str, Any] | None = None,
    uid: str | None = None,
    version: str = "",
    created: Instant = "",
    metadata: Mapping[str, Any] | None = None,
    **spec: Any,
) -> Document:
    """A node. `ready` is the status of its condition Ready, None for no such condition; `since` is
    when that changed last, `heartbeat` when the kubelet posted it; `conditions` come beside it."""
    says = {} if ready is None else condition("Ready", ready, reason, message, since)
    if says and heartbeat is not None:
        says["lastHeartbeatTime"] = instant(heartbeat)
    every = (
        [says, *(plain(each) for each in conditions)] if says else [plain(c) for c in conditions]
    )
    return of_kind(
        "Node",
        name,
        uid=uid,
        version=version,
        created=created,
        labels={**({ZONE: zone} if zone else {}), **(labels or {})},
        metadata=metadata,
        spec=without_empty({"taints": [plain(each) for each in taints], **spec}),
        status={
            **without_empty({"conditions": every, "allocatable": allocatable}),
            **(status or {}),
        },
    )


def pod(
    name: str = "p",
    on: str = "n1",
    *,
    namespace: str = "default",
    phase: str = "Running",
    ready: bool | str | None = None,
    since: Instant | None = None,
    conditions: Iterable[Part] = (),
    owner: Part | None = None,
    tolerations: Iterable[Part] = (),
    tolerates: int | None = None,
    grace: int | None = None,
    deleted: Instant | None = None,
    labels: Mapping[str, str] | None = None,
    status: Mapping[str, Any] | None = None,
    uid: str | None = None,
    version: str = "",
    created: Instant = "",
    metadata: Mapping[str, Any] | None = None,
    **spec: Any,
) -> Document:
    """A pod with one container, on a node unless `on` is empty. `ready`: None for no condition
    Ready, `since` is when that changed last; `conditions` come beside it. `tolerates`: how many
    seconds it tolerates lost nodes, as admission writes it; `grace` is its
    terminationGracePeriodSeconds, `deleted` its deletionTimestamp."""
    says = [] if ready is None else [condition("Ready", str(ready), changed=since)]
    accepted = [plain(each) for each in tolerations]
    if tolerates is not None:
        accepted += [toleration(key, seconds=tolerates) for key in (NOT_READY, UNREACHABLE)]
    own = {"nodeName": on, "containers": [dict(CONTAINER)], "tolerations": accepted}
    own["terminationGracePeriodSeconds"] = grace
    meta = {} if deleted is None else {"deletionTimestamp": instant(deleted)}
    says += [plain(each) for each in conditions]
    return of_kind(
        "Pod",
        name,
        namespace,
        uid=uid,
        version=version,
        created=created,
        labels=labels,
        owners=() if owner is None else (owner,),
        metadata={**meta, **(metadata or {})},
        spec={**without_empty(own), **spec},
        status={**without_empty({"phase": phase, "conditions": says}), **(status or {})},
    )


def lease(
    name: str = "n1",
    renewed: Instant | None = NOW_NS,
    *,
    namespace: str = "kube-node-lease",
    seconds: int = 40,
    holder: str | None = None,
    uid: str | None = None,
    version: str = "",
    metadata: Mapping[str, Any] | None = None,
    **spec: Any,
) -> Document:
    """The Lease of a kubelet, renewed at that instant, None for never. `holder` is who holds it,
    if not the node of its name, and `seconds` for how long."""
    own = {
        "holderIdentity": name if holder is None else holder,
        "leaseDurationSeconds": seconds,
        "renewTime": None if renewed is None else micro(renewed),
    }
    return of_kind(
        "Lease",
        name,
        namespace,
        uid=f"lease-{name}" if uid is None else uid,
        version=version,
        metadata=metadata,
        spec={**without_empty(own), **spec},
    )


def budget(
    name: str = "web",
    app: str | None = None,
    *,
    namespace: str = "default",
    uid: str | None = None,
    version: str = "",
    metadata: Mapping[str, Any] | None = None,
    status: Mapping[str, Any] | None = None,
    **spec: Any,
) -> Document:
    """A PodDisruptionBudget of the pods with the label app=APP; its own name if None is given."""
    selector = {"matchLabels": {"app": name if app is None else app}}
    return of_kind(
        "PodDisruptionBudget",
        name,
        namespace,
        uid=f"pdb-{name}" if uid is None else uid,
        version=version,
        metadata=metadata,
        spec={"selector": selector, **spec},
        status=status,
    )


def workload(
    kind: str,
    name: str = "web",
    replicas: int | None = None,
    *,
    namespace: str = "default",
    pods: Mapping[str, Any] | None = None,
    uid: str | None = None,
    version: str = "",
    metadata: Mapping[str, Any] | None = None,
    status: Mapping[str, Any] | None = None,
    **spec: Any,
) -> Document:
    """A Deployment, ReplicaSet, StatefulSet or DaemonSet whose pods have the label app=NAME;
    `pods` goes into the spec of its pods."""
    labels = {"app": name}
    template = {
        "metadata": {"labels": labels},
        "spec": {"containers": [dict(CONTAINER)], **(pods or {})},
    }
    own = {"replicas": replicas, "selector": {"matchLabels": labels}, "template": template}
    own = {key: value for key, value in own.items() if value is not None}
    return of_kind(
        kind,
        name,
        namespace,
        uid=uid,
        version=version,
        metadata=metadata,
        spec={**own, **spec},
        status=status,
    )


def owner(kind: str, name: str = "web", uid: str | None = None, **more: Any) -> Document:
    """The reference of a pod to its controller; the uid is that which `workload` gives. A kind that
    the package does not know is of apps/v1."""
    own = {
        "apiVersion": VERSIONS.get(kind, "apps/v1"),
        "kind": kind,
        "name": name,
        "uid": f"uid-{name}" if uid is None else uid,
        "controller": True,
    }
    return {**own, **more}


def event(
    about: tuple[str, str],
    reason: str,
    message: str = "",
    *,
    when: Instant,
    by: str,
    host: str = "",
    namespace: str = "default",
    name: str = "",
) -> Document:
    """An Event about an object, (kind, name), of the namespace unless it is a node; `by` is the
    component that reports it."""
    kind, of = about
    involved = {"kind": kind, "name": of, "namespace": "" if kind == "Node" else namespace}
    return of_kind(
        "Event",
        name or f"{of}.{reason}",
        namespace,
        uid="",
        created=when,
        involvedObject=without_empty(involved),
        reason=reason,
        message=message,
        source=without_empty({"component": by, "host": host}),
        firstTimestamp=instant(when),
        lastTimestamp=instant(when),
        count=1,
        type="Normal",
    )


def admission_rule(*resources: str, on: str = "CREATE") -> Document:
    """A rule of a webhook or a policy, about requests on resources of the core group."""
    about = {"apiGroups": [""], "apiVersions": ["v1"], "resources": list(resources)}
    return {"operations": [on], **about}


def webhook(*resources: str, on: str = "CREATE", **hook: Any) -> Document:
    """A configuration with one validating webhook; it is asked about evictions if no resources are
    given."""
    rule = admission_rule(*(resources or ("pods/eviction",)), on=on)
    own = {"name": "guard.example.com", "rules": [rule], **hook}
    return manifest("ValidatingWebhookConfiguration", "guard", webhooks=[own])


def condition(
    type_: str,
    status: str = "True",
    reason: str = "",
    message: str = "",
    changed: Instant | None = None,
) -> Document:
    """A condition of a node or a pod; `changed` is its lastTransitionTime."""
    own = {
        "type": type_,
        "status": status,
        "reason": reason,
        "message": message,
        "lastTransitionTime": None if changed is None else instant(changed),
    }
    return without_empty(own)


def taint(
    key: str, effect: str = "NoExecute", value: str = "", added: Instant | None = None
) -> Document:
    """A taint; `added` is its timeAdded."""
    when = None if added is None else instant(added)
    return without_empty({"key": key, "value": value, "effect": effect, "timeAdded": when})


def toleration(
    key: str = "", effect: str = "NoExecute", seconds: int | None = None, value: str | None = None
) -> Document:
    """A toleration of any value, unless one is given; of an empty key and effect: of everything."""
    own = {
        "key": key,
        "operator": "Exists" if value is None else "Equal",
        "value": value,
        "effect": effect,
        "tolerationSeconds": seconds,
    }
    return without_empty(own)


def plain(part: Part) -> Document:
    """A part of an object as the API writes it."""
    return encode(part) if isinstance(part, ApiStruct) else dict(part)


def without_empty(fields: Mapping[str, Any]) -> Document:
    """The fields that say something: numbers and booleans, and what is not empty."""
    return {key: value for key, value in fields.items() if value not in (None, "", [], {}, ())}
