"""`explain`: what happens to a node or a pod, when, why, and why not yet, as a document."""

from __future__ import annotations

from typing import Any

import msgspec

from kubectl_nodelife.answers.api import document
from kubectl_nodelife.answers.view import ClusterView
from kubectl_nodelife.errors import Failed
from kubectl_nodelife.outlook.explain import ExplainedQuestion, total
from kubectl_nodelife.outlook.explain_node import node_sections
from kubectl_nodelife.outlook.explain_pod import pod_sections
from kubectl_nodelife.outlook.node import Outlook


class Explanation(msgspec.Struct, frozen=True):
    """All that is said of one object."""

    kind: str
    namespace: str
    name: str
    source: dict[str, Any]
    profile: str
    moment: dict[str, str]
    sections: list[ExplainedQuestion]
    warnings: list[str]

    def document(self) -> dict[str, Any]:
        """The explanation as a JSON document."""
        subject = {"kind": self.kind, "name": self.name}
        if self.namespace:
            subject["namespace"] = self.namespace
        return document(
            "Explanation",
            object=subject,
            source=self.source,
            profile=self.profile,
            moment=self.moment,
            answers=[_section(s) for s in self.sections],
            warnings=self.warnings,
        )


def explanation_of(view: ClusterView, kind: str, namespace: str, name: str) -> Explanation:
    """The explanation of one node or pod. Raises Failed where the cluster does not have it."""
    return Explanation(
        kind=kind,
        namespace=namespace,
        name=name,
        source=view.source,
        profile=view.settings.profile.name,
        moment=view.moment,
        sections=_sections_of(view, kind, namespace, name),
        warnings=[*_doubts(view.outlook, kind, (namespace, name)), *view.warnings],
    )


def _doubts(outlook: Outlook, kind: str, key: tuple[str, str]) -> list[str]:
    """What must be said first of an object that hangs on one that cannot be read."""
    if not outlook.cache.is_quarantined(kind, key):
        return []
    return ["it hangs on an object that cannot be read: what is said here is unknown, not decided"]


def _sections_of(
    view: ClusterView, kind: str, namespace: str, name: str
) -> list[ExplainedQuestion]:
    outlook = view.outlook
    if kind == "Node":
        node = outlook.cache.node(name)
        if node is None:
            raise Failed("not found", on=f"node {name}", remedy="check the name")
        pods_read = "Pod" not in view.unread
        return list(node_sections(outlook, outlook.node(node), pods_read=pods_read))
    pod = outlook.cache.pod(namespace, name)
    if pod is None:
        remedy = "check the name, and the namespace with -n"
        raise Failed("not found", on=f"pod {namespace}/{name}", remedy=remedy)
    return list(pod_sections(outlook, pod))


def _section(section: ExplainedQuestion) -> dict[str, Any]:
    made: dict[str, Any] = {"question": section.question, "sentences": section.sentences}
    if section.terms:
        low, high = total(section.terms)
        made["terms"] = [
            {
                "what": t.what,
                "lowSeconds": _rounded(t.low),
                "highSeconds": _rounded(t.high),
                "origin": t.origin,
            }
            for t in section.terms
        ]
        made["total"] = {
            "lowSeconds": _rounded(low),
            "highSeconds": _rounded(high),
        }
    return made


def _rounded(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds, 3)
