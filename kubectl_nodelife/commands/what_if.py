"""`kubectl nodelife what-if`: what would happen if nodes, a zone or the link were lost, and the
like.

Files of acts are, among those that `-f` names, documents of kind Acts, or the events of a Scenario.
Only a file of one document that says so is one; everything else is a dump.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from typing import Final, NamedTuple

import click

from kubectl_nodelife.commands import ask
from kubectl_nodelife.commands.answering import ActsFile, QuestionFlags
from kubectl_nodelife.commands.flags import Output, Where, gathered_flags, output_flags, where_flags
from kubectl_nodelife.commands.several_clusters import several_clusters
from kubectl_nodelife.dumps.file_size import read_named
from kubectl_nodelife.errors import EXIT_INTERRUPTED, EXIT_NO, BadInput
from kubectl_nodelife.outlook.what_if import CONDITIONS, EACH
from kubectl_nodelife.report import terminal
from kubectl_nodelife.report.formats import FORMATTERS

_QUESTION = "what_if"
_OF_ONE_QUESTION = ("timeline", "html")
"""Formats that a ranking has not."""

_KINDS: Final = ("Acts", "Scenario")
_PEEK: Final = 4096
_ENDINGS: Final = (".yaml", ".yml", ".json")


question_flags = gathered_flags(
    "asked",
    QuestionFlags,
    f"""
