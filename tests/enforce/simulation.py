"""One seed of the simulation: a cluster's story, faults, and what must hold in spite of them.

Each story is played by a daemon to which nothing happens, and four times, which are four seeds, by
one with faults until some instant. What that one writes is judged by the observer; it deletes no
pod of the beginning that the undisturbed one would not have deleted, and both clusters end alike.
"""

import asyncio
import gc
import logging
import random
from collections import Counter
from functools import lru_cache, partial, partialmethod
from types import SimpleNamespace
from typing import Any, NamedTuple

import msgspec
import pytest

from kubectl_nodelife.daemon import gate
from kubectl_nodelife.daemon.enforce import enforcement
from kubectl_nodelife.daemon.flags import Orders
from kubectl_nodelife.engine.settings import make_settings
from kubectl_nodelife.kube.times import SECOND_NS, format_micro_time
from kubectl_nodelife.live import writer
from kubectl_nodelife.live.loop import TimeSlices
from kubectl_nodelife.sim.scenario import assemble, parse_scenario
from tests import objects
from tests.enforce import simulated_api
from tests.enforce.ends import end_of, unmarked_pods, wrong_status
from tests.enforce.observer import LEASE, Rules, broken_rules
from tests.enforce.simulated_daemon import Disk, Process, make_task
from tests.enforce.virtual_time import EPOCH_NS, VirtualLoop, World
from tests.enforce.withdrawn_causes import WithdrawnCauses
from tests.sim.documents import document

Json = dict[str, Any]
GRACE_S = 8
FAULTS_FROM_S, FAULTS_UNTIL_S, END_S = 4, 40, 100
CALM_S = 90
"""So long after the controllers began anew the cluster is as it stays: two of pod-gc's quarantines'
runs and a rollout.
"""
SEEDS_A_STORY = 4
EVICTION_TRIES = 5
"""After so many failed tries upstream drops an eviction for good (`deletePodHandler`): in the end
such a pod is there, so that one try of each is let through.
"""
CONTROLLERS = ("node-lifecycle", "taint-eviction", "pod-gc", "daemonset")
FLAGS = {
    "node-monitor-grace-period": f"{GRACE_S}s",
    "node-monitor-period": "1s",
    "node-eviction-rate": "2",
    "terminated-pod-gc-threshold": "1",
}
_OURS = "kubectl-nodelife/"
_FREE = ("leases", "events", "selfsubjectaccessreviews")


class Outcome(NamedTuple):
    """What is left of a run."""

    audit: list[Json]
    broken: list[str]
    end: Json
    deleted: set[str]
    first_pods: set[str]


def story(seed: int) -> bytes:
    """A cluster of six nodes in two zones, and what happens to it, as a scenario."""
    dice = random.Random(seed)
    patient = dice.random() < 0.5
    nodes = ["a1", "b1", "a2", "b2", "a3", "b3"]
    dice.shuffle(nodes)
    dead, short, other, gone = nodes[:4]

    def at(first: float, last: float) -> str:
        return f"{round(dice.uniform(first, last) * 1000)}ms"

    events: list[Json] = [{"at": at(5, 20), "kubelet": {"nodes": [dead], "heartbeats": "stop"}}]
    begin_s = dice.uniform(5, 20)
    back_s = begin_s + (14 if patient and dice.random() < 0.5 else 3)
    for at_s, word in ((begin_s, "stop"), (back_s, "start")):
        kubelet = {"nodes": [short], "heartbeats": word}
        events.append({"at": f"{round(at_s * 1000)}ms", "kubelet": kubelet})
    if dice.random() < 0.5:
        taint = {"nodes": [other], "add": ["maintenance=now:NoExecute"]}
        events.append({"at": at(5, 25), "taint": taint})
    if dice.random() < 0.3:
        stopped_s = dice.uniform(5, 15)
        kubelet = {"nodes": [gone], "heartbeats": "stop"}
        events.append({"at": f"{round(stopped_s * 1000)}ms", "kubelet": kubelet})
        object_ = {"kind": "Node", "name": gone}
        events.append({"at": f"{round(stopped_s * 1000) + 1500}ms", "delete": object_})
    if dice.random() < 0.5:
        events.append({"at": at(5, 25), "apply": agent(2)})
    spec = {
        "profile": "v1.36",
        "time": "2026-01-01T00:00:00Z",
        "kubelet": {
            "podStartDuration": "1s",
            "podStopDuration": "1s",
            "leaseRenewInterval": "2s",
        },
        "generate": {
            "zones": 2,
            "nodesPerZone": 3,
            "podsPerNode": 2,
            "daemonSets": 0,
            "tolerationSeconds": 300 if patient else 4,
            "seed": seed,
        },
        "objects": [agent(1)],
        "events": sorted(events, key=lambda e: int(e["at"][:-2])),
    }
    return msgspec.json.encode(document(**spec))


