"""A file of `kind: Upgrade`: the flags of `upgrade plan` and its like, under the same names.

The names are those of the flags in lowerCamelCase; work may also stand as `work: {mode: ...}`, and
kubectl drain's flags as `drain: {...}`, which is how they stand in a run's document.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final

from msgspec.structs import fields

from kubectl_nodelife.commands.cluster.file_size import read_named
from kubectl_nodelife.controllers.upgrade.policy import NodeWork, UpgradePolicy, WorkMode
from kubectl_nodelife.errors import BadInput

API_VERSION: Final = "nodelife.dev/v1alpha1"
KIND: Final = "Upgrade"
_BEGINNING: Final = 4096
_OF_KIND: Final = re.compile(rb"""^\W*kind["']?\s*:\s*["']?Upgrade["']?\s*,?\s*$""", re.MULTILINE)
_FIELDS: Final = tuple(field.encode_name for field in fields(UpgradePolicy))
_WORK_FIELDS: Final = tuple(field.encode_name for field in fields(NodeWork))
_MODES: Final = tuple(str(mode) for mode in WorkMode)
_RERUN_SAFE: Final = "rerunSafe"
_LISTS: Final = ("nodes", "target", "window", "require", "pools", "canaryNodes", "pauseRepository")


def is_upgrade_file(path: str) -> bool:
    """True if the file says at its beginning that it is of kind Upgrade."""
    file = Path(path)
    if not file.is_file():
        return False
    with file.open("rb") as opened:
        return _OF_KIND.search(opened.read(_BEGINNING)) is not None


def spec_of_file(path: str) -> dict[str, Any]:
    """The spec of such a file, as `policy_from` takes it. Raises BadInput."""
    from kubectl_nodelife.upgrade.ports import DRAIN_FLAGS

    found = one_document(path)
    if (found.get("apiVersion"), found.get("kind")) != (API_VERSION, KIND):
        raise BadInput(f"is no {KIND} of {API_VERSION}", on=path)
    spec = found.get("spec")
    if not isinstance(spec, dict):
        raise BadInput("has no spec", on=path)
    known = (*_FIELDS, *_MODES, _RERUN_SAFE, *DRAIN_FLAGS)
    _check_names(f"{path}: spec", spec, known)
    _check_names(f"{path}: spec.work", spec.get("work") or {}, _WORK_FIELDS)
    _check_names(f"{path}: spec.drain", spec.get("drain") or {}, DRAIN_FLAGS)
    mapping = {name: value for name, value in spec.items() if name in _FIELDS}
    for name in _LISTS:
        if isinstance(mapping.get(name), str):
            mapping[name] = [mapping[name]]
    drain = {name: value for name, value in spec.items() if name in DRAIN_FLAGS}
    if drain:
        mapping["drain"] = {**(spec.get("drain") or {}), **drain}
    if isinstance(spec.get("canaryTemplate"), str):
        mapping["canaryTemplate"] = one_document(spec["canaryTemplate"])
    return mapping | _work(path, spec)


def one_document(path: str) -> dict[str, Any]:
    """The one object of a file. Raises BadInput."""
    from kubectl_nodelife.kube.documents import utf8, yaml_documents
    from kubectl_nodelife.kube.errors import InputError

    try:
        found = list(yaml_documents(utf8(read_named(path), path), path))
    except InputError as error:
        raise BadInput(str(error)) from None
    if len(found) != 1 or not isinstance(found[0], dict):
        raise BadInput("is not one object", on=path)
    return found[0]


def _work(path: str, spec: Mapping[str, Any]) -> dict[str, Any]:
    """The work by the flags' names: `run: CMD`, `job: FILE`, `wait: true`. Raises BadInput."""
    from kubectl_nodelife.controllers.upgrade.job_manifest import check_job_manifest

    named = [mode for mode in _MODES if spec.get(mode) not in (None, False)]
    if len(named) > 1 or (named and "work" in spec):
        both = " and ".join([*named, "work"][:2])
        raise BadInput(f"{both} exclude each other", on=f"{path}: spec")
    work: dict[str, Any] = dict(spec.get("work") or {})
    if named:
        (mode,), value = named, spec[named[0]]
        work = {"mode": mode}
        if mode == WorkMode.JOB:
            work["manifest"] = one_document(str(value))
            check_job_manifest(work["manifest"], str(value))
        elif mode in (WorkMode.RUN, WorkMode.REPLACE) and value is not True:
            work["command"] = value
        if mode == WorkMode.RUN and not str(work.get("command", "")).strip():
            raise BadInput("is empty", on=f"{path}: spec.run")
    elif work.get("mode") == WorkMode.JOB:
        check_job_manifest(work.get("manifest"), f"{path}: spec.work.manifest")
    if work and _RERUN_SAFE in spec:
        work["rerunSafe"] = spec[_RERUN_SAFE]
    return {"work": work} if work else {}


def _check_names(on: str, found: Any, known: Iterable[str]) -> None:
    from kubectl_nodelife.kube.near_names import did_you_mean

    if not isinstance(found, dict):
        raise BadInput("must be a map", on=on)
    names = sorted(known)
    for name in found:
        if name not in names:
            raise BadInput(f"unknown key {name!r}", on=on, remedy=did_you_mean(str(name), names))
