"""Holds `diverge -f` against a random cluster of which only the dump is read, long after what
happened: controllers that do as they should are not accused, and one that is off, or another flag,
is named and nothing else."""

import json
import random
import re
from pathlib import Path
from typing import Any

from kubectl_nodelife.kube.times import format_micro_time
from tests.claims.test_divergence import random_cluster, random_flags, random_outages, silent
from tests.claims.test_divergence_causes import FLAGS, JUDGED, PROFILE, Wrong
from tests.claims.test_what_if import run
from tests.claims.watched_cluster import Managed, Story, watched
from tests.metrics.played import ALL
from tests.objects import VERSIONS, write_list

Document = dict[str, Any]
DUMPED = ("Node", "Pod", "Lease", "ReplicaSet", "DaemonSet")


def story_of(seed: int) -> Wrong:
    """Nothing is wrong, a controller is off, or a flag is another."""
    dice = random.Random(f"dump {seed}")
    made, nodes = random_cluster(dice)
    made["tolerationSeconds"] = dice.choice((0, 5, 30, 60))
    flags, first_s = random_flags(dice), 70
    events = random_outages(dice, nodes, first_s, first_s + 60)
    for node in dice.sample(nodes, min(3, len(nodes) - 1)):
        events.append(silent(node, first_s + dice.uniform(0, 120)))
    events.sort(key=lambda event: float(event["at"][:-2]))
    spec = {"generate": made, "events": events}
    story = Story(spec, flags, 5, begins_s=dice.uniform(520, 660))
    if seed % 4 == 3:
        off = dice.choice(JUDGED)
        return Wrong(story._replace(controllers=[c for c in ALL if c != off]), off=off)
    if seed % 4 == 2:
        flag, real = dice.choice(FLAGS), dict(flags)
        while real[flag] == flags[flag]:
            real[flag] = random_flags(dice)[flag]
        return Wrong(story._replace(real_flags=real), flag=flag)
    return Wrong(story)


def dump_of(server: Managed) -> list[Document]:
    """All objects as `kubectl get` shows them."""
    items = [
        {**entry.document(), "kind": kind, "apiVersion": VERSIONS[kind]}
        for kind in DUMPED
        for entry in server._entries(kind)
    ]
    (lease,) = json.loads(server.leases())["items"]
    lease["metadata"] |= {"namespace": "kube-system", "uid": "kcm"}
    return [*items, {**lease, "kind": "Lease", "apiVersion": VERSIONS["Lease"]}]


def asked(folder: Path, wrong: Wrong, seed: int) -> Document | None:
    """What `diverge` says of its dump; None where no node is left, of which it says nothing."""
    server = watched(wrong.story, seed).server
    if not server._entries("Node"):
        return None
    path = write_list(folder / "dump.json", dump_of(server))
    given = [word for each in wrong.story.flags.items() for word in ("--set", "=".join(each))]
    now = format_micro_time(server.world.now_ns)
    words = ("-f", path, "--now", now, "--profile", PROFILE, "-o", "json")
    document: Document = json.loads(run("diverge", *words, *given)[1])
    return document


def lies_of_dump(wrong: Wrong, told: Document) -> list[str]:
    """What is said and is not so."""
    lies = []
    for item in told["items"]:
        about = item["object"]["name"] if item["kind"] != "missing" else item["controller"]
        is_so = item["note"] or (wrong.off == about and item["kind"] in ("disabled", "missing"))
        if wrong.flag == "node-eviction-rate":  # by the rate that is assumed it is due
            is_so |= item["kind"] == "missing" and item["action"] == "AddTaint"
        if not is_so and not (wrong.flag and item["kind"] == "settings" and about == wrong.flag):
            lies.append(f"{item['kind']} {item['message']}")
    if told["verdict"] == "agrees" and not re.search(r"runs: cm-1 renews", told["because"]):
        lies.append(told["because"])
    return lies


def test_what_a_dump_shows_is_so(tmp_path: Path, seeds: range) -> None:
    for seed in range(2 * seeds.start, 2 * seeds.stop):
        wrong = story_of(seed)
        told = asked(tmp_path, wrong, seed)
        assert told is None or lies_of_dump(wrong, told) == [], (seed, wrong.off, wrong.flag)


def test_an_accusation_of_an_honest_cluster_is_caught(tmp_path: Path) -> None:
    off = next(w for seed in range(3, 40, 4) if (w := story_of(seed)).off == "node-lifecycle")
    told = asked(tmp_path, off, 3)
    assert told is not None
    assert {item["kind"] for item in told["items"]} >= {"disabled", "missing"}
    assert lies_of_dump(off, told) == []
    assert len(lies_of_dump(off._replace(off=""), told)) == len(told["items"])
