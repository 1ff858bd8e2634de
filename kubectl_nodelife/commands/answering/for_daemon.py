"""All questions that the daemon answers, once (`Answer`) or repeatedly (`Stream`).

Passed to the daemon by `daemon run`: commands may import reports, the daemon may not. Long work is
done in small steps and text is made in a thread, so that the daemon's loop is never blocked.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import (
    AsyncGenerator,
    Callable,
    Generator,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from contextlib import aclosing
from itertools import chain
from typing import Any, Final, TypeVar

from kubectl_nodelife.commands import answering
from kubectl_nodelife.commands.answering import (
    ChangesQuestion,
    Query,
    Response,
    daemonset,
    explain,
    flags_of,
    lead_to_asker,
    number,
    status,
    word,
)
from kubectl_nodelife.commands.answering.status import StatusLines
from kubectl_nodelife.commands.cluster.look import KindsToRead
from kubectl_nodelife.daemon.changes import ChangeFilter, ChangeRecord, document
from kubectl_nodelife.daemon.cluster_view import Sources, journal_warnings
from kubectl_nodelife.daemon.forked_answers import ForkedAnswers, Tell, imported
from kubectl_nodelife.daemon.gate import KINDS as WATCHED
from kubectl_nodelife.daemon.metrics.cluster_sample import read_run
from kubectl_nodelife.daemon.server import Answer, Stream
from kubectl_nodelife.engine.cache import Cache
from kubectl_nodelife.errors import NodelifeError
from kubectl_nodelife.kube.kinds import kind_of
from kubectl_nodelife.kube.meta import KubeObject
from kubectl_nodelife.kube.node import Lease, Node
from kubectl_nodelife.kube.times import HOUR_NS
from kubectl_nodelife.kube.unreadable import Unreadable
from kubectl_nodelife.live.listwatch import ListedOnce
from kubectl_nodelife.live.loop import sliced
from kubectl_nodelife.outlook.upgrade_status import upgrade_status
from kubectl_nodelife.outlook.view import ClusterView

T = TypeVar("T")
ViewSource = Callable[[], ClusterView]

WATCH_SECONDS: Final = 1.0

FIRST_WORD_SECONDS: Final = 0.5
"""An answer that takes no longer comes without a word on how far it is."""

FOLLOWED_SECONDS: Final = 300.0
"""So long an answer may take of which is said how far it is."""

MOST_CHANGES: Final = 20_000
"""How many changes one answer holds at most; the newest count."""

WHAT_IF: Final = "what_if"
_PLANS: Final = {"drain_plan": "answer", "drains": "under_way"}
"""Questions for plans of drains -> what answers each in the module `drain_plan` beside this one."""

_BUDGET: Final = "PodDisruptionBudget"
_NAMED_ALONE: Final = ("Node", "Pod", "DaemonSet")
"""With budgets, what `explain NAME` finds without its kind."""

_FILED_AT_ONCE: Final = 1_000

_NUMBER = re.compile(r"\d+")


def make_answers(sources: Sources) -> tuple[dict[str, Answer], dict[str, Stream]]:
    """All questions that a daemon answers."""
    journal, view = sources.journal, sources.view
    forked = ForkedAnswers(ready=sources.keep_summary)

    async def status_now(query: Query) -> Response:
        made = await sliced(status.steps(view(), query))
        return await asyncio.to_thread(status.response_of, made, query)

    async def names_now(query: Query) -> Response:
        return _names(view(), query)

    async def find_now(query: Query) -> Response:
        name = word(query, "name")
        budgets = await sources.list_kinds([_BUDGET], {_BUDGET: f"metadata.name={name}"})
        return {"items": _of_name(view(), name, budgets.objects)}

    async def sets_now(query: Query) -> Response:
        return await asyncio.to_thread(daemonset.prepare(view(), query))

    async def changes(query: Query) -> Response:
        selected = await journal.select(_wanted(query, sources.now_ns()), MOST_CHANGES)
        warnings = [*sources.blind(), *journal_warnings(journal)]
        if len(selected) == MOST_CHANGES:
            warnings.append(f"only the newest {MOST_CHANGES} are shown; narrow with --since")
        return {"items": await asyncio.to_thread(_documents, selected), "warnings": warnings}

    answers: dict[str, Answer] = {
        "status": status_now,
        "names": names_now,
        "find": find_now,
        "explain": _explained(sources),
        daemonset.QUESTION: sets_now,
        "changes": changes,
        **{name: _planned(sources, forked, make) for name, make in _PLANS.items()},
        "replay": _replay_answer(sources, forked),
        "upgrade": _upgrade_answer(sources, forked),
    }
    streams: dict[str, Stream] = {
        WHAT_IF: _followed_what_if(sources, forked),
        "status": lambda query: _watch_status(view, query),
        daemonset.QUESTION: lambda query: daemonset.watch(view, query),
        "changes": lambda query: _watch_changes(sources, _wanted(query, sources.now_ns())),
    }
    return _led(answers), _led(streams)


def _explained(sources: Sources) -> Answer:
    """The answer to `explain`, for which the present is played: in children of its own, so that
    long answers do not hold it up."""
    forked = ForkedAnswers(ready=sources.keep_summary)

    async def explain_now(query: Query) -> Response:
        async def listed() -> ListedOnce | NodelifeError | None:
            wanted = explain.beside_a_daemon(query)
            if wanted is None:
                return None
            asked_for = (*wanted.kinds, *wanted.optional)
            kinds = [kind for kind in asked_for if kind not in WATCHED]
            try:
                return await sources.list_kinds(kinds, wanted.fields)
            except NodelifeError as refused:
                return refused

        def made(listed_beside: ListedOnce | NodelifeError | None) -> Response:
            view = sources.view()
            view.outlook.plays = view.foretells
            return explain.answer_with(view, listed_beside, query)

        return await forked.answer(listed, made)

    return explain_now


def _led(questions: Mapping[str, Callable[[Query], T]]) -> dict[str, Callable[[Query], T]]:
    """The same, with commands that lead to the cluster by the flags of the one who asks."""

    def led(answer: Callable[[Query], T]) -> Callable[[Query], T]:
        def answer_led(query: Query) -> T:
            lead_to_asker(query)
            return answer(query)

        return answer_led

    return {name: led(answer) for name, answer in questions.items()}


def _planned(sources: Sources, forked: ForkedAnswers, make: str) -> Answer:
    """The answer to a question for plans of drains, by the function of that name."""

    async def answer_now(query: Query) -> Response:
        asked = await _module_of("drain_plan")
        wanted: KindsToRead = asked.reading(query)

        def made(more: ListedBeside) -> Response:
            response: Response = getattr(asked, make)(_whole_view(sources, wanted, more), query)
            return response

        return await forked.answer(lambda: _list(sources, wanted), made)

    return answer_now


async def _module_of(question: str) -> Any:
    """The module beside this one that answers; it is imported when it is first asked."""
    return await imported(f"{answering.__name__}.{question}")


ListedBeside = tuple[Cache, dict[str, str], list[Unreadable]]
"""What was listed beside what is watched, as `ClusterView.with_more` takes it."""


async def _list(sources: Sources, wanted: KindsToRead) -> ListedBeside:
    """List what is wanted and not watched."""
    kinds = [kind for kind in (*wanted.kinds, *wanted.optional) if kind not in WATCHED]
    objects, unread, unreadable = await sources.list_kinds(kinds, wanted.fields)
    return await sliced(_filed(objects)), unread, unreadable


def _filed(objects: Sequence[KubeObject]) -> Generator[None, None, Cache]:
    """A cache of them. A child that filed them would copy the memory of each."""
    cache = Cache()
    for i in range(0, len(objects), _FILED_AT_ONCE):
        cache.fill(objects[i : i + _FILED_AT_ONCE], 0)
        yield
    return cache


def _whole_view(sources: Sources, wanted: KindsToRead, more: ListedBeside) -> ClusterView:
    """What is watched and what was listed, with a warning of what lacks."""
    view = sources.view().with_more(*more)
    view.warnings += wanted.missing_parts(view)
    return view


def _followed_what_if(sources: Sources, forked: ForkedAnswers) -> Stream:
    """The answer to `what-if`, and before it, once it takes longer than a moment, each second what
    is being done and who is on the nodes of the acts (`progress`).
    """

    async def told(query: Query) -> AsyncGenerator[Response]:
        began = time.monotonic()
        asked = await _module_of(WHAT_IF)
        first = await sliced(asked.first_steps(sources.view(), query))
        wanted: KindsToRead = asked.reading(query)

        def made(more: ListedBeside, tell: Tell) -> Response:
            view = _whole_view(sources, wanted, more)
            response: Response = asked.answer(view, query, lambda what: tell({"says": what}))
            return response

        documents = forked.documents(lambda: _list(sources, wanted), made, FOLLOWED_SECONDS)
        async with aclosing(_each_second(documents, first, began)) as each_second:
            async for document in each_second:
                yield document

    return told


async def _each_second(
    documents: AsyncGenerator[Response], first: str, began: float
) -> AsyncGenerator[Response]:
    """The last of these, and before it how far it is; the others say what is being done."""
    due_s = began + FIRST_WORD_SECONDS
    says = "reads what the daemon does not watch, and the present"
    coming = asyncio.ensure_future(anext(documents))
    try:
        while True:
            await asyncio.wait({coming}, timeout=max(0.0, due_s - time.monotonic()))
            if not coming.done():
                due_s += WATCH_SECONDS
                seconds = round(time.monotonic() - began, 1)
                yield {"progress": {"says": says, "seconds": seconds, "first": first}}
            elif (document := coming.result()).keys() == {"says"}:
                says = document["says"]
                coming = asyncio.ensure_future(anext(documents))
            else:
                yield document
                return
    finally:
        coming.cancel()
        await asyncio.wait({coming})
        await documents.aclose()


def _replay_answer(sources: Sources, forked: ForkedAnswers) -> Answer:
    """The answer to `replay`."""

    async def replay_now(query: Query) -> Response:
        replay = await _module_of("replay")

        async def traces() -> tuple[ListedOnce, list[ChangeRecord]]:
            since_ns = sources.now_ns() - (number(query, "since") or HOUR_NS)
            wanted = ChangeFilter(since_ns=since_ns)
            listed = await sources.list_kinds(replay.KINDS)
            return listed, await sources.journal.select(wanted, MOST_CHANGES)

        def make_response(traces_read: tuple[ListedOnce, list[ChangeRecord]]) -> Response:
            listed, changes = traces_read
            view = sources.view().with_more(Cache(), listed.unread, listed.unreadable)
            response: Response = replay.answer(view, listed.objects, _documents(changes), query)
            return response

        return await forked.answer(traces, make_response)

    return replay_now


def _upgrade_answer(sources: Sources, forked: ForkedAnswers) -> Answer:
    """The answer to `upgrade`, from the watched nodes and the run's Lease, which is read for each
    question; without the checks of nodes: they need kinds that are read for `upgrade status` alone.
    """

    async def upgrade_now(query: Query) -> Response:
        def status_of(lease: Lease | None) -> Response:
            view, names = sources.view(), query.get("node", ())
            nodes = list(view.cache.nodes.values())
            status_now = upgrade_status(nodes, lease, view.now_ns, view.source, names)
            return {**status_now, "warnings": [*view.warnings, *status_now["warnings"]]}

        return await forked.answer(lambda: read_run(sources.client), status_of)

    return upgrade_now


async def _watch_status(look: ViewSource, query: Query) -> AsyncGenerator[dict[str, Any]]:
    """All nodes, then each second those about which there is something else to say, the nodes that
    are gone, and the zones whose state changed."""
    lines = StatusLines(query)
    warned: set[str] = set()
    while True:
        shown = await sliced(status.steps(look(), query))
        text = lines.news(shown)
        warnings = [w for w in shown.warnings if _NUMBER.sub("#", w) not in warned]
        if text or warnings:
            yield {"text": text, "warnings": warnings}
        warned = {_NUMBER.sub("#", w) for w in shown.warnings}
        await asyncio.sleep(WATCH_SECONDS)


async def _watch_changes(sources: Sources, wanted: ChangeFilter) -> AsyncGenerator[dict[str, Any]]:
    """The changes that are there, then those that come, and again those that end differently."""
    journal, blind = sources.journal, sources.blind()
    with journal.following(wanted) as batches:
        selected = await journal.select(wanted, MOST_CHANGES)
        seen = {change.id: change.outcome for change in selected}
        yield {"items": _documents(selected), "warnings": [*blind, *journal_warnings(journal)]}
        async for batch in batches:
            items = [c for c in batch if seen.get(c.id) != c.outcome]
            seen = {}
            if items:
                yield {"items": _documents(await journal.with_requests(items))}


def _documents(changes: list[ChangeRecord]) -> list[dict[str, Any]]:
    return [document(change) for change in changes]


def _wanted(query: Query, now_ns: int) -> ChangeFilter:
    """The query of `changes` as a choice. Raises BadInput."""
    return flags_of(query, ChangesQuestion).chosen(now_ns)


MOST_NAMES: Final = 500
"""More than a person reads; the next letter narrows it."""

ZONE_LABEL: Final = "topology.kubernetes.io/zone"


def _names(view: ClusterView, query: Query) -> Response:
    """Answer `names`, what completion offers. `items`: [name, description] of that kind that begin
    with `prefix`, sorted, MOST_NAMES at most.
    """
    prefix, namespace = word(query, "prefix"), word(query, "namespace")
    described = {
        name: description
        for name, description in _named(view.cache, word(query, "kind"), namespace)
        if name.startswith(prefix)
    }
    return {"items": sorted(described.items())[:MOST_NAMES]}


def _of_name(
    view: ClusterView, name: str, budgets: Iterable[KubeObject]
) -> list[tuple[str, str, str]]:
    """(kind, namespace, name) of what `explain` explains and has that name; none where not all of
    it was read yet."""
    if view.unread:
        return []
    held = chain.from_iterable(view.cache.all(kind) for kind in _NAMED_ALONE)
    return [(kind_of(o), o.namespace, o.name) for o in chain(held, budgets) if o.name == name]


def _named(cache: Cache, kind: str, namespace: str) -> Iterator[tuple[str, str]]:
    match kind:
        case "nodes":
            yield from ((name, _of_node(node)) for name, node in cache.nodes.items())
        case "pods":
            for (space, name), pod in cache.pods.items():
                if space == namespace or not namespace:
                    yield name, f"on {pod.spec.node_name}" if pod.spec.node_name else "on no node"
        case "daemonsets":
            for space, name in cache.objects.get("DaemonSet", {}):
                if space == namespace or not namespace:
                    yield name, f"in {space}"
        case "namespaces":
            for space in {space for space, _ in cache.pods}:
                yield space, ""
        case "zones":
            for node in cache.nodes.values():
                if zone := (node.metadata.labels or {}).get(ZONE_LABEL):
                    yield f"{ZONE_LABEL}={zone}", ""


def _of_node(node: Node) -> str:
    ready = node.ready()
    state = {"True": "Ready", "False": "NotReady"}.get(ready.status if ready else "", "Unknown")
    zone = (node.metadata.labels or {}).get(ZONE_LABEL)
    return f"{state}, zone {zone}" if zone else state
