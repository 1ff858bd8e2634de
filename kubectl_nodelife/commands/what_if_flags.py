"""The flags of `what-if` that say how far to look, at what, and what exit code 4 stands for."""

from __future__ import annotations

from typing import Any, NamedTuple

import click

from kubectl_nodelife.commands.durations import duration_ns
from kubectl_nodelife.commands.flags import gathered_flags
from kubectl_nodelife.errors import BadInput
from kubectl_nodelife.kube.times import SECOND_NS
from kubectl_nodelife.outlook.what_if import CONDITIONS, EACH

_MOST_SECONDS = 24 * 3600


class QuestionFlags(NamedTuple):
    """The flags as given: how far to look, at what, and what exit code 4 stands for."""

    until: str | None = None
    each: str | None = None
    late: str = "silent"
    exit_code: bool = False
    fail_on: str = ""
    ignored: tuple[str, ...] = ()
    why: tuple[str, ...] = ()
    jobs: int | None = None

    def until_ns(self) -> int | None:
        """The horizon; None where none is given. Raises BadInput."""
        if self.until is None:
            return None
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
        return [*found, *(["zero"] if self.exit_code else [])]

    def query(self) -> dict[str, Any]:
        """Them as a part of the query, for a question about acts."""
        return {
            "until": self.until,
            "late": self.late,
            "fail-on": self.conditions(),
            "ignore": self.ignored,
            "why": self.why,
        }


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
        click.option("--exit-code", is_flag=True, help="Exit with 4 if a workload goes down."),
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
            "--jobs",
            type=click.IntRange(1),
            metavar="N",
            help="How many processes play --each. Default: one for each core.",
        ),
    ),
)
