"""A cluster with a secret in every text that no decision reads, and with all else as it is.

What a decision reads is `kept_strings.txt`: names, labels, images and the like, which answers show.
In every other string field of the API's schema stands a secret that names its path.
"""

import json
from functools import cache
from pathlib import Path
from typing import Any

from kubectl_nodelife.kube.kinds import KINDS
from tests.drain import build
from tests.hostile.openapi import FIELDS, SECRET, planted

KEPT = frozenset(Path(__file__).with_name("kept_strings.txt").read_text().splitlines())
_SCHEMA = json.loads(FIELDS.read_text())


@cache
def _secrets_of(kind: str) -> str:
    """The fields of a kind that nobody reads, each with its secret, as JSON."""
    return json.dumps(_pruned(planted(_SCHEMA, kind), kind))


def _pruned(value: Any, kind: str) -> Any:
    """The value without what is kept; None where nothing is left."""
    if isinstance(value, str):
        is_secret = value.startswith(SECRET)
        return value if is_secret and f"{kind} {value[len(SECRET) :]}" not in KEPT else None
    if isinstance(value, dict):
        found = {name: _pruned(inner, kind) for name, inner in value.items()}
        return {name: inner for name, inner in found.items() if inner is not None} or None
    if isinstance(value, list):
        return [left for inner in value if (left := _pruned(inner, kind)) is not None] or None
    return None


def _filled(document: Any, secrets: Any) -> Any:
    """The document, and the secrets wherever it says nothing; every item of a list gets them."""
    if isinstance(document, dict) and isinstance(secrets, dict):
        names = [*document, *(name for name in secrets if name not in document)]
        return {n: _filled(document.get(n), secrets.get(n)) for n in names}
    if isinstance(document, list) and isinstance(secrets, list):
        return [_filled(item, secrets[0]) for item in document]
    return secrets if document is None else document


def secretive(document: build.Json) -> build.Json:
    """A document of the API with secrets in all texts that it lacks and that nobody reads."""
    made: build.Json = _filled(document, json.loads(_secrets_of(document["kind"])))
    return made


def cluster() -> list[build.Json]:
    """Four nodes, workloads of each kind with pods, budgets, and an object of every kind."""
    template: build.Json = {
        "metadata": {"labels": {"app": "agent"}},
        "spec": {"containers": [{"name": "c", "image": "registry.example/agent:2"}]},
    }
    selector = {"matchLabels": {"app": "agent"}}
    message = {
        "type": "Ready",
        "status": "True",
        "message": "",
        "lastTransitionTime": build.CREATED,
    }
    made = build.flattened(
        (
            *(build.node(name, zone=zone) for name, zone in zip("abcd", "1122", strict=True)),
            build.replica_set("web", "a", "b", "c"),
            build.stateful_set("db", "a", "b"),
            build.workload("DaemonSet", "agent", 0, template=template, selector=selector),
            *(build.owned("DaemonSet", "agent", name, i) for i, name in enumerate("abcd")),
            build.workload("Job", "job", 0),
            build.owned("Job", "job", "a", 0),
            build.pod("alone", "a", status={"conditions": [message]}),
            build.budget("web", "web", healthy=3, desired=3, expected=3),
            build.namespace(),
        )
    )
    for obj in made:
        if obj["kind"] == "Pod":
            obj["spec"]["containers"][0] |= {"image": "registry.example/x:1"}
            obj["spec"]["volumes"] = [{"name": "data", "emptyDir": {}}]
    there = {obj["kind"] for obj in made}
    for kind in KINDS:
        if kind.name not in there:
            names = {"name": "one"} | ({"namespace": "default"} if kind.namespaced else {})
            made.append({"apiVersion": kind.api_version, "kind": kind.name, "metadata": names})
    for obj in made:
        if obj["kind"] == "ControllerRevision":
            obj["data"] = {"raw": f"{SECRET}data.raw", "spec": {"template": dict(template)}}
        if obj["kind"] == "Event":
            obj |= {
                "involvedObject": {"kind": "Node", "name": "a"},
                "reason": "NodeNotReady",
                "lastTimestamp": build.NOW,
                "type": "Normal",
            }
    return [secretive(obj) for obj in made]
