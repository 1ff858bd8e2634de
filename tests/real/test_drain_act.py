"""`drain` carried out on a real control plane: it does what its plan promised, wave by wave."""

import asyncio
import re
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial

import pytest

from kubectl_nodelife.kube.times import SECOND_NS, parse_duration
from tests.acts.program import Ended, nodelife, start
from tests.real.audited import writes
from tests.real.control_plane import ControlPlane, control_plane
from tests.real.drain_act_setups import FLAG_OF, RECORDED, STORIES
from tests.real.drain_objects import Json, Setup, bare_pod
from tests.real.drain_runs import create, just_before, node_of, pods_of, prepare, ready_status
from tests.real.kubelets import Kubelets
from tests.real.test_enforce import STOP

AT_A_TIME = 4
WHOLE_GRACE_S = 3600.0
NOT_DRAINED = {
    "budget-never",
    "dead-kubelet",
    "finalizer-holds",
    "replacement-cannot-land",
    "two-budgets-on-one-pod",
    "unready-if-healthy-budget",
}
SWITCH = {"metadata": {"name": "nodelife-stop", "namespace": "kube-system"}}
_WAVE = re.compile(r"^\d+ +(\S+-a\d\S*) +\d+ +(\S+)(?: to (\S+))? +(\S+) +(\S.*)$", re.MULTILINE)
_NEVER = re.compile(r"^\S+ +(\S+) +\S+-a\d +never ", re.MULTILINE)


@dataclass
class Acted:
    """A set-up, and how its drain ended."""

    setup: Setup
    plane: ControlPlane
    ended: Ended

    def __post_init__(self) -> None:
        """`written`: our accepted writes to the set-up's nodes and pods by then."""
        nodes = f"{self.setup.name}-a"
        self.written = [
            write
            for write in writes(self.plane.audit())
            if write.namespace == self.setup.name or write.name.startswith(nodes)
            if write.accepted and write.agent.startswith("kubectl-nodelife/")
        ]

    def left(self) -> list[Json]:
        """The pods that are still on the nodes, but for those of DaemonSets."""
        nodes = {self.setup.node(name) for name in self.setup.drained}
        return [
            pod
            for pod in pods_of(self.plane, self.setup.name)
            if pod["spec"].get("nodeName") in nodes and "agent" not in pod["metadata"]["name"]
        ]

    def assert_drained_as_promised(self) -> None:
        """All nodes are empty, and each wave took what the plan had said."""
        assert self.ended.code == 0, self.ended
        waves = _WAVE.findall(self.ended.out)
        assert [n for wave in waves for n in wave[0].split(",")] == [
            self.setup.node(name) for name in self.setup.drained
        ]
        for _, low, high, took, result in waves:
            assert result == "drained, as promised", self.ended
            assert seconds(low) - 0.5 <= seconds(took) <= seconds(high) + 0.5, self.ended.out
        assert self.left() == []


def seconds(text: str) -> float:
    """A rounded duration."""
    return parse_duration(text) / SECOND_NS


def words_of(setup: Setup, *more: str) -> tuple[str, ...]:
    names = [setup.node(name) for name in setup.drained]
    return ("drain", *names, *setup.flags.split(), *more, "--yes")


def folder_of(plane: ControlPlane, setup: Setup) -> str:
    folder = plane.folder / f"acts-{setup.name}"
    folder.mkdir(exist_ok=True)
    return str(folder)


def act(plane: ControlPlane, setup: Setup, *more: str) -> Acted:
    just_before(plane, setup)
    folder = folder_of(plane, setup)
    words = words_of(setup, *more)
    return Acted(setup, plane, asyncio.run(nodelife(str(plane.kubeconfig), folder, *words)))


@pytest.fixture(scope="module")
def plane() -> Iterator[ControlPlane]:
    with (
        control_plane(controller_manager=[], scheduler=True) as plane,
        Kubelets(plane.api, renew_every_s=5.0, stop_s=WHOLE_GRACE_S, tick_s=0.25) as kubelets,
    ):
        prepare(plane, kubelets, (*RECORDED, *STORIES))
        yield plane


def again(plane: ControlPlane, refused: Future[Acted], flag: str) -> Acted:
    """The same drain, once it was refused, with the flag that lifts that."""
    return act(plane, refused.result().setup, flag)


@pytest.fixture(scope="module")
def acts(plane: ControlPlane) -> Iterator[dict[str, Future[Acted]]]:
    """All but what the kill switch is for, some at a time."""
    with ThreadPoolExecutor(AT_A_TIME) as pool:
        begun = {setup.name: pool.submit(act, plane, setup) for setup in RECORDED}
        begun["overtaken"] = pool.submit(overtaken, plane)
        begun["in-waves"] = pool.submit(act, plane, setup_named("in-waves"))
        for name, flag in FLAG_OF.items():
            begun[name + flag] = pool.submit(again, plane, begun[name], flag)
        yield begun


@pytest.fixture(params=[pytest.param(s, id=s.name) for s in RECORDED])
def case(request: pytest.FixtureRequest, acts: dict[str, Future[Acted]]) -> Acted:
    return acts[request.param.name].result()


