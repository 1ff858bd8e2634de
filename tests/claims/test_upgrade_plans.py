"""Holds what `upgrade plan` says of random fleets against naive counts of their objects, and what
it says comes against runs of the leader's own engine: as the plan assumes, and otherwise.

The counts know nothing of our code: they read JSON documents, as the documentation says who is
left out and how floors round. Of a run the records are read. Planted lies must be caught.
"""

from __future__ import annotations

import functools
import json
import random
import re
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from kubectl_nodelife.upgrade import plan
from kubectl_nodelife.upgrade.findings import UpgradePlan
from kubectl_nodelife.upgrade.plan import make_upgrade_plan
from tests.claims.fleet_runs import COLD, PROFILE, Course, Unknown, played
from tests.claims.fleets import (
    TARGET,
    WINDOWS,
    Document,
    Fleet,
    is_control_plane,
    is_ready,
    odd_fleet,
    random_fleet,
)
from tests.claims.test_what_if import run, span_of
from tests.drain import build

WORDS = {
    "failed": "Failed in run r0",
    "there": f"is there already ({TARGET})",
    "held": "held by a person (label nodelife.dev/upgrade-hold)",
    "deleting": "the cluster autoscaler is about to delete it",
    "cordoned": "cordoned by others",
    "lost": "unhealthy before the run: Ready is Unknown",
    "sick": "unhealthy before the run: Ready is False",
}
LEFT_ALONE = ("failed", "there", "held", "deleting", "cordoned")
"""States in which a node is none of those that cannot be done: it is done, or somebody else's."""

BLUE = {"labels": {"pool": "blue"}}
DIFFERED = (6, 12, 20, 24, 59, 66, 140)
"""Seeds of which something else was said once: that a node cannot be done, and what is to be done
for it, which is there already (6, 66); a least time that a run undercut (12, 20, 59); that a node
is done which fails (24), and that -1 are, where one fails that was to be skipped (140)."""


ODD = (13, 26, 90, 110, 208, 222)
"""Seeds of odd fleets of which something else was said once: that nothing can be done where there
is a `--gate` (13), two nodes of the control plane at once (26), all where two are left out (90), a
least time that waits for the proof of the node before (110), or has one slot too few (208), and
that a node is done which is not where pods stop at once (222)."""


class Told(NamedTuple):
    """What a plan says: as a document, as a page, by `-o name`, and by its exit code."""

    plan: Document
    page: str
    names: list[str]
    code: int

    @property
    def nodes(self) -> dict[str, Document]:
        return {node["name"]: node for node in self.plan["nodes"]}

    def with_node(self, name: str, **fields: Any) -> Told:
        """The same with something else said of a node."""
        nodes = [n | fields if n["name"] == name else n for n in self.plan["nodes"]]
        return self._replace(plan={**self.plan, "nodes": nodes})

    def with_plan(self, **fields: Any) -> Told:
        """The same with something else said in the document."""
        return self._replace(plan={**self.plan, **fields})


def asked(folder: Path, fleet: Fleet) -> Told:
    """What the user's verb says of it."""
    words = ("upgrade", "plan", *fleet.write(folder), "--profile", PROFILE)
    with pytest.MonkeyPatch.context() as patch:  # one plan, shown in three formats
        made = functools.lru_cache(lambda _: make_upgrade_plan(*given))
        given: list[Any] = []

        def once(*of: Any) -> UpgradePlan:
            given[:] = of
            return made("the plan")

        patch.setattr(plan, "make_upgrade_plan", once)
        code, text = run(*words, "-o", "json", "--exit-code")
        page, names = run(*words), run(*words, "-o", "name")
    assert page[0] == names[0] == 0
    said = [line.partition("/")[2] for line in names[1].splitlines()]
    return Told(json.loads(text), page[1], said, code)


# --- a naive reader of the objects ----------------------------------------------------------------


def why_left_out(fleet: Fleet, name: str) -> str:
    """How the reason begins for which the node is not claimed; "" where it may be."""
    state, spec = fleet.states[name], fleet.spec
    if state == "there" and not spec["target"]:
        state = "ok"
    if state == "cordoned" and spec.get("includeCordoned"):
        state = "ok"
    if state in ("lost", "sick") and spec.get("unhealthy") == "include":
        state = "ok"
    masters = sum(map(is_control_plane, fleet.nodes.values()))
    if state not in WORDS and is_control_plane(fleet.nodes[name]) and masters < 3:
        return f"of {masters} control-plane nodes none is taken out"
    return WORDS.get(state, "") or _why_undrainable(fleet, name)


