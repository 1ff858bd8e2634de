"""Holds drain-plan's "Meanwhile …" against a play of the same drain, counted anew.

How many workloads have no ready pod, for how long, and how many pods find no node:
the latter where no node is lost meanwhile. A pod that is not made anew since another is not Ready
is none of them.
"""

import json
import re
from pathlib import Path
from typing import NamedTuple

from tests.claims.naive_play import Course, courses
from tests.claims.test_drain_plan import ALL, NOW, nodes_of, played
from tests.claims.test_what_if import NOTHING, Document, run, span_of
from tests.objects import write_list

SAID = (73, 121, 143, 179, 198, 288)
"""Seeds of which something is said: workloads that are down for a while or stay so, and pods that
find no node."""


class Meanwhile(NamedTuple):
    """What is said, and of each workload its course in a play of an hour, with the drain and
    without; `is_lost`: a node is lost there by itself."""

    text: str
    courses: dict[str, Course]
    without: dict[str, Course]
    is_lost: bool

    def more_pending(self) -> int:
        """How many pods have no node at the end that have one without the drain."""
        without = self.without
        return sum(max(0, c.pending - without[n].pending) for n, c in self.courses.items())

    def down(self) -> list[Course]:
        """The courses of those that go down, be it by the drain or not."""
        return [course for course in self.courses.values() if course.goes_down()]

    def taken_down(self) -> int:
        """How many go down that would not without the drain."""
        return sum(
            course.goes_down() and not self.without[name].goes_down()
            for name, course in self.courses.items()
        )


def meanwhile(folder: Path, names: list[str], items: list[Document]) -> Meanwhile:
    """What drain-plan says of it, and how it goes."""
    dump = write_list(folder / "dump.json", items)
    where = ("-f", dump, *NOW)
    text = run("drain-plan", *names, "--ignore-daemonsets", "--read", ALL, *where)[1]
    lines = [line for line in text.splitlines()[:3] if "Meanwhile " in line]
    drain = {"at": "0s", "drain": {"nodes": names, "ignoreDaemonSets": True}}
    records = played(folder, [drain], items)
    is_lost = any(
        record["action"] == "SetNodeCondition" and record["detail"].get("status") == "Unknown"
        for record in records
    )
    acts = ("what-if", *NOTHING.split(), "--until", "1h", "-o", "timeline", *where)
    without = courses(items, json.loads(run(*acts)[1])["records"])
    return Meanwhile("".join(lines), courses(items, records), without, is_lost)


def lies_of_meanwhile(told: Meanwhile) -> list[str]:
    """What is said and is not so. A workload that the drain takes a pod of may go down by something
    else, and is counted then."""
    lies, down = [], told.down()
    says = r"(\d+) of \d+ workloads? ha(?:s|ve) no ready pod(?: for up to ([\d.hms]+))?"
    said = re.search(says, told.text)
    count = int(said[1]) if said else 0
    if not told.taken_down() <= count <= len(down):
        lies.append(f"{told.text!r}, and {told.taken_down()} to {len(down)} are down")
    elif said and said[2]:
        spans = [span for course in down for span in course.zero_spans(3600.0)]
        if not any(abs(span_of(said[2]) - (end - begin)) <= 2 for begin, end in spans):
            lies.append(f"for up to {said[2]}, and {spans}")
    elif said and not any(course.last == 0 for course in down):
        lies.append(f"{told.text!r}, and all are up again")
    finds = re.search(r"(\d+) pods? finds? no node", told.text)
    more, count = told.more_pending(), int(finds[1]) if finds else 0
    if not told.is_lost and more != count:
        lies.append(f"{told.text!r}, and {more} pods find none")
    return lies


def test_what_is_said_of_the_meantime_is_so(tmp_path: Path, seeds: range) -> None:
    said = 0
    for seed in (*SAID, *range(4 * seeds.start, 4 * seeds.stop)):
        if found := nodes_of(seed):
            told = meanwhile(tmp_path, *found)
            assert lies_of_meanwhile(told) == [], seed
            said += bool(told.text)
    assert said >= len(SAID)


LIES = (
    (r"Meanwhile (\d+) of", "Meanwhile 9 of"),
    (r"for up to [\d.hms]+", "for up to 17m"),
    (r"Meanwhile .*ready pod.*", ""),
    (r"\d+ pods? finds? no node", "9 pods find no node"),
    (r"\d+ pods? finds? no node", "no pod is without a node"),
)


def test_lies_about_the_meantime_are_caught(tmp_path: Path) -> None:
    caught = dict.fromkeys(LIES, 0)
    for seed in SAID:
        found = nodes_of(seed)
        assert found is not None
        told = meanwhile(tmp_path, *found)
        for truth, lie in LIES:
            false = told._replace(text=re.sub(truth, lie, told.text))
            if false != told and (not told.is_lost or "node" not in truth):
                caught[truth, lie] += bool(lies_of_meanwhile(false))
    assert all(caught.values()), caught
