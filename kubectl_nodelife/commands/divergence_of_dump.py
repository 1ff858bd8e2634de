"""`diverge -f`: what a dump shows that the controllers have not done, or should not have done."""

from __future__ import annotations

from typing import Any, Final

from msgspec.structs import replace

from kubectl_nodelife.answers.divergence import divergence_document
from kubectl_nodelife.commands.cluster.dump import OWN_CLOCK, load
from kubectl_nodelife.commands.cluster.look import view_of_dump
from kubectl_nodelife.commands.cluster.where import Where
from kubectl_nodelife.errors import BadInput
from kubectl_nodelife.kube.core import Event
from kubectl_nodelife.outlook.diverge.dump_observations import dump_observations
from kubectl_nodelife.outlook.diverge.judgement import divergence_judgement
from kubectl_nodelife.outlook.join_controllers import join_controllers

_KINDS: Final = ("Node", "Pod", "Lease", "Event")
_NOTED: Final = "noted in the snapshot"


def divergence_of_dump(where: Where, since_ns: int | None) -> tuple[dict[str, Any], list[str]]:
    """The Divergence document, and what the reading warns of.

    `since_ns`: how far back others' writes are told, None for all. Raises BadInput.
    """
    dump = load(where.filename, where.now, where.profile)
    view = view_of_dump(dump, _KINDS, where.assignments)
    if "Node" in view.unread:
        remedy = "dump them as well: kubectl get nodes -o json --show-managed-fields"
        raise BadInput("no nodes were read, so that nothing can be judged", remedy=remedy)
    blind = "nothing in the dump says when it was taken"
    outlook, overdue = join_controllers(view.cache, view.settings, view.now_ns)
    record = dump_observations(
        outlook,
        overdue,
        [obj for obj in dump.objects if isinstance(obj, Event)],
        blind=blind if dump.moment_origin == OWN_CLOCK else "",
        noted=dump.moment_origin == _NOTED,
        unread=view.unread,
    )
    if since_ns is not None:
        record = replace(record, since_ns=max(record.since_ns, view.now_ns - since_ns))
    judgement = divergence_judgement(record, view.now_ns)
    source: dict[str, Any] = {"kind": "snapshot", "server": ", ".join(where.filename)}
    source |= {"context": None, "moment": view.moment}
    return divergence_document(judgement, record, view.now_ns, source), view.warnings
