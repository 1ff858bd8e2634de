"""Holds first lines against what a naive reader counts: in the objects, and in a play of them.

The reader knows nothing of our code: it reads the dump as JSON, and the records that `simulate`
prints. What a sentence claims is taken out of the sentence itself. Planted lies must be caught.
"""

import datetime
import json
import re
from pathlib import Path
from typing import Any

import pytest

from kubectl_nodelife.cli import main
from tests.claims.clusters import NOW, RandomCluster, random_cluster

Capture = pytest.CaptureFixture[str]
MOMENT = ("--now", NOW.strftime("%Y-%m-%dT%H:%M:%SZ"))


def asked(capsys: Capture, *words: str) -> str:
    capsys.readouterr()
    assert main(list(words)) == 0, capsys.readouterr().err
    return capsys.readouterr().out


# --- status -----------------------------------------------------------------------------------


def nodes_of(cluster: RandomCluster) -> dict[str, dict[str, Any]]:
    return {o["metadata"]["name"]: o for o in cluster.items if o["kind"] == "Node"}


def seconds_ago(text: str) -> float:
    at = datetime.datetime.strptime(text[:19], "%Y-%m-%dT%H:%M:%S")
    return (NOW - at).total_seconds()


def lies_of_status(cluster: RandomCluster, said: str) -> list[str]:
    """What the first line claims and the objects do not bear out."""
    lies, nodes = [], nodes_of(cluster)
    first = said.split("\n\n")[0]
    found = re.match(r"(None|\d+) of (\d+) nodes? ", first)
    if found is None:
        return [f"no count: {first}"]
    if int(found[2]) != len(nodes):
        lies.append(f"{found[2]} nodes, and there are {len(nodes)}")
    late = late_nodes(cluster)
    troubled = {name for name, node in nodes.items() if ready_of(node) != "True"} | late
    if (0 if found[1] == "None" else int(found[1])) < len(troubled):
        lies.append(f"{found[1]} in trouble, and {len(troubled)} are late or not Ready")
    lost = re.search(r"(\d+) pods? (?:is|are) on gone, which has no Node object", first)
    pods = [o for o in cluster.items if o["kind"] == "Pod" and o["spec"]["nodeName"] not in nodes]
    if len(pods) != (int(lost[1]) if lost else 0):
        lies.append(f"{lost and lost[1]} pods without a node, and there are {len(pods)}")
    claims = re.findall(r"(\w+): [\w-]+, (\w+ )[^,;]+ overdue since (\S+)", first)
    also = re.search(r"; overdue(?: too)?: (.*?)\.(?: |\n|$)", first)
    for on, name, at in re.findall(r"(on )?(\w+) since ([^\s,]+)", also[1]) if also else []:
        claims.append((name, "deletion " if on else "taint ", at))
    return [*lies, *(lie for claim in claims for lie in lies_of_overdue(cluster, *claim))]


def late_nodes(cluster: RandomCluster) -> set[str]:
    """Nodes whose kubelets should have renewed their Leases."""
    leases = (o for o in cluster.items if o["kind"] == "Lease")
    return {
        lease["metadata"]["name"]
        for lease in leases
        if seconds_ago(lease["spec"]["renewTime"]) > 15
    }


def ready_of(node: dict[str, Any]) -> str:
    return next((c["status"] for c in node["status"].get("conditions", [])), "")


def lies_of_overdue(cluster: RandomCluster, name: str, what: str, since: str) -> list[str]:
    """Nothing is overdue that the objects' own times do not make late by a minute at least. A taint
    of a lost node is taken off, or exchanged, by the first pass after its node's status changed."""
    node = nodes_of(cluster)[name]
    taints = node["spec"].get("taints", [])
    effects, late_s = [t["effect"] for t in taints], seconds_ago(since)
    if "NoExecute" not in effects:
        changed = [
            seconds_ago(c["lastTransitionTime"])
            for other in nodes_of(cluster).values()
            for c in other["status"].get("conditions", [])
        ]
        if late_s < 60 or late_s > min(changed):
            return [f"{name}: its taint is overdue for {late_s} s, and {effects}, {changed}"]
        return []
    if what != "deletion ":
        own = [seconds_ago(c["lastTransitionTime"]) for c in node["status"].get("conditions", [])]
        late = late_s < 60 or late_s > min(own) + 1
        return [f"{name}: a taint overdue for {late_s} s, and {own}"] if late else []
    added = max(seconds_ago(taint["timeAdded"]) for taint in taints)
    late = late_s + 300 > added + 1
    return [f"{name}: a deletion overdue for {late_s} s, and tainted {added} ago"] if late else []