def agent(version: int) -> Json:
    """A DaemonSet."""
    container = {"name": "c", "image": f"registry.example/agent:{version}"}
    return objects.workload(
        "DaemonSet",
        "agent",
        namespace="kube-system",
        uid="",
        pods={"terminationGracePeriodSeconds": 2, "containers": [container]},
        updateStrategy={"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 2}},
    )


class Run:
    """One play of a story. `seed`: that of the faults, None for a play without any. `told`: another
    story than that of the number. `resumed_from_s`: from then on a person closes what has opened.
    """

    def __init__(self, number: int, seed: int | None = None, told: bytes = b"") -> None:
        faulty = self.faulty = seed is not None
        self.dice = random.Random(number * 2 + 1)
        self.world = World()
        self.broken: list[str] = []
        scenario = parse_scenario(told or story(number), "story")
        self.server = simulated_api.SimulatedServer(self.world, assemble(scenario))
        pods = self.server.store.collections["Pod"].entries.values()
        self.first_pods = {entry.obj.uid for entry in pods}
        self.settings = make_settings("v1.36", FLAGS)
        self.orders = Orders(
            CONTROLLERS,
            CONTROLLERS,
            self.dice.choice(("join", "restart")),
            self.dice.choice(("", "upstream")),
        )
        if seed is not None:
            self.dice = random.Random(seed)
        self.often = self.dice.choice((0.0, 0.05, 0.3)) if faulty else 0.0
        self.kills = self.dice.choice((0, 1, 3)) if faulty else 0
        self.two = faulty and self.dice.random() < 0.25
        self.processes: list[Process] = []
        self.causes: list[WithdrawnCauses] = []
        self.resumed_from_s: float = FAULTS_UNTIL_S
        self._began = (0, 0.0)
        self._failed: Counter[str] = Counter()

    @property
    def at_s(self) -> float:
        """Seconds since the beginning."""
        return (self.world.now_ns - EPOCH_NS) / 1e9

    def play(self) -> Outcome:
        """Play it."""
        loop = VirtualLoop(self.world)
        loop.set_task_factory(make_task)  # type: ignore[arg-type]
        try:
            loop.run_until_complete(self._play())
        finally:
            self.server.close()
            unended = asyncio.all_tasks(loop)
            for task in unended:
                task.cancel()
            if unended:
                loop.run_until_complete(asyncio.wait(unended))
            loop.close()
        rules = Rules(grace_s=GRACE_S, delay_s=simulated_api.MOST_DELAY_S / 2)
        # a thief does not wait: who held the Lease may write until he would have renewed it
        judged = [entry for entry in self.server.audit if entry["userAgent"] != "thief"]
        broken = [*self.broken, *broken_rules(judged, rules)]
        broken += [line for causes in self.causes for line in causes.broken()]
        deleted = {
            str((e["requestObject"].get("preconditions") or {}).get("uid"))
            for e in self.server.audit
            if e["userAgent"].startswith(_OURS)
            and e["verb"] == "delete"
            and e["objectRef"]["resource"] == "pods"
            and e["responseStatus"]["code"] < 300
        }
        store = self.server.store
        broken += [*wrong_status(store), *unmarked_pods(store)]
        return Outcome(
            self.server.audit, broken, end_of(store, self.first_pods), deleted, self.first_pods
        )

    async def _play(self) -> None:
        self._start(Disk())
        if self.two:
            self._start(Disk())
        if self.faulty:
            self._plan()
        while self.at_s < self._end_s():
            await asyncio.sleep(1)
            for number, process in enumerate(self.processes):
                if process.network.dead:
                    self.processes[number] = self._made(process.disk)
                elif process.main.done():
                    self.broken.append(f"the daemon ended: {process.main.exception()!r}")
                    return
                if self.at_s > self.resumed_from_s:
                    process.enforcement.resume()
        for process in self.processes:
            await process.stop()
            for number, (state, intent) in process.disk.rows.items():
                if state in ("intent", "sent", "unknown"):
                    what = f"{intent.action[:80]} of {intent.name}"
                    self.broken.append(f"intent {number} has no end: {state} {what}")

    def _end_s(self) -> float:
        began_ns = max(process.enforcement.began_ns for process in self.processes)
        if began_ns != self._began[0]:
            self._began = began_ns, self.at_s  # by the world's clock: the daemon's may have jumped
        return max(END_S, self._began[1] + CALM_S)

    # Processes

    def _start(self, disk: Disk) -> None:
        self.processes.append(self._made(disk))

    def _made(self, disk: Disk) -> Process:
        network = simulated_api.Network(self.server, self.dice, self._fault)
        process = Process(self.server, network, disk, self.dice, self.orders, self.settings)
        self.causes.append(process.causes)

        def on_write(sent: simulated_api.Sent) -> None:
            self._judge_intent(process, sent)
            if self.kills and self._faults_now() and _changes(sent) and self.dice.random() < 0.2:
                self.kills -= 1
                wait_ns = self.dice.choice((0, 0, 2_000_000, 8_000_000))
                self.world.at(self.world.now_ns + wait_ns, process.kill)

        network.on_write = on_write
        return process

    def _judge_intent(self, process: Process, sent: simulated_api.Sent) -> None:
        """Each write has its intent on the disk."""
        if not _changes(sent):
            return
        path = sent.url.partition("?")[0].split("/")
        for state, intent in process.disk.rows.values():
            if state in ("intent", "sent") and (intent.name in path or sent.method == "POST"):
                return
        self.broken.append(f"{self.at_s:.3f} {sent.method} {sent.url}: no intent is on the disk")

    # Faults

    def _faults_now(self) -> bool:
        return FAULTS_FROM_S < self.at_s < FAULTS_UNTIL_S

    def _fault(self, sent: simulated_api.Sent) -> simulated_api.Fault:
        fault = simulated_api.draw_fault(self.dice, sent, self.often if self._faults_now() else 0.0)
        return simulated_api.Fault() if fault.fails and self._would_be_dropped(sent) else fault

    def _would_be_dropped(self, sent: simulated_api.Sent) -> bool:
        """True if one failure more would make upstream drop this eviction for good."""
        if not sent.headers.get("User-Agent", "").endswith("/taint-eviction-controller"):
            return False
        pod = "/".join(sent.url.partition("?")[0].split("/")[:7])
        self._failed[pod] += 1
        return self._failed[pod] >= EVICTION_TRIES

    def _plan(self) -> None:
        """Draw what happens to the daemon and its watches, and when."""
        for _ in range(self.dice.randint(0, 3)):
            at_ns = self.world.now_ns + round(
                self.dice.uniform(FAULTS_FROM_S, FAULTS_UNTIL_S - 15) * SECOND_NS
            )
            duration_ns = round(self.dice.uniform(0.5, 14) * SECOND_NS)
            kind = self.dice.choice(("Node", "Lease", "Pod", "DaemonSet"))
            what = self.dice.choice(("break", "break", "hang", "stop", "suspend", "steal"))
            relist = self.dice.random() < 0.5
            self.world.at(at_ns, partial(self._hit, what, kind, duration_ns, relist))

    def _hit(self, what: str, kind: str, duration_ns: int, relist: bool) -> None:
        if what == "steal":
            self._steal(self.world.now_ns + duration_ns)
            return
        if what in ("stop", "suspend"):
            asyncio.get_event_loop().call_soon(
                lambda: self.world.stand_still(duration_ns, suspended=what == "suspend")
            )
            return
        for process in self.processes:
            if what == "hang":
                process.watches.hang(kind, duration_ns)
            else:
                process.watches.break_off(kind, duration_ns, relist=relist)

    def _steal(self, until_ns: int) -> None:
        """Somebody writes himself into the Lease, and renews it for a while."""
        headers = {"User-Agent": "thief", "Content-Type": "application/merge-patch+json"}
        stamp = format_micro_time(self.world.now_ns)
        spec = {"holderIdentity": "thief", "renewTime": stamp, "leaseDurationSeconds": 15}
        url = f"/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/{LEASE}"
        self.server.answer(
            simulated_api.Sent("PATCH", url, msgspec.json.encode({"spec": spec}), headers)
        )
        if self.world.now_ns < until_ns:
            self.world.at(self.world.now_ns + 2 * SECOND_NS, lambda: self._steal(until_ns))


def _awake_s(world: World) -> float:
    return world.awake_ns / 1e9


def _steady_ns(world: World) -> int:
    return world.steady_ns


async def _pause(_: TimeSlices, dice: random.Random) -> None:
    """Others may have the loop between any two actions of a decision, as on a busy machine."""
    if dice.random() < 0.3:
        await asyncio.sleep(dice.choice((0, 0, 0.001, 0.02)))


def _changes(sent: simulated_api.Sent) -> bool:
    return sent.method != "GET" and not any(f"/{word}" in sent.url for word in _FREE)


def faults_found(seed: int) -> list[str]:
    """What does not hold under this seed; nothing where all is well."""
    number = seed // SEEDS_A_STORY
    calm, faulted = _calm(number), play(Run(number, seed), seed)
    found = [f"without faults: {text}" for text in calm.broken] + faulted.broken
    for uid in sorted((faulted.deleted - calm.deleted) & faulted.first_pods):
        found.append(f"the pod of uid {uid} was deleted, and would not have been without faults")
    for key in sorted(calm.end.keys() | faulted.end.keys()):
        one, other = calm.end.get(key), faulted.end.get(key)
        if one != other:
            found.append(f"in the end {key}: {other}, without faults {one}")
    return found


@lru_cache(maxsize=1)
def _calm(number: int) -> Outcome:
    return play(Run(number), number)


def play(run: Run, seed: int) -> Outcome:
    """Play it on clocks of its own; what it replaces in the program is put back."""
    log = logging.getLogger("nodelife")
    level = log.level
    thresholds = gc.get_threshold()
    log.setLevel(logging.CRITICAL)
    random.seed(seed)
    monotonic = SimpleNamespace(monotonic=partial(_awake_s, run.world))
    try:
        with pytest.MonkeyPatch.context() as replaced:
            replaced.setattr(gate, "time", monotonic)
            replaced.setattr(writer, "time", monotonic)
            replaced.setattr(writer, "steady_ns", partial(_steady_ns, run.world))
            if run.faulty:
                replaced.setattr(TimeSlices, "pause", partialmethod(_pause, random.Random(seed)))
            # Each simulated process sets its own.
            replaced.setattr(enforcement, "WritingSession", enforcement.WritingSession)
            return run.play()
    finally:
        log.setLevel(level)
        gc.unfreeze()
        gc.set_threshold(*thresholds)  # a daemon sets them so that old objects are left alone
        gc.enable()  # and is without it until its first lists are in
        gc.collect()
