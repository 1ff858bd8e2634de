"""Holds what `upgrade status` says of random fleets while they are upgraded against naive counts of
the cluster at that moment, and against what comes: states and counts, what each node waits for and
until when, how long is left, the lowest so far, the first line; also after a pause, a resume, an
abort, the leader's death, and what a person asks for single nodes.

The counts know nothing of our code: they read JSON documents. Planted lies must be caught.
"""

import json
import random
import re
from collections import Counter, deque
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import pytest
from msgspec.structs import replace

from kubectl_nodelife.controllers.upgrade.document import (
    ANNOTATION_REQUEST,
    ANNOTATION_RUN,
    UpgradeRequest,
    Verb,
    document_of,
    encode_document,
)
from kubectl_nodelife.controllers.upgrade.policy import shown_policy
from kubectl_nodelife.controllers.upgrade.report import ANNOTATION_REPORT, encode_report, report_of
from kubectl_nodelife.kube.codec import encode
from kubectl_nodelife.kube.times import SECOND_NS
from kubectl_nodelife.outlook.upgrade_status import upgrade_status
from kubectl_nodelife.report.formats import render
from kubectl_nodelife.report.upgrade import upgrade_status_page
from kubectl_nodelife.sim.events import UpgradeCommandEvent
from kubectl_nodelife.sim.present import Branch
from kubectl_nodelife.sim.upgrade_run import VirtualUpgrades
from kubectl_nodelife.upgrade.answers import decider_for
from tests.claims.fleet_runs import Unknown, controllers_of, setting_of
from tests.claims.fleets import TARGET, Document, Fleet, odd_fleet
from tests.claims.test_upgrade_plans import amount
from tests.drain import build

TAKEN = ("Draining", "Working", "Settling", "Proving")
IN_FLIGHT = (*TAKEN, "Soaking")
OVER = ("Finished", "Aborted")
LEASE_S = 60


class Look(NamedTuple):
    """A moment: what status says, and the cluster as it is, as JSON; `asked`: what stands on the
    Lease and is not taken up."""

    at_s: float
    told: Document
    page: str
    nodes: dict[str, Document]
    pods: list[Document]
    run: Document
    asked: Document
    is_led: bool
    lows: dict[str, int]
    entered: dict[str, tuple[str, float]]

    def mark(self, name: str) -> Document:
        """The node's annotation; {} for none."""
        notes = self.nodes[name]["metadata"].get("annotations") or {}
        return dict(json.loads(notes.get("nodelife.dev/upgrade", "{}")))

    @property
    def states(self) -> dict[str, str]:
        marks = {name: self.mark(name) for name in self.nodes}
        over, run = self.run.get("phase") in OVER, self.run["run"]
        return {n: m["state"] for n, m in marks.items() if m and (over or m["run"] == run)}


