"""What is enforced is what is simulated: no write of a played course is lost on the way.

The same story is played by `simulate`, and by the real `Enforcement` on a simulated API server with
nothing going wrong. Instants are another test's: here each write of the node lifecycle controller,
taint eviction and pod GC on nodes and on the pods of the beginning that the simulation makes must
have been made, however it was withdrawn, handed back and decided anew in between. Pods that are
made later have names, and are on nodes, of chance.
"""

import random
from typing import Any

import msgspec
import pytest

from kubectl_nodelife.engine.actions import Action, PodAction, RecordEvent
from kubectl_nodelife.sim.scenario import assemble, parse_scenario
from tests.enforce.simulation import CONTROLLERS, FLAGS, GRACE_S, Run, story
from tests.enforce.simulation import play as enforce
from tests.simulating import play as simulate

Write = tuple[str, str, str]
"""(word, what it says, its object)."""

_COMPARED = frozenset({"node-lifecycle", "taint-eviction", "pod-gc"})


def story_of(number: int) -> bytes:
    """The story of the number, and in most a kubelet that falls silent and comes back with
    Ready=False: its node's taint is exchanged while the timers of its pods run.
    """
    told: dict[str, Any] = msgspec.json.decode(story(number))
    dice = random.Random(number + 1_000_000)
    silent_s = dice.uniform(5, 12)
    back_s = silent_s + GRACE_S + dice.uniform(1.5, 6)
    named = {name for event in told["spec"]["events"] for name in _nodes_of(event)}
    node = dice.choice(sorted({"a1", "b1", "a2", "b2", "a3", "b3"} - named))
    if dice.random() < 0.7:
        back = {"heartbeats": "start", "conditions": {"Ready": "False"}}
        told["spec"]["events"] += [
            {"at": f"{round(at_s * 1000)}ms", "kubelet": {"nodes": [node], **change}}
            for at_s, change in ((silent_s, {"heartbeats": "stop"}), (back_s, back))
        ]
        told["spec"]["events"].sort(key=lambda event: int(event["at"][:-2]))
    return msgspec.json.encode(told)


def _nodes_of(event: dict[str, Any]) -> list[str]:
    """The nodes that the event is about."""
    deleted = event.get("delete")
    if deleted:
        return [deleted["name"]]
    return [
        name
        for change in event.values()
        if isinstance(change, dict)
        for name in change.get("nodes", ())
    ]


def simulated(number: int, seconds: float) -> set[Write]:
    """The writes of the story as `simulate` plays it."""
    told: dict[str, Any] = msgspec.json.decode(story_of(number))
    told["spec"] |= {"flags": FLAGS, "duration": f"{seconds}s", "controllers": list(CONTROLLERS)}
    setting = assemble(parse_scenario(msgspec.json.encode(told), "story"))
    run = simulate(setting)
    of_beginning = {pod.uid for pod in setting.cluster.pods.values()}
    failed = {id(outcome.action) for outcome in run.failures}
    return {
        write
        for _, action in run.timeline.entries
        if id(action) not in failed
        if not isinstance(action, PodAction) or action.pod_uid in of_beginning
        for write in writes_of(action)
    }


def enforced(number: int) -> set[Write]:
    """Those of the enforcing daemon that were applied, or found done."""
    run = Run(number, told=story_of(number))
    run.orders = run.orders._replace(begin="restart", caps="upstream", assume_stopped=CONTROLLERS)
    enforce(run, number)
    ended = [end for causes in run.causes for end in causes.ended_writes]
    return {write for end in ended if end.applied for write in writes_of(end.action)}


def writes_of(action: Action) -> set[Write]:
    """What the action writes, one for each condition or taint."""
    if not action.writes or isinstance(action, RecordEvent):
        return set()
    if action.controller not in _COMPARED:
        return set()
    kind, (namespace, name) = action.target
    return {
        (
            word,
            " ".join(str(detail.get(key, "")) for key in ("type", "status", "key", "effect")),
            f"{kind} {namespace}/{name}",
        )
        for word, detail in action.records()
    }


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """A test for each batch of stories."""
    if "first_story" in metafunc.fixturenames:
        metafunc.parametrize("first_story", range(0, metafunc.config.getoption("--seeds"), 10))


def test_each_write_of_the_simulation_is_made(first_story: int) -> None:
    for number in range(first_story, first_story + 10):
        missing = simulated(number, 100) - enforced(number)
        assert missing == set(), f"story {number}"
