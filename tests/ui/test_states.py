"""How the top of the page looks in eight states: peace, a silent node, a dark zone, the brake, pods
that are evicted, nodes that are back, a drain, and a cluster that is not seen.

Compared with kept pictures as all of the page is (`test_looks`), at three widths, light and dark.
"""

import asyncio
from collections.abc import Callable
from itertools import combinations
from typing import Any

import msgspec
import pytest

from kubectl_nodelife.outlook.fates import Coming, Lane
from kubectl_nodelife.outlook.live_wall import LiveFrame, LiveNode, WallZone
from kubectl_nodelife.outlook.node_verdict import WORST_FIRST, Option
from kubectl_nodelife.outlook.situation import Situation, blind
from tests.loopback import play
from tests.ui.browser import needs_chromium
from tests.ui.test_drawing import shown
from tests.ui.test_looks import DIFFERENT, all_pictured, far_from_kept, stand_still

pytestmark = needs_chromium

HEIGHTS = {360: 900, 1280: 640, 1920: 560}
WHY = Option("kubectl nodelife explain zone r1/a", "says why, and what follows when")
LOSE = Option("kubectl nodelife what-if lose zone r1/a", "plays what is lost if it stays away")
WHY_ONE = Option("kubectl nodelife explain node a1", "says why, and what follows when")
LOSE_ONE = Option("kubectl nodelife what-if lose node a1", "plays what is lost if it stays away")
HURTS = "60 pods of 9 workloads; shop/db has no pod on any other node; partly shop/web (2 of 3)"
DRAINED = "Node c1 is drained: cordoned; 2 pods left to evict, 1 pod is Terminating."
BACK = "a1, a2 are back: Kubernetes takes their taints off in its next pass."
OFF_AGAIN = "the NoExecute taints of 2 nodes are taken off"
LAST = "2 pods of 2 workloads; shop/db has no pod on any other node"
KEPT = "Nothing to do: while so many nodes there are not ready, no pod is deleted for it."
BY_ITSELF = "Nothing to do: Kubernetes takes the taints off by itself."
NOTHING = "Nothing comes by itself while things stay as they are."
NOBODY = "nobody more: pods that were not deleted yet stay"
OFF = "only once its machine is known to be off: its pods go"
OUT = "taint node a1 node.kubernetes.io/out-of-service=nodeshutdown:NoExecute"
BY_HAND = [
    Option(f"kubectl {OUT}", f"{OFF}, and their volumes are detached", OUT),
    Option("kubectl delete node a1", f"{OFF}, after a while", "delete node a1"),
]
WAITS = "Pods move by themselves at that time; a node that is back before keeps them."
TWO = "2 nodes of r1/a: a1, a2"
EIGHT = "8 nodes of r1/a: a1, a2 and 6 more"
HELD = "held: not while things stay as they are"
STUCK = "waits for pod shop/web-1: budget web can spare none"
NODES = [f"{zone}{number}" for zone in "abc" for number in range(1, 13)]


class Trouble(msgspec.Struct, frozen=True):
    """Nodes of zone r1/a, the first of NODES, or of another: how they are on the wall."""

    nodes: int
    state: str
    action: str = ""
    within: tuple[float, float] | None = None
    zone: str = "Normal"
    first: int = 0


IN_TROUBLE = {
    "silent": Trouble(12, "silent", "SetNodeCondition", (18, 22)),
    "dark": Trouble(12, "unreachable", "AddTaint", (4, 114), "FullDisruption"),
    "brake": Trouble(8, "unreachable", "AddTaint", None, "PartialDisruption"),
    "evicting": Trouble(1, "unreachable", "DeletePod shop/web-1", (3, 3)),
    "back": Trouble(2, "tainted", "RemoveTaint", (0, 5)),
    "drain": Trouble(1, "cordoned", first=24),
    "blind": Trouble(12, "unreachable", "AddTaint", (4, 114), "FullDisruption"),
}