class Watched:
    """A run that is looked at while it is played. `acts`: (at, what a person or a fault does)."""

    def __init__(
        self,
        fleet: Fleet,
        unknown: Unknown,
        faults: tuple[Document, ...] = (),
        acts: tuple[tuple[float, str], ...] = (),
        each_s: float = 97.0,
    ) -> None:
        setting, settings = setting_of(fleet, unknown, faults)
        self.fleet = fleet
        branch = Branch.begin(setting, controllers_of(setting, settings))
        self.world, self.start_ns = branch.world, setting.start_ns
        self.runs = VirtualUpgrades(
            branch.world, branch.timeline, decider_for(settings), branch.host
        )
        branch.script.upgrades = self.runs
        self.looks: list[Look] = []
        self._lows: dict[str, int] = {}
        self.done: set[str] = set()
        self._entered: dict[str, tuple[str, float]] = {}
        self.world.api.on_node(self._node_changed)
        self._acts = sorted(acts)
        self._play(each_s)

    @property
    def now_s(self) -> float:
        return (self.world.api.now_ns - self.start_ns) / SECOND_NS

    def _play(self, each_s: float) -> None:
        due_s = 1.0
        while not self.runs.over and (tick := self.world.next(self.runs.next_due())) is not None:
            while self._acts and self._acts[0][0] <= (tick[0] - self.start_ns) / SECOND_NS:
                self._act(self._acts.pop(0)[1])
            deque(self.runs.step(*tick), maxlen=0)
            last = self.runs._last
            came = last.last if last is not None else None
            if (came is not None and came.now_ns == tick[0]) or not self.runs.leaders:
                self._report()
                is_quiet = came is None or not came.actions
                if self.now_s >= due_s and is_quiet and not self.world.api.pending:
                    due_s = self.now_s + each_s
                    self._look()
            if self.runs.stands_still and not self._acts:
                break
        self.end_s = self.now_s
        self._report()
        self._look()

    def _report(self) -> None:
        """The leader's word, which goes with each renewal of its Lease."""
        last, lease = self.runs._last, self.runs._lease()
        if last is None or last.last is None or lease is None or not self.runs.leaders:
            return
        self._said = encode_report(report_of(last.last))
        self._renewed_ns = self.world.api.now_ns

    def _act(self, what: str) -> None:
        verb, _, name = what.partition(" ")
        if verb == "leader-dies":
            self.runs.command(UpgradeCommandEvent("leader-dies"))
        elif verb in ("retry", "skip", "assume_done"):
            asked: Any = {verb: (name,)}
            self.runs.request(UpgradeRequest(Verb.RESUME, by="p", **asked))
        else:
            self.runs.request(UpgradeRequest(Verb(verb), by="p", now=name == "now"))

    def _node_changed(self, old: Any, new: Any, cause: Any) -> None:
        """When each node came into its state, and how few are available at a time."""
        if new is not None:
            text = (new.metadata.annotations or {}).get("nodelife.dev/upgrade", "{}")
            state = json.loads(text).get("state", "")
            if state == "Done":
                self.done.add(new.name)
            if self._entered.get(new.name, ("",))[0] != state:
                self._entered[new.name] = (state, self.now_s)

    def _look(self) -> None:
        lease = self.runs._lease()
        run = document_of(lease)
        if lease is None or run is None or not hasattr(self, "_said"):
            return
        nodes = self.world.api.store.nodes
        spec = replace(
            lease.spec,
            renew_time=self._renewed_ns,
            lease_duration_seconds=LEASE_S,
            holder_identity="simulation" if self.runs.leaders else "gone",
        )
        if not self.runs.leaders:
            spec = replace(spec, renew_time=self.world.api.now_ns - 2 * LEASE_S * SECOND_NS)
        document = encode_document(replace(run, spec=shown_policy(self.runs.policy)))
        notes = {
            **(lease.metadata.annotations or {}),
            ANNOTATION_RUN: document,
            ANNOTATION_REPORT: self._said,
        }
        lease = replace(lease, spec=spec, metadata=replace(lease.metadata, annotations=notes))
        told = upgrade_status(nodes.values(), lease, self.world.api.now_ns, {})
        told = json.loads(json.dumps(told))
        page = render(upgrade_status_page(told), "wide")
        as_json = {name: encode(node) for name, node in nodes.items()}
        pods = [encode(pod) for pod in self.world.api.store.pods.values()]
        self.looks.append(
            Look(
                self.now_s,
                told,
                page,
                as_json,
                pods,
                json.loads(document),
                json.loads(notes.get(ANNOTATION_REQUEST) or "{}"),
                bool(self.runs.leaders),
                dict(self._lows),
                dict(self._entered),
            )
        )


# --- a naive reader of the cluster ----------------------------------------------------------------


def is_available(node: Document, state: str) -> bool:
    """True if it takes ordinary pods: Ready, not cordoned, no taint of Kubernetes, ours, or of who
    deletes it, and not in work."""
    ready = [c["status"] for c in node["status"]["conditions"] if c["type"] == "Ready"]
    keys = [t["key"] for t in node["spec"].get("taints", ()) if t["effect"] != "PreferNoSchedule"]
    off = ("node.kubernetes.io/", "nodelife.dev/unproven", "ToBeDeletedByClusterAutoscaler")
    kept = node["spec"].get("unschedulable") or any(key.startswith(off) for key in keys)
    return ready == ["True"] and not kept and state not in TAKEN