--until=DURATION        How far to look: 1h, for --each node 10m.
--each=WHAT             Rank what the loss of each does: {EACH}.
--late=[silent|renews]  What becomes of nodes that are late now: they stay silent, or are slow.
--exit-code             Exit with 4 if a workload goes down or a drain does not end.
--fail-on=LIST          Exit with 4 for these: {", ".join(CONDITIONS)}.
--ignore=NS/KIND/NAME|SELECTOR  Leave these workloads out; repeatable.
--why=NS/KIND/NAME|node/NAME    The chain of causes of each change of it; repeatable.
--enforced              With our daemon in enforce mode, at its own pace: both are told.
--jobs=N                How many processes play --each. Default: one for each core.
""",
    jobs={"type": click.IntRange(1)},
)


class ActsAndDumps(NamedTuple):
    """The files that `-f` names: files of acts, and the rest."""

    acts: list[ActsFile]
    dumps: tuple[str, ...]


def acts_and_dumps(filenames: Sequence[str]) -> ActsAndDumps:
    """Take the files of acts apart. Raises BadInput."""
    acts, dumps = [], []
    for name in filenames:
        if _names_acts(name):
            acts.append(_read(name))
        else:
            dumps.append(name)
    return ActsAndDumps(acts, tuple(dumps))


def _names_acts(name: str) -> bool:
    """True if the file looks like a document of acts."""
    if not name.endswith(_ENDINGS) or not os.path.isfile(name):
        return False
    with open(name, "rb") as file:
        begins = file.read(_PEEK).decode("utf-8", "replace")
    words = begins.replace('"', " ").replace(",", " ").split()
    return any(
        word == "kind:" and words[i + 1 : i + 2] in (["Acts"], ["Scenario"])
        for i, word in enumerate(words)
    ) or any(
        words[i : i + 3] in (["kind", ":", "Acts"], ["kind", ":", "Scenario"])
        for i in range(len(words))
    )


def _read(name: str) -> ActsFile:
    from kubectl_nodelife.sim.fields import FieldPath, mapping, sequence
    from kubectl_nodelife.sim.scenario import API_VERSION, only_document

    top = FieldPath(name)
    document = mapping(only_document(read_named(name), name), top)
    kind, version = document.get("kind"), document.get("apiVersion")
    if kind not in _KINDS or version != API_VERSION:
        remedy = f"acts have apiVersion: {API_VERSION} and kind: Acts"
        raise BadInput(f"is {version} {kind}", on=name, remedy=remedy)
    spec = mapping(document.get("spec", {}), top.key("spec"))
    for field in spec if kind == "Acts" else ():
        if field != "events":
            raise top.key("spec").key(field).fault("is no field of Acts", "it has only events")
    events = sequence(spec.get("events", []), top.key("spec").key("events"))
    if not events:
        raise BadInput("holds no events", on=name, remedy="give spec.events")
    return ActsFile(name, list(events))


@click.command(
    "what-if",
    context_settings={"ignore_unknown_options": True, "help_option_names": ["-h", "--help"]},
)
@click.argument("words", nargs=-1, metavar="ACT [TARGET...]", type=click.UNPROCESSED)
@question_flags
@output_flags(*FORMATTERS, *_OF_ONE_QUESTION)
@where_flags("no_daemon", "profile", "assignments")
@several_clusters("workloads with an outage")
def what_if(words: tuple[str, ...], asked: QuestionFlags, output: Output, where: Where) -> int:
    """What would happen if a node, a zone or the link were lost, drained, tainted, set otherwise?

    The cluster as it is now is played on twice, with and without the acts, by the same logic that
    everything here stands on; what differs is shown. Nothing is written anywhere. --at says when an
    act happens, --for when a loss ends; --and begins the next act. --each asks the same of each
    node, zone or group, or of those of -l and --zone, and ranks them.

    Answered by the daemon where one watches the cluster, else by a first look at it, and it says
    which. --each, --profile and --set need a first look. -f names a dump, or a file of acts (kind
    Acts or Scenario), and may be given for both.

    \b
    Examples:
      kubectl nodelife what-if lose zone eu-1a --for 20m
      kubectl nodelife what-if lose node worker-1 --and drain worker-2 --ignore-daemonsets --at 1m
      kubectl nodelife what-if lose link -f dump/
      kubectl nodelife what-if set node-monitor-grace-period=20s --and lose node worker-1
      kubectl nodelife what-if taint node worker-1 maintenance=now:NoExecute -o json
      kubectl nodelife what-if lose zone eu-1a --enforced
      kubectl nodelife what-if --each node
      kubectl nodelife what-if --each zone lose link --for 5m
      kubectl nodelife what-if --each pair-of zone --for 20m
    """
    files = acts_and_dumps(where.filename)
    if not words and asked.each is None and not files.acts:
        from kubectl_nodelife.outlook.what_if.acts import FORMS

        raise BadInput("which act?", on="what-if", remedy=f"one of: {'; '.join(FORMS)}")
    asked.conditions()
    asked.until_ns()
    where = where._replace(filename=files.dumps)
    where.check()
    if asked.each is not None:
        if files.acts:
            raise BadInput("is not for --each", on="-f", remedy="give the act in words")
        return _rank(where, words, asked, output)
    acts = [json.dumps(each) for each in files.acts]
    query = {"word": words, "acts": acts, **asked._asdict(), **output.query()}
    code = ask.followed_answer(where, _QUESTION, query, exit_code=True)
    if where.profile:
        see = f"kubectl nodelife upgrade preview {where.profile}"
        terminal.note(f"what {where.profile} changes for what is here: {see}")
    return code


def _rank(where: Where, words: tuple[str, ...], asked: QuestionFlags, output: Output) -> int:
    """Play the act on each target, and show the ranking; the exit code. Raises BadInput.

    Not the daemon's work: it may take minutes on all cores, and shows how far it is.
    """
    from kubectl_nodelife.commands.answering.what_if import each_of, exceeds, rank, reading
    from kubectl_nodelife.commands.cluster.look import look
    from kubectl_nodelife.report.what_if import ranking_page

    of_one = f"-o {output.format}" if output.format in _OF_ONE_QUESTION else ""
    if of_one := "--enforced" if asked.enforced else of_one:
        raise BadInput("is not for --each", on=of_one, remedy="ask about one target")
    ranking = each_of(words, asked)
    view = look(where, reading({}))
    if not where.filename:
        ask.say_first_look("a first look: what was not seen is taken from the objects")
    answer = rank(view, ranking, asked)
    terminal.warn(*answer.warnings)
    output.show(ranking_page(answer))
    if answer.partial:
        return EXIT_INTERRUPTED
    failed = exceeds(asked.conditions(), [item.verdict.__getitem__ for item in answer.items])
    return EXIT_NO if failed else 0
