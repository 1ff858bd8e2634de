"""Holds the cause that `diverge` names against what is wrong with the whole of a manager: it has
another flag than the daemon assumes, one of its controllers is off, or it is stopped, and perhaps
replaced. Kubelets fall silent and come back meanwhile; the Lease is held, absent or forbidden.

Nothing else may be named, no number may be more than was, what is missing must be named in time,
and stays so when it is due no more.
"""

import random
import re
from typing import Any, NamedTuple

import pytest

from kubectl_nodelife.engine.settings import make_settings
from kubectl_nodelife.kube.times import SECOND_NS, parse_duration
from tests.claims.test_divergence import (
    PROFILE,
    last_write,
    lasted,
    random_cluster,
    random_flags,
    random_outages,
    seconds_of,
    silent,
)
from tests.claims.watched_cluster import Look, Played, Story, watched
from tests.metrics.played import ALL

Document = dict[str, Any]
JUDGED = ("node-lifecycle", "taint-eviction", "pod-gc")
FLAGS = ("node-monitor-grace-period", "node-monitor-period", "node-eviction-rate")
FOR_EVER = float("inf")
SOON_S = 30.0
"""A Lease of 15 s, and a second, has run out, and was looked at by then."""


class Wrong(NamedTuple):
    """What is wrong: a `flag` is another, a controller is `off`, or the manager is stopped from
    when until when, seconds."""

    story: Story
    flag: str = ""
    off: str = ""
    stopped_s: float = FOR_EVER
    again_s: float = FOR_EVER

    @property
    def real(self) -> float:
        """The flag's value, as the document has it: seconds, or a number a second."""
        text = (self.story.real_flags or {})[self.flag]
        return float(text) if self.flag.endswith("rate") else parse_duration(text) / SECOND_NS

    def patience_s(self) -> float:
        grace_ns = make_settings(PROFILE, self.story.flags).node_monitor_grace_period_ns
        return max(grace_ns / SECOND_NS, 50.0)


def wrong(seed: int) -> Wrong:
    """What is wrong in the cluster of that seed."""
    dice = random.Random(f"wrong {seed}")
    made, nodes = random_cluster(dice)
    made["tolerationSeconds"] = dice.choice((0, 5, 30, 60))
    flags, begins_s = random_flags(dice), dice.uniform(0, 6)
    first_s = begins_s + 15 + make_settings(PROFILE, flags).node_monitor_grace_period_ns / SECOND_NS
    events = random_outages(dice, nodes, first_s, first_s + 60)
    for node in dice.sample(nodes, min(3, len(nodes) - 1)):
        at_s = first_s + dice.uniform(0, 120)
        events += [silent(node, at_s), *[silent(node, at_s + 90, "start")] * (dice.random() < 0.4)]
    events.sort(key=lambda event: float(event["at"][:-2]))
    lease = dice.choice(("held", "held", "absent", "forbidden"))
    spec = {"generate": made, "events": events}
    story = Story(spec, flags, 300, lease=lease, begins_s=begins_s)
    match seed % 3:
        case 0:
            flag, real = dice.choice(FLAGS), dict(flags)
            while real[flag] == flags[flag]:
                real[flag] = random_flags(dice)[flag]
            return Wrong(story._replace(real_flags=real), flag=flag)
        case 1:
            off = dice.choice(JUDGED)
            return Wrong(story._replace(controllers=[c for c in ALL if c != off]), off=off)
    stopped_s = first_s + dice.uniform(0, 80)
    again_s = stopped_s + dice.uniform(1, 90) if dice.random() < 0.5 else FOR_EVER
    hands = [(stopped_s, lambda stage: stage.server.stop_manager())]
    if again_s < FOR_EVER:
        hands.append((again_s, lambda stage: stage.server.start_manager("cm-2")))
    return Wrong(story._replace(hands=hands), stopped_s=stopped_s, again_s=again_s)


def lies_of_causes(wrong: Wrong, played: Played) -> list[str]:
    """What is said and is not so, and what is not said though it is."""
    lies = []
    for look in played.looks:
        items = look.told["items"]
        for item in items:
            if not item["note"] and (why := lie_of(item, wrong, played, look)):
                lies.append(f"{look.at_s:.0f} s: {item['kind']} {item['message']}: {why}")
        lies += [f"{look.at_s:.0f} s: {lie}" for lie in omissions(items, wrong, look)]
    missing = False
    for look in played.looks:
        kinds = {item["kind"] for item in look.told["items"]}
        missing = "restarted" not in kinds and (missing or "missing" in kinds)
        if missing and look.told["verdict"] == "agrees":
            lies.append(f"{look.at_s:.0f} s: what was missing is forgotten")
    return lies