def lies_of_states(look: Look) -> list[str]:
    """States, counts, and the lines about them, beside the annotations."""
    lies, told, states = [], look.told, look.states
    rows = {row["name"]: row for row in told["nodes"]}
    for name, state in states.items():
        if rows.get(name, {"state": None})["state"] != state:
            lies.append(f"{name} is {state}, said: {rows.get(name)}")
    counted = Counter(row["state"] for row in rows.values())
    if told["counts"] != dict(counted):
        lies.append(f"{told['counts']}, and {counted}")
    unmarked = {n for n, row in rows.items() if row["state"] not in ("Waiting", "Skipped", "Gone")}
    if unmarked != states.keys():
        lies.append(f"{unmarked} have a state, and {states}")
    if told["phase"] != look.run.get("phase", "Running"):
        lies.append(f"the run is {told['phase']}, and {look.run.get('phase')}")
    because = f": {look.run['because']}" if look.run.get("because") else ""
    first = f"Run {look.run['run']} is {look.run.get('phase', 'Running')}{because}"
    if look.asked:
        first += f"; {look.asked['verb']} is asked for, and no leader has taken it up"
    if look.page.splitlines()[0] != first:
        lies.append(f"{look.page.splitlines()[0]!r}, and {first!r}")
    bad = sorted(name for name, state in states.items() if state in ("Failed", "Held"))
    line = re.search(r"^(?:Decide on|Left out of service:) ([^:]*):", look.page, re.MULTILINE)
    named = re.findall(r"\b[abc]\d+(?:-\d+)?\b", line[1] if line else "")
    if sorted(named) != bad and len(bad) <= 5:
        lies.append(f"to decide on {named}, and {bad}")
    return lies


def lies_of_left(look: Look) -> list[str]:
    """How many nodes are said to be left."""
    estimate, rows = look.told["estimate"], look.told["nodes"]
    left = [r["name"] for r in rows if r["state"] in (*IN_FLIGHT, "Gone", "Waiting")]
    if look.told["phase"] in (*OVER, "Aborting"):
        left = [r["name"] for r in rows if r["state"] in (*IN_FLIGHT, "Gone")]
    if any(gate["gate"] == "blind" for gate in look.told["gates"]):
        return [f"{estimate}, and nothing is seen"] if estimate else []
    if look.asked.get("verb") == "abort":
        return [f"{estimate}, and abort is asked for"] if estimate else []
    if not look.is_led:
        return []  # who came or went since, nobody has said
    count = estimate["nodes"] if estimate else 0
    return [] if count == len(left) else [f"{count} nodes are left, and {left}"]


def lies_of_budgets(fleet: Fleet, look: Look) -> list[str]:
    """The numbers of each scope, beside the nodes."""
    lies, spec = [], fleet.spec
    counted: dict[str, list[int]] = {}
    states = look.states
    for name, node in look.nodes.items():
        labels = node["metadata"]["labels"]
        if "node-role.kubernetes.io/control-plane" in labels:
            continue
        pool, zone = labels["pool"], name[0]
        up = is_available(node, states.get(name, ""))
        for scope in ("cluster", f"pool {pool}", f"zone {zone} of pool {pool}"):
            counted.setdefault(scope, []).append(up)
    for budget in look.told["budgets"]:
        ups = counted.get(budget["scope"], [])
        if budget["available"] != sum(ups):
            lies.append(f"{budget}, and {sum(ups)} are available")
        if budget["base"] < len(ups):
            lies.append(f"{budget}, and there are {len(ups)}")
        out = amount(spec["maxUnavailable"], budget["base"], least=False)
        if budget["scope"].startswith("pool") and budget["mostUnavailable"] != out:
            lies.append(f"{budget}, and {out} may be out")
    for pool, low in look.told["lowest"]["byPool"].items():
        line = f"Lowest so far in pool {pool}: {low['available']} available at {low['at']}"
        if line not in look.page:
            lies.append(f"no line {line!r}")
        if f"pool {pool}" in look.lows and low["available"] != look.lows[f"pool {pool}"]:
            lies.append(f"{line}, and {look.lows}")
    return lies


def lies_of_waiting(look: Look) -> list[str]:
    """What each node in work waits for, and until when."""
    lies = []
    is_blind = any(gate["gate"] == "blind" for gate in look.told["gates"])
    for row in look.told["nodes"]:
        name, state, because = row["name"], row["state"], row["because"]
        if state not in IN_FLIGHT:
            continue
        since = look.entered[name][1]
        if abs(row["sinceSeconds"] - (look.at_s - since)) > 1.5 and row["try"] == 1:
            lies.append(f"{name} {state} since {row['sinceSeconds']}, and {look.at_s - since}")
        if look.is_led and not is_blind and row["deadlineSeconds"] < -15:
            lies.append(f"{name} {state}: its time was over {-row['deadlineSeconds']}s ago")
        if look.is_led and not is_blind and row["sinceSeconds"] > 1:
            true = WAITS[state](look, name, because)
            if true:
                lies.append(f"{name} {state}: {because!r}, and {true}")
        elif not look.is_led and because and not because.startswith("before its leader went: "):
            lies.append(f"{name} {state}: {because!r}, and nobody leads")
    return lies


