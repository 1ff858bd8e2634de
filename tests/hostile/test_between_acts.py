"""Rows of the battery for what a person runs: `drain` and `daemonset undo` with somebody between.

The judge stands in the server: it sees each write as it arrives, and what the store holds then.
"""

import asyncio
from typing import Any

import pytest
from aiohttp import web

from kubectl_nodelife.engine.calls.call import Delete, Post
from tests.acts.program import Ended, nodelife
from tests.acts.test_drain import objects, of_web
from tests.acts.test_repair import KUBE_SYSTEM
from tests.acts.test_rollout_undo import DAEMON_SET, revision, template
from tests.hostile.between import Act, Between, answering_after, just_before, swallowing
from tests.loopback import play, sandbox
from tests.objects import budget

FLAGS = ("drain", "a1", "--force", "--yes")


async def no_pod_goes_before_its_cordon(between: Between, request: web.Request) -> str:
    """The judge of drains."""
    goes = request.method == "DELETE" or request.path.endswith("/eviction")
    cordoned = between.found("Node", "a1").get("spec", {}).get("unschedulable")
    return "" if not goes or cordoned else "the node still takes pods"


def run(between: Between, things: list[dict[str, Any]], *words: str) -> Ended:
    """Our program on a sandbox with those objects, and somebody between."""
    ended: list[Ended] = []

    async def test() -> None:
        async with sandbox(generate=None, objects=things, between=between.middleware) as served:
            between.served = served
            ended.append(await nodelife(served.kubeconfig, served.folder, *words))

    play(test)
    return ended[0]


def drained(
    between: Between, *more: str, things: list[dict[str, Any]] | None = None, wait_s: int = 10
) -> Ended:
    """A drain of a1. What it says of its end is what the server holds."""
    found = things if things is not None else objects(of_web("one"), of_web("two"))
    ended = run(between, found, *FLAGS, f"--timeout={wait_s}s", *more)
    assert between.broken == []
    left = between.names("Pod")
    assert (ended.code == 0) == (not left), f"{ended}; {left} are there"
    return ended


EVICTION, DELETE = ("POST", "/eviction"), ("DELETE", "/pods/")


@pytest.mark.parametrize(
    ("act", "more", "code"),
    [
        pytest.param(swallowing("PATCH", "/nodes/a1"), (), 1, id="cordon-always-swallowed"),
        pytest.param(swallowing("PATCH", "/nodes/a1", 1), (), None, id="cordon-swallowed-once"),
        pytest.param(answering_after("PATCH", "/nodes/a1"), (), 0, id="cordon-done-and-denied"),
        pytest.param(swallowing(*EVICTION), (), 1, id="evictions-always-swallowed"),
        pytest.param(swallowing(*EVICTION, 1), (), None, id="an-eviction-swallowed"),
        pytest.param(answering_after(*EVICTION), (), 0, id="an-eviction-done-and-denied"),
        pytest.param(
            swallowing(*DELETE), ("--disable-eviction",), 1, id="deletes-always-swallowed"
        ),
        pytest.param(
            swallowing(*DELETE, 1), ("--disable-eviction",), None, id="a-delete-swallowed"
        ),
        pytest.param(
            answering_after(*DELETE), ("--disable-eviction",), 0, id="a-delete-done-and-denied"
        ),
    ],
)
def test_a_drain_says_drained_only_of_an_empty_node(
    act: Act, more: tuple[str, ...], code: int | None
) -> None:
    """`code` None: either, as long as it is true."""
    between = Between(act, judge=no_pod_goes_before_its_cordon)
    ended = drained(between, *more)
    assert between.lied and (code is None or ended.code == code), ended
    assert "Traceback" not in ended.err and "bug" not in ended.err


def test_a_pod_that_is_replaced_under_its_name_is_no_drained_node() -> None:
    async def come_back(between: Between) -> None:
        await between.write(Post("Pod", ("shop", "one"), of_web("one")))

    again = just_before("GET", "/api/v1/pods", come_back_when_gone(come_back), times=100)
    between = Between(again, judge=no_pod_goes_before_its_cordon)
    ended = drained(between, things=objects(of_web("one")))
    assert ended.code == 1 and "another pod has come in its place" in ended.err


def come_back_when_gone(come_back: Any) -> Any:
    """Somebody makes the pod anew, on the same node, as soon as it is gone."""

    async def happens(between: Between) -> None:
        if any("/eviction" in line for line in between.wrote) and not between.names("Pod"):
            await come_back(between)

    return happens


async def keeps_the_budget(between: Between, request: web.Request) -> str:
    """Nobody goes round the budget; the server itself refuses evictions."""
    if request.method == "DELETE":
        return "a pod is deleted past its budget"
    return await no_pod_goes_before_its_cordon(between, request)


