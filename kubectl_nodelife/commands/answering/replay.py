"""Answers `replay` for the live page: what happened in a stretch of time, from the journal, the
cluster's Events and the nodes and pods as they are.

The daemon makes it in a forked child. The page shows no pod's own story: `all` asks for that too.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from kubectl_nodelife.commands.answering.query import Query, Response, number, word
from kubectl_nodelife.errors import BadInput
from kubectl_nodelife.kube.kinds import OPTIONAL_KINDS
from kubectl_nodelife.kube.meta import KubeObject
from kubectl_nodelife.kube.times import HOUR_NS
from kubectl_nodelife.kube.workload import Event
from kubectl_nodelife.outlook.replay.timeline import (
    ReplayFilter,
    ReplaySources,
    is_about_nodes,
    replay_document,
    timeline,
)
from kubectl_nodelife.outlook.view import ClusterView

KINDS: Final = ("Event", *OPTIONAL_KINDS)
"""The kinds that are listed for it."""


def answer(
    view: ClusterView,
    listed: Sequence[KubeObject],
    changes: Sequence[Mapping[str, Any]],
    query: Query,
) -> Response:
    """The Replay between `since` and `until`, in ns before now; the last hour if not given.

    `node`, or `namespace` and `pod`: of that alone. Raises BadInput.
    """
    begin_ns = view.now_ns - (number(query, "since") or HOUR_NS)
    end_ns = view.now_ns - number(query, "until")
    if begin_ns >= end_ns:
        raise BadInput("must be longer ago than --until", on="since")
    pod = (word(query, "namespace"), word(query, "pod")) if word(query, "pod") else None
    wanted = ReplayFilter(begin_ns, end_ns, word(query, "node"), pod, bool(word(query, "all")))
    nodes, pods = list(view.cache.nodes.values()), list(view.cache.all("Pod"))
    events = [obj for obj in listed if isinstance(obj, Event)]
    sources = ReplaySources(changes, events, nodes, pods, listed)  # type: ignore[arg-type]
    lines = timeline(sources, wanted)
    if not (wanted.node or pod or wanted.quiet):
        lines = [line for line in lines if is_about_nodes(line)]
    left_out = [
        f"{kind} cannot be read ({why}): left out" for kind, why in view.unread.items() if why
    ]
    return replay_document(lines, view.source, begin_ns, end_ns, [*view.warnings, *left_out])