def wall(now_s: float, state: str, situation: Situation) -> dict[str, Any]:
    """The snapshot of 36 nodes in that state."""
    of = IN_TROUBLE.get(state, Trouble(0, "healthy"))
    low_s, high_s = (now_s + at for at in of.within) if of.within else (None, None)
    rows = {}
    for place, name in enumerate(NODES):
        row = LiveNode(name, place // 12, WORST_FIRST.index("healthy"), 5, 0)
        if of.first <= place < of.first + of.nodes:
            word = WORST_FIRST.index(of.state)
            row = LiveNode(name, place // 12, word, 5, 5, of.action, low_s, high_s)
        rows[name] = row
    lost = of.nodes if of.state == "unreachable" else 0
    zones = [
        WallZone(
            name=f"r1/{zone}",
            state="Normal" if place else of.zone,
            nodes=12,
            not_ready=0 if place else lost,
            threshold=0.55,
            rate=0.0 if of.zone == "PartialDisruption" and not place else 0.1,
            queued=0 if place or of.action != "AddTaint" else lost,
            because="",
            brake="",
            silent=of.nodes if of.state == "silent" and not place else 0,
        )
        for place, zone in enumerate("abc")
    ]
    frame = LiveFrame(now_s, {"context": "prod"}, "v1.36", zones, rows, [], situation)
    return {**frame.snapshot(), "epochS": 0, "works": [], "changes": []}


def states(now_s: float) -> dict[str, Situation]:
    """Each state as the daemon tells it. `now_s`: by the stream's clock."""

    def within(says: str, low: float, high: float) -> Coming:
        return Coming(says, now_s + low, now_s + high)

    unknown, tainted = within("Unknown", 18, 22), within("tainted", 22, 142)
    leave = within("pods leave", 322, 442)
    web = Lane("Service shop/web", "3 → 1", None, [within("1 of 3 ready", 18, 22)])
    zone = "12 nodes of r1/a: a1, a2 and 10 more"
    dark = Situation(
        *("gone", "Zone r1/a is dark: 12 of 12 nodes are not ready.", now_s - 70),
        [within("the next of 11 nodes is tainted (which one is chance)", 4, 14)],
        *(HURTS, WAITS, [WHY, LOSE]),
        [Lane(zone, "unreachable", now_s - 70, [within("tainted", 4, 114), leave])],
        [Lane("Service shop/web", "3 → 1", None, [], "1 of 3 ready")],
    )
    return {
        "silent": Situation(
            *("worse", "Zone r1/a: 12 of 12 nodes are silent.", now_s - 28),
            [within("a1 becomes Unknown, the first of 12 nodes", 18, 22)],
            *(HURTS, "Nothing is lost if their kubelets report again before that.", [WHY, LOSE]),
            [Lane(zone, "silent", now_s - 28, [unknown, tainted, leave])],
            [web],
        ),
        "dark": dark,
        "brake": Situation(
            "gone",
            "Zone r1/a: 8 of 12 nodes are not ready, tainting is stopped there.",
            *(now_s - 90, [], HURTS),
            KEPT,
            [WHY],
            [Lane(EIGHT, "unreachable", now_s - 90, [], HELD)],
            uncoming=NOTHING,
        ),
        **quieter(now_s, within),
        "blind": blind("the API server does not answer", now_s - 33, dark),
    }


def quieter(now_s: float, within: Callable[..., Coming]) -> dict[str, Situation]:
    """Those in which no zone is in trouble."""
    return {
        "peace": Situation("peace", "None of 36 nodes is in trouble.", advice="Nothing to do."),
        "evicting": Situation(
            *("gone", "a1 is unreachable.", now_s - 400),
            [within("pod shop/web-1 on a1 is deleted, the first of 5 pods", 3, 3)],
            *("5 pods of 5 workloads; partly shop/web (1 of 3 pods)", WAITS),
            [WHY_ONE, LOSE_ONE, *BY_HAND],
            [Lane("a1", "unreachable", now_s - 400, [within("5 pods leave", 3, 60)])],
        ),
        "back": Situation(
            *("peace", BACK, None, [within(OFF_AGAIN, 0, 5)], NOBODY, BY_ITSELF),
            lanes=[Lane(TWO, "tainted", now_s - 2, [within("taint off", 0, 5)])],
        ),
        "drain": Situation(
            *("ours", DRAINED, now_s - 125, [within("it ends", 30, 90)], LAST),
            "It waits for pod shop/web-1: budget web can spare none.",
            [Option("kubectl nodelife drain-plan c1", "says what it still waits for")],
            [Lane("Node c1", "3 of 6 done", now_s - 125, [within("ends", 30, 90)], STUCK)],
        ),
    }


def test_each_state_looks_as_it_did_and_unlike_the_others(pytestconfig: pytest.Config) -> None:
    async def test() -> None:
        async with shown(30) as (window, told), asyncio.TaskGroup() as group:
            await window.devtools("Emulation.setTimezoneOverride", timezoneId="UTC")
            now_s = told.zone.now_s
            still = group.create_task(stand_still(told))
            first = await window.command("GET", "window")
            painter = await window.command("POST", "window/new", type="tab")
            found: dict[str, str] = {}
            for state, situation in states(now_s).items():
                await window.command("POST", "window", handle=first)
                told.broadcast.publish("snapshot", wall(now_s, state, situation))
                await window.until(
                    "return document.getElementById('now-says').textContent === arguments[0]",
                    situation.sentence,
                )
                await window.until(
                    "return document.getElementById('summary').textContent"
                    ".startsWith('When last seen: ') === arguments[0]",
                    state == "blind",
                )
                of = f"{state}-"
                found |= await all_pictured(window, first, painter["handle"], of, HEIGHTS)
            await window.command("POST", "window", handle=painter["handle"])
            assert await far_from_kept(window, found, pytestconfig) == {}
            for one, other in combinations(states(now_s), 2):
                names = (f"{one}-1280-light", f"{other}-1280-light")
                assert await window.run(DIFFERENT, *map(found.__getitem__, names)) > 0.005, names
            still.cancel()

    play(test, 600.0)