def test_it_does_what_its_plan_promised(case: Acted) -> None:
    ended, name = case.ended, case.setup.name
    if name in FLAG_OF:
        assert f"kubectl refuses this drain as it is; it needs {FLAG_OF[name]}" in ended.out
        assert ended.code == 1 and "nothing was touched" in ended.err, ended
        assert case.written == []
    elif name in NOT_DRAINED:
        assert ended.code == 1 and "This drain does not finish" in ended.out, ended
        ((node, _, _, took, result),) = _WAVE.findall(ended.out)
        assert result == f"not drained, as promised: {node}"
        limit = re.search(r"--timeout=(\S+)", case.setup.flags)
        assert limit is not None and seconds(took) <= seconds(limit[1]) + 1
        # of pods that stand for one another a budget lets another one go than the plan named
        assert len(case.left()) == len(_NEVER.findall(ended.out))
    else:
        case.assert_drained_as_promised()


def test_nothing_but_cordons_and_evictions_is_sent(case: Acted) -> None:
    kinds = {(w.verb, w.resource, w.subresource) for w in case.written}
    assert kinds <= {("patch", "nodes", ""), ("create", "pods", "eviction")}
    if case.setup.name not in FLAG_OF:
        for name in case.setup.drained:
            node = node_of(case.plane, case.setup.node(name))
            assert node["spec"]["unschedulable"], "a failed drain uncordons nothing"


@pytest.mark.parametrize("name", FLAG_OF)
def test_what_kubectl_refuses_is_drained_with_the_flag_that_the_plan_names(
    name: str, acts: dict[str, Future[Acted]]
) -> None:
    acts[name + FLAG_OF[name]].result().assert_drained_as_promised()


# --- stories ------------------------------------------------------------------------------------


def setup_named(name: str) -> Setup:
    return next(setup for setup in STORIES if setup.name == name)


async def interrupted(
    plane: ControlPlane,
    setup: Setup,
    when: str,
    then: Callable[[], None],
    held: str,
    end: Callable[[], None],
) -> Acted:
    """Drain; `then` once it says `when`; once it says `held`, `end`."""
    where = (str(plane.kubeconfig), folder_of(plane, setup))
    process = await start(*where, *words_of(setup))
    assert process.stdout is not None and process.stderr is not None
    out, err = b"", b""
    async for line in process.stdout:
        out += line
        if when.encode() in line:
            await asyncio.to_thread(then)
            break
    async for line in process.stderr:
        err += line
        if held.encode() in line:
            await asyncio.to_thread(end)
            break
    rest = await process.communicate()
    return Acted(
        setup, plane, Ended(process.returncode, (out + rest[0]).decode(), (err + rest[1]).decode())
    )


def test_two_at_a_time_and_the_next_when_replacements_are_ready(
    acts: dict[str, Future[Acted]],
) -> None:
    acted = acts["in-waves"].result()
    acted.assert_drained_as_promised()
    first, second = (wave[0].split(",") for wave in _WAVE.findall(acted.ended.out))
    assert (len(first), len(second)) == (2, 1)
    node_of_pod = dict(re.findall(r"^\S+ +(web-\S+) +(\S+-a\d) ", acted.ended.out, re.MULTILINE))
    at: dict[bool, list[float]] = {True: [], False: []}
    for write in acted.written:
        if write.subresource == "eviction":
            at[node_of_pod[write.name] in first].append(write.at)
    assert (len(at[True]), len(at[False])) == (4, 2)
    assert min(at[False]) > max(at[True]) + 1, "replacements take a second to start"


def overtaken(plane: ControlPlane) -> Acted:
    """A pod that nobody owns comes to the second node while the first is drained, and goes."""
    setup = setup_named("overtaken")
    (alone,) = setup.placed((bare_pod("alone", nodeName=setup.node("a2")),))
    path = f"/api/v1/namespaces/{setup.name}/pods/alone"

    def end() -> None:
        time.sleep(3)
        there = [p for p in pods_of(plane, setup.name) if p["metadata"]["name"] != "alone"]
        on_second = [p for p in there if p["spec"].get("nodeName") == setup.node("a2")]
        assert len(on_second) == 2, "while it holds nothing is evicted"
        plane.api.delete(path, {"gracePeriodSeconds": 0})

    held = "held before the next wave, for the plan is overtaken: pod overtaken/alone"
    make = partial(create, plane, alone)
    return asyncio.run(interrupted(plane, setup, "evicting pod", make, held, end))


def test_it_holds_where_the_plan_is_overtaken_and_goes_on(
    acts: dict[str, Future[Acted]],
) -> None:
    acted = acts["overtaken"].result()
    assert "goes on" in acted.ended.out
    acted.assert_drained_as_promised()


def test_the_kill_switch_in_mid_act(plane: ControlPlane, acts: dict[str, Future[Acted]]) -> None:
    for other in acts.values():
        other.result()
    setup = setup_named("switched-off")
    spans: list[float] = []

    def end() -> None:
        spans.append(time.time())
        time.sleep(7)
        plane.api.delete(f"{STOP}/nodelife-stop")
        spans.append(time.time())

    acted = asyncio.run(
        interrupted(
            plane,
            setup,
            "evicting pod",
            lambda: plane.api.create(STOP, SWITCH),
            "held: the ConfigMap kube-system/nodelife-stop is there",
            end,
        )
    )
    assert acted.ended.code == 0, acted.ended
    assert acted.left() == [] and all(ready_status(p) == "True" for p in pods_of(plane, setup.name))
    held, released = spans
    sent = [
        w.at
        for w in writes(plane.audit())
        if w.namespace == setup.name and w.subresource == "eviction"
    ]
    assert not [at for at in sent if held <= at <= released]
    assert [at for at in sent if at > released]
