"""The work that a unit of each job costs, counted instead of timed: a pod decoded, a node looked at
in a monitor pass, a pod planned, a node's change for all DaemonSets, and so on.

`counts.json` beside this file holds the figures that were reached. `python -m bench counts` shows
which units are above or below them, and a test holds that none costs more than 3 % above its
figure; `python -m bench.counts` writes down what is reached now. The default sizes are those of the
table.
"""

from __future__ import annotations

import json
import platform
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final, NamedTuple

import msgspec

from bench import (
    Stopwatch,
    audit,
    daemonset,
    drain_plan,
    events,
    monitor_pass,
    upgrade,
    zone_outage,
)
from bench._counting import CountingStopwatch
from bench._drain_cluster import cluster as drain_cluster
from bench._stream_server import Cluster as HeavyCluster
from bench.status import dump
from kubectl_nodelife.commands.answering.status import finished
from kubectl_nodelife.commands.cluster.look import view_of_dump
from kubectl_nodelife.controllers import make_controllers
from kubectl_nodelife.drain.plan import make_wave_plan
from kubectl_nodelife.drain.results import WaveOptions
from kubectl_nodelife.dumps.dump import read_dump
from kubectl_nodelife.engine.cache import Cache
from kubectl_nodelife.engine.events import Put
from kubectl_nodelife.engine.settings import make_settings
from kubectl_nodelife.kube.codec import encode
from kubectl_nodelife.kube.meta import MicroTime
from kubectl_nodelife.kube.node import Lease, LeaseSpec
from kubectl_nodelife.kube.redaction import KEY_BYTES
from kubectl_nodelife.kube.times import MINUTE_NS, SECOND_NS
from kubectl_nodelife.live.listwatch import WatchStream
from kubectl_nodelife.outlook.status import KINDS, status_steps
from kubectl_nodelife.sim.events import KubeletEvent, ScenarioEvent, Targets
from kubectl_nodelife.sim.fields import FieldPath
from kubectl_nodelife.sim.generate import Generate
from kubectl_nodelife.sim.present import join
from kubectl_nodelife.sim.run import run as simulate
from kubectl_nodelife.sim.scenario import PASS_DRIFT_NS, Scenario, Setting, assemble
from kubectl_nodelife.snapshot import Redaction
from kubectl_nodelife.upgrade.answers import decider_for

NODES = 60
PODS = 1800
SLACK: Final = 0.03
"""How far above its figure a unit's cost may be."""
TABLE: Final = Path(__file__).parent / "counts.json"


class Cost(NamedTuple):
    """A job's whole cost, and its number of units."""

    calls: int
    kept_blocks: int
    units: int


def run(nodes: int, pods: int, seed: int, stopwatch: Stopwatch) -> dict[str, object]:
    """Count all jobs, and compare with the table."""
    with stopwatch:
        found = measure(nodes, pods, seed)
    table = read_table()
    return {
        "python": platform.python_version(),
        "counts": found,
        "above": worse(found, table),
        "below": {unit: of for unit, of in worse(table, found).items() if unit in found},
    }


def measure(nodes: int, pods: int, seed: int) -> dict[str, dict[str, float]]:
    """Calls and kept blocks of a unit of each job, by the unit's name."""
    found = {}
    for unit, job in JOBS.items():
        calls, kept, units = job(nodes, pods, seed)
        found[unit] = {
            "calls": round(calls / units, 2),
            "keptBlocks": round(max(0, kept) / units, 2),
        }
    return found


def read_table() -> dict[str, dict[str, float]]:
    """The figures that were reached."""
    table: dict[str, dict[str, float]] = json.loads(TABLE.read_bytes())["counts"]
    return table


def worse(
    found: Mapping[str, Mapping[str, float]], table: Mapping[str, Mapping[str, float]]
) -> dict[str, str]:
    """The units that cost more than the table allows, and how much; a unit may be new."""
    above = {}
    for unit, costs in found.items():
        for what, figure in costs.items():
            limit = table.get(unit, {}).get(what)
            # Half a block or call is the noise of Python's own caches in a small unit.
            if limit is not None and figure > limit * (1 + SLACK) + 0.5:
                above[unit] = f"{what} {limit} -> {figure}"
    return above