def test_the_first_line_of_status_is_so(tmp_path: Path, capsys: Capture, seeds: range) -> None:
    for seed in range(20 * seeds.start, 20 * seeds.stop):
        cluster = random_cluster(seed)
        words = ("--profile", cluster.profile, *MOMENT)
        said = asked(capsys, "status", "-f", cluster.write(tmp_path), *words)
        assert lies_of_status(cluster, said) == [], (seed, said)


@pytest.mark.parametrize(
    "truth, lie",
    [
        (r"^\d+ of", "None of"),
        (r"of (\d+) nodes", r"of 1\1 nodes"),
        (r"\d+ pods? (is|are) on gone", "9 pods are on gone"),
        (r" \d+ pods? (?:is|are) on gone, which has no Node object\.", ""),
        (r"overdue since 2026-01-01T", "overdue since 2025-12-01T"),
    ],
)
def test_a_lie_in_the_first_line_is_caught(
    tmp_path: Path, capsys: Capture, truth: str, lie: str
) -> None:
    planted = 0
    for seed in range(60):
        cluster = random_cluster(seed)
        words = ("--profile", cluster.profile, *MOMENT)
        said = asked(capsys, "status", "-f", cluster.write(tmp_path), *words)
        said = said.split("\n\n")[0]
        false = re.sub(truth, lie, said, count=1)
        if false != said:
            planted += 1
            assert lies_of_status(cluster, false), (seed, false)
    assert planted


# --- zones and turns --------------------------------------------------------------------------

DIFFERED = (191, 399, 911, 2158)
"""Seeds in which one node is lost while another one comes back (191, 399), and in which the last
ready node is lost: a zone that was dark already stops as all do (911, 2158)."""


def lies_of_zones(told: dict[str, Any], records: list[dict[str, Any]]) -> list[str]:
    """What `status` foretells of zones and of nodes that wait, and the play does not bear out."""
    lies = []
    for zone in told["zones"]:
        states = [
            (record["at"], record["detail"]["to"])
            for record in records
            if record["action"] == "SetZoneState"
            and record["detail"]["zone"].replace(":\0:", "/").strip("/") == zone["name"]
        ]
        told_states = zone.get("foretold", [])
        if [state for _, state in states] != [each["state"] for each in told_states]:
            lies.append(f"{zone['name']}: {told_states}, and {states}")
            continue
        for (at, state), each in zip(states, told_states, strict=True):
            if not each["earliestSeconds"] - 0.1 <= at <= each["latestSeconds"] + 0.1:
                lies.append(f"{zone['name']}: {state} at {at}, and {each}")
    for node in told["nodes"]:
        upcoming = node["verdict"]["next"] or {}
        if "NoExecute" in upcoming.get("action", "") and "latestSeconds" in upcoming:
            at, name = first_taint(records, node["name"]), node["name"]
            low, high = upcoming["earliestSeconds"], upcoming["latestSeconds"]
            if at is None or not low - 0.2 <= at <= high + 0.4:
                lies.append(f"{name}: tainted in {low} to {high}, and at {at}")
    return lies


def test_what_status_foretells_of_zones_and_turns_is_so(
    tmp_path: Path, capsys: Capture, seeds: range
) -> None:
    told_of = 0
    for seed in (*DIFFERED, *range(8 * seeds.start, 8 * seeds.stop)):
        cluster = random_cluster(seed)
        words = ("--profile", cluster.profile, "-o", "json")
        told = json.loads(asked(capsys, "status", "-f", cluster.write(tmp_path), *words))
        told_of += sum("foretold" in zone for zone in told["zones"])
        if any(n["verdict"]["state"] not in ("healthy", "cordoned") for n in told["nodes"]):
            records = play_of(tmp_path, capsys, cluster)
            assert lies_of_zones(told, records) == [], seed
    assert told_of or len(seeds) < 3


def test_a_lie_about_a_zone_is_caught(tmp_path: Path, capsys: Capture) -> None:
    planted = 0
    for seed in range(40):
        cluster = random_cluster(seed)
        words = ("--profile", cluster.profile, "-o", "json")
        told = json.loads(asked(capsys, "status", "-f", cluster.write(tmp_path), *words))
        for zone in (zone for zone in told["zones"] if "foretold" in zone):
            records = play_of(tmp_path, capsys, cluster)
            (first, *_) = zone["foretold"]
            for lie in ({"state": "Initial"}, {"earliestSeconds": first["latestSeconds"] + 9}):
                planted += 1
                false = {**zone, "foretold": [{**first, **lie}, *zone["foretold"][1:]]}
                assert lies_of_zones({**told, "zones": [false]}, records), (seed, lie)
    assert planted


# --- explain ----------------------------------------------------------------------------------

SCENARIO = """
apiVersion: nodelife.dev/v1alpha1
kind: Scenario
metadata: {{name: claim}}
spec:
  profile: {profile}
  start: join
  snapshot: dump.json
  duration: 13m
  controllers: [{controllers}]
  events: {events}
"""


