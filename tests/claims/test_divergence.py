"""Holds what `diverge` says against what was planted in a random cluster.

Where nothing is planted, whatever happens to the nodes and to the daemon that watches, it accuses
nobody, and its count of writes is that of the writes that were made. Where one node's writes of one
kind fail, for ever or for a while, it names the node, the write and since when it is due, in time,
and nothing else. The truth is what was planted and what was written; planted lies must be caught.
"""

import random
import re
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

from kubectl_nodelife.engine.actions import Action
from kubectl_nodelife.engine.settings import make_settings
from kubectl_nodelife.kube.times import SECOND_NS, parse_time
from tests.claims.watched_cluster import PROFILE, Look, Played, Stage, Story, Watcher, watched
from tests.enforce.virtual_time import EPOCH_NS

Document = dict[str, Any]
Hand = tuple[float, Callable[[Stage], None]]
KINDS = ("Node", "Pod", "Lease")


def random_flags(dice: random.Random) -> dict[str, str]:
    return {
        "node-monitor-grace-period": f"{dice.choice((16, 20, 30, 40, 50))}s",
        "node-monitor-period": f"{dice.choice((1, 2, 3, 5))}s",
        "node-eviction-rate": f"{dice.choice((0.1, 0.3, 1, 2)):g}",
        "large-cluster-size-threshold": f"{dice.choice((3, 50))}",
    }


def random_cluster(dice: random.Random) -> tuple[Document, list[str]]:
    """What `generate` makes of it, and the names of its nodes."""
    zones, each = dice.randint(1, 3), dice.randint(2, 6)
    made = {
        "zones": zones,
        "nodesPerZone": each,
        "podsPerNode": dice.randint(1, 5),
        "daemonSets": dice.randint(0, 1),
        "seed": dice.randint(0, 999),
        "tolerationSeconds": dice.choice((0, 5, 30, 60, 300)),
    }
    return made, [f"{zone}{n + 1}" for zone in "abc"[:zones] for n in range(each)]


def at(seconds: float) -> str:
    return f"{round(seconds * 1000)}ms"


