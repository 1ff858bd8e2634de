"""The flags of `what-if`: how far to look, at what, what exit code 4 stands for; and files of acts.

Files of acts are, among those that `-f` names, documents of kind Acts, or the events of a Scenario.
Only a file of one document that says so is one; everything else is a dump.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import click

from kubectl_nodelife.commands.flags import duration_ns, gathered_flags
from kubectl_nodelife.dumps.file_size import read_named
from kubectl_nodelife.errors import BadInput
from kubectl_nodelife.outlook.what_if import CONDITIONS, EACH

_MOST_SECONDS = 24 * 3600


_KINDS: Final = ("Acts", "Scenario")
_PEEK: Final = 4096
_ENDINGS: Final = (".yaml", ".yml", ".json")


class QuestionFlags(NamedTuple):
    """The flags as given: how far to look, at what, and what exit code 4 stands for. A question to
    the daemon holds them so.
    """

    until: str | None = None
    each: str | None = None
    late: str = "silent"
    exit_code: bool = False
    fail_on: str = ""
    ignored: tuple[str, ...] = ()
    why: tuple[str, ...] = ()
    enforced: bool = False
    jobs: int | None = None

    def until_ns(self) -> int | None:
        """The horizon; None where none is given. Raises BadInput."""
        if self.until is None:
            return None
        from kubectl_nodelife.kube.times import SECOND_NS

        until_ns = duration_ns(self.until, "--until")
        if not SECOND_NS <= until_ns <= _MOST_SECONDS * SECOND_NS:
            raise BadInput(f"{self.until} is not between 1s and 24h", on="--until")
        return until_ns

    def conditions(self) -> list[str]:
        """The words of --fail-on. Raises BadInput."""
        found = [word.strip() for word in self.fail_on.split(",") if word.strip()]
        for word in found:
            if word not in CONDITIONS:
                known = f"known: {', '.join(CONDITIONS)}"
                raise BadInput(f"no {word!r}", on="--fail-on", remedy=known)
        return [*found, *(["zero", "drain"] if self.exit_code else [])]


question_flags = gathered_flags(
    "asked",
    QuestionFlags,
    (
        click.option(
            "--until", metavar="DURATION", help="How far to look: 1h, for --each node 10m."
        ),
        click.option("--each", metavar="WHAT", help=f"Rank what the loss of each does: {EACH}."),
        click.option(
            "--late",
            type=click.Choice(["silent", "renews"]),
            default="silent",
            help="What becomes of nodes that are late now: they stay silent, or are slow.",
        ),
        click.option(
            "--exit-code",
            is_flag=True,
            help="Exit with 4 if a workload goes down or a drain does not end.",
        ),
        click.option(
            "--fail-on",
            metavar="LIST",
            default="",
            help=f"Exit with 4 for these: {', '.join(CONDITIONS)}.",
        ),
        click.option(
            "--ignore",
            "ignored",
            multiple=True,
            metavar="NS/KIND/NAME|SELECTOR",
            help="Leave these workloads out; repeatable.",
        ),
        click.option(
            "--why",
            multiple=True,
            metavar="NS/KIND/NAME|node/NAME",
            help="The chain of causes of each change of it; repeatable.",
        ),
        click.option(
            "--enforced",
            is_flag=True,
            help="With our daemon in enforce mode, at its own pace: both are told.",
        ),
        click.option(
            "--jobs",
            type=click.IntRange(1),
            metavar="N",
            help="How many processes play --each. Default: one for each core.",
        ),
    ),
)


class ActsFile(NamedTuple):
    """The file's name, and the events in it as they are written."""

    name: str
    events: list[Any]


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
