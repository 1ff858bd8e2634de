"""Holds the ranking of `what-if --each` against a naive count of each target's play, and against
the plain question that it names for each.

In the clusters nodes are well, late, or lost already, pods are leaving, without a node, without an
owner, or a Job's. Targets are narrowed by -l and --zone, and workloads left out by --ignore.
Counted are workloads and Services at zero and for how long, budgets, pods without a place, stuck
and evicted ones, always as far as it is not so without the act as well.
"""

import json
import random
import re
import shlex
from collections import Counter
from collections.abc import Callable
from copy import deepcopy
from itertools import combinations
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests import objects
from tests.claims.naive_play import Course, courses
from tests.claims.test_what_if import NOTHING, drains_of, random_question, run, span_of
from tests.what_if.stand import at, service, workload

Document = dict[str, Any]
NOW = ("--now", "2026-01-01T12:00:00Z")
EACH = (
    *("node", "node", "node", "node --zone a"),
    *("node lose --for 3m", "node lose link --for 4m", "node taint maintenance=now:NoExecute"),
    *("node drain", "node drain --ignore-daemonsets", "zone drain --ignore-daemonsets"),
    *("zone", "zone lose --for 8m", "pair-of node"),
)


class Case(NamedTuple):
    """A cluster, and what is asked of each of what."""

    items: list[Document]
    each: str
    ignored: tuple[str, ...] = ()

    @property
    def words(self) -> list[str]:
        return [*self.each.split(), *(f"--ignore={each}" for each in self.ignored)]

    @property
    def left_out(self) -> set[str]:
        """The names of the workloads that --ignore means."""
        return {re.split("[/=]", each)[-1] for each in self.ignored}

    @property
    def kind(self) -> str:
        """The kind of what is lost: node, zone, label, or pair-of one of them."""
        return re.match(r"(?:pair-of )?[a-z]+", self.each)[0]  # type: ignore[index]

    @property
    def targets(self) -> set[str]:
        """The names of the nodes, zones and groups that have a node of those that are chosen."""
        nodes = {o["metadata"]["name"]: o for o in self.items if o["kind"] == "Node"}
        pools = {name: node["metadata"]["labels"].get("pool") for name, node in nodes.items()}
        chosen = {n for n in nodes if "-l pool=blue" not in self.each or pools[n] == "blue"}
        chosen = {n for n in chosen if "--zone a" not in self.each or n[0] == "a"}
        if self.kind.endswith("zone"):
            return {name[0] for name in chosen}
        if self.kind == "label":
            return {pool for name in chosen if (pool := pools[name])}
        pairs = combinations(sorted(chosen), 2)
        return {f"{a} + {b}" for a, b in pairs} if "pair-of" in self.each else chosen

    @property
    def until_s(self) -> float:
        return 600.0 if self.kind.endswith("node") else 3600.0


