"""Holds the first lines of `replay` and `changes` against what a naive reader knows of a cluster in
which something happened: which nodes were lost and are still, which pods were deleted.
"""

import json
import re
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from tests.claims.aftermaths import Aftermath, aftermath
from tests.claims.test_first_lines import MOMENT, Capture, asked

Judged = Callable[[Aftermath], tuple[str, Callable[[str], list[str]]]]
"""What a verb says first of a cluster, and which lies a judge finds in such words."""

DELETED = ("terminating", "finalizer", "gone", "scaled", "reborn")
ENDED = ("evicted", "shutdown")


def counted(pattern: str, text: str) -> int:
    """The number that the sentence has there; 0 where it has no such part."""
    found = re.search(pattern, text)
    return int(found[1]) if found else 0


def apart(*claims: tuple[str, object, object]) -> list[str]:
    """Of each claim (what, as told, as it is) that is not so, a line."""
    return [f"{what}: {told}, and {true}" for what, told, true in claims if told != true]


def catch(judged: Judged, truth: str, lie: str) -> None:
    """Plant a lie into what is said of sixty clusters; the judge must find each."""
    planted = 0
    for seed in range(60):
        said, lies_of = judged(aftermath(seed))
        false = re.sub(truth, lie, said, count=1)
        if false != said:
            planted += 1
            assert lies_of(false), (seed, false)
    assert planted


def lies_of_replay(cluster: Aftermath, said: str) -> list[str]:
    """What the first two lines claim, and what was done does not bear out."""
    first, _, second = said.partition("\n")
    states = cluster.nodes.items()
    lost = {name for name, state in states if state in ("lost", "false", "back", "removed")}
    still = {name for name, state in states if state in ("lost", "false")}
    lies = apart(
        ("nodes lost", counted(r"(\d+) nodes? became not Ready", first), len(lost)),
        ("pods deleted", counted(r"(\d+) pods? (?:was|were) deleted", first),
         len(cluster.fated(*DELETED))),
        ("pods ended", counted(r"(\d+) pods? (?:was|were) \w+ by the kubelet", first),
         len(cluster.fated(*ENDED))),
        ("named", len(re.findall(r"\bn\d\b", first)), min(3, len(lost))),
    )  # fmt: skip
    if "evicted by the kubelet" in first and cluster.fated("shutdown"):
        lies.append(f"evicted, and {cluster.fated('shutdown')} were shut down")
    named = re.match(r"(\w+)(?: and (\d+) others?)? (?:is|are) not Ready still", second)
    if (named is None) != (not still) or (named and named[1] not in still):
        lies.append(f"{second!r}, and {still} are")
    elif named and int(named[2] or 0) + 1 != len(still):
        lies.append(f"{named[0]}, and {still} are")
    return lies


def lies_of_changes(cluster: Aftermath, said: str, items: list[dict[str, object]]) -> list[str]:
    """What the headline counts and its table does not have; and what is called confirmed that was
    not done, and attempted that was."""
    told = dict[str, int]()
    for number, word in re.findall(r"(\d+) (confirmed|attempted|failed)\b", said):
        told[word] = int(number)
    outcomes = Counter(str(item["outcome"]) for item in items)
    lies = [] if told == outcomes else [f"{told}, and {outcomes}"]
    if counted(r"^(\d+) changes? w", said) != len(items):
        lies.append(f"{said}, and {len(items)}")
    for item in items:
        name = item["object"]["name"]  # type: ignore[index]
        attempt = name in cluster.fated("refused", "preempted")
        if (item["outcome"] != "confirmed") != attempt:
            lies.append(f"{item['action']} of {name} {item['outcome']}")
    return lies


def said_of(folder: Path, capsys: Capture, cluster: Aftermath, *words: str) -> str:
    said = asked(capsys, *words, "-f", cluster.write(folder), *MOMENT)
    return said.partition("\n\n")[0]


def test_the_first_line_of_replay_is_so(tmp_path: Path, capsys: Capture, seeds: range) -> None:
    for seed in range(10 * seeds.start, 10 * seeds.stop):
        cluster = aftermath(seed)
        said = said_of(tmp_path, capsys, cluster, "replay")
        assert not said or lies_of_replay(cluster, said) == [], (seed, said, cluster)


def test_the_first_line_of_changes_is_so(tmp_path: Path, capsys: Capture, seeds: range) -> None:
    for seed in range(10 * seeds.start, 10 * seeds.stop):
        cluster = aftermath(seed)
        said = said_of(tmp_path, capsys, cluster, "changes")
        items = json.loads(said_of(tmp_path, capsys, cluster, "changes", "-o", "json"))["items"]
        assert lies_of_changes(cluster, said, items) == [], (seed, said)


@pytest.mark.parametrize(
    "verb, truth, lie",
    [
        ("replay", r"(\d+) nodes? became", r"1\1 nodes became"),
        ("replay", r"\d+ nodes? became not Ready \([^)]*\)", "no node was lost"),
        ("replay", r"(\d+) pods? (was|were) deleted", r"1\1 pods were deleted"),
        ("replay", r", and \d+ pods? (was|were) deleted", ""),
        ("replay", r"were ended by", "were evicted by"),
        ("replay", r"(\d+) pods? (was|were) (\w+) by", r"1\1 pods were \3 by"),
        ("replay", r"\n\w+( and \d+ others?)? (is|are) not Ready still", ""),
        ("replay", r"\n\w+ is not", "\nn9 is not"),
        ("changes", r"^\d+ changes", "99 changes"),
        ("changes", r"\d+ attempted", "9 attempted"),
        ("changes", r"\d+ confirmed", "99 confirmed"),
    ],
)
def test_a_lie_about_what_was_is_caught(
    tmp_path: Path, capsys: Capture, verb: str, truth: str, lie: str
) -> None:
    def judged(cluster: Aftermath) -> tuple[str, Callable[[str], list[str]]]:
        said = said_of(tmp_path, capsys, cluster, verb)
        if verb == "replay":
            return said, partial(lies_of_replay, cluster)
        items = json.loads(said_of(tmp_path, capsys, cluster, verb, "-o", "json"))["items"]
        return said, lambda false: lies_of_changes(cluster, false, items)

    catch(judged, truth, lie)