def _why_undrainable(fleet: Fleet, name: str) -> str:
    drain, leaving = fleet.spec.get("drain", {}), []
    for pod in fleet.pods_on(name):
        owners = [owner["kind"] for owner in pod["metadata"].get("ownerReferences", ())]
        if owners == ["DaemonSet"]:
            continue
        if pod["status"].get("phase") in ("Succeeded", "Failed"):
            continue  # the API server deletes it at once, and asks no budget and no kubelet
        leaving.append(pod)
        if not owners and not drain.get("force"):
            return "drain: refused: "
        if pod["spec"].get("volumes") and not drain.get("deleteEmptydirData"):
            return "drain: refused: "
    if leaving and fleet.states[name] == "lost":
        return "drain: never: "
    return "drain: never: " if any(_is_never_spared(fleet, pod) for pod in leaving) else ""


def _is_never_spared(fleet: Fleet, pod: Document) -> bool:
    """True if the pod's budget asks for all that it expects, and spares none now."""
    for item in fleet.items:
        app = pod["metadata"]["labels"]["app"]
        if item["kind"] == "PodDisruptionBudget" and item["metadata"]["name"] == app:
            status = item["status"]
            if not is_ready(pod) and status["currentHealthy"] >= status["desiredHealthy"] > 0:
                return False  # IfHealthyBudget: a pod that is not at work costs nothing
            return bool(status["expectedPods"] <= status["desiredHealthy"])
    return False


def is_available(fleet: Fleet, name: str) -> bool:
    """True if it takes pods."""
    return fleet.states[name] in ("ok", "held", "there")


