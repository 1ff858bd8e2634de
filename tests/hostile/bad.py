"""Objects that cannot be read or decided on, each as the JSON that an API server might send."""

import json
from typing import Any

_VERSIONS = {
    "Node": "v1",
    "Pod": "v1",
    "DaemonSet": "apps/v1",
    "ControllerRevision": "apps/v1",
    "Lease": "coordination.k8s.io/v1",
}


def document(kind: str, name: str, **members: Any) -> dict[str, Any]:
    """An object with the least that it needs."""
    metadata: dict[str, Any] = {"name": name, "uid": f"uid-{name}", "resourceVersion": "7"}
    if kind != "Node":
        metadata["namespace"] = "kube-node-lease" if kind == "Lease" else "d"
    return {"apiVersion": _VERSIONS[kind], "kind": kind, "metadata": metadata, **members}


def good(kind: str, name: str) -> bytes:
    """An object that nobody complains of."""
    return json.dumps(document(kind, name)).encode()


def bad(kind: str, **members: Any) -> tuple[str, bytes]:
    """The one named "bad". Bytes in `members` stand for themselves."""
    text = json.dumps(document(kind, "bad", **members), default=lambda raw: raw.decode("latin-1"))
    for raw in members.values():
        if isinstance(raw, bytes):
            text = text.replace(json.dumps(raw.decode("latin-1")), raw.decode("latin-1"))
    return kind, text.encode("latin-1")


def line(type_: str, raw: bytes) -> bytes:
    """A line of a watch."""
    return b'{"type":"%s","object":%s}\n' % (type_.encode(), raw)


def _deep(levels: int) -> bytes:
    return b'{"a":' * levels + b"1" + b"}" * levels


def _revision(data: Any) -> tuple[str, bytes]:
    return bad("ControllerRevision", data=data, revision=1)


BAD: dict[str, tuple[str, bytes]] = {
    "a revision whose spec is text": _revision({"spec": "x"}),
    "a revision whose data is text": _revision("x"),
    "a revision whose data is a list": _revision([1]),
    "a revision whose template is a list": _revision({"spec": {"template": [1]}}),
    "a revision nested 900 deep": _revision(_deep(900)),
    "a revision nested 9000 deep": _revision(_deep(9000)),
    "a revision with an integer over 2^64": _revision(b'{"a":123456789012345678901234567890}'),
    "a revision with a number of 6000 digits": _revision(b'{"a":%s}' % (b"9" * 6000)),
    "a revision with a number that is none": _revision(b'{"a":1e999}'),
    "a pod with invalid UTF-8": bad("Pod", spec={"nodeName": "n"}, status=b'{"phase":"\xff\xfe"}'),
    "a pod with half a surrogate": bad("Pod", status=b'{"phase":"\\ud800"}'),
    "a pod with a request that is none": bad(
        "Pod", spec={"containers": [{"name": "c", "resources": {"requests": {"cpu": "much"}}}]}
    ),
    "a pod that is text": bad("Pod", spec="x"),
    "a pod whose time is none": bad("Pod", status={"startTime": "yesterday"}),
    "a pod whose time is beyond the calendar": bad(
        "Pod", status={"startTime": "9999-12-31T23:59:59-23:59"}
    ),
    "a pod with a grace over 2^64": bad(
        "Pod", spec=b'{"terminationGracePeriodSeconds":36893488147419103232}'
    ),
    "a pod with a priority over 2^63": bad("Pod", spec=b'{"priority":9223372036854775808}'),
    "a pod with a restart count over 2^64": bad(
        "Pod", status=b'{"containerStatuses":[{"restartCount":36893488147419103232}]}'
    ),
    "a lease whose duration is over 2^64": bad(
        "Lease", spec=b'{"leaseDurationSeconds":36893488147419103232}'
    ),
    "a node with a bad allocatable": bad("Node", status={"allocatable": {"cpu": "NaN"}}),
    "a node whose conditions are a number": bad("Node", status={"conditions": 5}),
    "a node whose allocatable is a list": bad("Node", status={"allocatable": ["1"]}),
    "a lease of an absurd time": bad("Lease", spec={"renewTime": "99999-01-01T00:00:00Z"}),
    "a set whose template's metadata is text": bad(
        "DaemonSet", spec={"template": {"metadata": "x", "spec": {}}}
    ),
    "a set whose template's labels are a list": bad(
        "DaemonSet", spec={"template": {"metadata": {"labels": ["x"]}, "spec": {}}}
    ),
    "a set whose template is a list": bad("DaemonSet", spec={"template": ["x"]}),
    "a set whose template's containers are text": bad(
        "DaemonSet", spec={"template": {"spec": {"containers": "x"}}}
    ),
}
