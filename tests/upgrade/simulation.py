"""Upgrades of a small fleet on virtual time, with seeded faults, under the eyes of `judges`.

A leader dies at an action, is suspended, is cut off, or is succeeded by another; calls conflict,
fail, and lose their answers; machines do not come back; people cordon, uncordon and edit. What
remains in the end must be what a run without faults leaves, where nothing but the leader and its
calls had faults.
"""

import json
import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any

from msgspec.structs import replace

from kubectl_nodelife.controllers import make_controllers
from kubectl_nodelife.controllers.upgrade.document import OVER, UpgradeRequest, Verb, document_of
from kubectl_nodelife.controllers.upgrade.leaving import leftovers
from kubectl_nodelife.engine.actions import Action, NodeMarkPatch, RecordEvent
from kubectl_nodelife.engine.engine import Engine, EngineHost, drive
from kubectl_nodelife.engine.events import NO_ANSWER, Event
from kubectl_nodelife.engine.settings import make_settings
from kubectl_nodelife.kube.node import Lease, Node
from kubectl_nodelife.kube.times import MINUTE_NS, SECOND_NS
from kubectl_nodelife.sim.api import Api
from kubectl_nodelife.sim.events import UpgradeEvent
from kubectl_nodelife.sim.failing_writes import InjectedFault
from kubectl_nodelife.sim.scenario import PASS_DRIFT_NS, assemble, parse_scenario
from kubectl_nodelife.sim.timeline import SCRIPT, Timeline
from kubectl_nodelife.sim.upgrade_run import VirtualLeader, VirtualUpgrades
from kubectl_nodelife.sim.world import World
from kubectl_nodelife.upgrade.answers import decider_for
from tests.sim.documents import Json, document
from tests.upgrade.fault_plan import Plan
from tests.upgrade.faulty_leader import NO_WRITE_NS, FaultyLeader
from tests.upgrade.fleet_objects import NODES, fleet_objects
from tests.upgrade.judges import Judges, floor_of, mark_of

LONGEST_NS = 12 * 60 * MINUTE_NS
ENDING_NS = 90 * MINUTE_NS
"""How long before that a person aborts a run that waits for somebody."""
CHURN = 240
"""So many pods are deleted, one each 15 s."""
SUCCEEDED_NS = 60 * SECOND_NS

POLICY: Json = {
    "maxUnavailable": "25%",
    "minAvailable": "60%",
    "soak": "1m",
    "nodeSoak": "20s",
    "readyFor": "20s",
    "workTimeout": "8m",
    "returnTimeout": "5m",
    "proveTimeout": "2m",
    "drainTimeout": "6m",
    "retries": 1,
    "target": ["bootID=changed"],
    "zones": 0,
    "lowWater": 0,
    "work": {"mode": "run", "command": "-", "rerunSafe": True},
}
WORK: Json = {"mode": "reboot", "duration": "90s", "down": "40s", "daemonPods": "10s"}