def random_outages(dice: random.Random, nodes: list[str], first_s: float, last_s: float) -> list:
    """Kubelets that fall silent or are not ready, for a while or for good; persons at work."""
    events: list[Document] = []
    for _ in range(dice.randint(1, 4)):
        which = dice.sample(nodes, dice.randint(1, max(1, len(nodes) // 2)))
        if dice.random() < 0.15:
            which = [n for n in nodes if n[0] == which[0][0]]  # a whole zone
        begin_s = dice.uniform(first_s, last_s)
        end_s = begin_s + dice.choice((8, 30, 70, 130))
        what = dice.choice(("silent", "silent", "silent", "not ready", "taint", "cordon", "delete"))
        kubelet = {"nodes": which}
        if what == "silent":
            events.append({"at": at(begin_s), "kubelet": {**kubelet, "heartbeats": "stop"}})
            if dice.random() < 0.7:
                events.append({"at": at(end_s), "kubelet": {**kubelet, "heartbeats": "start"}})
        elif what == "not ready":
            for at_s, status in ((begin_s, "False"), (end_s, "True")):
                change = {**kubelet, "conditions": {"Ready": status}}
                events.append({"at": at(at_s), "kubelet": change})
        elif what == "taint":
            effect = dice.choice(("NoExecute", "NoSchedule"))
            change = {"nodes": which[:1], "add": [f"team=busy:{effect}"]}
            events.append({"at": at(begin_s), "taint": change})
        elif what == "cordon":
            body = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": which[0]}}
            events.append({"at": at(begin_s), "apply": {**body, "spec": {"unschedulable": True}}})
        else:
            events.append({"at": at(begin_s), "delete": {"kind": "Node", "name": which[0]}})
    return sorted(events, key=lambda event: float(event["at"][:-2]))


def random_weather(dice: random.Random, first_s: float, last_s: float) -> list[Hand]:
    """What makes it hard to watch: gaps of watches, a daemon that stands still or is started anew,
    another leader."""
    hands: list[Hand] = []
    for _ in range(dice.randint(0, 3)):
        what = dice.choice((cut, cut, hold_up, start_anew, hang, lead))
        hands.append((dice.uniform(first_s, last_s), what))
    return hands


def cut(stage: Stage) -> None:
    gap_ns = round(stage.dice.uniform(0.5, 20) * SECOND_NS)
    for kind in stage.dice.sample(KINDS, stage.dice.randint(1, 3)):
        stage.daemons[-1].feed.break_off(kind, gap_ns, relist=stage.dice.random() < 0.5)


def hang(stage: Stage) -> None:
    """A watch says nothing for a moment."""
    gap_ns = round(stage.dice.uniform(0.2, 1.5) * SECOND_NS)
    stage.daemons[-1].feed.hang(stage.dice.choice(KINDS), gap_ns)


def hold_up(stage: Stage) -> None:
    world, dice = stage.server.world, stage.dice
    world.stand_still(round(dice.uniform(1, 15) * SECOND_NS), suspended=dice.random() < 0.5)


def start_anew(stage: Stage) -> None:
    """The daemon is killed, and another begins."""
    old = stage.daemons[-1]
    old.feed.dead = True
    for task in old.tasks:
        task.cancel()
    settings = old.decisions.settings
    stage.daemons.append(Watcher(stage.server, settings, stage.dice))


def lead(stage: Stage) -> None:
    """The manager is replaced by another; where its Lease cannot be read nobody could know."""
    server = stage.server
    if server.stopped_ns or server.lease != "held":
        return
    server.stop_manager()
    later_ns = server.world.now_ns + round(stage.dice.uniform(0.2, 2) * SECOND_NS)
    server.world.at(later_ns, partial(server.start_manager, f"cm-{later_ns % 1000}"))


def honest_story(seed: int, *, calm: bool) -> Story:
    dice = random.Random(f"honest {seed}")
    made, nodes = random_cluster(dice)
    flags = random_flags(dice)
    begins_s = dice.uniform(0, 6)
    first_s = begins_s + 10 + make_settings(PROFILE, flags).node_monitor_grace_period_ns / SECOND_NS
    events = random_outages(dice, nodes, first_s if calm else begins_s, first_s + 120)
    hands = [] if calm else random_weather(dice, first_s, first_s + 200)
    lease = dice.choice(("held", "held", "absent", "forbidden"))
    spec = {"generate": made, "events": events}
    return Story(spec, flags, 300, hands=hands, lease=lease, begins_s=begins_s)


def accusations(looks: list[Look]) -> list[str]:
    """What is said of controllers that do as they should."""
    return [
        f"{look.at_s:.0f} s: {item['kind']} {item['message']}"
        for look in looks
        for item in look.told["items"]
        if not item["note"]
    ]


# --- planted misbehaviour -----------------------------------------------------------------------

UNREACHABLE = "node.kubernetes.io/unreachable"
JUDGED = ("node-lifecycle", "taint-eviction", "pod-gc")


class Write(NamedTuple):
    """A kind of write that may be withheld: who makes it, its word and what it says."""

    controller: str
    action: str
    what: str = ""

    def is_in(self, action: Action) -> bool:
        return action.controller == self.controller and any(
            word == self.action and (not self.what or said(word, detail) == self.what)
            for word, detail in action.records()
        )


def said(word: str, detail: Document) -> str:
    """The condition or taint of a record."""
    if "Taint" in word:
        return f"{detail['key']}:{detail['effect']}"
    return f"{detail['type']}={detail['status']}" if "type" in detail else ""


WITHHELD = (
    Write("node-lifecycle", "SetNodeCondition", "Ready=Unknown"),
    Write("node-lifecycle", "AddTaint", f"{UNREACHABLE}:NoSchedule"),
    Write("node-lifecycle", "AddTaint", f"{UNREACHABLE}:NoExecute"),
    Write("node-lifecycle", "MarkPodNotReady"),
    Write("taint-eviction", "DeletePod"),
    Write("node-lifecycle", "RemoveTaint", f"{UNREACHABLE}:NoSchedule"),
    Write("node-lifecycle", "RemoveTaint", f"{UNREACHABLE}:NoExecute"),
    Write("pod-gc", "DeletePod"),
)


GC_S = 40.0
"""By so much two copies of pod-gc may differ: it runs every 20 s, and whether a node's quarantine
of 40 s is over in the second run or in the third is decided by milliseconds."""


class Plant(NamedTuple):
    """A story in which one kind of write to one node, or to its pods, fails for a while.

    `attempts`: the objects whose write failed -> when it was first tried, seconds: it was due then;
    `uids`: theirs.
    """

    story: Story
    write: Write
    node: str
    attempts: dict[str, float]
    uids: dict[str, str]

    @property
    def period_s(self) -> float:
        return make_settings(PROFILE, self.story.flags).node_monitor_period_ns / SECOND_NS

    @property
    def token_s(self) -> float:
        rate = float(self.story.flags["node-eviction-rate"])
        return 1 / rate if self.write.what.endswith("NoExecute") else 0.0


def silent(node: str, at_s: float, word: str = "stop") -> Document:
    return {"at": at(at_s), "kubelet": {"nodes": [node], "heartbeats": word}}


def withheld(seed: int, write: Write, lasts_s: float | None) -> Plant:
    """One node's writes of a kind fail, for ever or until so long after its kubelet fell silent."""
    dice = random.Random(f"withheld {seed} {write}")
    made, nodes = random_cluster(dice)
    made["tolerationSeconds"] = dice.choice((0, 5, 30))
    flags = random_flags(dice)
    grace_s = make_settings(PROFILE, flags).node_monitor_grace_period_ns / SECOND_NS
    begins_s = dice.uniform(0, 6)
    silent_s = begins_s + 15 + grace_s + dice.uniform(0, 20)
    node, other = dice.sample(nodes, 2)
    events = [silent(node, silent_s)]
    if dice.random() < 0.5 and made["nodesPerZone"] > 4:  # another is lost, and no zone is braked
        events.append(silent(other, silent_s + dice.uniform(5, 60)))
    if write.action == "RemoveTaint":
        events.append(silent(node, silent_s + grace_s + 40, "start"))
    if write.controller == "pod-gc":
        gone = {"kind": "Node", "name": node}
        events.append({"at": at(silent_s), "delete": gone})
    until_s = float("inf") if lasts_s is None else silent_s + lasts_s
    attempts: dict[str, float] = {}
    uids: dict[str, str] = {}

    def withhold(stage: Stage) -> None:
        store = stage.server.cluster.api.store
        names = {node, *(pod.name for pod in store.pods_on(node))}

        def fails(action: Action, now_ns: int) -> bool:
            name, now_s = action.target[1][1], (now_ns - EPOCH_NS) / SECOND_NS
            if name not in names or now_s >= until_s or not write.is_in(action):
                return False
            attempts.setdefault(name, now_s)
            uids.setdefault(name, action.uid)
            return True

        stage.server.withheld.append(fails)

    spec = {"generate": made, "events": sorted(events, key=lambda e: float(e["at"][:-2]))}
    hands = [(silent_s - 1, withhold)]
    story = Story(spec, flags, 260, hands=hands, begins_s=begins_s)
    return Plant(story, write, node, attempts, uids)


# --- a naive reader -----------------------------------------------------------------------------


def seconds_of(time: str) -> float:
    """An instant of the document, in seconds of the play."""
    return (int(parse_time(time)) - EPOCH_NS) / SECOND_NS


def lasted(text: str) -> float:
    """Seconds of a duration such as 1m5s."""
    parts = re.findall(r"([\d.]+)(h|m(?!s)|s|ms)", text)
    return sum(float(n) * {"h": 3600, "m": 60, "s": 1, "ms": 0.001}[unit] for n, unit in parts)


def writes_of(played: Played, until_s: float) -> int:
    """How many writes the judged controllers have made so far; each deletes a pod but once."""
    made, deleted = 0, set()
    for at_s, action in played.server.writes:
        if action.controller not in JUDGED or at_s > until_s:
            continue
        words = {word for word, _ in action.records()} - {"RecordEvent"}
        if "DeletePod" in words:
            deleted.add((action.controller, action.uid))
            words -= {"DeletePod"}
        made += bool(words)
    return made + len(deleted)


def last_write(played: Played, until_s: float, *controllers: str) -> float:
    times = (t for t, a in played.server.writes if t <= until_s and a.controller in controllers)
    return max(times, default=0.0)


def lies_of_silence(played: Played, look: Look, period_s: float) -> list[str]:
    """Who is said to have written nothing, and has."""
    lies = []
    for item in look.told["items"]:
        if item["kind"] not in ("stalled", "disabled") or "expectedTime" not in item:
            continue
        names = JUDGED if item["kind"] == "stalled" else (item["controller"],)
        wrote_s = last_write(played, look.at_s - 1, *names)
        if wrote_s >= seconds_of(item["expectedTime"]) - period_s:
            lies.append(f"{look.at_s:.0f} s: {item['message']}, and it wrote at {wrote_s:.1f} s")
    return lies


def lies_of_plant(plant: Plant, played: Played) -> list[str]:
    """What is said of withheld writes and is not so, and what is not said though it is."""
    return [
        lie
        for look in played.looks
        for lie in (
            *lies_of_silence(played, look, plant.period_s),
            *lies_of_findings(plant, played, look),
            *lies_of_omission(plant, played, look),
        )
    ]


def came(plant: Plant, played: Played, name: str) -> float | None:
    """When a write that had failed was made after all."""
    return next(
        (
            at_s
            for at_s, action in played.server.writes
            if action.target[1][1] == name and plant.write.is_in(action)
        ),
        None,
    )


def lies_of_findings(plant: Plant, played: Played, look: Look) -> list[str]:
    lies = []
    for item in look.told["items"]:
        kind, where = item["kind"], f"{look.at_s:.0f} s: {item['message']}"
        if item["note"] or kind == "disabled":
            continue
        name = item["object"]["name"]
        if kind == "settings" and plant.write.action == "SetNodeCondition":
            # one loss that came late may be the sign of a longer grace period: it is `possible`
            if (name, item["sure"]) != ("node-monitor-grace-period", "possible"):
                lies.append(where)
            continue
        is_it = (item["controller"], item["action"]) == plant.write[:2] and kind in LAGS
        if not is_it or item["node"] != plant.node or name not in plant.attempts:
            lies.append(f"{where}, and withheld is {plant.write} of {plant.attempts}")
            continue
        due_s, came_s = plant.attempts[name], came(plant, played, name)
        if item["detail" if plant.write.what else "kind"] not in (plant.write.what, *LAGS):
            lies.append(where)
        is_open = came_s is None or came_s > look.at_s
        if is_open != (kind == "missing") and abs((came_s or 0) - look.at_s) > 1:
            lies.append(f"{where}, and it came at {came_s}")
        ends_s = look.at_s if kind == "missing" else came_s or 0.0
        words = re.search(r"(?:is due for|came) (\S+)", item["message"])
        lag_s = lasted(words[1]) if words is not None else -1.0
        period_s = GC_S if plant.write.controller == "pod-gc" else plant.period_s
        slack_s = period_s + plant.token_s + 0.01 * ends_s + 1
        if abs(ends_s - due_s - lag_s) > slack_s:
            lies.append(f"{where}, and it is due since {due_s:.1f} s")
    return lies


def allowed_s(plant: Plant) -> float:
    """So long after it was due a write that has not come must be named (docs/diverge.md): a period,
    1 % of what was waited for, 3 s, a token, 60 s for pod-gc; and a period by which ours is later,
    of pod-gc's two runs of 20 s."""
    more_s = 100.0 if plant.write.controller == "pod-gc" else 0.0
    return 2 * plant.period_s + 1.5 + 3 + 1 + plant.token_s + more_s


def lies_of_omission(plant: Plant, played: Played, look: Look) -> list[str]:
    """What must have been said by now. Marks are left out: where the controller's pass came before
    our copy's, the node is Unknown when ours looks, which then marks nothing."""
    if plant.write.action == "MarkPodNotReady":
        return []
    due = {n: s for n, s in plant.attempts.items() if look.at_s > s + allowed_s(plant)}
    due = {n: s for n, s in due.items() if plant.uids[n] in look.there}
    still = {n for n in due if (at_s := came(plant, played, n)) is None or at_s > look.at_s}
    told = sum(
        item["count"]
        for item in look.told["items"]
        if item["kind"] == "missing" and item.get("action") == plant.write.action
    )
    if look.told["verdict"] != "not-evaluated" and told < len(still):
        return [f"{look.at_s:.0f} s: {told} are missing, and withheld are {still}"]
    return []


LAGS = ("missing", "late")


def lies_of_honest(seed: int, *, calm: bool) -> list[str]:
    """What is said of controllers that do as they should: nothing, but how much they wrote."""
    played = watched(honest_story(seed, calm=calm), seed)
    lies = accusations(played.looks)
    if calm:
        last = played.looks[-1]
        made, told = writes_of(played, last.at_s), last.told["writes"]
        if told != {"onTime": made, "open": 0}:
            lies.append(f"{told}, and {made} were made")
    return lies


def test_controllers_that_do_as_they_should_are_not_accused(seeds: range) -> None:
    """Where it is hard to watch, too: of every other seed."""
    for seed in seeds:
        assert lies_of_honest(seed, calm=seed % 2 == 0) == [], seed


def test_a_write_that_is_withheld_is_named_and_nothing_else(seeds: range) -> None:
    for seed in seeds:
        write, lasts_s = WITHHELD[seed % len(WITHHELD)], (None, 100.0)[seed // len(WITHHELD) % 2]
        plant = withheld(seed, write, lasts_s)
        assert lies_of_plant(plant, watched(plant.story, seed)) == [], seed


def test_a_lie_about_withheld_writes_is_caught() -> None:
    caught = set()
    for seed in (0, 1, 8):
        write, lasts_s = WITHHELD[seed % len(WITHHELD)], (None, 100.0)[seed // len(WITHHELD) % 2]
        plant = withheld(seed, write, lasts_s)
        played = watched(plant.story, seed)
        for look in played.looks:
            told = look.told["items"]
            for name, items in (("nothing", []), *((lie, lied(told, lie)) for lie in LIES)):
                lied_look = look._replace(told={**look.told, "items": items})
                if items != told and lies_of_plant(plant, played._replace(looks=[lied_look])):
                    caught.add(name)
    assert caught == {"nothing", *LIES}


LIES = ("another node", "another time", "another write", "another kind", "all is silent")


def lied(items: list[Document], lie: str) -> list[Document]:
    """The findings with one lie in each."""
    changed: list[Document] = []
    for item in items:
        match lie:
            case "another node":
                changed.append({**item, "node": "nobody"})
            case "another time":
                longer = re.sub(r"(due for|came) ", r"\1 9m", item["message"])
                changed.append({**item, "message": longer})
            case "another write":
                changed.append({**item, "action": "SetNodeLabel"})
            case "another kind":
                other = {"missing": "late", "late": "missing"}.get(item["kind"], item["kind"])
                changed.append({**item, "kind": other})
            case "all is silent":
                more = {"kind": "stalled", "message": "no write", "node": "", "controller": ""}
                since = {"expectedTime": "2026-01-01T00:00:20Z", "action": ""}
                changed += [item, {**item, **more, **since}]
    return changed