def write_table(found: Mapping[str, Mapping[str, float]]) -> None:
    """Write down what is reached now."""
    python = ".".join(platform.python_version_tuple()[:2])
    text = json.dumps({"python": python, "counts": found}, indent=2)
    TABLE.write_text(text + "\n")


def _benched(
    bench_run: Callable[[int, int, int, Stopwatch], object], units: Callable[[int, int], int]
) -> Callable[[int, int, int], Cost]:
    """The measured part of another bench."""

    def job(nodes: int, pods: int, seed: int) -> Cost:
        counter = CountingStopwatch()
        bench_run(nodes, pods, seed, counter)
        return Cost(counter.calls, counter.kept_blocks, units(nodes, pods))

    return job


def _upgrade(nodes: int, pods: int, seed: int) -> Cost:
    """The simulated run of an upgrade, on a third of the nodes: per node."""
    few = max(1, nodes // 3)
    setting = upgrade.make_setting(few, few * (pods // nodes), seed)
    settings = make_settings(setting.profile, {})
    controllers = make_controllers(
        settings, setting.scenario.controllers, pass_drift_ns=PASS_DRIFT_NS
    )
    counter = CountingStopwatch()
    with counter:
        simulate(
            setting,
            controllers,
            make_decider=decider_for(settings),
            until_upgraded=lambda done: None,
        )
    return Cost(counter.calls, counter.kept_blocks, few)


def _decode(nodes: int, pods: int, seed: int) -> Cost:
    """A dump read from its file: per object, most of which are pods."""
    counter = CountingStopwatch()
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "dump.json"
        file.write_bytes(dump(nodes, pods, seed))
        with counter:
            snapshot = read_dump([str(file)])
    return Cost(counter.calls, counter.kept_blocks, len(snapshot.objects))


def _status(nodes: int, pods: int, seed: int) -> Cost:
    """Joining the controllers, judging each node and the document: per node."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "dump.json"
        file.write_bytes(dump(nodes, pods, seed))
        snapshot = read_dump([str(file)])
    counter = CountingStopwatch()
    with counter:
        status = finished(status_steps(view_of_dump(snapshot, KINDS)))
        msgspec.json.encode(status.document())
    return Cost(counter.calls, counter.kept_blocks, len(status.nodes))


def _heartbeat(nodes: int, pods: int, seed: int) -> Cost:
    """A renewed Lease, from the line of the watch to the cache."""
    cache, stream = Cache(), WatchStream(Lease)
    now_ns = 1_780_000_000 * SECOND_NS
    lines = []
    for turn in range(11):
        for number in range(nodes):
            lease = Lease(
                spec=LeaseSpec(holder_identity=f"n{number}", renew_time=MicroTime(now_ns + turn))
            )
            item = encode(lease)
            item["metadata"] = {
                "name": f"n{number}",
                "namespace": "kube-node-lease",
                "resourceVersion": str(turn * nodes + number + 1),
            }
            lines.append(msgspec.json.encode({"type": "MODIFIED", "object": item}) + b"\n")
    first, rest = b"".join(lines[:nodes]), b"".join(lines[nodes:])
    for event in stream.feed(first):
        cache.apply(Put("Lease", event.object), now_ns)
    counter = CountingStopwatch()
    with counter:
        for event in stream.feed(rest):
            cache.apply(Put("Lease", event.object), now_ns)
    return Cost(counter.calls, counter.kept_blocks, len(lines) - nodes)


def _redact(nodes: int, pods: int, seed: int) -> Cost:
    """Redacting objects as large as real ones for a snapshot: per object, most of them pods."""
    heavy, redaction = HeavyCluster(nodes, pods, seed), Redaction(bytes(KEY_BYTES))
    found = [heavy.document(obj) for objects in heavy.objects.values() for obj in objects]
    documents = msgspec.json.decode(msgspec.json.encode(found))
    counter = CountingStopwatch()
    with counter:
        for document in documents:
            redaction(document["kind"], document)
    return Cost(counter.calls, counter.kept_blocks, len(documents))


def _drain_plan(nodes: int, pods: int, seed: int) -> Cost:
    """A plan in waves of a tenth of the nodes: per pod that moves."""
    snapshot = drain_cluster(nodes, pods, max(1, nodes // 10), seed)
    planned = sorted(snapshot.nodes)[: max(1, nodes // 10)]
    counter = CountingStopwatch()
    with counter:
        plan = make_wave_plan(
            snapshot, planned, drain_plan.OPTIONS, WaveOptions(max_parallel=3, max_per_zone=None)
        )
    return Cost(counter.calls, counter.kept_blocks, len(plan.pods()))


def _node_change(nodes: int, pods: int, seed: int) -> Cost:
    """A taint that no DaemonSet tolerates comes to a node, and goes: per change and set."""
    setting = daemonset.make_setting(nodes, daemonset.SETS, seed)
    one = daemonset.Cluster(setting.objects, setting)
    one.start()
    counter = CountingStopwatch()
    with counter:
        changes = daemonset.node_changes(one)
    return Cost(counter.calls, counter.kept_blocks, len(changes))


def _present(nodes: int, pods: int, seed: int) -> Cost:
    """The joined present of a cluster with Services and budgets: per pod."""
    setting = _setting(nodes, pods, seed)
    settings = make_settings(setting.profile, {})
    counter = CountingStopwatch()
    with counter:
        present = join(setting.cluster, settings, setting.start_ns, setting.kinds_read)
        present.begin(10 * MINUTE_NS).step()
    return Cost(counter.calls, counter.kept_blocks, pods)


def _future(nodes: int, pods: int, seed: int) -> Cost:
    """A fork of the present in which a node is lost, played for ten minutes: per pod on it."""
    setting = _setting(nodes, pods, seed)
    settings = make_settings(setting.profile, {})
    base = join(setting.cluster, settings, setting.start_ns, setting.kinds_read).begin(
        10 * MINUTE_NS
    )
    base.step()
    base.prepare()
    counter = CountingStopwatch()
    stop = KubeletEvent(Targets(nodes=("b1",)), "stop")
    with counter:
        branch = base.fork()
        branch.add([ScenarioEvent(0, stop, FieldPath("bench"))])
        branch.play()
    return Cost(counter.calls, counter.kept_blocks, pods // nodes)


def _setting(nodes: int, pods: int, seed: int) -> Setting:
    made = Generate(
        zones=3,
        nodes=nodes,
        pods_per_node=pods // nodes,
        seed=seed,
        services=nodes,
        budgets=nodes // 5,
    )
    return assemble(Scenario(file="bench", name="counts", generate=made))


def _pods(nodes: int, pods: int) -> int:
    return pods


JOBS: Final[Mapping[str, Callable[[int, int, int], Cost]]] = {
    "object decoded from a dump": _decode,
    "Lease renewal taken in from a watch": _heartbeat,
    "node judged by status": _status,
    "node in a full monitor pass": _benched(
        monitor_pass.run, lambda nodes, pods: nodes * monitor_pass.PASSES
    ),
    "pod of a cluster whose nodes are tainted": _benched(events.run, _pods),
    "pod audited": _benched(audit.run, _pods),
    "object redacted for a snapshot": _redact,
    "pod of a zone outage": _benched(zone_outage.run, _pods),
    "pod moved by a drain plan": _drain_plan,
    "node's change for thirty DaemonSets": _node_change,
    "pod of a present": _present,
    "pod on a node that is lost in a future": _future,
    "node upgraded": _upgrade,
}


if __name__ == "__main__":
    write_table(measure(NODES, PODS, 1))