def _drain_waits(look: Look, name: str, because: str) -> str:
    on = [p for p in look.pods if p["spec"].get("nodeName") == name]
    on = [p for p in on if not _owned_by(p, "DaemonSet")]
    named = re.match(r"(\S+)/(\S+?)(?: and (\d+) more pods?)? still there", because)
    if named is None:
        return f"{len(on)} pods are there" if on and because else ""
    names = [pod["metadata"]["name"] for pod in on]
    if named[2] not in names or len(on) != 1 + int(named[3] or 0):
        return f"there are {names}"
    return ""


def _owned_by(pod: Document, kind: str) -> bool:
    return any(o["kind"] == kind for o in pod["metadata"].get("ownerReferences", ()))


def _settling_waits(look: Look, name: str, because: str) -> str:
    check, _, why = because.partition(": ")
    node = look.nodes[name]
    ready = [c["status"] for c in node["status"]["conditions"] if c["type"] == "Ready"] == ["True"]
    if check == "S4" and ("Ready for" in why) != ready:
        return f"Ready is {ready}"
    if check in ("S7", "S9") and not ready:
        return "it is not Ready"
    daemons = [p for p in look.pods if p["spec"].get("nodeName") == name]
    up = [c["status"] for p in daemons if _owned_by(p, "DaemonSet")
          for c in p["status"]["conditions"] if c["type"] == "Ready"]  # fmt: skip
    if check == "S7" and "not Ready" in why and up == ["True"]:
        return "its daemon pod is Ready"
    return ""


def _proving_waits(look: Look, name: str, because: str) -> str:
    pods = [p for p in look.pods if p["metadata"]["namespace"] == "nodelife"]
    mine = [p for p in pods if any(o["name"] == name for o in p["metadata"]["ownerReferences"])]
    taints = [taint["key"] for taint in look.nodes[name]["spec"].get("taints", ())]
    if because.startswith("P2") and "still there" in because:
        there = "node.kubernetes.io/unschedulable" in taints
        return "" if there else f"taints {taints}"
    if because.startswith("P4") and not mine:
        return "it has no canary"
    if because.startswith("P3: the canary is being created") and mine:
        return f"its canary is there {mine}"
    return ""


WAITS: dict[str, Callable[[Look, str, str], str]] = {
    "Draining": _drain_waits,
    "Working": lambda look, name, because: "" if because else "nothing is said",
    "Settling": _settling_waits,
    "Proving": _proving_waits,
    "Soaking": lambda look, name, because: because,
}


def lies_of_holds(look: Look) -> list[str]:
    """What holds nodes and the run."""
    lies, told = [], look.told
    paused = [gate for gate in told["gates"] if gate["gate"] == "paused"]
    if bool(paused) != (look.run.get("phase") == "Paused"):
        lies.append(f"{told['gates']}, and the run is {look.run.get('phase')}")
    named = {row["name"]: row["because"] for row in told["nodes"] if row["state"] == "Waiting"}
    for hold in told["holds"]:
        if re.fullmatch(r"[abc]\d+", hold["what"]) and hold["what"] not in named:
            states = look.states.get(hold["what"], "")
            if states not in ("Failed", "Held"):
                lies.append(f"{hold} holds what is {states or 'not waiting'}")
        out = re.search(r"slots: pool (\w+): (\d+) of (\d+) unavailable, at most (\d+)",
                        hold["because"])  # fmt: skip
        if out:
            budget = next(b for b in told["budgets"] if b["scope"] == f"pool {out[1]}")
            true = [budget[key] for key in ("unavailable", "base", "mostUnavailable")]
            if [int(out[i]) for i in (2, 3, 4)] != true:
                lies.append(f"{hold}, and {budget}")
    return lies


def lies_of_time(watched: Watched, look: Look) -> list[str]:
    """How long is said to be left, beside the run's own end, where all nodes that are counted are
    done, and nothing was done to the run meanwhile."""
    estimate, last = look.told["estimate"], watched.looks[-1]
    if not estimate or estimate["from"] != "now":
        return []
    before = {n for n, state in look.states.items() if state == "Done"}
    done = watched.done
    if last.told["phase"] != "Finished" or len(done - before) != estimate["nodes"]:
        return []
    left = watched.end_s - look.at_s
    ends = estimate["lowSeconds"], estimate["highSeconds"]
    slack = max(60.0, 0.1 * left)
    is_so = ends[0] - slack <= left <= ends[1] + slack
    return [] if is_so else [f"{ends} are left of {look.at_s}, and {left}"]


