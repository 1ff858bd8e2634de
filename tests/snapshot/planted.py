"""Secrets planted wherever a cluster's objects may hold some, and raw dumps read and written."""

import copy
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from kubectl_nodelife.snapshot import Redaction
from tests.objects import manifest

Document = dict[str, Any]

SECRETS = (
    *("s3cr3t-env", "s3cr3t-old-env", "s3cr3t-arg", "s3cr3t-command", "s3cr3t-header"),
    *("s3cr3t-annotation", "s3cr3t-restart", "s3cr3t-probe", "s3cr3t-last-words"),
    *("s3cr3t-parameter", "s3cr3t-attribute", "s3cr3t-vm", "s3cr3t-flag", "s3cr3t-managed"),
)


def read_dump(path: Path) -> list[Document]:
    """The documents of a file, or of a folder's files."""
    if path.is_dir():
        return [d for file in sorted(path.iterdir()) if file.is_file() for d in read_dump(file)]
    if path.suffix == ".json":
        return [json.loads(path.read_text())]
    return [d for d in yaml.safe_load_all(path.read_text()) if d is not None]


def items_of(documents: list[Document]) -> Iterator[Document]:
    """Every object, those inside Lists included, with its kind in it."""
    for document in documents:
        if "items" not in document:
            yield document
            continue
        version, kind = document["apiVersion"], document["kind"].removesuffix("List")
        for item in document["items"]:
            item.setdefault("apiVersion", version)
            item.setdefault("kind", kind)
            yield item


def redacted(documents: list[Document], redaction: Redaction) -> list[Document]:
    """Copies as `snapshot save` would keep them."""
    made = json.loads(json.dumps(documents, default=str))
    for item in items_of(made):
        redaction.admit(item)
    for item in items_of(made):
        redaction(item["kind"], item)
    return made  # type: ignore[no-any-return]


def more() -> list[Document]:
    """Objects with secrets in places that our dumps have no example of."""
    owner = {"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachine", "name": "v", "uid": "v"}
    vm = {"spec": {"template": {"spec": {"volumes": [{"userData": "s3cr3t-vm"}]}}}}
    ended = {"exitCode": 1, "message": "s3cr3t-last-words"}
    return [
        manifest("StorageClass", "s", parameters={"key": "s3cr3t-parameter"}),
        manifest(
            "PersistentVolume", "v", spec={"csi": {"volumeAttributes": {"key": "s3cr3t-attribute"}}}
        ),
        manifest(
            "Pod",
            "ended",
            "default",
            spec={"containers": [{"env": [{"name": "A", "value": "s3cr3t-old-env"}]}]},
            status={"containerStatuses": [{"lastState": {"terminated": ended}}]},
        ),
        manifest(
            "ControllerRevision",
            "vm-1",
            "default",
            owners=[{**owner, "controller": True}],
            data=vm,
            revision=1,
        ),
    ]


def plant(documents: list[Document]) -> list[Document]:
    """Copies with secrets: in pods, in templates, and the same in the newest revisions' data."""
    made = copy.deepcopy(documents)
    newest: dict[str, int] = {}
    for item in items_of(made):
        if item["kind"] == "ControllerRevision":
            owner = item["metadata"]["ownerReferences"][0]["uid"]
            newest[owner] = max(newest.get(owner, 0), item["revision"])
    for item in items_of(made):
        metadata = item["metadata"]
        metadata.setdefault("annotations", {})["example.com/token"] = "s3cr3t-annotation"
        metadata["managedFields"] = [{"manager": "s3cr3t-managed"}]
        env = "s3cr3t-env"
        if item["kind"] == "ControllerRevision":
            template = item["data"]["spec"]["template"]
            if item["revision"] < newest[metadata["ownerReferences"][0]["uid"]]:
                env = "s3cr3t-old-env"
        else:
            template = (item.get("spec") or {}).get("template")
        if isinstance(template, dict):
            noted = template.setdefault("metadata", {}).setdefault("annotations", {})
            noted["example.com/restartedAt"] = "s3cr3t-restart"
            _plant_containers(template.get("spec") or {}, env)
        elif item["kind"] == "Pod":
            _plant_containers(item["spec"], env)
    return made


def _plant_containers(spec: Document, env: str) -> None:
    for member in ("containers", "initContainers"):
        for container in spec.get(member) or ():
            command = container.get("command") or []
            container["env"] = [
                {"name": "PASSWORD", "value": env},
                {"name": "REFERENCE", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}},
            ]
            container["args"] = ["--password", "s3cr3t-arg", *(container.get("args") or [])]
            container["command"] = [*command, "s3cr3t-command"]
            container["livenessProbe"] = {"exec": {"command": ["probe", "s3cr3t-probe"]}}
            header = {"name": "Authorization", "value": "s3cr3t-header"}
            container["lifecycle"] = {"preStop": {"httpGet": {"httpHeaders": [header]}}}
