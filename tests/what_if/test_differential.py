"""The act `drain` beside `drain-plan`: the same nodes of the same clusters, played by two programs.

`drain-plan` plays a part of the cluster with what it knows beforehand, `what-if` all of it. Where
nothing else happens the instants are equal to the ms: both play the same kubectl on the same world.
"""

import json
import random
import shlex
from collections.abc import Sequence

import pytest

from kubectl_nodelife.drain.plan import make_plan
from kubectl_nodelife.drain.results import DrainPlan
from kubectl_nodelife.drain.snapshot import PlanSnapshot
from kubectl_nodelife.dumps.dump import read_dump, settings_of
from kubectl_nodelife.engine.cache import Cache
from kubectl_nodelife.engine.settings import Settings
from kubectl_nodelife.kube.times import SECOND_NS
from kubectl_nodelife.outlook.what_if.acts import read_acts
from kubectl_nodelife.outlook.what_if.answer import make_answer
from kubectl_nodelife.outlook.what_if.document import WhatIf
from kubectl_nodelife.outlook.what_if.question import Question, play
from tests.drain.recorded import DRAINS, parse_command
from tests.what_if.stand import ALL_KINDS
from tests.what_if.test_proofs import SEEDS, _of, small

FLAGS = "--force --ignore-daemonsets --delete-emptydir-data"
RECORDED = sorted(folder.name for folder in DRAINS.iterdir() if (folder / "outcome.json").exists())

Name = tuple[str, str]
Times = dict[Name, tuple[float | None, float | None]]


class Both:
    """The plan and the answer of one drain."""

    def __init__(
        self, cluster: Cache, settings: Settings, now_ns: int, command: str, read: frozenset[str]
    ) -> None:
        nodes, options = parse_command(command)
        objects = [obj for kind in sorted(ALL_KINDS) for obj in cluster.all(kind)]
        snapshot = PlanSnapshot(objects, now_ns, read, settings=settings)
        self.plan: DrainPlan = make_plan(snapshot, nodes, options)
        words = shlex.split(command)[1:]
        acts = read_acts(words, cluster, beta_zone_labels_only=False)
        question = Question(cluster, settings, now_ns, read, acts, 3600 * SECOND_NS)
        plays = play(question)
        self.answer: WhatIf = make_answer(plays, acts, settings, source={}, moment={}, warnings=())
        self._records = plays.future.records
        self._nodes = {pod.key: pod.spec.node_name for pod in cluster.pods.values()}
        self.drained = nodes

    def planned(self) -> Times:
        """When each pod's eviction is accepted and when it is gone; those that stay left out."""
        return {
            (pod.namespace, pod.name): (pod.start, pod.gone)
            for pod in self.plan.pods()
            if pod.start is not None
        }

    def played(self) -> Times:
        """The same of the future's records, of the pods of these nodes."""
        deleted: dict[Name, list[float]] = {}
        for record in self._records:
            name = (record.object.namespace, record.object.name)
            is_theirs = self._nodes.get(name) in self.drained
            if record.action == "DeletePod" and not record.error and is_theirs:
                deleted.setdefault(name, []).append(record.at)
        return {
            name: (times[0], times[1] if len(times) > 1 else None)
            for name, times in deleted.items()
        }


def both(where: str, nodes: Sequence[str]) -> Both:
    cluster, settings, now_ns = _of(where)
    return Both(cluster, settings, now_ns, f"kubectl drain {' '.join(nodes)} {FLAGS}", ALL_KINDS)


@pytest.mark.parametrize("seed", SEEDS)
def test_the_same_pods_go_at_the_same_instants(seed: int) -> None:
    """Of each node by itself, and of two nodes in one command."""
    nodes = small(seed).nodes
    pair = random.Random(f"{seed} drained").sample(nodes, 2)
    for drained in ([name] for name in nodes), [pair]:
        for names in drained:
            found = both(f"seed {seed}", names)
            assert found.played() == found.planned()


@pytest.mark.parametrize("seed", SEEDS)
def test_the_same_workloads_are_out(seed: int) -> None:
    for name in small(seed).nodes:
        found = both(f"seed {seed}", [name])
        planned = {
            (w.kind, w.name): (w.outage, w.lowest)
            for w in found.plan.workloads
            if w.outage != "none"
        }
        told = {(w.kind, w.name): (w.outage, w.lowest_ready) for w in found.answer.workloads}
        assert {key: told[key] for key in planned} == planned
        assert all(outage == "none" for key, (outage, _) in told.items() if key not in planned)


@pytest.mark.parametrize("name", ["worker-a1", "worker-a2", "worker-a3"])
def test_on_a_dump_in_which_a_node_is_lost(name: str) -> None:
    """Pods that the loss of the other node evicts are in both; those of the drained node agree."""
    found = both("two-zones", [name])
    planned = found.planned()
    assert planned and {k: v[0] for k, v in found.played().items()} == {
        k: v[0] for k, v in planned.items()
    }


@pytest.mark.parametrize("name", RECORDED)
def test_recorded_drains(name: str) -> None:
    dump = read_dump([str(DRAINS / name / "cluster.json")])
    cluster = Cache()
    cluster.fill(dump.objects, dump.moment_ns)
    read = ALL_KINDS if dump.complete else frozenset(dump.kinds_read)
    command = (DRAINS / name / "command.txt").read_text()
    found = Both(cluster, settings_of(dump, ()), dump.moment_ns, command, read)
    assert found.played() == found.planned()
    accepted = json.loads((DRAINS / name / "outcome.json").read_text())["accepted"]
    assert bool(found.played()) == bool(accepted)
