"""How the top of the page looks in eight states: peace, a silent node, a dark zone, the brake, pods
that are evicted, nodes that are back, a drain, and a cluster that is not seen.

Compared with kept pictures as all of the page is (`test_looks`), at three widths, light and dark.
"""

from __future__ import annotations

import asyncio
from itertools import combinations

import pytest

from kubectl_nodelife.outlook.fates import Coming, Lane
from kubectl_nodelife.outlook.situation import Option, Situation, blind
from tests.loopback import play
from tests.ui.browser import needs_chromium
from tests.ui.test_drawing import shown
from tests.ui.test_looks import DIFFERENT, far_from_kept, pictured, stand_still

pytestmark = needs_chromium

HEIGHTS = {360: 800, 1280: 560, 1920: 480}
WHY = Option("kubectl nodelife explain zone r1/a", "says why, and what follows when")
LOSE = Option("kubectl nodelife what-if lose zone r1/a", "plays what is lost if it stays away")
HURTS = "60 pods of 9 workloads; shop/db has no pod on any other node; partly shop/web (2 of 3)"
DRAINED = "Node c1 is drained: cordoned; 2 pods left to evict, 1 pod is Terminating."
BACK = "a1, a2 are back: Kubernetes takes their taints off in its next pass."
OFF_AGAIN = "the NoExecute taints of 2 nodes are taken off"
LAST = "2 pods of 2 workloads; shop/db has no pod on any other node"
KEPT = "Nothing to do: while so many nodes there are not ready, no pod is deleted for it."
BY_ITSELF = "Nothing to do: Kubernetes takes the taints off by itself."
OFF = "only once its machine is known to be off: its pods go, and their volumes are detached"
OUT = "taint node a1 node.kubernetes.io/out-of-service=nodeshutdown:NoExecute"
BY_HAND = [Option(f"kubectl {OUT}", OFF, OUT)]
WAITS = "Pods move by themselves at that time; a node that is back before keeps them."


def states(now_s: float) -> dict[str, Situation]:
    """Each state as the daemon tells it. `now_s`: by the stream's clock."""

    def within(says: str, low: float, high: float) -> Coming:
        return Coming(says, now_s + low, now_s + high)

    unknown, tainted = within("Unknown", 18, 22), within("tainted", 22, 142)
    leave = within("pods leave", 322, 442)
    web = Lane("Service shop/web", "3 → 1", None, [within("1 of 3 ready", 18, 22)])
    zone = "12 nodes of r1/a: a1, a2 and 10 more"
    return {
        "peace": Situation("peace", "None of 36 nodes is in trouble.", advice="Nothing to do."),
        "silent": Situation(
            *("worse", "Zone r1/a: 12 of 12 nodes are silent.", now_s - 28),
            [within("a1 becomes Unknown, the first of 12 nodes", 18, 22)],
            *(HURTS, "Nothing is lost if their kubelets report again before that.", [WHY, LOSE]),
            [Lane(zone, "silent", now_s - 28, [unknown, tainted, leave])],
            [web],
        ),
        "dark": Situation(
            *("gone", "Zone r1/a is dark: 12 of 12 nodes are not ready.", now_s - 70),
            [within("the next of 11 nodes is tainted (which one is chance)", 4, 14)],
            *(HURTS, WAITS, [WHY, LOSE]),
            [Lane(zone, "unreachable", now_s - 70, [within("tainted", 4, 114), leave])],
            [Lane("Service shop/web", "3 → 1", None, [], "1 of 3 ready")],
        ),
        "brake": Situation(
            "gone",
            "Zone r1/a: 8 of 12 nodes are not ready, tainting is stopped there.",
            *(now_s - 90, [], HURTS),
            KEPT,
            [WHY],
            [Lane("8 nodes of r1/a", "unreachable", now_s - 90, [], "held while things stay so")],
        ),
        "evicting": Situation(
            *("gone", "a1 is unreachable.", now_s - 400),
            [within("pod shop/web-1 on a1 is deleted, the first of 6 pods", 3, 3)],
            *("6 pods of 6 workloads; partly shop/web (1 of 3 pods)", WAITS, [WHY, *BY_HAND]),
            [Lane("a1", "unreachable", now_s - 400, [within("6 pods leave", 3, 60)])],
        ),
        "back": Situation("peace", BACK, None, [within(OFF_AGAIN, 0, 5)], advice=BY_ITSELF),
        "drain": Situation(
            *("ours", DRAINED, now_s - 125, [within("it ends", 30, 90)], LAST),
            "It waits for pod shop/web-1: budget web can spare none.",
            [Option("kubectl nodelife drain-plan c1", "says what it still waits for")],
        ),
        "blind": blind("the API server does not answer", "zone r1/a is dark", now_s - 33, HURTS),
    }


def test_each_state_looks_as_it_did_and_unlike_the_others(pytestconfig: pytest.Config) -> None:
    async def test() -> None:
        async with shown(30) as (window, told), asyncio.TaskGroup() as group:
            await window.devtools("Emulation.setTimezoneOverride", timezoneId="UTC")
            now_s = told.zone.now_s
            still = group.create_task(stand_still(told))
            first = await window.command("GET", "window")
            painter = await window.command("POST", "window/new", type="tab")
            found = {}
            for state, situation in states(now_s).items():
                await window.command("POST", "window", handle=first)
                told.broadcast.publish("delta", {"now": now_s, "situation": situation})
                await window.until(
                    "return document.getElementById('now-says').textContent === arguments[0]",
                    situation.sentence,
                )
                for width, height in HEIGHTS.items():
                    for scheme in ("light", "dark"):
                        found[f"{state}-{width}-{scheme}"] = await pictured(
                            window, first, painter["handle"], width, scheme, height
                        )
            await window.command("POST", "window", handle=painter["handle"])
            assert await far_from_kept(window, found, pytestconfig) == {}
            for one, other in combinations(states(now_s), 2):
                names = (f"{one}-1280-light", f"{other}-1280-light")
                assert await window.run(DIFFERENT, *map(found.__getitem__, names)) > 0.005, names
            still.cancel()

    play(test, 600.0)
