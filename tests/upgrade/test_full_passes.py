"""A pass that looks at what may have changed decides what a pass over all nodes decides.

The judge is the same controller that forgets before each pass what it saw of the nodes, and zones
that are counted from nothing; runs with seeded faults are played with both: a few seeds, eighty on
CI, or what `--seeds` asks for.
"""

from collections.abc import Collection

import pytest

from kubectl_nodelife.controllers.nodelifecycle.zones import compute_zone_state
from kubectl_nodelife.controllers.upgrade import fleet
from kubectl_nodelife.controllers.upgrade.document import RunDocument
from kubectl_nodelife.engine.cache import Cache
from kubectl_nodelife.kube.node import Lease, zone_key
from tests.upgrade.fault_plan import plan_of
from tests.upgrade.simulation import Fleet


def decisions(seed: int) -> list[str]:
    fleet = Fleet(plan_of(seed))
    fleet.play()
    return [f"{at_ns} {action}" for at_ns, action in fleet.timeline.entries]


def look_at_all(monkeypatch: pytest.MonkeyPatch) -> None:
    look = fleet.Fleet.look

    def look_anew(
        nodes: fleet.Fleet,
        cache: Cache,
        lease: Lease,
        document: RunDocument,
        now_ns: int,
        changed: Collection[str] | None,
    ) -> None:
        nodes.forget()
        look(nodes, cache, lease, document, now_ns, None)

    monkeypatch.setattr(fleet.Fleet, "look", look_anew)
    monkeypatch.setattr(fleet.Fleet, "zone_states", states_of_all)


def states_of_all(of: fleet.Fleet) -> dict[str, str]:
    """The zones by one count over all nodes."""
    counts: dict[str, list[int]] = {}
    for node in of.cache.nodes.values():
        if of.ports.counts_in_zone(node):
            ready = node.ready()
            is_ready = ready is not None and ready.status == "True"
            counts.setdefault(zone_key(node.metadata.labels), [0, 0])[not is_ready] += 1
    return {zone: compute_zone_state(up, down, 0.55) for zone, (up, down) in counts.items()}


def test_both_decide_the_same(seeds: range, monkeypatch: pytest.MonkeyPatch) -> None:
    found = {seed: decisions(seed) for seed in seeds}
    look_at_all(monkeypatch)
    for seed in seeds:
        assert decisions(seed) == found[seed], f"seed {seed}: {plan_of(seed)}"
    assert any("ClaimNode" in entry for entry in found[seeds.start])
