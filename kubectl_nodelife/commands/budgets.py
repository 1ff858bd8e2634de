"""`kubectl nodelife budgets`: each budget's arithmetic, and what it makes undrainable."""

from __future__ import annotations

import click

from kubectl_nodelife.commands.flags import Output, Where, output_flags, where_flags
from kubectl_nodelife.commands.several_clusters import several_clusters
from kubectl_nodelife.errors import EXIT_NO, BadInput
from kubectl_nodelife.kube.subjects import BUDGET, parse_subjects
from kubectl_nodelife.report import terminal


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
    from kubectl_nodelife.commands.cluster.drain import look_for_drain
    from kubectl_nodelife.commands.cluster.look import none_found
    from kubectl_nodelife.drain.budget_survey import survey
    from kubectl_nodelife.kube.selectors import label_selector
    from kubectl_nodelife.report.budgets import budgets_page

    labels = label_selector(selector)
    found = look_for_drain(where, read)
    answer = survey(found.snapshot, namespace, pool_label, names, labels)
    terminal.warn(*found.warnings, *answer.warnings)
    if not answer.budgets:
        terminal.note(none_found(namespace))
    output.show(budgets_page(answer, about_one=len(names) == 1))
    blocked = any(view.undrainable for view in answer.budgets)
    blocked |= any(one.node for one in answer.two_budgets)
    return EXIT_NO if exit_code and blocked else 0
