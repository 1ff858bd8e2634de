"""What must hold of any answer: on small clusters that a seed makes, and on the dumps of the tests.

The same question, asked otherwise, has the same answer; what changes nothing shows nothing; and no
pod is lost from sight.
"""

import random
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec
import pytest

from kubectl_nodelife.controllers import make_controllers
from kubectl_nodelife.dumps.dump import read_dump, settings_of
from kubectl_nodelife.engine.cache import Cache
from kubectl_nodelife.engine.settings import Settings, make_settings
from kubectl_nodelife.kube.kinds import KINDS
from kubectl_nodelife.kube.load import decode
from kubectl_nodelife.kube.meta import controller_of
from kubectl_nodelife.kube.pod import TERMINAL_PHASES
from kubectl_nodelife.kube.service import Service, selects
from kubectl_nodelife.kube.times import HOUR_NS, SECOND_NS
from kubectl_nodelife.outlook.what_if.acts import read_acts
from kubectl_nodelife.outlook.what_if.answer import figures_of
from kubectl_nodelife.outlook.what_if.play_reading import Played, PlayReading
from kubectl_nodelife.outlook.what_if.question import Question, events_of, play
from kubectl_nodelife.outlook.what_if.ranking import Ranker, act_on, targets_of
from kubectl_nodelife.outlook.what_if.service_levels import SERVICE, ServedObject
from kubectl_nodelife.sim.run import run
from kubectl_nodelife.sim.scenario import PASS_DRIFT_NS
from kubectl_nodelife.sim.timing import MIDDLE
from tests.deep import first_few
from tests.what_if.stand import (
    ALL_KINDS,
    NOW_NS,
    Document,
    ask,
    at,
    budget,
    node,
    service,
    workload,
)

DUMPS = Path(__file__).parents[1] / "dumps"
SEEDS = first_few(range(24), 8)


class _Small(NamedTuple):
    """A small cluster: its nodes, and what runs on them."""

    nodes: list[str]
    objects: list[Document]


def small(seed: int) -> _Small:
    """Two zones with some nodes, some workloads with Services and budgets."""
    chance = random.Random(seed)
    nodes = [f"{zone}{i}" for zone in "ab" for i in range(1, chance.randint(2, 5))]
    objects: list[Document] = []
    for number in range(chance.randint(1, 5)):
        name = f"w{number}"
        kind = chance.choice(["ReplicaSet", "ReplicaSet", "StatefulSet"])
        on = [chance.choice(nodes) for _ in range(chance.randint(1, 5))]
        objects += workload(name, on, kind, tolerates=chance.choice([300, 300, 30, 0, None]))
        if chance.random() < 0.5:
            objects += service(name)
        if chance.random() < 0.5:
            objects += budget(name, max(0, len(on) - 1), len(on))
    return _Small(nodes, objects)


def words(seed: int, nodes: Sequence[str]) -> str:
    """An act on some of them."""
    chance = random.Random(f"{seed} words")
    some = " ".join(sorted(chance.sample(list(nodes), chance.randint(1, len(nodes) - 1))))
    lasts = chance.choice(["", "", " --for 3m", " --for 20m"])
    drains = f"drain {some} --ignore-daemonsets --force"
    return chance.choice(
        [f"lose node {some}{lasts}", f"lose link node {some}{lasts}", f"lose zone a{lasts}", drains]
    )


@pytest.mark.parametrize("seed", SEEDS)
def test_what_changes_nothing_shows_nothing(seed: int) -> None:
    nodes, objects = small(seed)
    answer = ask(f"uncordon {nodes[0]}", objects, nodes=nodes)
    shown = (answer.workloads, answer.services, answer.zones, answer.budgets, answer.differences)
    assert shown == ([], [], [], [], [])
    asked = words(seed, nodes)
    early = ask(asked, objects, nodes=nodes, until_s=1200)
    with_late = f"{asked} --and lose zone b --at 2h"
    late = ask(with_late, objects, nodes=nodes, until_s=1200)
    assert (late.workloads, late.services, late.zones) == (
        early.workloads,
        early.services,
        early.zones,
    )
    assert (late.budgets, late.differences) == (early.budgets, early.differences)


