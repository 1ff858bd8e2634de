"""What a real kube-controller-manager did at its default pace, twenty requests a second of each
client, against its simulation.

The order in which the writes of one moment are made is chance, so that names do not count: the i-th
write of a kind is held against the i-th, within three seconds and 1 % of the time passed. Which of
two pods waits one round of the bucket longer is chance as well: one write in a hundred may differ.
`zone-of-ten` and `zone-of-twenty` are read off the API server's audit log, so that they have the
marks that met a conflict and were made again in the next pass. `zone-of-twenty` is of v1.26.0, in
which a pass looks at one node at a time and the pods of tainted nodes are evicted with the same
client; the others are of v1.36.3.
"""

import json
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import msgspec
import pytest

from kubectl_nodelife.report.formats import render
from kubectl_nodelife.report.narration import narration_page
from kubectl_nodelife.sim.run import RunSummary
from kubectl_nodelife.sim.scenario import parse_scenario
from tests.simulating import simulate_scenario

HERE = Path(__file__).parent
RECORDINGS = sorted(path.parent for path in HERE.glob("*/timeline.json"))
SLACK_S = 3.0
SLACK_SHARE = 0.01
WRITERS = frozenset({"node-lifecycle", "taint-eviction", "daemonset"})
TOLD_BY = ("type", "status", "reason", "key", "effect")

Kind = tuple[str, ...]
Records = Iterable[Mapping[str, Any]]


def simulated(trace: Path, **flags: str) -> RunSummary:
    scenario = parse_scenario((trace / "scenario.yaml").read_bytes(), "scenario.yaml")
    return simulate_scenario(msgspec.structs.replace(scenario, flags={**scenario.flags, **flags}))


def document(story: RunSummary) -> Any:
    return msgspec.json.decode(msgspec.json.encode(story.document()))


def recorded(trace: Path) -> Any:
    return json.loads((trace / "timeline.json").read_bytes())


def times(records: Records) -> dict[Kind, list[float]]:
    """When each kind of write was made; the first deletion of each pod."""
    found: dict[Kind, list[float]] = defaultdict(list)
    deleted = set()
    for record in records:
        action, detail = record["action"], record.get("detail", {})
        name = record["object"].get("name")
        if record["controller"] not in WRITERS or record.get("error"):
            continue
        if action not in WRITES or (action == "DeletePod" and name in deleted):
            continue
        if action == "DeletePod":
            deleted.add(name)
        told = () if action in NAMELESS else tuple(str(detail.get(key, "")) for key in TOLD_BY)
        found[(action, *told)].append(record["at"])
    return found


NAMELESS = frozenset({"MarkPodNotReady", "DeletePod", "CreatePod"})
WRITES = NAMELESS | {"SetNodeCondition", "AddTaint", "RemoveTaint", "SetPodCondition"}


def differences(real: Any, ours: Any) -> tuple[int, list[str]]:
    """How many writes there are on either side, and those that differ."""
    theirs, mine = times(real["records"]), times(ours["records"])
    end = real["duration"] - SLACK_S - SLACK_SHARE * real["duration"]
    count, found = 0, []
    for kind in sorted(theirs.keys() | mine.keys()):
        a, b = sorted(theirs.get(kind, [])), sorted(mine.get(kind, []))
        for i in range(max(len(a), len(b))):
            count += 1
            if i >= len(a) or i >= len(b):
                at = a[i] if i < len(a) else b[i]
                if at <= end:
                    found.append(f"{'missing' if i < len(a) else 'extra'} {at} {kind}")
            elif abs(a[i] - b[i]) > SLACK_S + SLACK_SHARE * a[i]:
                found.append(f"recorded at {a[i]}, simulated at {b[i]}: {kind}")
    return count, found


@pytest.mark.parametrize("trace", RECORDINGS, ids=lambda path: path.name)
def test_the_simulation_keeps_the_managers_pace(trace: Path) -> None:
    count, found = differences(recorded(trace), document(simulated(trace)))
    assert count >= 60
    assert len(found) <= count // 100, "\n".join(["", *found])


@pytest.mark.parametrize(
    "trace",
    [r for r in RECORDINGS if r.name not in ("brake-comes-late", "daemonset-on-sixty")],
    ids=lambda path: path.name,
)
def test_without_a_limit_it_would_not(trace: Path) -> None:
    """The comparison notices what the pace is about."""
    count, found = differences(
        recorded(trace), document(simulated(trace, **{"kube-api-qps": "-1"}))
    )
    assert len(found) > count // 10


def test_before_1_27_a_pass_looks_at_one_node_at_a_time() -> None:
    """The recording of v1.26.0 tells the eight workers of later releases apart."""
    trace = HERE / "zone-of-twenty"
    text = (trace / "scenario.yaml").read_text().replace("profile: v1.26", "profile: v1.27")
    later = simulate_scenario(parse_scenario(text.encode(), "scenario.yaml"))
    count, found = differences(recorded(trace), document(later))
    assert len(found) > count // 2


def test_what_is_tainted_while_all_zones_go_dark_is_evicted_later() -> None:
    """Every flag at its default: four nodes are tainted before the pass that stops it all ends."""
    story = simulated(HERE / "default-settings-all-dark")
    tainted = [r for r in story.records if r.action == "AddTaint"]
    before = [r.object.name for r in tainted if r.detail["effect"] == "NoExecute"]
    (dark,) = [r for r in story.records if r.action == "SetZoneState" and r.detail["rate"] == 0]
    deleted = {r.object.name for r in story.records if r.action == "DeletePod"}
    assert len(before) == 4
    assert dark.at > 80
    assert len(deleted) == 80


def test_a_pass_is_judged_at_its_end_and_the_next_begins_a_period_later() -> None:
    story = simulated(HERE / "all-dark-and-back")
    marks = [r.at for r in story.records if r.action == "MarkPodNotReady"]
    (dark,) = [r for r in story.records if r.action == "SetZoneState" and r.detail["rate"] == 0]
    queued = [r.at for r in story.records if r.action == "QueueNode" and r.at > dark.at]
    assert dark.at == max(marks)
    assert queued and min(queued) == pytest.approx(dark.at + 5, abs=0.01)


def test_the_page_has_one_line_for_what_is_written_at_a_clients_pace() -> None:
    page = render(narration_page(simulated(HERE / "taint-by-hand")), "table")
    (deleted,) = [
        line for line in page.splitlines() if " DeletePod " in line and "cluster" not in line
    ]
    assert re.match(r"14\.\d+s-20\.\d+s +taint-eviction +DeletePod +pod/.* and 108 more", deleted)
    wide = render(narration_page(simulated(HERE / "taint-by-hand")), "wide")
    assert (
        len([line for line in wide.splitlines() if re.search(r"taint-eviction +DeletePod", line)])
        == 110
    )