def lies_of_look(watched: Watched, look: Look) -> list[str]:
    fleet = watched.fleet
    lies = [*lies_of_states(look), *lies_of_left(look), *lies_of_holds(look)]
    if look.is_led and look.run.get("phase") not in OVER:
        lies += lies_of_budgets(fleet, look)
    return [*lies, *lies_of_waiting(look)]


def troubled(seed: int, fleet: Fleet) -> tuple[tuple[Document, ...], tuple[tuple[float, str], ...]]:
    """What goes wrong on a machine, and what happens to the run: pauses, aborts, dead leaders, and
    at last what a person decides."""
    rng = random.Random(f"troubled {seed}")
    acts, at = [], rng.uniform(60, 900)
    for _ in range(rng.choice([1, 2, 3])):
        at += rng.uniform(20, 700)
        what = rng.choice(["pause", "pause", "leader-dies", "leader-dies", "abort", "abort now"])
        acts.append((at, what))
        if not what.startswith("abort"):
            at += rng.uniform(30, 900)
            acts.append((at, "resume"))
    name = rng.choice(list(fleet.nodes))
    how = rng.choice(["no-effect", "never-returns", "canary-hangs", "drain-never", "flaps"])
    acts.append(
        (3000, f"{rng.choice(['retry', 'skip', 'assume_done'])} {rng.choice([name, 'all'])}")
    )
    return ({"nodes": [name], "how": how},), tuple(acts)


def lies_of_seed(seed: int) -> list[str]:
    """All that is said during that seed's run, and during one with trouble, and is not so."""
    fleet, lies = odd_fleet(seed), []
    watched = Watched(fleet, Unknown())
    for look in watched.looks:
        lies += [*lies_of_look(watched, look), *lies_of_time(watched, look)]
    watched = Watched(fleet, Unknown(), *troubled(seed, fleet))
    for look in watched.looks:
        lies += lies_of_look(watched, look)
    return lies


DIFFERED = (4, 20, 28, 73, 179, 180)
"""Seeds of which something else was said once: a time left that knew of no windows (4, 20), the
time that was left of a node before its leader died (28, 73), a time left in which nodes that others
took out left their slots free (179), and in which the next pool began at once (180)."""


def test_what_an_upgrade_status_says_is_so(seeds: range) -> None:
    for seed in seeds:
        assert lies_of_seed(seed) == [], seed


@pytest.mark.parametrize("seed", DIFFERED)
def test_what_was_not_so_once_is_not_said(seed: int) -> None:
    assert lies_of_seed(seed) == []


def test_a_control_plane_node_that_does_not_come_back_pauses_the_run() -> None:
    """However many failures are tolerated: of four nodes of etcd two must not be missing."""
    masters = {"node-role.kubernetes.io/control-plane": "", "pool": "blue"}
    names = ("a1", "a2", "b1", "b2")
    items = [build.namespace(), build.namespace("nodelife")]
    for name in names:
        items += build.node(name, zone=name[0], metadata={"labels": masters})
    work = {"includeControlPlane": True, "maxFailures": 3, "work": {"mode": "replace"}}
    spec = {"selector": "pool=blue", "maxUnavailable": 2, "soak": "1s", "workTimeout": "5m", **work}
    never = ({"nodes": [*names], "how": "never-returns"},)
    watched = Watched(Fleet(items, dict.fromkeys(names, "ok"), spec), Unknown(), never)
    told = watched.looks[-1].told
    assert told["phase"] == "Paused" and told["because"].startswith("control-plane node a1: ")
    assert len(told["failures"]) == 1 and len(watched.looks[-1].nodes) == 3


def test_the_time_left_knows_what_must_be_available_in_the_cluster() -> None:
    """Of eight nodes three may be out by the limit of the pool, and one by that of the cluster."""
    names = [f"a{number}" for number in range(1, 9)]
    items = [build.namespace(), build.namespace("nodelife")]
    for name in names:
        items += build.node(name, metadata={"labels": {"pool": "blue"}})
    limits = {"maxUnavailable": 3, "clusterMinAvailable": 7, "soak": "1s", "expectWork": "10m"}
    work = {"mode": "run", "command": "-", "rerunSafe": True}
    spec = {"selector": "pool=blue", "target": [TARGET], **limits, "work": work}
    watched = Watched(Fleet(items, dict.fromkeys(names, "ok"), spec), Unknown())
    lies = [lies_of_time(watched, look) for look in watched.looks]
    assert sum(bool(look.told["estimate"]) for look in watched.looks) > 10
    assert not any(lies), lies