@pytest.mark.parametrize("seed", SEEDS)
def test_names_do_not_matter_but_for_their_order(seed: int) -> None:
    nodes, objects = small(seed)
    asked = words(seed, nodes)
    told = ask(asked, objects, nodes=nodes)
    others = {name: f"{name[0]}{int(name[1:]) + 10}" for name in nodes}
    moved = msgspec.json.encode(objects).decode()
    for old, new in others.items():
        moved = moved.replace(f'"nodeName":"{old}"', f'"nodeName":"{new}"')
    again = ask(
        " ".join(others.get(word, word) for word in asked.split()),
        msgspec.json.decode(moved, type=list[Document]),
        nodes=list(others.values()),
    )
    assert [(others[n.name], n.tainted_seconds, n.evicted) for n in told.nodes] == [
        (n.name, n.tainted_seconds, n.evicted) for n in again.nodes
    ]
    assert [(w.name, w.outage, w.series) for w in told.workloads] == [
        (w.name, w.outage, w.series) for w in again.workloads
    ]


@pytest.mark.parametrize("seed", SEEDS)
def test_a_further_node_takes_nothing_down(seed: int) -> None:
    """Unless it keeps the cluster from being all dark, which changes what is evicted."""
    nodes, objects = small(seed)
    asked = words(seed, nodes)
    before = ask(asked, objects, nodes=nodes)
    if any(zone.all_dark for zone in before.zones):
        return
    after = ask(asked, objects, nodes=[*nodes, "c1"])
    down = {w.name for w in before.workloads if w.outage == "full"}
    assert {w.name for w in after.workloads if w.outage == "full"} <= down


@pytest.mark.parametrize("seed", SEEDS)
def test_a_longer_loss_is_not_better_for_those_that_stay(seed: int) -> None:
    nodes, objects = small(seed)
    lost = random.Random(seed).choice(nodes)
    short, long = (
        ask(f"lose node {lost} --for {minutes}m", objects, nodes=nodes) for minutes in (3, 15)
    )
    for workload_ in long.workloads:
        same = [w for w in short.workloads if w.name == workload_.name]
        if same and not workload_.moves and not same[0].moves:
            assert workload_.at_zero_seconds >= same[0].at_zero_seconds


def played(seed: int) -> Played:
    nodes, objects = small(seed)
    cluster = _cluster(nodes, objects)
    acts = read_acts(words(seed, nodes).split(), cluster, beta_zone_labels_only=False)
    settings = make_settings("newest")
    return play(Question(cluster, settings, NOW_NS, ALL_KINDS, acts, 3600 * SECOND_NS)).future


def _cluster(nodes: Sequence[str], objects: Sequence[Document]) -> Cache:
    cluster = Cache()
    documents = [*(each for name in nodes for each in node(name)), *objects]
    cluster.fill([decode(d["kind"], d) for d in documents], NOW_NS)
    return cluster


@pytest.mark.parametrize("seed", SEEDS)
def test_no_pod_is_lost_from_sight(seed: int) -> None:
    objects = small(seed).objects
    end = played(seed)
    start = {d["metadata"]["uid"] for d in objects if d["kind"] == "Pod"}
    made = {r.object.uid for r in end.records if r.action == "CreatePod" and not r.error}
    at_end = {pod.uid for pod in end.cluster.pods.values()}
    gone = {
        r.object.uid
        for r in end.records
        if r.action in ("DeletePod", "EvictPod") and not r.error and r.object.uid not in at_end
    }
    assert at_end == (start | made) - gone and gone <= start | made
    reading = PlayReading(end, make_settings("newest"))
    courses = reading.courses.values()
    pending = sum(len(course.pending) for course in courses)
    on_silent = sum(len(end.cluster.pods_on(name)) for name in end.silent)
    told = sum(len(course.stuck) + course.at_risk.total() for course in courses)
    assert (pending, on_silent) == (len(end.levels.unbound), told)
    services = {ServedObject(s.namespace, SERVICE, s.name) for s in end.cluster.all(SERVICE)}
    for counted in end.workloads() | services:
        series = end.levels.series(counted)
        assert all(level.serving <= level.ready + len(start | made) for level in series)
        assert all(level.blind <= level.ready for level in series)
        assert [level.at_ns for level in series] == sorted(level.at_ns for level in series)


def _ready_by_hand(cluster: Cache) -> Counter[ServedObject]:
    """How many pods of each workload and Service are ready, counted over all pods."""
    ready: Counter[ServedObject] = Counter()
    for pod in cluster.pods.values():
        owner = controller_of(pod.metadata)
        kind, name = (owner.kind, owner.name) if owner is not None else ("Pod", pod.name)
        ends = pod.metadata.deletion_timestamp is not None or pod.status.phase in TERMINAL_PHASES
        ready[ServedObject(pod.namespace, kind, name)] += pod.ready() and not ends
        for each in cluster.all(SERVICE):
            if isinstance(each, Service) and selects(each, pod):
                ready[ServedObject(pod.namespace, SERVICE, each.name)] += pod.ready() and not ends
    return ready