@pytest.mark.parametrize(("loosened", "wait_s"), [(True, 60), (False, 12)])
def test_a_budget_that_changes_in_mid_drain_is_kept_and_waited_for(
    loosened: bool, wait_s: int
) -> None:
    """Both could go when the drain began; after the first somebody wants the other one to stay."""
    key = ("shop", "web")
    tries = [0]

    async def change(between: Between) -> None:
        tries[0] += 1
        if tries[0] == 2:
            await between.patch("PodDisruptionBudget", key, {"spec": {"minAvailable": 2}})
        elif tries[0] == 3 and loosened:
            await between.patch("PodDisruptionBudget", key, {"spec": {"minAvailable": 0}})

    acts = just_before("POST", "/eviction", change, times=100)
    between = Between(acts, judge=keeps_the_budget)
    nobody = budget(namespace="shop", minAvailable=0)
    ended = drained(between, things=objects(of_web("one"), of_web("two"), nobody), wait_s=wait_s)
    assert tries[0] >= 3, "refused, and tried again"
    assert ended.code == (0 if loosened else 1), ended
    assert loosened or "(will retry after 5s): Cannot evict pod" in ended.err


# rollout undo

SETS = [KUBE_SYSTEM, DAEMON_SET, revision(1), revision(2)]
UNDO = ("daemonset", "undo", "ds/agent", "-n", "tools", "--yes")
KEY = ("tools", "agent")


def image(between: Between) -> str:
    """What the set shall run, by the server."""
    spec = between.found("DaemonSet", "agent")["spec"]["template"]["spec"]
    return str(spec["containers"][0]["image"])


def test_a_set_that_is_changed_between_look_and_write_is_not_rolled_back() -> None:
    """What the person was shown, and said yes to, was another change."""

    async def change(between: Between) -> None:
        await between.patch("DaemonSet", KEY, {"spec": {"template": template("agent:3")}})

    between = Between(just_before("PATCH", "/daemonsets/agent", change))
    ended = run(between, SETS, *UNDO)
    assert image(between) == "agent:3" and ended.code == 1, ended
    assert "agent" in ended.err and "Traceback" not in ended.err


def test_a_set_that_is_another_one_by_then_is_not_rolled_back() -> None:
    between = Between(just_before("PATCH", "/daemonsets/agent", replaced))
    ended = run(between, SETS, *UNDO)
    assert image(between) == "agent:2" and ended.code == 1, ended


def test_an_answer_that_is_lost_while_the_set_is_replaced_is_no_success() -> None:
    """What is read then is another set: the one that was meant is gone."""

    swallowed = swallowing("PATCH", "/daemonsets/agent", 1)
    between = Between(just_before("PATCH", "/daemonsets/agent", replaced), swallowed)
    ended = run(between, SETS, *UNDO)
    assert (image(between), ended.code) == ("agent:2", 1), ended


async def replaced(between: Between) -> None:
    """Somebody deletes the set, and makes it anew."""
    named = {name: DAEMON_SET["metadata"][name] for name in ("name", "namespace")}
    await between.write(Delete("DaemonSet", KEY))
    await between.write(Post("DaemonSet", KEY, {**DAEMON_SET, "metadata": named}))


def test_a_change_of_the_status_alone_stops_no_undo() -> None:
    """The DaemonSet controller writes a status each second of a rollout."""

    async def change(between: Between) -> None:
        await between.patch("DaemonSet", KEY, {"metadata": {"annotations": {"seen": "yes"}}})

    between = Between(just_before("PATCH", "/daemonsets/agent", change))
    ended = run(between, SETS, *UNDO)
    assert (image(between), ended.code) == ("agent:1", 0), ended


def test_an_undo_that_is_swallowed_is_not_said_to_be_done() -> None:
    between = Between(swallowing("PATCH", "/daemonsets/agent"))
    ended = run(between, SETS, *UNDO)
    assert (image(between), ended.code) == ("agent:2", 1), ended
    assert "rolled back" not in ended.out.splitlines()[-1]


async def test_two_persons_who_undo_at_once_undo_once() -> None:
    """The second one's yes was said to going from 2 to 1, and not back again."""
    between, ended = Between(), list[Ended]()
    async with sandbox(generate=None, objects=SETS, between=between.middleware) as served:
        between.served = served
        where = (served.kubeconfig, served.folder)
        ended.extend(await asyncio.gather(*(nodelife(*where, *UNDO) for _ in range(2))))
    assert image(between) == "agent:1", ended
    assert {one.code for one in ended} <= {0, 1} and any(one.code == 0 for one in ended)