def random_case(seed: int) -> Case:
    """The case of that seed."""
    rng = random.Random(f"each {seed}")
    items = random_question(seed).items
    for item in items:
        if item["kind"] == "Node" and rng.random() < 0.12:
            _lose(item, items, rng.choice([60, 200, 400]))
        if item["kind"] == "Pod" and rng.random() < 0.06 and item["spec"].get("nodeName"):
            leaves = {"deletionTimestamp": at(rng.choice([20, -20]))}
            item["metadata"] |= {**leaves, "deletionGracePeriodSeconds": 30}
    names = [o["metadata"]["name"] for o in items if "template" in o["spec"]]
    for name in rng.sample(names, len(names) // 2):
        items += service(name)
    if rng.random() < 0.4:
        bare = deepcopy(next(o for o in items if o["kind"] == "Pod"))
        bare["metadata"] = {"name": "bare", "namespace": "default", "uid": "bare"}
        bare["metadata"]["creationTimestamp"] = at(-3600)
        items.append(bare)
    return _narrowed(Case(items, rng.choice(EACH)), random.Random(f"narrowed {seed}"))


def _narrowed(case: Case, rng: random.Random) -> Case:
    """The same with a Job, with labels and flags by which targets are fewer, or without one of its
    workloads."""
    items, each = case.items, case.each
    if rng.random() < 0.3:
        items += _job(rng, sorted(o["metadata"]["name"] for o in items if o["kind"] == "Node"))
    for number, node in enumerate(o for o in items if o["kind"] == "Node"):
        pool = rng.choice(["blue", "red", ""]) if number else "blue"
        node["metadata"]["labels"] |= {"pool": pool} if pool else {}
    if rng.random() < 0.5 and "pair-of" not in each:
        each = rng.choice([f"{each} -l pool=blue", re.sub("^zone", "label=pool", each)])
    owners = [o for o in items if "template" in o.get("spec", ())]
    ignored = [
        rng.choice([f"app={o['metadata']['name']}", f"default/{o['kind']}/{o['metadata']['name']}"])
        for o in rng.sample(owners, rng.choice([0, 0, 1, min(2, len(owners))]))
    ]
    return Case(items, each, tuple(ignored))


def _job(rng: random.Random, names: list[str]) -> list[Document]:
    owner, *pods = workload("batch", [rng.choice(names) for _ in range(rng.choice([1, 2]))], "Job")
    spec = {"template": owner["spec"]["template"], "parallelism": len(pods)}
    owner |= {"apiVersion": "batch/v1", "spec": spec, "status": {}}
    for pod in pods:
        pod |= {"apiVersion": "v1"}
        pod["spec"]["restartPolicy"] = "Never"
        pod["metadata"]["ownerReferences"][0]["apiVersion"] = "batch/v1"
    return [owner, *pods]


def _lose(node: Document, items: list[Document], since_s: float) -> None:
    """The node has been Unknown for so long, and its pods are marked."""
    name, ready = node["metadata"]["name"], node["status"]["conditions"][0]
    ready |= {"status": "Unknown", "reason": "NodeStatusUnknown"}
    ready |= {"lastTransitionTime": at(-since_s), "lastHeartbeatTime": at(-since_s - 60)}
    node["spec"].setdefault("taints", []).extend(
        objects.taint(objects.UNREACHABLE, effect, added=at(-since_s))
        for effect in ("NoSchedule", "NoExecute")
    )
    for other in items:
        if other["kind"] == "Lease" and other["metadata"]["name"] == name:
            other["spec"]["renewTime"] = at(-since_s - 52).replace("Z", ".000000Z")
        if other["kind"] == "Pod" and other["spec"].get("nodeName") == name:
            for condition in other["status"]["conditions"]:
                condition["status"] = "False" if condition["type"] == "Ready" else "True"


class Counted(NamedTuple):
    """What a naive reader finds in a play: the courses of workloads and of Services, budgets that
    fewer pods come to hold than they ask for, and by workload how many pods are stuck and evicted;
    drains that do not end; `left_out`: what would be told of but for --ignore, be it only as pods
    at risk: on a node that is Unknown at the end, also where it was lost already."""

    workloads: dict[str, Course]
    services: dict[str, Course]
    below: set[str]
    stuck: Counter[str]
    evicted: Counter[str]
    undrained: int
    left_out: set[str]


def unknown_nodes(items: list[Document]) -> set[str]:
    return {
        o["metadata"]["name"]
        for o in items
        if o["kind"] == "Node" and o["status"]["conditions"][0]["status"] == "Unknown"
    }


def pods_at_first(items: list[Document]) -> tuple[dict[str, str], dict[str, str], set[str]]:
    """(the owner of each, its node, those that are leaving)"""
    owner, on, leaving = dict[str, str](), dict[str, str](), set[str]()
    for pod in (o for o in items if o["kind"] == "Pod"):
        name = pod["metadata"]["name"]
        owner[name] = pod["metadata"].get("ownerReferences", [{"name": name}])[0]["name"]
        on[name] = pod["spec"].get("nodeName", "")
        leaving |= {name} if pod["metadata"].get("deletionTimestamp") else set()
    return owner, on, leaving


def counted(case: Case, records: list[Document]) -> Counted:
    """That of a play of its objects, without what is left out."""
    items, ignored = case.items, case.left_out
    in_api = courses(items, records, in_api=True)
    named = {(o["kind"], o["metadata"]["name"]): o for o in items}
    below = {
        name
        for (kind, name), o in named.items()
        if kind == "PodDisruptionBudget"
        and in_api[name].first >= o["spec"]["minAvailable"] > in_api[name].lowest
    }
    owner, on, leaving = pods_at_first(items)
    disrupted, asked = set(), set()
    unknown = unknown_nodes(items)
    evicted: Counter[str] = Counter()
    for record in records:
        name, detail, act = record["object"]["name"], record["detail"], record["action"]
        event = detail["reason"] if act == "RecordEvent" else ""
        if act == "CreatePod":
            owner[name], on[name] = detail["owner"], detail.get("node") or ""
            disrupted.discard(name)
            asked.discard(name)
        elif event in ("Scheduled", "FailedScheduling"):
            fits_on = detail["message"].rpartition(" ")[2]  # "the pod fits on b1"
            on[name] = fits_on if event == "Scheduled" else ""
        elif act == "SetNodeCondition" and detail["type"] == "Ready":
            unknown = unknown | {name} if detail["status"] == "Unknown" else unknown - {name}
        elif act == "SetPodCondition" and detail["type"] == "DisruptionTarget":
            disrupted.add(name)
        elif act in ("DeletePod", "EvictPod") and not record.get("error"):
            is_gone = detail.get("gracePeriodSeconds") == 0 or not on[name]
            leaving = leaving - {name} if is_gone else leaving | {name}
            evicted[owner[name]] += name in disrupted - asked
            asked |= {name} & disrupted
            if is_gone:
                del on[name]
    at_risk = {owner[name] for name, node in on.items() if node in unknown}
    stuck = Counter(owner[name] for name in leaving if owner[name] not in ignored)
    services = {name: course for name, course in in_api.items() if ("Service", name) in named}
    undrained = sum(end != "Drained" for end in drains_of(records).values())
    serving = courses(items, records)
    workloads = {n: course for n, course in serving.items() if n not in ignored}
    left_out = at_risk | {
        n
        for n, course in serving.items()
        if len(course.points) > 1 or len(in_api[n].points) > 1 or course.pending or evicted[n]
    }
    evicted = Counter({n: count for n, count in evicted.items() if n not in ignored})
    return Counted(workloads, services, below, stuck, evicted, undrained, left_out & ignored)


class Harm(NamedTuple):
    """What a target's row must say: how much more there is than without the act."""

    at_zero: int
    services: int
    for_s: float
    budgets: int
    pending: int
    stuck: int
    undrained: int
    evicted: int
    down: list[str]
    longer_s: float

    @property
    def is_harm(self) -> bool:
        """Evicted pods, and fewer of a workload's, are none."""
        return any(self[:7]) or self.longer_s > 0.1


def harm_of(play: Counted, without: Counted, end_s: float) -> Harm:
    """The difference of two plays."""

    def new(now: dict[str, Course], was: dict[str, Course]) -> list[str]:
        return [
            n for n, c in now.items() if c.goes_down() and not (n in was and was[n].goes_down())
        ]

    def zero(course: Course) -> float:
        return sum(b - a for a, b in course.zero_spans(end_s))

    down, empty = new(play.workloads, without.workloads), new(play.services, without.services)
    times = [*(zero(play.workloads[n]) for n in down), *(zero(play.services[n]) for n in empty)]
    shared = [
        (c, without.workloads[n]) for n, c in play.workloads.items() if n in without.workloads
    ]
    return Harm(
        len(down),
        len(empty),
        max(times, default=0.0),
        len(play.below - without.below),
        sum(max(0, c.pending - was.pending) for c, was in shared),
        (play.stuck - without.stuck).total(),
        play.undrained,
        (play.evicted - without.evicted).total(),
        [*down, *(f"Service/{name}" for name in empty)],
        sum(max(0, zero(c) - zero(was)) for c, was in shared if c.first),
    )


def happened(records: list[Document]) -> list[tuple[Any, ...]]:
    """What happens, but for the machine or link that is lost itself."""
    done = [(r["at"], r["action"], r["object"]["name"], str(r["detail"])) for r in records]
    return [each for each in done if "MachineLost" not in each[3] and "LinkLost" not in each[3]]


class Told(NamedTuple):
    """What was said, as a page, as a document and by `-o name`, and what the targets' plays have
    more; `same`: those that differ in nothing; `lost`: those of which is said that they are lost
    already; `unlike`: where a target's own question has other figures; `left_out`: the workloads
    that --ignore leaves out of the answer."""

    case: Case
    text: str
    left_out: set[str]
    document: Document
    names: list[str]
    harms: dict[str, Harm]
    same: set[str]
    lost: list[str]
    unlike: list[str]


def ask(folder: Path, case: Case) -> Told:
    dump = objects.write_list(folder / "dump.json", case.items)
    where = ("-f", dump, *NOW)
    words = ("what-if", "--each", *case.words, "--jobs", "1", *where)
    text, names = run(*words, "-o", "wide")[1], run(*words, "-o", "name")[1].splitlines()
    document = json.loads(run(*words, "-o", "json")[1])
    targets = document["items"]

    def played(*words: str) -> list[Document]:
        records: list[Document] = json.loads(run(*words, *where, "-o", "timeline")[1])["records"]
        return records

    base = played("what-if", *NOTHING.split(), "--until", f"{case.until_s:g}s")
    without = counted(case, base)
    harms, same, unlike, left_out = {}, set(), [], set[str]()
    for target in targets:
        name, command = target["target"], shlex.split(target["command"])[2:]
        records = played(*command)
        play = counted(case, records)
        harms[name] = harm_of(play, without, case.until_s)
        left_out |= play.left_out
        if happened(records) == happened(base):
            same.add(name)
        verdict = json.loads(run(*command, *where, "-o", "json")[1])["verdict"]
        for figure, both in target["verdict"].items():
            plain = verdict[re.sub(r"_(\w)", lambda each: each[1].upper(), figure)]
            if any(plain[play] != both[play] for play in both if both[play] is not None):
                unlike.append(f"{name}: {figure} {both}, and {plain}")
    lost = [each["target"] for each in targets if each["lostAlready"]]
    return Told(case, text, left_out, document, names, harms, same, lost, unlike)


def rows_of(text: str) -> dict[str, list[str]]:
    """The rows of the ranking by their target, the rank first."""
    cells = [re.split(r"\s{3,}", line.strip()) for line in text.splitlines()]
    return {row[1]: row for row in cells if row[0].isdigit()}


def lies_of_ranking(told: Told) -> list[str]:
    """What is said and is not so."""
    rows, text, lies = rows_of(told.text), told.text, list(told.unlike)
    head, takes = text.splitlines()[0], sum(bool(h.down) for h in told.harms.values())
    said = re.search(r"(\d+) takes? a workload|none takes", head)
    if said is None or int(said[1] or 0) != takes or f": {len(told.harms)} played" not in head:
        lies.append(f"{head}, and {takes} of {len(told.harms)} do")
    for target, harm in told.harms.items():
        row = rows.get(target)
        if (row is not None) != harm.is_harm:
            lies.append(f"{target} has {row}, and {harm}")
        elif row is not None:
            lies += lies_of_row(row, harm, told.text)
    lies += [f"{name} makes a difference" for name in told.lost if name not in told.same]
    harmless = {name for name, harm in told.harms.items() if not harm.is_harm}
    lost = len(harmless.intersection(told.lost))
    ends = {r"\.\.\. and (\d+) that (?:is|are) lost already": lost}
    ends[r"\.\.\. and (\d+) that (?:does|do) no harm"] = len(harmless) - lost
    for pattern, count in ends.items():
        found = re.search(pattern, text)
        if int(found[1] if found else 0) != count:
            lies.append(f"{found and found[0]}, and {count}")
    order = [told.harms[name][:2] for name in rows if name in told.harms]
    if order != sorted(order, reverse=True):
        lies.append(f"in this order: {order}")
    return [*lies, *lies_of_points(told), *lies_of_document(told)]


FIGURES = ("workloads_at_zero", "services_without_endpoints", "budgets_below", "pods_pending")
FIGURES += ("pods_stuck", "drains_unfinished", "pods_evicted")


def lies_of_document(told: Told) -> list[str]:
    """What the document and the names claim that the page has as well, and which targets."""
    lies, items = [], told.document["items"]
    if {each["target"] for each in items} != told.case.targets or len(items) != len(told.harms):
        lies.append(f"{[each['target'] for each in items]}, and {told.case.targets}")
    for each in items:
        harm, more = told.harms[each["target"]], each["more"]
        true = (harm.at_zero, harm.services, harm.budgets, harm.pending, harm.stuck)
        if tuple(more[f] for f in FIGURES) != (*true, harm.undrained, harm.evicted):
            lies.append(f"{each['target']}: {more}, and {harm}")
        if abs(each["downSeconds"] - harm.for_s) > 0.1 or abs(
            more["seconds_at_zero"] - harm.longer_s
        ) > 0.1 * (1 + len(told.case.items)):
            lies.append(f"{each['target']}: {each['downSeconds']} s, and {harm}")
        if {name.rpartition("/")[2] for name in each["down"]} != {
            name.rpartition("/")[2] for name in harm.down
        }:
            lies.append(f"{each['target']}: {each['down']}, and {harm.down}")
    harmful = [each["target"] for each in items if told.harms[each["target"]].is_harm]
    if told.names != [f"{told.case.kind}/{name}" for name in harmful]:
        lies.append(f"{told.names}, and {harmful}")
    counts = [told.document[key] for key in ("futures", "harmless", "ignored")]
    true_counts = [len(items), len(items) - len(harmful), len(told.left_out)]
    if counts != true_counts:
        lies.append(f"{counts}, and {true_counts}")
    said = re.search(r"left out as asked: (\d+)", told.text)
    if int(said[1] if said else 0) != len(told.left_out):
        lies.append(f"{said and said[0]}, and {told.left_out}")
    return lies


def lies_of_points(told: Told) -> list[str]:
    rows = [row for row in map(_cells, told.text.splitlines()) if len(row) == 4][1:]
    said = {row[2] if row[1] != "Service" else f"Service/{row[2]}": row[3] for row in rows}
    by: dict[str, list[str]] = {}
    for target, harm in sorted(told.harms.items()):
        for name in harm.down:
            by.setdefault(name, []).append(target)
    truth = {
        name: ", ".join(targets[:3]) + f" and {len(targets) - 3} more" * (len(targets) > 3)
        for name, targets in by.items()
    }
    return [] if said == truth else [f"single points {said}, and {truth}"]


def _cells(line: str) -> list[str]:
    return re.split(r"\s{3,}", line.strip())


def lies_of_row(row: list[str], harm: Harm, text: str) -> list[str]:
    headers = next(_cells(line) for line in text.splitlines() if line.startswith("RANK"))
    cell = dict(zip(headers, row, strict=True))
    fields = {"AT ZERO": harm.at_zero, "SERVICES": harm.services, "BUDGETS": harm.budgets}
    fields |= {"PENDING": harm.pending, "STUCK": harm.stuck, "EVICTED": harm.evicted}
    fields |= {"NOT DRAINED": harm.undrained} if "NOT DRAINED" in cell else {}
    lies = [f"{row}: {h}, and {n}" for h, n in fields.items() if cell[h] != str(n)]
    if abs(span_of(cell["FOR"]) - harm.for_s) > (1.1 if harm.for_s < 600 else 61):
        lies.append(f"{row}: FOR, and {harm.for_s}")
    names = re.findall(r"/([^/ ,]+)(?:,| and |$)", cell["DOWN"])
    if not set(names) <= {n.rpartition("/")[2] for n in harm.down} or bool(names) != bool(
        harm.down
    ):
        lies.append(f"{row}: DOWN, and {harm.down}")
    return lies


def test_the_ranking_is_so(tmp_path: Path, seeds: range) -> None:
    for seed in range(2 * seeds.start, 2 * seeds.stop):
        case = random_case(seed)
        told = ask(tmp_path, case)
        assert lies_of_ranking(told) == [], (seed, case.each, told.text)


def test_a_pod_that_has_ended_takes_no_room(tmp_path: Path) -> None:
    """A Job's, on a node of which nothing was asked before: the plain question still counted it."""
    assert lies_of_ranking(ask(tmp_path, random_case(74))) == []


@pytest.fixture(scope="module")
def told_before(tmp_path_factory: pytest.TempPathFactory) -> list[Told]:
    """What is said of some cases, all of it so."""
    folder = tmp_path_factory.mktemp("each")
    return [ask(folder, random_case(seed)) for seed in range(12)]


LIES = (
    (r"(\d+) takes? a workload", r"1\1 take a workload"),
    (r"none takes", "2 take"),
    (r"(?m)^(1   +\S+ +\d+ +)\d", r"\g<1>7"),
    (r"(?m)^(\d+   +\S+ +\d+ +\d+ +\d+ +)\S+", r"\g<1>1h1m"),
    (r"(?m)^(\d+.*?)(\d+)(   +\S+)$", r"\g<1>1\g<2>\g<3>"),
    (r"(?m)^1   .*\n", ""),
    (r"(?m)^\.\.\. and (\d+) that", r"... and 1\1 that"),
    (r"(?m)^(\.\.\. and \d+ that).*", r"\1 is lost already"),
    (r"\S+( {3,}\S+)$", r"nobody\1"),
    (r"left out as asked: (\d+)", r"left out as asked: 1\1"),
)


@pytest.mark.parametrize("truth, lie", LIES)
def test_a_lie_of_a_ranking_is_caught(told_before: list[Told], truth: str, lie: str) -> None:
    planted = 0
    for told in told_before:
        false = re.sub(truth, lie, told.text.rstrip(), count=1)
        if false != told.text.rstrip():
            planted += 1
            assert lies_of_ranking(told._replace(text=false)), (told.text, false)
    assert planted, "no ranking has such a part"


@pytest.mark.parametrize(
    "change",
    [
        {"items": lambda items: items[1:]},
        {"items": lambda items: [{**each, "target": "nobody"} for each in items]},
        {"items": lambda items: [{**each, "downSeconds": 7777.0} for each in items]},
        {"items": lambda items: [{**each, "down": ["default/Job/x"]} for each in items]},
        *(
            {
                "items": lambda items, f=f: [
                    each | {"more": {**each["more"], f: 77}} for each in items
                ]
            }
            for f in (*FIGURES, "seconds_at_zero")
        ),
        {"harmless": lambda count: count + 1},
        {"ignored": lambda count: count + 1},
    ],
)
def test_a_lie_of_a_rankings_document_is_caught(
    told_before: list[Told], change: dict[str, Callable[[Any], Any]]
) -> None:
    ((field, falsify),) = change.items()
    for told in told_before:
        false = {**told.document, field: falsify(told.document[field])}
        harms = {**told.harms, "nobody": next(iter(told.harms.values()))}
        assert lies_of_document(told._replace(document=false, harms=harms))
    assert any(told.names for told in told_before)
    for told in told_before:
        assert not told.names or lies_of_document(told._replace(names=told.names[1:]))
