"""Explains a disruption budget: its arithmetic, its pods, the nodes it holds, what would help."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from kubectl_nodelife.drain.budget_survey import BLOCKING, OK, TWO, UNUSED, BudgetView, PodUnderTwo
from kubectl_nodelife.kube.names import counted, first_names
from kubectl_nodelife.outlook.explain import ExplainedQuestion

_MOST = 8
_NOTHING_WRONG = (
    "Nothing was found as of this moment, in its selector, its rule, its status and its pods; "
    "'replay --drain NODE' shows what it held before."
)


def budget_sections(view: BudgetView, double: Sequence[PodUnderTwo]) -> Iterator[ExplainedQuestion]:
    """The sections about one budget. `double`: its pods that another budget matches too."""
    yield ExplainedQuestion("How many of its pods may go now, and why?", list(_allowed(view)))
    yield ExplainedQuestion("Whose pods are they?", [_pods(view)])
    yield ExplainedQuestion("Which nodes does it hold?", [_nodes(view)])
    problems = [f"{f.what}{'; ' + f.remedy if f.remedy else ''}" for f in view.findings]
    problems += [
        f"{one.pod} has two budgets, {' and '.join(one.budgets)}: the Eviction API refuses it for "
        "ever; narrow one of the selectors"
        for one in double
    ]
    sentences = [f"{_begun(text)}." for text in problems]
    yield ExplainedQuestion("Is something wrong with it?", sentences or [_NOTHING_WRONG])


def _begun(text: str) -> str:
    """A sentence's beginning in upper case, but not where it is a field of the API."""
    word = text.partition(" ")[0]
    return f"{text[0].upper()}{text[1:]}" if word.islower() else text


def _allowed(view: BudgetView) -> Iterator[str]:
    state = {
        OK: "pods may go",
        BLOCKING: "none may go now; that changes when more of its pods are Ready",
        TWO: "none may go: another budget matches each of its pods, which the Eviction API refuses",
        UNUSED: "it matches no pod",
    }
    yield f"{view.state}: {state.get(view.state, 'none may go')}."
    yield f"Its rule is {view.rule}, its selector {view.selector or 'empty'}."
    pods = counted(view.expected, "pod")
    by_objects = "an unknown number" if view.counted is None else view.counted
    yield (
        f"Of {pods} {view.desired} must be healthy and {view.healthy} are: "
        f"{view.allowed} may go by its status, {by_objects} by the objects."
    )
    if view.disrupted:
        yield f"{view.disrupted} of them are on their way out already."
    policy = view.policy or "IfHealthyBudget"
    may = "are held back too while too few are healthy"
    may = "always may go" if policy == "AlwaysAllow" else may
    yield f"unhealthyPodEvictionPolicy is {policy}: pods that are not Ready {may}."


def _pods(view: BudgetView) -> str:
    owners = f", of {first_names(view.owners, _MOST)}" if view.owners else ""
    return f"It guards {counted(view.pods, 'pod')}, as far as they were read{owners}."


def _nodes(view: BudgetView) -> str:
    held, of = view.undrainable, len(view.nodes)
    if not of:
        return "None: none of its pods runs on a node that was read."
    if not held:
        return f"None now, of the {of} nodes on which its pods are."
    nodes = counted(of, "node")
    return f"{first_names(held, _MOST)} cannot be drained now, of {nodes} with its pods."
