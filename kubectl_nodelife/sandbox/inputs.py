"""The beginning of a sandbox: a scenario, or a dump of a cluster with all that is in it."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

import msgspec
from msgspec.structs import replace

from kubectl_nodelife.engine.profiles import Profile, parse_profile
from kubectl_nodelife.errors import BadInput
from kubectl_nodelife.kube.documents import looks_like_json, utf8, yaml_documents
from kubectl_nodelife.kube.errors import InputError
from kubectl_nodelife.kube.load import load_objects
from kubectl_nodelife.kube.node import Node
from kubectl_nodelife.sandbox.resources import BY_KIND_AND_VERSION
from kubectl_nodelife.sim.scenario import API_VERSION, Given, Scenario, Setting, assemble
from kubectl_nodelife.sim.scenario_document import parse_scenario

Documents = list[tuple[str, dict[str, Any]]]


class InitialObjects(NamedTuple):
    """The setting, and whole objects where they are known."""

    setting: Setting
    documents: Documents


def read_beginning(
    path: str | None, default: bytes, now_ns: int, read: Callable[[str], bytes]
) -> InitialObjects:
    """The scenario or dump in a file; without a file `default`, a scenario's text.

    t=0 is `now_ns`, whatever the scenario says of time. `read` gives the bytes of a file. Raises
    BadInput.
    """
    if path is None:
        scenario = replace(parse_scenario(default, "the built-in scenario"), time_ns=now_ns)
        return InitialObjects(assemble(scenario), [])
    content = read(path)
    documents = list(_documents(content, path))
    if len(documents) == 1 and documents[0].get("apiVersion") == API_VERSION:
        scenario = replace(parse_scenario(content, path), time_ns=now_ns)
        if not scenario.snapshot:
            return InitialObjects(assemble(scenario), [])
        path = os.path.join(os.path.dirname(path), scenario.snapshot)
        content = read(path)
        documents = list(_documents(content, path))
    else:
        scenario = Scenario(file=path, name=os.path.basename(path), time_ns=now_ns)
    try:
        loaded = load_objects(content, path)
    except InputError as error:
        raise BadInput(str(error)) from None
    if loaded.unreadable:
        found = loaded.unreadable[0]
        raise BadInput(f"{found}: {found.why}", on=path, remedy="correct it or take it out")
    newest = _newest_kubelet(loaded.objects)
    given = Given(loaded.objects, frozenset(loaded.kinds_read), None, newest)
    return InitialObjects(assemble(scenario, given), list(_served(documents)))


def _documents(content: bytes, path: str) -> Iterator[dict[str, Any]]:
    """The documents of a file as plain objects."""
    try:
        data = utf8(content, path)
        if looks_like_json(data):
            try:
                documents: Iterable[Any] = [msgspec.json.decode(data)]
            except msgspec.DecodeError:
                documents = yaml_documents(data, path)
        else:
            documents = yaml_documents(data, path)
        yield from (d for d in documents if isinstance(d, dict))
    except InputError as error:
        raise BadInput(str(error)) from None


def _served(documents: Iterable[dict[str, Any]]) -> Iterator[tuple[str, dict[str, Any]]]:
    """(kind, object) of each object that the sandbox serves; Lists are opened."""
    for document in documents:
        kind, version = document.get("kind", ""), document.get("apiVersion", "")
        items = document.get("items")
        if isinstance(items, list):
            own = kind.removesuffix("List")
            for item in items:
                if isinstance(item, dict):
                    yield from _served([{"kind": own, "apiVersion": version, **item}])
            continue
        resource = BY_KIND_AND_VERSION.get((version, kind))
        meta = document.get("metadata")
        if resource is None or not isinstance(meta, dict) or not meta.get("name"):
            continue
        if resource.namespaced:
            meta.setdefault("namespace", "default")
        else:
            meta.pop("namespace", None)
        yield resource.kind, document


def _newest_kubelet(objects: Iterable[object]) -> Profile | None:
    profiles = []
    for obj in objects:
        if isinstance(obj, Node) and obj.status.node_info.kubelet_version:
            try:
                profiles.append(parse_profile(obj.status.node_info.kubelet_version))
            except ValueError:
                continue
    return max(profiles, key=lambda p: p.minor, default=None)