class Fleet(VirtualUpgrades):
    """Twelve nodes in three zones, or other `objects`, the world around, and a plan's faults."""

    def __init__(self, plan: Plan, objects: list[Json] | None = None) -> None:
        self.plan = plan
        objects = fleet_objects(plan.budgets) if objects is None else objects
        content = json.dumps(document(objects=objects, events=[_start(plan)])).encode()
        scenario = parse_scenario(content, "fleet.yaml")
        setting = self.setting = assemble(scenario)
        settings = make_settings(setting.profile, {})
        self.timeline = Timeline(setting.start_ns)
        self.carried_out: dict[int, Action] = {}  # by identity; a leader may die before the next
        api = Api(self.timeline, setting.start_ns, setting.cluster.copy())
        self.chance = random.Random(plan.seed)
        world = World(
            api,
            scenario.kubelet,
            end_ns=setting.start_ns + LONGEST_NS,
            faults=self._fault if plan.errors else None,
            status_rules=setting.status_rules,
        )
        controllers = make_controllers(settings, scenario.controllers, pass_drift_ns=PASS_DRIFT_NS)
        kinds = sorted({kind for c in controllers for kind in c.watches})
        engine = Engine(
            controllers,
            world.begin(kinds),
            kinds=kinds,
            numbers=api.numbers,
            awaits_writes=True,
        )
        host = EngineHost(engine, world)
        super().__init__(world, self.timeline, decider_for(settings), host)
        count = len(setting.cluster.nodes)
        self.judges = Judges(
            world,
            min_available=floor_of(count, 60),
            max_unavailable=max(1, count * 25 // 100),
        )
        self.actions = 0
        self.coming = 0
        self._start_ns = setting.start_ns
        event = scenario.events[0].what
        assert isinstance(event, UpgradeEvent)
        self._schedule(event)

    def _schedule(self, event: UpgradeEvent) -> None:
        """Put down when what happens."""
        plan = self.plan
        self._at(1, partial(self._begin, event))
        abort = UpgradeRequest(verb=Verb.ABORT, by="a person")
        for minute in {plan.abort_at, (LONGEST_NS - ENDING_NS) // MINUTE_NS} - {0}:
            self._at(minute * 60, lambda _: self.request(abort))
        for minute, seconds in plan.asleep:
            self._at(minute * 60, partial(self._suspend, seconds * SECOND_NS))
        for minute, seconds in plan.cut_off:
            self._at(minute * 60, partial(self._cut_off, seconds * SECOND_NS))
        for minute, seconds in plan.lags:
            self._at(minute * 60, partial(self._lag, seconds * SECOND_NS))
        for number in range(1, CHURN):
            self._at(number * 15, self._churn)
        for minute, what, name in plan.people:
            self._at(minute * 60 + 7, partial(self._person, what, name))

    def _at(self, seconds: int, happening: Callable[[int], None]) -> None:
        self.world.agenda.add(self._start_ns + seconds * SECOND_NS, SCRIPT, happening)

    def _begin(self, event: UpgradeEvent, at_ns: int) -> None:
        self.begin(event)

    def play(self) -> None:
        """Until the run is over, or its time."""
        drive(self.next, self)
        self.world.end()

    def next(self, due_ns: int | None) -> tuple[int, Iterable[Event]] | None:
        """The world's next tick; None once the run is over, and its judges have heard."""
        return None if self.over and not self.coming else self.world.next(due_ns)

    def step(self, now_ns: int, events: Iterable[Event]) -> Iterator[Sequence[Action]]:
        for actions in super().step(now_ns, events):
            for action in actions:
                self.judges.decided(action)
            yield actions

    def make_leader(self, *parts: Any) -> VirtualLeader:
        return FaultyLeader(self, *parts)

    # Faults of leaders

    def race(self, action: Action) -> None:
        """A person may cordon the node that is about to be claimed, a moment before."""
        if (
            isinstance(action, NodeMarkPatch)
            and action.word == "ClaimNode"
            and self.chance.random() < self.plan.races
        ):
            node = self.nodes.get(action.node)
            if node is not None:
                self._cordon(node)

    def counts_deaths(self) -> tuple[bool, bool]:
        """Count a call: True, False if the leader dies before it, False, True if after it."""
        self.actions += 1
        dies = self.actions in self.plan.dies_at
        return dies and self.actions % 2 == 0, dies and self.actions % 2 == 1

    def died(self) -> None:
        """A leader died: somebody starts again some time later."""
        self.coming += 1
        back_ns = self.world.api.now_ns + self.plan.back_after_s * SECOND_NS
        self.world.agenda.add(back_ns, SCRIPT, self._again)

    def _again(self, at_ns: int) -> None:
        self.coming -= 1
        lost = (leader for leader in self._faulty() if leader.slept or leader.cut_off_since_ns)
        if len(self.leaders) == len(list(lost)) and not self._to_lead:
            self._to_lead.append(None)

    def _suspend(self, length_ns: int, at_ns: int) -> None:
        for leader in self._faulty():
            leader.asleep_until_ns = max(leader.asleep_until_ns, at_ns + length_ns)
            leader.slept = leader.slept or length_ns > NO_WRITE_NS
        self._succeed(length_ns, at_ns)

    def _cut_off(self, length_ns: int, at_ns: int) -> None:
        for leader in self._faulty():
            leader.cut_off_until_ns = max(leader.cut_off_until_ns, at_ns + length_ns)
            leader.cut_off_since_ns = leader.cut_off_since_ns or at_ns
        self._succeed(length_ns, at_ns)

    def _lag(self, length_ns: int, at_ns: int) -> None:
        for leader in self._faulty():
            leader.lags_until_ns = max(leader.lags_until_ns, at_ns + length_ns)
        self.judges.told_late_until_ns = at_ns + length_ns

    def _churn(self, at_ns: int) -> None:
        """A pod without a budget is deleted: its owner makes another, which goes somewhere."""
        pods = [p for p in self.world.api.store.pods.values() if p.name.startswith("app3-")]
        if pods:
            self.world.api.drop("Pod", self.chance.choice(pods).key)

    def _succeed(self, length_ns: int, at_ns: int) -> None:
        """Somebody types resume elsewhere, and waits until the holder was silent long enough."""
        if length_ns > SUCCEEDED_NS + 10 * SECOND_NS and self.chance.random() < 0.5:
            when_ns = at_ns + SUCCEEDED_NS + 5 * SECOND_NS
            self.world.agenda.add(when_ns, SCRIPT, lambda _: self._to_lead.append(None))

    def look_at_lease(self, leader: VirtualLeader) -> None:
        """A leader that was away: where the Lease is still its own, it takes it again."""
        lease = self._lease()
        if lease is not None and lease.spec.lease_transitions == leader.epoch:
            self._to_lead.append(None)

    def _faulty(self) -> list[FaultyLeader]:
        return [leader for leader in self.leaders if isinstance(leader, FaultyLeader)]

    def _fault(self, action: Action, now_ns: int) -> InjectedFault | None:
        if action.controller != "upgrade" or self.chance.random() >= self.plan.errors:
            return None
        if self.chance.random() < self.plan.lost:
            return InjectedFault(NO_ANSWER, "the connection broke", applied=True)
        code = self.chance.choice((409, 500, 503, 429, NO_ANSWER))
        return InjectedFault(code, "injected")

    # People

    def _person(self, what: str, name: str, at_ns: int) -> None:
        node = self.world.api.store.nodes.get(name)
        if what in ("pause", "resume"):
            self.request(UpgradeRequest(verb=Verb(what), by="a person"))
            if what == "pause":
                self._at_ns(
                    at_ns + 10 * MINUTE_NS, lambda: self.request(UpgradeRequest(verb=Verb.RESUME))
                )
        elif node is not None:
            getattr(self, f"_{what}")(node)

    def _at_ns(self, at_ns: int, call: Callable[[], None]) -> None:
        self.world.agenda.add(at_ns, SCRIPT, lambda _: call())

    def _put(self, node: Node, **spec: Any) -> None:
        self.world.api.put("Node", replace(node, spec=replace(node.spec, **spec)))

    def _cordon(self, node: Node) -> None:
        if not node.spec.unschedulable:
            self.judges.persons.add(node.name)
            self._put(node, unschedulable=True)

    def _uncordon(self, node: Node) -> None:
        self.judges.persons.discard(node.name)
        self.judges.opened.add(node.name)
        self._put(node, unschedulable=False)

    def _untaint(self, node: Node) -> None:
        self.judges.opened.add(node.name)
        kept = tuple(t for t in node.spec.taints if not t.key.startswith("nodelife.dev/"))
        self._put(node, taints=kept)

    def _edit(self, node: Node) -> None:
        self._annotate(node, '{"run": "another", "state": "Working", "epoch": 99}')

    def _strip(self, node: Node) -> None:
        self._annotate(node, None)

    def _annotate(self, node: Node, text: str | None) -> None:
        annotations = dict(node.metadata.annotations or {})
        if "nodelife.dev/upgrade" not in annotations:
            return
        if text is None:
            del annotations["nodelife.dev/upgrade"]
        else:
            annotations["nodelife.dev/upgrade"] = text
        self.judges.meddled.add(node.name)
        meta = replace(node.metadata, annotations=annotations)
        self.world.api.put("Node", replace(node, metadata=meta))

    def _delete(self, node: Node) -> None:
        self.judges.others_down.add(node.name)
        self.world.kubelets.stop(node.name, None)
        self.world.api.drop("Node", ("", node.name))

    # In the end

    @property
    def nodes(self) -> dict[str, Node]:
        """The nodes that are there."""
        return dict(self.world.api.store.nodes)

    def is_upgraded(self, name: str) -> bool:
        """True if the node has rebooted, has another kubelet, or has given way to another."""
        node = self.nodes.get(name)
        if node is None or node.status.node_info.boot_id != f"boot-{name}":
            return True
        return node.status.node_info.kubelet_version == "v1.37.0"

    def clean(self) -> None:
        """`upgrade clean --release-failed`."""
        api = self.world.api
        for left in leftovers(self.nodes.values(), release_failed=True):
            if left.patch is not None:
                patched = left.patch.effect(left.node, api.now_ns)
                assert patched is not None
                api.put("Node", patched, left.patch)

    def states(self) -> dict[str, str]:
        """Node -> its state as its annotation says, "" for none."""
        nodes = self.world.api.store.nodes
        return {name: str(mark_of(found).get("state", "")) for name, found in nodes.items()}

    def phase(self) -> str:
        """The run's phase."""
        lease = self._lease()
        run = document_of(lease) if isinstance(lease, Lease) else None
        return str(run.phase) if run is not None else "none"


def _start(plan: Plan) -> Json:
    """The event; it is begun by the fleet itself."""
    faults = [{"nodes": [name], "how": how} for name, how in plan.machines]
    upgrade = {
        "selector": "pool=blue",
        "policy": {**POLICY, **plan.policy},
        "work": {**WORK, **plan.work},
        "faults": faults,
    }
    return {"at": "1s", "upgrade": upgrade}


def faults_found(plan: Plan) -> list[str]:
    """What broke an invariant in a run with these faults; empty if nothing did."""
    fleet = Fleet(plan)
    fleet.play()
    found = list(fleet.judges.faults)
    if fleet.phase() not in OVER:
        found.append(f"I5: the run does not end, it is {fleet.phase()}: {fleet.states()}")
    found += fleet.judges.leftovers(fleet.nodes, released=False)
    found += _events_of_nothing(fleet)
    if plan.is_mild:
        found += _same_end(fleet)
    fleet.clean()
    return found + fleet.judges.leftovers(fleet.nodes, released=True)


def _events_of_nothing(fleet: Fleet) -> list[str]:
    """I8: an Event of a change of state is sent only where that change was applied."""
    refused = {id(outcome.action): outcome.code for outcome in fleet.world.failures}
    changes: dict[str, Action] = {}
    found = []
    for _, action in fleet.timeline.entries:
        if isinstance(action, NodeMarkPatch):
            changes[action.node] = action
        elif isinstance(action, RecordEvent) and action.name in changes:
            if not action.reason.startswith("Upgrade"):
                continue  # a kubelet's
            code = refused.get(id(changes[action.name]))
            sent = id(action) in fleet.carried_out and id(action) not in refused
            if code is not None and sent:
                found.append(f"I8: {action.reason} of {action.name}, and its PATCH came to {code}")
    return found


def _same_end(fleet: Fleet) -> list[str]:
    """I6: every node is upgraded, and a newcomer proven. One of which nobody knows whether its work
    ran may be Held, and keeps its slot: then others may be left undone.
    """
    states = fleet.states()
    undone = [name for name in NODES if not fleet.is_upgraded(name)]
    undone += [name for name in fleet.nodes if name not in {*NODES, *fleet.judges.released}]
    held = [name for name in undone if states.get(name) == "Held"]
    if held and not fleet.policy.work.rerun_safe:
        return []
    return [f"I6: not upgraded: {', '.join(undone)} ({fleet.phase()})"] if undone else []