def amount(value: int | str, base: int, *, least: bool) -> int:
    """A minimum rounds up; a maximum down, but to 1 rather than to 0."""
    if isinstance(value, int):
        return value
    share = int(value.removesuffix("%"))
    return -(-share * base // 100) if least else max(1, share * base // 100)


def numbers(fleet: Fleet) -> dict[tuple[str, str, str], tuple[int, int, int, int, int]]:
    """Of each scope: nodes, available, at least, at most unavailable, slots."""
    counted: dict[tuple[str, str, str], list[str]] = {}
    for name, node in fleet.nodes.items():
        pool = node["metadata"]["labels"]["pool"]
        if is_control_plane(node):
            continue
        for scope in (("cluster", "", ""), ("pool", pool, ""), ("zone", pool, name[0])):
            counted.setdefault(scope, []).append(name)
    spec, found = fleet.spec, {}
    for scope, names in counted.items():
        base, up = len(names), sum(is_available(fleet, name) for name in names)
        least = {"cluster": spec.get("clusterMinAvailable"), "pool": spec.get("minAvailable")}
        most = {"pool": spec["maxUnavailable"], "zone": spec.get("maxPerZone")}
        floor = amount(least.get(scope[0]) or 0, base, least=True)
        out = amount(most.get(scope[0]) or base, base, least=False)
        found[scope] = base, up, floor, out, max(0, min(up - floor, out - (base - up)))
    return found


def why_refused(fleet: Fleet) -> list[str]:
    """Why no run would be started, windows apart."""
    todo = [name for name in fleet.selected if not why_left_out(fleet, name)]
    pools, why = {fleet.nodes[name]["metadata"]["labels"]["pool"] for name in todo}, []
    for (kind, pool, _), (base, _, floor, _, _) in sorted(numbers(fleet).items()):
        if todo and kind != "zone" and (kind == "cluster" or pool in pools) and floor >= base:
            where = f"pool {pool}" if pool else "cluster"
            why.append(f"{floor} of {base} must be available in {where}")
    for zone in sorted({name[0] for name in todo}):
        size = sum(name[0] == zone for name in fleet.nodes)
        if size == 1 and not fleet.spec["allowDarkZone"]:
            why.append(f"zone {zone}: no Ready node of its zone's 1 would be left")
    return why


def lies_of_objects(fleet: Fleet, told: Told) -> list[str]:
    """What is claimed of nodes, numbers and refusals, beside the objects."""
    lies = []
    if list(told.nodes) != fleet.selected:
        lies.append(f"the run is said to be about {list(told.nodes)}, and not {fleet.selected}")
    for name, node in told.nodes.items():
        why = "" if fleet.is_emptied(node) else why_left_out(fleet, name)
        if why and not (node["decision"] == "skip" and node["reason"].startswith(why)):
            lies.append(f"{name}: {node['decision']} {node['reason']!r}, and {why}")
        if not why and node["decision"] == "skip" and node["times"] is None:
            lies.append(f"{name}: skip {node['reason']!r}, and nothing is against it")
    lies += _lies_of_warnings(fleet, told)
    said = {(b["scope"], b["pool"], b["zone"]): b for b in told.plan["budgets"]}
    keys = ("nodes", "available", "leastAvailable", "mostUnavailable", "slots")
    shown = {scope: tuple(budget[key] for key in keys) for scope, budget in said.items()}
    if shown != numbers(fleet):
        lies.append(f"budgets {shown}, and {numbers(fleet)}")
    is_ours = re.compile(r"\d+ of \d+ must|zone ")
    refused = [text for text in told.plan["refusals"] if is_ours.match(text)]
    true = why_refused(fleet)
    if len(refused) != len(true) or not all(map(str.startswith, refused, true)):
        lies.append(f"refused for {refused}, and {true}")
    return lies


def _lies_of_warnings(fleet: Fleet, told: Told) -> list[str]:
    """Who is said to be left out for its health or its drain."""
    lies, emptied = [], {name for name, node in told.nodes.items() if fleet.is_emptied(node)}
    why = {name: why_left_out(fleet, name) for name in fleet.selected if name not in emptied}
    for check, begins in (("unhealthy nodes", "unhealthy"), ("drains", "drain: ")):
        texts = [f["text"] for f in told.plan["findings"] if f["check"] == check]
        true = [name for name, reason in why.items() if reason.startswith(begins)]
        named = re.findall(r"\b[abc]\d\b", " ".join(texts))
        if named != true[:5] or (len(true) > 5) != (f"{len(true) - 5} more" in str(texts)):
            lies.append(f"{texts}, and {true}")
    return lies


def lies_of_words(fleet: Fleet, told: Told) -> list[str]:
    """What the page, the names and the exit code claim, beside the document."""
    lies, plan, nodes = [], told.plan, told.nodes.values()
    decided = [node["decision"] for node in nodes]
    counts = {word: decided.count(word) for word in ("claim", "skip", "hold")}
    if plan["counts"] != {"selected": len(decided), **counts}:
        lies.append(f"{plan['counts']}, and {counts}")
    turns = [name for step in plan["steps"] for name in step["nodes"]]
    if told.names != turns or {n["name"] for n in nodes if n["times"]} != set(turns):
        lies.append(f"{told.names} are named, and have turns: {turns}")
    cannot = [
        node["name"]
        for node in nodes
        if node["decision"] == "hold"
        or node["byChance"]
        or _would_fail(node)
        or (node["decision"] == "skip" and fleet.states[node["name"]] not in left_alone(fleet))
    ]
    if (told.code == 4) != bool(cannot or plan["refusals"]):
        lies.append(f"exit code {told.code}, and not done: {cannot}, {plan['refusals']}")
    failing = sum(map(_would_fail, nodes))
    lies += _lies_of_first_line(told, counts, failing, len(cannot))
    for line in re.findall(r"^to do ([^:]*): ", told.page, re.MULTILINE):
        named = re.findall(r"\w+", line.partition(" and ")[0])
        odd = [name for name in named if not why_left_out(fleet, name).startswith("drain: ")]
        if odd:
            lies.append(f"something is to do for {odd}, whose drains nothing is against")
    for node in nodes:
        row = rf"^{node['name']} .* {node['decision']} "
        if not plan["refusals"] and not re.search(row, told.page, re.MULTILINE):
            lies.append(f"{node['name']} has no row with {node['decision']}")
    for scope, low in plan["lowest"]["byPool"].items():
        floor = next(
            max(b["leastAvailable"], b["nodes"] - b["mostUnavailable"])
            for b in plan["budgets"]
            if (b["scope"], b["pool"]) == ("pool", scope)
        )
        line = re.search(
            rf"lowest: (\d+) of \d+ available in pool {scope}, .*floor is (\d+)", told.page
        )
        if line and (int(line[1]), int(line[2])) != (low["available"], floor):
            lies.append(f"{line[0]}, and {low}, {floor}")
    return lies


def left_alone(fleet: Fleet) -> set[str]:
    """States in which a node is left out and is none that cannot be done."""
    spec = fleet.spec
    not_so = {"cordoned"} if spec.get("includeCordoned") else set()
    return set(LEFT_ALONE) - not_so - (set() if spec["target"] else {"there"})


def _would_fail(node: Document) -> bool:
    return node["decision"] == "claim" and str(node["reason"]).startswith("it would fail: ")


def _lies_of_first_line(told: Told, counts: dict[str, int], failing: int, cannot: int) -> list[str]:
    plan, first = told.plan, told.page.splitlines()[0]
    if plan["refusals"]:
        true = f"No run is started: {'; '.join(plan['refusals'])}"
        return [] if first == true else [f"{first}, and {true}"]
    head = re.match(
        r"(\d+) of (\d+) nodes?(?::| (?:is|are) done in (\d+) steps?, in about) (.*)", first
    )
    if head is None:
        return [f"{first} is none of the sentences"]
    lies = []
    if (int(head[1]), int(head[2])) != (counts["claim"] - failing, len(told.nodes)):
        lies.append(f"{first}, and {counts}")
    if plan["estimate"] is None:
        if (head[4] == "nothing to do") != (not cannot):
            lies.append(f"{first}, and {cannot} cannot be done")
        return lies
    if int(head[3]) != len(plan["steps"]):
        lies.append(f"{first}, and {len(plan['steps'])} steps")
    times = re.match(r"(\S+) \((\S+) to (\S+)\)(?:, (.*))?$", head[4])
    assert times is not None, first
    ends = [plan["estimate"][key] for key in ("expectedSeconds", "lowSeconds", "highSeconds")]
    off = [abs(span_of(times[i + 1]) - end) for i, end in enumerate(ends)]
    if max(off) > 60.1 or not ends[1] <= ends[0] <= ends[2]:
        lies.append(f"{first}, and {ends}")
    rest = re.findall(r"(\d+) (would fail|skipped|held)", times[4] or "")
    true = {"would fail": failing, "skipped": counts["skip"], "held": counts["hold"]}
    if {word: int(n) for n, word in rest} != {word: n for word, n in true.items() if n}:
        lies.append(f"{first}, and {counts}")
    return lies


# --- what comes -----------------------------------------------------------------------------------


def lies_of_course(told: Told, course: Course) -> list[str]:
    """What is claimed to come, beside a run in which all is as the plan assumes."""
    lies, plan = [], told.plan
    last = {(node, what): at for node, what, at in course.came}
    for name, node in told.nodes.items():
        told_times = {k: v for k, v in (node["times"] or {}).items() if v is not None}
        true = {what: at for (n, what), at in last.items() if n == name}
        true = {what: at for what, at in true.items() if at >= true.get("claimed", 0.0)}
        ended = [true.pop(word) for word in ("restored", "failed") if word in true]
        if ended:
            true["done"] = max(ended)
        if told_times != true:
            lies.append(f"{name}: {told_times}, and {true}")
    order = [node for node, what, _ in course.came if what == "claimed"]
    if told.names != order:
        lies.append(f"the order is {told.names}, and {order}")
    lies += _lies_of_origin(told, course)
    result, low = course.result, plan["lowest"]
    if told.names and low["freeShare"] != result["lowestFreeShare"]:
        lies.append(f"never less free than {low['freeShare']}, and {result['lowestFreeShare']}")
    if told.names and low["all"] != result["lowestAvailable"]["all"]:
        lies.append(f"lowest {low['all']}, and {result['lowestAvailable']}")
    pools = {node["pool"] for node in told.nodes.values()}
    least = min((count for _, count in plan["available"]), default=None)
    true = result["lowestAvailable"]["byPool"].get(min(pools), 0)
    if len(pools) == 1 and least not in (None, true):
        lies.append(f"at least {least} are available, and {true}")
    if plan["evictions"] != result["evictions"]:
        lies.append(f"{plan['evictions']} evictions, and {result['evictions']}")
    if plan["movesOfAPod"] != result["movesOfAPod"]:
        lies.append(f"{plan['movesOfAPod']}, and {result['movesOfAPod']}")
    if len(plan["pending"]) != course.pending:
        lies.append(f"{plan['pending']} would stay Pending, and {course.pending}")
    ended = plan["estimate"] and plan["estimate"]["expectedSeconds"]
    if ended and min(abs(ended - end) for end in course.ends) > 0.1:
        lies.append(f"it takes {ended}s, and {course.ends}")
    return lies


def _lies_of_origin(told: Told, course: Course) -> list[str]:
    """What times are said to count from, beside the first claim."""
    line = next((a for a in told.plan["assumptions"] if a.startswith("times count from ")), "")
    claims = [at for _, what, at in course.came if what == "claimed"]
    if not claims:
        return [f"{line!r}, and nothing is claimed"] if line else []
    is_so = claims[0] < 1 if "first claim" in line else f"{COLD:.0f}s after the start" in line
    return [] if is_so else [f"{line!r}, and the first claim is at {claims[0]}"]


def lies_of_steps(fleet: Fleet, told: Told) -> list[str]:
    """What the steps claim, beside the turns of their nodes and the policy."""
    lies, plan, spec = [], told.plan, fleet.spec
    soak = span_of(spec["soak"])
    for number, step in enumerate(plan["steps"]):
        nodes = [told.nodes[name] for name in step["nodes"]]
        mine = [node for node in nodes if node["step"] == number]
        if mine and min(n["times"]["claimed"] for n in mine) < step["startSeconds"]:
            lies.append(f"step {number} begins at {step['startSeconds']}, after a claim")
        ends = [node["times"]["done"] for node in mine]
        is_whole = len(mine) == len(set(step["nodes"])) == len(step["nodes"])
        if is_whole and None not in ends and step["endSeconds"] != max(ends):
            lies.append(f"step {number} ends at {step['endSeconds']}, and {max(ends)}")
        if step["width"] and len(set(step["nodes"])) > step["width"]:
            lies.append(f"step {number} takes more than {step['width']}: {step['nodes']}")
        if sorted(step["zones"]) != sorted({name[0] for name in step["nodes"]}):
            lies.append(f"step {number} is of {step['zones']}, and {step['nodes']}")
        if number and plan["steps"][number - 1]["soakSeconds"]:
            waited = step["startSeconds"] - plan["steps"][number - 1]["endSeconds"]
            if waited < soak - 0.1:
                lies.append(f"step {number} comes {waited}s after the one before")
    return lies


def lies_of_otherwise(fleet: Fleet, told: Told, course: Course) -> list[str]:
    """What is claimed for whatever the plan cannot know, beside a run where that is otherwise."""
    lies, plan = [], told.plan
    for name, node in told.nodes.items():
        is_done, by_chance = name in course.done, node["byChance"]
        if node["decision"] == "claim" and not node["reason"] and not by_chance and not is_done:
            lies.append(f"{name} is done, and was not: {course.came}, {course.result}")
        if node["decision"] != "claim" and not by_chance and is_done:
            lies.append(f"{name}: {node['decision']} {node['reason']!r}, and it was done")
        if node["decision"] == "skip" and node["times"] is None and course.at(name, "claimed"):
            lies.append(f"{name}: skip {node['reason']!r}, and it was claimed")
    lies += _control_planes_at_once(fleet, course)
    for pool, lowest in course.result["lowestAvailable"]["byPool"].items():
        base, up, floor, most, _ = numbers(fleet)["pool", pool, ""]
        if lowest < min(up, max(floor, base - most)):
            lies.append(f"{lowest} were available in pool {pool}, below the floor")
    if plan["estimate"] and not any(node["byChance"] for node in told.nodes.values()):
        ends = (plan["estimate"]["lowSeconds"], plan["estimate"]["highSeconds"])
        if not any(ends[0] - 1 <= ended <= ends[1] + 1 for ended in course.ends):
            lies.append(f"it takes {ends}, and took {course.ends}")
    return lies


def _control_planes_at_once(fleet: Fleet, course: Course) -> list[str]:
    """Nodes of the control plane that are out of service together."""
    out: set[str] = set()
    masters = {name for name, node in fleet.nodes.items() if is_control_plane(node)}
    for name, what, at in course.came:
        if name in masters and what == "claimed":
            out.add(name)
            if len(out) > 1:
                return [f"{out} are out together at {at}"]
        elif what in ("released", "restored"):
            out.discard(name)
    return []


def as_assumed(fleet: Fleet) -> list[Course]:
    """The runs that a plan may tell of: with the first luck, and with the last."""
    return [played(fleet, Unknown(luck)) for luck in ("first", "last")]


def otherwise(seed: int, fleet: Fleet) -> Unknown:
    """One of the courses within what a plan assumes: the work takes 0.8 to 1.25 times as long as
    is given, or half to twice the 10m that nobody gave; pods need no time to stop, or all of it."""
    rng = random.Random(f"otherwise {seed}")
    work = (0.8, 1.25) if "expectWork" in fleet.spec else (0.5, 2.0)
    luck, stops = rng.choice(["first", "last", "any"]), rng.choice(["", "0s"])
    return Unknown(luck, stops, work, rng.choice(["1s", "20s", "30s"]), seed)


def lies_of_fleet(folder: Path, seed: int, fleet: Fleet) -> list[str]:
    """All that is claimed of that fleet and is not so."""
    told = asked(folder, fleet)
    lies = lies_of_objects(fleet, told) + lies_of_words(fleet, told) + lies_of_steps(fleet, told)
    if told.plan["refusals"]:
        return lies
    lies += min((lies_of_course(told, course) for course in as_assumed(fleet)), key=len)
    return lies + lies_of_otherwise(fleet, told, played(fleet, otherwise(seed, fleet)))


def test_what_an_upgrade_plan_says_is_so(tmp_path: Path, seeds: range) -> None:
    for seed in seeds:
        assert lies_of_fleet(tmp_path, seed, random_fleet(seed)) == [], seed


def test_what_it_says_of_replaced_nodes_jobs_control_planes_and_gates_is_so(
    tmp_path: Path, seeds: range
) -> None:
    for seed in seeds:
        assert lies_of_fleet(tmp_path, seed, odd_fleet(seed)) == [], seed


@pytest.mark.parametrize("seed", DIFFERED)
def test_what_did_not_come_once_is_not_said(tmp_path: Path, seed: int) -> None:
    assert lies_of_fleet(tmp_path, seed, random_fleet(seed)) == []


@pytest.mark.parametrize("seed", ODD)
def test_what_did_not_come_once_of_odd_fleets_is_not_said(tmp_path: Path, seed: int) -> None:
    assert lies_of_fleet(tmp_path, seed, odd_fleet(seed)) == []


def test_windows_that_take_one_node_fewer_are_in_the_range(tmp_path: Path) -> None:
    """Two nodes go in each window where the work takes what is expected, and one where it takes
    longer: no share of the time says that."""
    nodes = {f"a{number}": "ok" for number in (1, 2, 3, 4)}
    items = [build.namespace(), build.namespace("nodelife"), build.pod("other", "a5")]
    items += [item for name in (*nodes, "a5") for item in build.node(name, metadata=BLUE)]
    windows = [f"{hour:02}:00-{hour:02}:28" for hour in range(24)]
    policy = {"soak": "1s", "nodeSoak": "1s", "expectWork": "10m", "window": windows}
    order = {"selector": "pool=blue", "exclude": "a5", "target": [TARGET], "maxUnavailable": 1}
    work = {"mode": "run", "command": "-", "rerunSafe": True}
    fleet = Fleet(items, {**nodes, "a5": "ok"}, {**order, **policy, "work": work})
    told = asked(tmp_path, fleet)
    for share in (0.8, 1.25):
        course = played(fleet, Unknown(work=(share, share)))
        assert lies_of_otherwise(fleet, told, course) == [], course.ends


def test_quick_drains_and_checks_are_in_the_range_of_windows(tmp_path: Path) -> None:
    fleet = odd_fleet(21)
    fleet.spec.update(window=WINDOWS[1], expectWork="1m")
    told, quick = asked(tmp_path, fleet), Unknown("first", "0s", (0.8, 0.8), "1s")
    assert lies_of_otherwise(fleet, told, played(fleet, quick)) == []


def test_a_lie_of_an_upgrade_plan_is_caught(tmp_path: Path) -> None:
    caught: set[str] = set()
    for seed in range(8):
        fleet = random_fleet(seed)
        told = asked(tmp_path, fleet)
        for word, lie in lies_about_objects(told):
            if lies_of_objects(fleet, lie) or lies_of_words(fleet, lie):
                caught.add(word)
        if told.plan["refusals"]:
            continue
        courses = as_assumed(fleet)
        other = played(fleet, otherwise(seed, fleet))
        for word, lie in lies_about_what_comes(told):
            if all(lies_of_course(lie, course) for course in courses):
                caught.add(word)
            if lies_of_steps(fleet, lie):
                caught.add(f"{word}_in_its_step")
            if lies_of_otherwise(fleet, lie, other):
                caught.add(f"{word}_otherwise")
    assert not LIES - caught


LIES = {
    *("exit_code", "warned", "refused", "slots", "available", "selected", "not_skipped", "why"),
    *("skipped", "how_many", "how_long", "names", "floor", "rows"),
    *("origin", "free", "claimed", "released", "order", "lowest", "series", "evictions"),
    *("pending", "takes", "step_end_in_its_step", "released_in_its_step"),
    *("never_otherwise", "sure_otherwise", "range_otherwise"),
}


def lies_about_objects(told: Told) -> list[tuple[str, Told]]:
    """What could be said wrongly of the objects, each by its name."""
    plan, nodes = told.plan, list(told.nodes.values())
    first, *rest = plan["budgets"]
    lies = [
        ("exit_code", told._replace(code=4 - told.code)),
        ("warned", told.with_plan(findings=[])),
        ("rows", told._replace(page=told.page.replace("  claim  ", "  hold  "))),
        ("refused", told.with_plan(refusals=[*plan["refusals"], "zone z: no"])),
        ("slots", told.with_plan(budgets=[{**first, "slots": first["slots"] + 1}, *rest])),
        ("available", told.with_plan(budgets=[{**first, "available": 0}, *rest])),
        ("selected", told.with_plan(nodes=nodes[1:])),
        ("how_many", told._replace(page=re.sub(r"^\d+", "77", told.page))),
        ("how_long", told._replace(page=re.sub(r"about \w+", "about 99h00m", told.page))),
        ("names", told._replace(names=[*told.names, "z9"])),
        ("floor", told._replace(page=re.sub(r"floor is \d+", "floor is 77", told.page))),
    ]
    lies = [(word, lie) for word, lie in lies if lie != told]
    for node in nodes:
        if node["decision"] == "skip":
            lies.append(("not_skipped", told.with_node(node["name"], decision="claim", reason="")))
            lies.append(("why", told.with_node(node["name"], reason="cordoned by nobody")))
        elif node["decision"] == "claim":
            skipped = {"decision": "skip", "reason": "cordoned by others", "times": None}
            lies.append(("skipped", told.with_node(node["name"], **skipped)))
    return lies


def lies_about_what_comes(told: Told) -> list[tuple[str, Told]]:
    """What could be said wrongly of what comes, each by its name."""
    plan, lies = told.plan, []
    estimate, steps = plan["estimate"], plan["steps"]
    for node in told.nodes.values():
        if not node["times"]:
            sure = told.with_node(node["name"], decision="claim", reason="")
            lies.append(("sure", sure))
            continue
        for what in ("claimed", "released"):
            if node["times"][what] is not None:
                times = {**node["times"], what: node["times"][what] - 3}
                lies.append((what, told.with_node(node["name"], times=times)))
        times = {**node["times"], "claimed": 0.0, "done": 1e6}
        lies.append(("released", told.with_node(node["name"], times=times)))
        if node["decision"] == "claim":
            lies.append(("never", told.with_node(node["name"], decision="hold", reason="no room")))
    if not estimate:
        return lies
    lowest = {**plan["lowest"], "all": plan["lowest"]["all"] + 1}
    wrong = estimate["expectedSeconds"] + 60
    return [
        *lies,
        ("origin", told.with_plan(assumptions=["times count from 7s after the start"])),
        ("free", told.with_plan(lowest={**plan["lowest"], "freeShare": {}})),
        ("series", told.with_plan(available=[[0.0, 0]])),
        ("order", told._replace(names=told.names[::-1])),
        ("lowest", told.with_plan(lowest=lowest)),
        ("evictions", told.with_plan(evictions=plan["evictions"] + 1)),
        ("pending", told.with_plan(pending=[*plan["pending"], "default/x: nowhere"])),
        ("takes", told.with_plan(estimate={**estimate, "expectedSeconds": wrong})),
        ("step_end", told.with_plan(steps=[{**steps[0], "endSeconds": 0.0}, *steps[1:]])),
        ("range", told.with_plan(estimate={**estimate, "lowSeconds": 0.0, "highSeconds": 9.0})),
    ]