def play_of(
    folder: Path,
    capsys: Capture,
    cluster: RandomCluster,
    silent: tuple[str, ...] = (),
    reporting: tuple[str, ...] = (),
    controllers: str = "node-lifecycle",
) -> list[dict[str, Any]]:
    """The records of a play of the dump in which these nodes fall silent now, and these report."""
    events = json.dumps(
        [
            {"at": "0s", "kubelet": {"nodes": nodes, "heartbeats": what}}
            for nodes, what in ((silent, "stop"), (reporting, "start"))
            if nodes
        ]
    )
    path = folder / "claim.yaml"
    path.write_text(
        SCENARIO.format(profile=cluster.profile, events=events, controllers=controllers)
    )
    played = json.loads(asked(capsys, "simulate", "-f", str(path), "-o", "json"))
    records: list[dict[str, Any]] = played["records"]
    return records


def first_taint(records: list[dict[str, Any]], name: str) -> float | None:
    """When the node gets its NoExecute taint."""
    times = [
        record["at"]
        for record in records
        if record["action"] == "AddTaint"
        and record["object"]["name"] == name
        and record["detail"]["effect"] == "NoExecute"
    ]
    return min(times, default=None)


def tainted_at(folder: Path, capsys: Capture, cluster: RandomCluster, name: str) -> float | None:
    """When the node gets its NoExecute taint in a play in which it falls silent now."""
    silent = cluster.states[name] in ("ok", "late", "removed", "never")
    return first_taint(play_of(folder, capsys, cluster, (name,) if silent else ()), name)


def lies_of_explain(
    explained: dict[str, Any], played_at: float | None, horizon_s: float = 780.0
) -> list[str]:
    """What the sum of its terms claims, and the play does not bear out."""
    sums = [a["total"] for a in explained["answers"] if a["question"].startswith("When would its")]
    if not sums or "total" not in str(explained):
        return []
    low, high = sums[0]["lowSeconds"], sums[0]["highSeconds"]
    if played_at is None:
        return [f"{low} to {high}, and never"] if low is not None and low < horizon_s else []
    if low is None:
        return [f"never, and at {played_at}"]
    fits = low - 0.2 <= played_at <= (played_at if high is None else high + 0.4)
    return [] if fits else [f"{low} to {high}, and at {played_at}"]


def test_the_times_of_explain_are_those_of_a_play(
    tmp_path: Path, capsys: Capture, seeds: range
) -> None:
    for seed in range(4 * seeds.start, 4 * seeds.stop):
        cluster = random_cluster(seed)
        name = sorted(cluster.states)[seed % len(cluster.states)]
        dump, words = cluster.write(tmp_path), ("--profile", cluster.profile, "-o", "json")
        explained = json.loads(asked(capsys, "explain", "node", name, "-f", dump, *words))
        if any("total" in answer for answer in explained["answers"]):
            played = tainted_at(tmp_path, capsys, cluster, name)
            assert lies_of_explain(explained, played) == [], (seed, name)


def test_a_wrong_time_is_caught() -> None:
    answer = {"question": "When would its pods be evicted?"}
    told = {"answers": [{**answer, "total": {"lowSeconds": 20.0, "highSeconds": 35.0}}]}
    assert lies_of_explain(told, None) and lies_of_explain(told, 51.5)
    assert not lies_of_explain(told, 30.0)


SEEDS = Path(__file__).parent / "seeds"


@pytest.mark.parametrize(
    "dump, node, profile, low_s, high_s",
    [
        # twelve of twenty nodes have been silent for 30 s: the zone's brake stops it before a taint
        ("outage-begins", "s03", "v1.36", None, None),
        # four nodes wait today, and are served before this one could join them
        ("queue-ahead", "h", "v1.36", 45.1, 55.1),
        # a node that never posted waits for no second pass
        ("h4", "new", "v1.16", 35.1, 45.1),
    ],
)
def test_terms_are_read_off_a_play(
    capsys: Capture, dump: str, node: str, profile: str, low_s: float | None, high_s: float | None
) -> None:
    words = ("-f", str(SEEDS / f"{dump}.json"), "--profile", profile, "-o", "json")
    told = json.loads(asked(capsys, "explain", "node", node, *words))
    (total,) = (answer["total"] for answer in told["answers"] if "total" in answer)
    assert (total["lowSeconds"], total["highSeconds"]) == (low_s, high_s)


def test_a_zone_that_goes_dark_is_foretold_in_the_first_line(capsys: Capture) -> None:
    words = ("-f", str(SEEDS / "outage-begins.json"), "--profile", "v1.36")
    told = asked(capsys, "status", *words)
    assert (
        "12 of 20 silent: PartialDisruption (0/s) in 15s-25s if none reports"
        in (told.splitlines()[0])
    )
    assert "losing 11 more" not in asked(capsys, "explain", "zone", "r/a", *words).splitlines()[0]