@pytest.mark.parametrize("seed", SEEDS)
def test_the_beginning_is_as_counted_over_all_pods(seed: int) -> None:
    """The levels count what is asked for, by index; some pods are ill, leave or have ended."""
    nodes, objects = small(seed)
    chance = random.Random(seed)
    for each in objects:
        ails = chance.choice(["", "", "not ready", "leaves", "ended", "alone", "by hand"])
        if each["kind"] != "Pod" or not ails:
            continue
        if ails == "alone":
            del each["metadata"]["ownerReferences"]
        elif ails == "by hand":
            del each["metadata"]["ownerReferences"][0]["uid"]
        elif ails == "leaves":
            each["metadata"] |= {"deletionTimestamp": at(20), "deletionGracePeriodSeconds": 30}
        else:
            each["status"]["conditions"][1]["status"] = "False"
            each["status"]["phase"] = "Succeeded" if ails == "ended" else "Running"
    cluster = _cluster(nodes, objects)
    acts = read_acts(["lose", "node", nodes[0]], cluster, beta_zone_labels_only=False)
    question = Question(cluster, make_settings("newest"), NOW_NS, ALL_KINDS, acts, HOUR_NS)
    ready, levels = _ready_by_hand(cluster), play(question).future.levels
    assert {counted: levels.series(counted)[0].ready for counted in ready} == ready
    alive = [pod for pod in cluster.pods.values() if pod.status.phase not in TERMINAL_PHASES]
    assert levels.all_at_start == len(alive)
    for name in nodes:
        on_node = [pod for pod in alive if pod.spec.node_name == name]
        assert levels.pods_on_at_start(name) == len(on_node)
    at_zero = {w for w, count in ready.items() if not count and w.kind != SERVICE}
    assert levels.at_zero_before() == {w for w in at_zero if levels.pods_at_start(w)}


@pytest.mark.parametrize("seed", SEEDS)
def test_what_if_is_simulate_with_the_same_terms(seed: int) -> None:
    """Record for record, up to the instant at which nothing happens any more."""
    nodes, objects = small(seed)
    cluster = _cluster(nodes, objects)
    acts = read_acts(words(seed, nodes).split(), cluster, beta_zone_labels_only=False)
    settings = make_settings("newest")
    plays = play(Question(cluster, settings, NOW_NS, ALL_KINDS, acts, 3600 * SECOND_NS))
    setting = plays.present.setting
    scenario = msgspec.structs.replace(
        setting.scenario,
        events=events_of(acts),
        duration_ns=3600 * SECOND_NS,
        kubelet=plays.present.terms(MIDDLE),
    )
    controllers = make_controllers(settings, scenario.controllers, pass_drift_ns=PASS_DRIFT_NS)
    done = run(msgspec.structs.replace(setting, scenario=scenario), controllers)
    assert done.timeline.records(done.failures) == plays.future.records


@pytest.mark.parametrize("act", ["lose", "lose link --for 3m", "drain --force --ignore-daemonsets"])
@pytest.mark.parametrize("where", ["two-zones", "seed 3", "seed 11"])
def test_a_ranking_plays_what_single_questions_play(act: str, where: str) -> None:
    """Its controllers have joined before the act, those of a single question join after it."""
    cluster, settings, now_ns = _of(where)
    read = frozenset(kind.name for kind in KINDS)
    targets, _ = targets_of("node", cluster, beta_zone_labels_only=False)
    acts = {t.name: act_on(act.split(), t, cluster, beta_zone_labels_only=False) for t in targets}
    horizon_ns = 900 * SECOND_NS
    ranker = Ranker(Question(cluster, settings, now_ns, read, (), horizon_ns), acts)
    for name in sorted(acts, reverse=True):
        found = ranker.outcome(name)
        single = play(Question(cluster, settings, now_ns, read, [acts[name]], horizon_ns))
        expected = figures_of(PlayReading(single.future, settings))
        assert {name: both.future for name, both in found.figures.items()} == expected
        before = figures_of(PlayReading(single.baseline, settings))
        assert {name: both.baseline for name, both in found.figures.items()} == before


def _of(where: str) -> tuple[Cache, Settings, int]:
    if where.startswith("seed"):
        nodes, objects = small(int(where.split()[1]))
        return _cluster(nodes, objects), make_settings("newest"), NOW_NS
    dump = read_dump([str(DUMPS / where)])
    cluster = Cache()
    cluster.fill(dump.objects, dump.moment_ns)
    return cluster, settings_of(dump, ()), dump.moment_ns
