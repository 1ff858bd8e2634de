"""The page of `budgets`: each budget's arithmetic, its findings, and the pools that it blocks."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial

from kubectl_nodelife.drain.budget_survey import BudgetSurvey, BudgetView, PoolView
from kubectl_nodelife.kube.names import counted, first_names
from kubectl_nodelife.outlook.explain_budget import budget_sections
from kubectl_nodelife.report.explanation import explained
from kubectl_nodelife.report.formats import Block, Page
from kubectl_nodelife.report.table import Table, columns
from kubectl_nodelife.report.terminal import BAD, GOOD, WARN, ColoredText

_COLUMNS = columns(
    "namespace | name | state | rule:2 | expected:3 | desired:4 | healthy:5 | allowed | "
    "disrupted* | policy* | selector* | used by | undrainable nodes"
)
_POOL_COLUMNS = columns("pool | label* | nodes | undrainable | because of")


_NAMED = 3

_TONES = {"ok": GOOD, "unused": WARN, "blocking": WARN}


def budgets_page(survey: BudgetSurvey, *, about_one: bool = False) -> Page:
    """A `BudgetSurvey` as an answer; its names are the budgets that now let no pod go. `about_one`:
    one budget was asked for by its name."""
    blocking = [v for v in survey.budgets if v.undrainable or v.state not in ("ok", "unused")]
    return Page(
        partial(_about_one if about_one else _blocks, survey),
        survey.document,
        lambda: (f"poddisruptionbudget/{view.name}" for view in blocking),
    )


def _about_one(survey: BudgetSurvey, *, wide: bool) -> Iterator[Block]:
    """What there is to say of each budget."""
    if wide:
        yield from _blocks(survey, wide=wide)
        return
    for view in survey.budgets:
        sections = list(budget_sections(view, survey.two_budgets))
        yield from explained("PodDisruptionBudget", view.namespace, view.name, sections)


def _blocks(survey: BudgetSurvey, *, wide: bool) -> Iterator[Block]:
    """How many hold something, budgets, findings, pods under two budgets, pools."""
    if survey.budgets:
        yield _headline(survey)
    yield Table(_COLUMNS, [_row(view) for view in survey.budgets])
    yield "\n".join(_finding_lines(survey))
    if any(pool.undrainable for pool in survey.pools):
        yield Table(_POOL_COLUMNS, [_pool_row(pool) for pool in survey.pools])


def _headline(survey: BudgetSurvey) -> str:
    double = {
        (one.pod.partition("/")[0], name)
        for one in survey.two_budgets
        for name in one.budgets
        if one.node
    }
    holding = [v for v in survey.budgets if v.undrainable or (v.namespace, v.name) in double]
    many = counted(len(survey.budgets), "budget")
    nodes = [node for pool in survey.pools for node in pool.undrainable]
    if not nodes:
        odd = [
            f" But of {view.namespace}/{view.name}: {finding.what}."
            for view in survey.budgets
            for finding in view.findings
            if view.state == "ok" and finding.remedy
        ]
        also = odd[0] if odd else ""
        return f"None of {many} keeps a node from being drained now.{also}"
    keep = "keeps" if len(holding) == 1 else "keep"
    first = holding[0]
    return (
        f"{len(holding)} of {many} {keep} {counted(len(nodes), 'node')} from being drained now.\n"
        f"Why: kubectl nodelife budgets {first.name} -n {first.namespace}"
    )


def _row(view: BudgetView) -> tuple[object, ...]:
    return (
        view.namespace,
        view.name,
        ColoredText(view.state, _TONES.get(view.state, BAD)),
        view.rule,
        view.expected,
        view.desired,
        view.healthy,
        view.allowed,
        view.disrupted,
        view.policy,
        view.selector,
        first_names(view.owners, _NAMED),
        first_names(view.undrainable, _NAMED),
    )


def _finding_lines(survey: BudgetSurvey) -> Iterable[str]:
    for view in survey.budgets:
        for finding in view.findings:
            remedy = f"; {finding.remedy}" if finding.remedy else ""
            yield f"{view.namespace}/{view.name}: {finding.what}{remedy}"
    for one in survey.two_budgets:
        yield (
            f"{one.pod}: {' and '.join(one.budgets)} both match it, and the Eviction API refuses"
            " that for ever; narrow one of the selectors"
        )


def _pool_row(pool: PoolView) -> tuple[object, ...]:
    return (
        pool.name,
        pool.label or "",
        pool.nodes,
        len(pool.undrainable),
        first_names(pool.budgets, _NAMED),
    )
