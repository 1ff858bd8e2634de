"""`repair`: the request for each finding of the audit, or why it is refused, as a document."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from kubectl_nodelife.answers.api import document
from kubectl_nodelife.outlook.audit.repair_plan import RepairStep


def repair_document(
    steps: Iterable[RepairStep], head: dict[str, Any], mode: str = "dry-run"
) -> dict[str, Any]:
    """The RepairPlan document; `head` is what it shares with the other answers."""
    found = [_step_document(step) for step in steps]
    return document("RepairPlan", **head, mode=mode, steps=found)


def _step_document(step: RepairStep) -> dict[str, Any]:
    pod, request = step.finding.pod, step.request
    return {
        "namespace": pod.namespace,
        "name": pod.name,
        "uid": pod.uid,
        "node": pod.spec.node_name,
        "class": step.finding.name,
        "outcome": "refused" if request is None else "would",
        "because": step.finding.because,
        "refusals": list(step.refusals),
        "notBeforeSeconds": None if request is None else step.not_before_s,
        "request": None
        if request is None
        else {
            "verb": request.method,
            "path": request.path,
            "contentType": request.content_type,
            "body": request.body,
        },
        "command": None if request is None else step.command,
    }
