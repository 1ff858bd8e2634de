"""What the daemon foretells of a zone whose nodes fall silent, held against its own controllers."""

from functools import partial
from pathlib import Path
from typing import Any

from kubectl_nodelife.commands.answering import status
from kubectl_nodelife.daemon.forked_answers import Foreteller
from kubectl_nodelife.daemon.metrics.cluster_sample import sample_steps
from kubectl_nodelife.daemon.notices import cluster_conditions
from kubectl_nodelife.outlook.eviction_forecast import Range
from kubectl_nodelife.outlook.live_wall import LiveWall
from kubectl_nodelife.outlook.view import ClusterView
from kubectl_nodelife.outlook.zone import zones
from tests.daemon.lab import SECOND, T0, Lab, lease, make_lab, node

DARK = [f"a{number}" for number in range(12)]
LIT = ["b1", "b2", "b3"]


def foreteller_of(lab: Lab) -> tuple[Foreteller, Any]:
    """A foreteller, and what looks at the cluster with what it foretold."""
    sources = lab.sources._replace(foretold=lambda: foreteller.foretold)
    foreteller = Foreteller(sources.view)
    return foreteller, sources.view


silent_node = partial(node, posted_ns=-20 * SECOND)
silent_lease = partial(lease, renewed_ns=-20 * SECOND)


def unknown_in(view: ClusterView, name: str) -> Range | None:
    return view.outlook.node(view.outlook.cache.nodes[name]).unknown_in


async def twelve_fall_silent(lab: Lab, seconds: float) -> None:
    """Zone a renewed its Leases last so many seconds ago; the daemon has watched for a minute."""
    nodes = [*(node(name) for name in DARK), *(node(name, zone="b") for name in LIT)]
    await lab.begin(*nodes, *map(lease, [*DARK, *LIT]))
    await lab.after(60, *DARK, *LIT)
    await lab.after(seconds, *LIT)


async def test_a_dark_zone_is_foretold_and_becomes_so(tmp_path: Path) -> None:
    lab = make_lab(tmp_path)
    await twelve_fall_silent(lab, 20)
    foreteller, looked = foreteller_of(lab)
    await foreteller.take()
    (zone, _) = status.finished(status.steps(looked(), {})).document()["zones"]
    (coming,) = zone["foretold"]
    assert (zone["silent"], coming["state"], coming["rate"]) == (12, "FullDisruption", 0.1)
    began = lab.now
    memory = lab.decisions.host.lifecycle.memory  # type: ignore[union-attr]
    while memory.zones.states[":\0:a"] == "Normal":
        await lab.after(1, *LIT)
    waited = (lab.now - began) / SECOND
    assert coming["earliestSeconds"] <= waited <= coming["latestSeconds"] + 1
    (zone, _) = status.finished(status.steps(looked(), {})).document()["zones"]
    assert zone["state"] == "FullDisruption" and "foretold" not in zone, "it has come"


async def test_a_daemon_that_has_just_begun_foretells_as_a_first_look(tmp_path: Path) -> None:
    """Who starts one in an outage reads no less than without it; but nothing is foretold where
    silence counts from an instant of its own, which the cluster's controllers do not know of."""
    lab = make_lab(tmp_path)
    silent = [make(name) for name in DARK for make in (silent_node, silent_lease)]
    await lab.begin(*silent, *(node(name, zone="b") for name in LIT), *map(lease, LIT))
    foreteller, looked = foreteller_of(lab)
    await foreteller.take()
    assert looked().source["cold"]
    (zone, _) = status.finished(status.steps(looked(), {})).document()["zones"]
    (coming,) = zone["foretold"]
    assert (zone["silent"], coming["state"]) == (12, "FullDisruption")
    assert unknown_in(looked(), "a0") == Range(30 * SECOND, 35 * SECOND)
    lab.decisions._watch_afresh("nothing was seen for 30s")
    assert looked().source["cold"]
    await foreteller.take()
    assert foreteller.foretold is None
    assert unknown_in(looked(), "a0") == Range(50 * SECOND, 55 * SECOND)


async def test_nodes_that_the_manager_called_lost_since_our_last_pass_count(tmp_path: Path) -> None:
    lab = make_lab(tmp_path)
    await twelve_fall_silent(lab, 39)
    await lab.see(*(node(name, "Unknown", posted_ns=60 * SECOND) for name in DARK))
    foreteller, looked = foreteller_of(lab)
    await foreteller.take()
    (zone, _) = status.finished(status.steps(looked(), {})).document()["zones"]
    assert (zone["state"], zone["notReady"]) == ("Normal", 12)
    (of_zone, _) = zones(looked().outlook)
    assert of_zone.why == "12 of 12 not ready, which the next monitor pass takes into account"
    (coming,) = zone["foretold"]
    assert (coming["state"], coming["earliestSeconds"]) == ("FullDisruption", 0)
    await lab.after(coming["latestSeconds"] + 1, *LIT)
    (zone, _) = status.finished(status.steps(looked(), {})).document()["zones"]
    assert zone["state"] == "FullDisruption"


async def test_page_and_notice_say_it_with_the_time_of_day(tmp_path: Path) -> None:
    lab = make_lab(tmp_path)
    await twelve_fall_silent(lab, 20)
    foreteller, looked = foreteller_of(lab)
    await foreteller.take()
    frame = status.finished(LiveWall().steps(looked()))  # type: ignore[arg-type]
    (dark, lit) = frame.zones  # type: ignore[attr-defined]
    assert dark.brake.startswith("12 of 12 silent: FullDisruption (0.1/s) at 00:01:")
    assert lit.brake.startswith("losing")
    await lab.after(2, *LIT)
    later = status.finished(LiveWall().steps(looked()))  # type: ignore[arg-type]
    assert later.zones[0].brake == dark.brake  # type: ignore[attr-defined]
    sample = status.finished(sample_steps(looked(), per_node=False))  # type: ignore[arg-type]
    told = cluster_conditions(sample)  # type: ignore[arg-type]
    assert not any(key.startswith("zoneWillStop") for key in told)  # a dark one goes on


async def test_it_plays_when_something_changed_and_forgets_when_all_report(tmp_path: Path) -> None:
    lab = make_lab(tmp_path)
    await twelve_fall_silent(lab, 10)
    foreteller, _ = foreteller_of(lab)
    await foreteller.take()
    assert (foreteller.plays, foreteller.foretold) == (0, None)  # nobody is late yet
    await lab.after(10, *LIT)
    for _ in range(3):
        await foreteller.take()
        await lab.after(1, *LIT)
    assert foreteller.plays == 1 and foreteller.foretold is not None
    await lab.see(*(lease(name, lab.now - T0) for name in DARK[:3]))
    await foreteller.take()
    assert foreteller.plays == 2
    assert foreteller.foretold.zones[":\0:a"].silent == 9
    await lab.see(*(lease(name, lab.now - T0) for name in DARK[3:]))
    await foreteller.take()
    assert (foreteller.plays, foreteller.foretold) == (2, None)
