"""Answers `explain`: what happens to one object, in sentences."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kubectl_nodelife.commands import answering
from kubectl_nodelife.commands.cluster.look import KindsToRead
from kubectl_nodelife.drain.notices import WEBHOOK_KINDS
from kubectl_nodelife.errors import NodelifeError
from kubectl_nodelife.kube.kinds import DRAIN_KINDS, OPTIONAL_KINDS
from kubectl_nodelife.kube.meta import KubeObject
from kubectl_nodelife.kube.unreadable import unreadable_sentences
from kubectl_nodelife.outlook.explain_document import Explanation, continued, explanation_of
from kubectl_nodelife.outlook.status import KINDS, missing_parts
from kubectl_nodelife.outlook.view import ClusterView
from kubectl_nodelife.report.explanation import explanation_page

if TYPE_CHECKING:
    from kubectl_nodelife.live.listwatch import ListedOnce


def reading(query: answering.Query) -> KindsToRead:
    """The kinds that the explanation of an object of that kind reads."""
    asked = answering.flags_of(query, answering.ExplainQuestion)
    match asked.kind:
        case "Pod":
            fields = {"Event": _about_pod(asked.namespace, asked.name)}
            read, needed = (*DRAIN_KINDS, "Event"), ("Node", "Pod")
            return KindsToRead(
                read, needed, missing_parts=missing_parts, fields=fields, optional=OPTIONAL_KINDS
            )
        case _:
            more = () if asked.taint else (*WEBHOOK_KINDS, "Event")
            fields = {"Event": about_node(asked.name)}
            return KindsToRead(
                (*KINDS, *more), ("Node",), missing_parts=missing_parts, fields=fields
            )


def about_node(name: str) -> str:
    """The field selector of Events about a node."""
    return f"involvedObject.kind=Node,involvedObject.name={name}"


def _about_pod(namespace: str, name: str) -> str:
    return (
        f"involvedObject.kind=Pod,involvedObject.namespace={namespace},involvedObject.name={name}"
    )


def answer(view: ClusterView, query: answering.Query) -> answering.Response:
    """The explanation of a node, a pod or a taint. Raises Failed, BadInput."""
    return answer_with(view, None, query)


def beside_a_daemon(query: answering.Query) -> KindsToRead | None:
    """What a daemon lists for the explanation of a pod or a node, beside what it watches; None
    where nothing is asked for (`more`)."""
    asked = answering.flags_of(query, answering.ExplainQuestion)
    if not asked.more or asked.kind not in _LEFT_UNKNOWN or asked.taint:
        return None
    if asked.kind == "Pod":
        return reading(query)
    fields = {"Event": about_node(asked.name)}
    return KindsToRead((*WEBHOOK_KINDS, "Event"), needed=(), fields=fields)


def answer_with(
    view: ClusterView, listed: ListedOnce | NodelifeError | None, query: answering.Query
) -> answering.Response:
    """A daemon's explanation, with what it listed for it, or why it could not. Raises BadInput,
    NotFound."""
    kind, namespace, name, taint, _ = answering.flags_of(query, answering.ExplainQuestion)
    explanation = explanation_of(view, kind, namespace, name, taint)
    if isinstance(listed, NodelifeError):
        explanation.warnings.append(f"{_LEFT_UNKNOWN[kind]} unknown: {listed}")
    elif listed is not None:
        try:
            explanation = continued(explanation, _looked_at(view, listed, kind, name))
        except ImportError:  # of the planner, which is loaded only here
            explanation.warnings.append(
                f"{_LEFT_UNKNOWN[kind]} unknown: this daemon's program is gone"
            )
    return _response_of(explanation, query)


def _looked_at(view: ClusterView, listed: ListedOnce, kind: str, name: str) -> ClusterView:
    """The cluster as a look at this moment would show it: what the daemon holds, in the order in
    which the API lists it, with what was listed. Of a node itself and its pods."""
    from kubectl_nodelife.daemon.gate import KINDS as WATCHED

    cache = view.cache
    held: list[KubeObject] = []
    if kind == "Pod":
        for each in WATCHED:
            held += sorted(cache.all(each), key=lambda obj: obj.key)
    elif (node := cache.node(name)) is not None:
        held = [node, *sorted(cache.pods_on(name), key=lambda obj: obj.key)]
    return ClusterView(
        view.settings,
        view.now_ns,
        source=view.source,
        moment=view.moment,
        warnings=unreadable_sentences(listed.unreadable),
        unread={**view.unread, **listed.unread},
        objects=[*held, *listed.objects],
        unreadable=[*view.unreadable, *listed.unreadable],
        first_look=True,
        profile_origin=view.profile_origin,
    )


_LEFT_UNKNOWN: Final = {"Pod": "what a drain would do is", "Node": "Services and webhooks are"}


def _response_of(explanation: Explanation, query: answering.Query) -> answering.Response:
    text = answering.output_of(query).render(explanation_page(explanation))
    return {"text": text, "warnings": explanation.warnings}
