"""The Job that does the work on one node (`--job FILE`): the user's manifest, bound to the node.

`$(NODE)` and the other variables are put in wherever they stand in a text, a shell's among them:
what a node says of itself must hold nothing that a shell would obey. Name, placement,
tolerations of what a node under work is marked with, owner and deadline are ours; the rest is as
the user wrote it. The Job is found again by its name: a second create is answered with 409.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Mapping
from typing import Any, Final

from kubectl_nodelife.controllers.upgrade.marks import LABEL_RUN, TAINT_UNPROVEN
from kubectl_nodelife.errors import BadInput

VARIABLES: Final = (
    "NODE",
    "NODE_UID",
    "PROVIDER_ID",
    "INTERNAL_IP",
    "POOL",
    "ZONE",
    "RUN",
    "TRY",
    "TARGET",
)
_OF_THE_NODE: Final = frozenset(VARIABLES) - {"RUN", "TRY", "TARGET"}
_PLAIN = re.compile(r"[A-Za-z0-9._:/@%+=,~\[\]-]*", re.ASCII)
_REFERENCE = re.compile(r"\$\((" + "|".join(VARIABLES) + r")\)")
_TOLERATIONS: Final = (
    {"key": "node.kubernetes.io/unschedulable", "operator": "Exists", "effect": "NoSchedule"},
    {"key": TAINT_UNPROVEN, "operator": "Exists", "effect": "NoSchedule"},
    {"key": "node.kubernetes.io/not-ready", "operator": "Exists", "effect": "NoExecute"},
    {"key": "node.kubernetes.io/unreachable", "operator": "Exists", "effect": "NoExecute"},
)


class UnsafeVariable(ValueError):
    """A node's own words would be put into the manifest, and a shell may read them there."""


def check_job_manifest(manifest: Any, on: str) -> None:
    """Raises BadInput where it is no Job of batch/v1 with a pod template. `on`: its file."""
    if not isinstance(manifest, dict) or (manifest.get("apiVersion"), manifest.get("kind")) != (
        "batch/v1",
        "Job",
    ):
        raise BadInput("is no Job of batch/v1", on=on)
    template = (manifest.get("spec") or {}).get("template") or {}
    if not (template.get("spec") or {}).get("containers"):
        raise BadInput("its pod template has no containers", on=on)


def job_manifest(
    manifest: Mapping[str, Any],
    name: str,
    namespace: str,
    variables: Mapping[str, str],
    deadline_s: int,
) -> dict[str, Any]:
    """The Job for the node of the variables. `namespace`: where the manifest names none.

    `variables` are those of VARIABLES; `deadline_s` holds where the manifest has none. Raises
    UnsafeVariable.
    """
    job: dict[str, Any] = _fill(copy.deepcopy(dict(manifest)), variables)
    meta = job.setdefault("metadata", {})
    meta.pop("generateName", None)
    meta["name"] = name
    meta.setdefault("namespace", namespace)
    meta["ownerReferences"] = [
        {
            "apiVersion": "v1",
            "kind": "Node",
            "name": variables["NODE"],
            "uid": variables["NODE_UID"],
            "blockOwnerDeletion": False,
        }
    ]
    spec = job["spec"]
    spec["podReplacementPolicy"] = "Failed"
    spec.setdefault("activeDeadlineSeconds", deadline_s)
    template = spec["template"]
    for labelled in (meta, template.setdefault("metadata", {})):
        labelled["labels"] = {**(labelled.get("labels") or {}), LABEL_RUN: variables["RUN"]}
    pod = template["spec"]
    pod["tolerations"] = [*(pod.get("tolerations") or ()), *_TOLERATIONS]
    _bind(pod, variables["NODE"])
    return job


def _fill(value: Any, variables: Mapping[str, str]) -> Any:
    if isinstance(value, str):
        return _REFERENCE.sub(lambda match: _checked(match[1], variables[match[1]]), value)
    if isinstance(value, dict):
        return {key: _fill(each, variables) for key, each in value.items()}
    return [_fill(each, variables) for each in value] if isinstance(value, list) else value


def _checked(name: str, value: str) -> str:
    if name in _OF_THE_NODE and _PLAIN.fullmatch(value) is None:
        raise UnsafeVariable(f"$({name}) is {value[:60]!r}, which a shell might obey")
    return value


def _bind(pod: dict[str, Any], node: str) -> None:
    """Only this node: terms are alternatives, so that each of them has to say so."""
    required = "requiredDuringSchedulingIgnoredDuringExecution"
    affinity = pod.setdefault("affinity", {}).setdefault("nodeAffinity", {})
    terms = (affinity.get(required) or {}).get("nodeSelectorTerms") or [{}]
    ours = {"key": "metadata.name", "operator": "In", "values": [node]}
    affinity[required] = {
        "nodeSelectorTerms": [
            {**term, "matchFields": [*(term.get("matchFields") or ()), ours]} for term in terms
        ]
    }