def lie_of(item: Document, wrong: Wrong, played: Played, look: Look) -> str:
    """Why the finding is not so, or nothing."""
    match item["kind"]:
        case "settings":
            told = next(s for s in look.told["settings"] if s["flag"] == item["object"]["name"])
            if told["flag"] != wrong.flag:
                return f"other is {wrong.flag or 'no flag'}" if told["sure"] != "possible" else ""
            certain = told["sure"] == "certain" and value(told["likely"]) != wrong.real
            within = told["low"] <= wrong.real <= told["high"]
            return "" if within and not certain else f"it is {wrong.real:g}"
        case "stalled":
            wrote_s = last_write(played, look.at_s - 1, *JUDGED)
            for_s = re.search(r"no write for (\S+)", item["message"])
            if for_s is not None and lasted(for_s[1]) > look.at_s - wrote_s + 1.5:
                return f"the last was at {wrote_s:.1f} s"
            if wrong.off and f"or {wrong.off} alone is disabled" in item["message"]:
                return ""
            is_seen = wrong.story.lease == "held"  # else nobody sees that another leads
            ends_s = wrong.again_s + SOON_S if is_seen else FOR_EVER
            is_stopped = wrong.stopped_s < look.at_s < ends_s
            return "" if is_stopped else "it runs"
        case "disabled":
            return "" if item["object"]["name"] == wrong.off else "it runs"
        case "missing" | "late":
            if wrong.off:
                return "" if item["controller"] == wrong.off else "it writes"
            if wrong.flag:
                return ""
            return "" if look.at_s > wrong.stopped_s else "nothing is wrong yet"
    return "nobody did that"


def value(text: str) -> float:
    return lasted(text) if text[-1].isalpha() else float(text)


def omissions(items: list[Document], wrong: Wrong, look: Look) -> list[str]:
    """What must have been said by now."""
    if look.told["verdict"] == "not-evaluated":
        return []
    kinds = {item["kind"] for item in items}
    lies = []
    is_held = wrong.story.lease == "held"
    if is_held and wrong.stopped_s + SOON_S < look.at_s < wrong.again_s and "stalled" not in kinds:
        lies.append("nobody is said to be stopped")
    if is_held and look.at_s > wrong.again_s + SOON_S:
        led = [item.get("detail") for item in items if item["kind"] == "restarted"]
        lies += [f"leaders are {led}"] if led != ["cm-2"] else []
    waits = [
        look.at_s - seconds_of(item["expectedTime"])
        for item in items
        if item["kind"] == "missing" and "has not come" in item["message"]
    ]
    allowed_s = wrong.patience_s() + (70 if wrong.off == "pod-gc" else 5)
    if wrong.off and max(waits, default=0) > allowed_s and not kinds & {"disabled", "stalled"}:
        lies.append(f"{wrong.off} is off, and nobody says so")
    return lies


def test_the_cause_that_is_named_is_the_right_one(seeds: range) -> None:
    for seed in seeds:
        case = wrong(seed)
        assert lies_of_causes(case, watched(case.story, seed)) == [], seed


SEEDS = (
    # Its Lease is not there, and what was due next was due seconds after its last write.
    pytest.param(737, id="a stopped manager is not said to have one controller disabled"),
    # Nothing shows whether they are at work since, so it is the manager or this one alone.
    pytest.param(46, id="a controller is missed though others wrote right before it was due"),
    # The DaemonSet controller deletes its pod for the same taint, a moment later.
    pytest.param(763, id="a DaemonSet's pod that goes is no sign of taint eviction"),
    pytest.param(613, id="nor is it where the Lease gives no answer"),
)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_cause_that_was_wrong_once_is_right(seed: int) -> None:
    case = wrong(seed)
    assert lies_of_causes(case, watched(case.story, seed)) == []


LIES = (
    ("flags", "settings", {"object": {"name": "node-startup-grace-period"}}),
    ("flags", "missing", {"kind": "disabled", "object": {"name": "pod-gc"}}),
    ("off", "disabled", {"object": {"name": "garbage-collector"}}),
    ("off", "missing", {"controller": "daemonset"}),
    ("off", "disabled", None),
    ("stopped", "stalled", {"message": "kube-controller-manager has made no write for 1h"}),
    ("stopped", "stalled", {"kind": "disabled", "object": {"name": "node-lifecycle"}}),
    ("stopped", "restarted", {"detail": "cm-3"}),
)


def test_a_lie_about_a_cause_is_caught() -> None:
    caught = set()
    for seed in range(12):
        case = wrong(seed)
        played = watched(case.story, seed)
        for lie in LIES:
            if lie[0] == ("flags", "off", "stopped")[seed % 3] and lied(case, played, lie):
                caught.add(LIES.index(lie))
    assert caught == set(range(len(LIES)))


def lied(wrong: Wrong, played: Played, lie: tuple[str, str, Document | None]) -> list[str]:
    """What is found where each finding of that kind has a lie in it, or is left out."""
    looks = []
    for look in played.looks:
        items = [
            item if item["kind"] != lie[1] else {**item, **(lie[2] or {})}
            for item in look.told["items"]
            if item["kind"] != lie[1] or lie[2] is not None
        ]
        settings = [{**each, "flag": "node-startup-grace-period"} for each in look.told["settings"]]
        told = {**look.told, "items": items, "settings": [*look.told["settings"], *settings]}
        looks.append(look._replace(told=told))
    return lies_of_causes(wrong, played._replace(looks=looks))