def test_the_time_left_knows_that_a_cordoned_node_comes_back_as_another() -> None:
    """Two nodes may be out, and one of them is cordoned. Once another is there in its place, two of
    the next zone go at a time."""
    states = {"a1": "ok", "a2": "cordoned"} | {f"b{number}": "ok" for number in range(1, 7)}
    items = [build.namespace(), build.namespace("nodelife")]
    for name, state in states.items():
        about = {"metadata": {"labels": {"pool": "blue"}}}
        about |= {"spec": {"unschedulable": True}} if state == "cordoned" else {}
        items += build.node(name, zone=name[0], **about)
    order = {"selector": "pool=blue", "target": [], "maxUnavailable": 2, "includeCordoned": True}
    times = {"allowDarkZone": True, "soak": "1s", "expectWork": "10m"}
    spec = {**order, **times, "work": {"mode": "replace"}}
    watched = Watched(Fleet(items, states, spec), Unknown())
    lies = [lies_of_time(watched, look) for look in watched.looks]
    assert sum(bool(look.told["estimate"]) for look in watched.looks) > 10
    assert not any(lies), lies


def test_the_time_left_knows_the_pods_of_a_node_that_is_being_drained() -> None:
    """The first node was empty. The pod of the second takes four minutes to stop."""
    items = [build.namespace(), build.namespace("nodelife")]
    for name in ("a1", "a2", "a3"):
        items += build.node(name, metadata={"labels": {"pool": "blue"}})
    items += build.replica_set("web", "a2", grace=240)
    times = {"maxUnavailable": 1, "soak": "1s", "nodeSoak": "1s", "drainTimeout": "15m"}
    spec = {"selector": "pool=blue", "exclude": "a3", **times, "work": {"mode": "nothing"}}
    fleet = Fleet(items, dict.fromkeys(("a1", "a2", "a3"), "ok"), spec)
    watched = Watched(fleet, Unknown(), each_s=20.0)
    assert [look for look in watched.looks if look.states.get("a2") == "Draining"]
    lies = [lies_of_time(watched, look) for look in watched.looks]
    assert not any(lies), lies


def test_a_lie_of_an_upgrade_status_is_caught() -> None:
    caught: set[str] = set()
    for seed in (1, 3, 12, 20):
        watched = Watched(odd_fleet(seed), Unknown())
        for look in watched.looks:
            for word, lie in lies_about(look):
                if lies_of_look(watched, lie) or lies_of_time(watched, lie):
                    caught.add(word)
    assert not LIES - caught, LIES - caught


LIES = {
    *("state", "counts", "phase", "first", "left", "available", "most", "lowest", "paused"),
    *("since", "over", "drain", "range"),
}


def lies_about(look: Look) -> Iterator[tuple[str, Look]]:
    """What could be said wrongly, each by its name."""
    told, budgets = look.told, look.told["budgets"]
    for word, more in (
        ("counts", {"counts": {"Done": 77}}),
        ("phase", {"phase": "Aborting"}),
        ("paused", {"gates": [{"gate": "paused", "because": "x", "toldSecondsAgo": None}]}),
        ("available", {"budgets": [b | {"available": b["available"] - 1} for b in budgets]}),
        ("most", {"budgets": [b | {"mostUnavailable": 77} for b in budgets]}),
        ("lowest", {"lowest": {"byPool": {"blue": {"available": 0, "at": "then"}}}}),
    ):
        yield word, look._replace(told=told | more)
    yield "first", look._replace(page=look.page.replace("is Running", "is Running well"))
    if estimate := told["estimate"]:
        yield "left", look._replace(told=told | {"estimate": estimate | {"nodes": 77}})
        ends = {"lowSeconds": 1e6, "highSeconds": 1e7}
        yield "range", look._replace(told=told | {"estimate": estimate | ends})
    for number, row in enumerate(told["nodes"]):
        if row["state"] not in IN_FLIGHT:
            continue
        for word, fields in (
            ("state", {"state": "Soaking" if row["state"] != "Soaking" else "Done"}),
            ("since", {"sinceSeconds": row["sinceSeconds"] + 60}),
            ("over", {"deadlineSeconds": -60}),
            ("drain", {"because": "default/none and 77 more pods still there"}),
        ):
            rows = [*told["nodes"][:number], row | fields, *told["nodes"][number + 1 :]]
            yield word, look._replace(told=told | {"nodes": rows})
