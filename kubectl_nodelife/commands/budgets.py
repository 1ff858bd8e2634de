"""`kubectl nodelife budgets`: each budget's arithmetic, its findings, and the pools of nodes that
it makes undrainable.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial
from typing import TYPE_CHECKING

import click

from kubectl_nodelife.commands.flags import Output, Where, output_flags, where_flags
from kubectl_nodelife.commands.several_clusters import several_clusters
from kubectl_nodelife.errors import EXIT_NO, BadInput
from kubectl_nodelife.kube.names import BUDGET, counted, first_names, parse_subjects
from kubectl_nodelife.report import terminal
from kubectl_nodelife.report.formats import Block, Page, Table, columns
from kubectl_nodelife.report.terminal import BAD, GOOD, WARN, ColoredText

if TYPE_CHECKING:  # heavy for --help
    from kubectl_nodelife.drain.budget_survey import BudgetSurvey, BudgetView, PoolView


@click.command("budgets")
@click.argument("names", nargs=-1, metavar="[BUDGET...]")
@click.option("--read", metavar="KINDS", default="", help="Kinds of which a dump has all.")
@click.option("-A", "--all-namespaces", is_flag=True, help="The budgets of all namespaces.")
@click.option("-l", "--selector", help="Only budgets with these labels, as in kubectl.")
@click.option("--pool-label", metavar="KEY", help="The node label that names a node's pool.")
@click.option("--exit-code", is_flag=True, help="Exit with 4 if a budget lets no pod go.")
@output_flags()
@where_flags()
@several_clusters()
def budgets(
    names: tuple[str, ...],
    read: str,
    all_namespaces: bool,
    selector: str | None,
    pool_label: str | None,
    exit_code: bool,
    output: Output,
    where: Where,
) -> int:
    """Each disruption budget's arithmetic, who uses it, and which nodes it makes undrainable now.

    \b
    Examples:
      kubectl nodelife budgets -A
      kubectl nodelife budgets web -n shop
      kubectl nodelife budgets -n shop -o wide -f dump.json
    """
    from kubectl_nodelife.commands.cluster.look import namespace_of

    named = parse_subjects(names, (BUDGET,), BUDGET)
    given = {budget.namespace for budget in named if budget.namespace}
    if len(given) > 1:
        raise BadInput("they are of several namespaces", remedy="ask for those of one at a time")
    namespace = given.pop() if given else namespace_of(where, all_namespaces)
    wanted = [budget.name for budget in named]
    return show(where, namespace, wanted, output, read, pool_label, selector, exit_code=exit_code)


def show(
    where: Where,
    namespace: str | None,
    names: list[str],
    output: Output,
    read: str = "",
    pool_label: str | None = None,
    selector: str | None = None,
    *,
    exit_code: bool = False,
) -> int:
    """Print the budgets of these names, or all, of a namespace or of all (None). The exit code."""
    from kubectl_nodelife.commands.cluster.look import look_for_drain, none_found
    from kubectl_nodelife.drain.budget_survey import survey
    from kubectl_nodelife.kube.selectors import label_selector

    labels = label_selector(selector)
    seen = look_for_drain(where, read, needed=("PodDisruptionBudget",))
    answer = survey(seen.snapshot, namespace, pool_label, names, labels)
    terminal.warn(*seen.warnings, *answer.warnings)
    if not answer.budgets:
        terminal.note(none_found(namespace))
    output.show(budgets_page(answer, about_one=len(names) == 1))
    blocked = any(view.undrainable for view in answer.budgets)
    blocked |= any(one.node for one in answer.two_budgets)
    return EXIT_NO if exit_code and blocked else 0


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
    from kubectl_nodelife.outlook.explain_budget import budget_sections
    from kubectl_nodelife.report.explanation import explained

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
