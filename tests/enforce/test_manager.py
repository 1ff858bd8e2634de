"""What a kube-controller-manager that is there means for enforcing beside it."""

import asyncio
from typing import Any, cast

import pytest

from kubectl_nodelife.daemon.enforce import manager
from kubectl_nodelife.daemon.enforce.manager import (
    contradictions,
    control_plane_pods,
    running_controllers,
    unknown_flags,
    watch_manager,
)
from kubectl_nodelife.engine.calls import Answer
from kubectl_nodelife.engine.guard import UPSTREAM, Guard

ALL = frozenset({"node-lifecycle", "taint-eviction", "pod-gc", "daemonset"})
HOLDER = "cp-1_0b9c"


def pod(*words: str, name: str = "kube-controller-manager-cp-1", **spec: Any) -> dict[str, Any]:
    component = name.removesuffix("-cp-1")
    container = {"name": component, "command": [component, *words]}
    return {
        "metadata": {"name": name, "namespace": "kube-system"},
        "spec": {"nodeName": "cp-1", "containers": [container], **spec},
        "status": {"phase": "Running"},
    }


@pytest.mark.parametrize(
    "words, runs",
    [
        pytest.param([], ALL, id="no-flag"),
        pytest.param(["--controllers=*"], ALL, id="star"),
        pytest.param(["--controllers=*,-daemonset-controller"], ALL - {"daemonset"}, id="one-off"),
        pytest.param(["--controllers=*,-daemonset"], ALL - {"daemonset"}, id="its-old-name"),
        pytest.param(["--controllers", "*,-podgc"], ALL - {"pod-gc"}, id="two-words"),
        pytest.param(
            ["--controllers=*", "--controllers=-podgc"], ALL - {"pod-gc"}, id="given-twice"
        ),
        pytest.param(["--controllers=daemonset,*,-daemonset"], ALL, id="the-first-word-counts"),
        pytest.param(["--controllers=namespace"], frozenset(), id="without-star"),
        pytest.param(
            ["--controllers=nodelifecycle"],
            {"node-lifecycle", "taint-eviction"},
            id="taint-eviction-within-an-old-node-lifecycle",
        ),
        pytest.param(
            ["--controllers=*,-taint-eviction-controller"],
            ALL - {"taint-eviction"},
            id="taint-eviction-off",
        ),
        pytest.param(
            [
                "--controllers=*,-taint-eviction-controller",
                "--feature-gates=SeparateTaintEvictionController=false",
            ],
            ALL,
            id="taint-eviction-within-node-lifecycle-by-its-gate",
        ),
        pytest.param(["--controllers=$(LIST)"], ALL, id="a-variable-shows-nothing"),
    ],
)
def test_its_flags_tell_which_controllers_it_runs(words: list[str], runs: set[str]) -> None:
    assert running_controllers([pod(*words)], HOLDER) == runs


def test_of_several_managers_any_may_take_over() -> None:
    off = pod("--controllers=namespace")
    on = pod("--controllers=daemonset") | {"metadata": {"name": "kube-controller-manager-b"}}
    assert running_controllers([off, on], HOLDER) == {"daemonset"}


@pytest.mark.parametrize("holder", ["cp-2_0b9c", "cp-1", "", "_"])
def test_a_holder_that_is_none_of_the_visible_ones_proves_nothing(holder: str) -> None:
    found = running_controllers([pod("--controllers=namespace")], holder)
    assert found == (frozenset() if holder == "cp-1" else None)


def test_what_ended_is_not_looked_at() -> None:
    failed = {**pod(), "status": {"phase": "Failed"}}
    other = pod(name="etcd-cp-1")
    writer = Lease([], [failed, other, pod()])
    assert asyncio.run(control_plane_pods(cast(Any, writer))) == [pod()]


def test_set_against_what_runs() -> None:
    shown = [pod("--node-monitor-grace-period=50s")]
    assert list(contradictions(shown, ["node-monitor-grace-period=50s"])) == []
    assert list(contradictions(shown, ["node-monitor-period=2s"])) == []
    assert list(contradictions(shown, ["node-monitor-grace-period=40s"])) == [
        "--set node-monitor-grace-period=40s, but it runs with 50s"
    ]


class Lease:
    """Answers each look at the manager's Lease in turn, and then ends the watch."""

    def __init__(
        self, specs: list[dict[str, Any] | int | None], pods: list[dict[str, Any]]
    ) -> None:
        """A number is the code of a refusal, None that there is no Lease."""
        self._specs = specs
        self._pods = pods

    async def call(self, call: Any, **_: Any) -> Answer:
        if not self._specs:
            raise asyncio.CancelledError
        spec = self._specs.pop(0)
        if isinstance(spec, int):
            return Answer(spec, message="forbidden")
        return Answer(404) if spec is None else Answer(200, raw={"spec": spec})

    async def send(self, request: Any, kind: str, **_: Any) -> Answer:
        return Answer(200, raw={"items": self._pods})


def test_a_flag_that_no_release_has_is_told() -> None:
    known = [
        "--node-monitor-period=5s",
        "--cluster-cidr=10.0.0.0/8",
        "--terminated-pod-gc-threshold=9",
    ]
    assert list(unknown_flags([pod(*known)])) == []
    told = list(unknown_flags([pod(*known, "--node-eviction-burst=3"), pod(name="etcd-cp-1")]))
    assert told == ["it runs with --node-eviction-burst, which no release known here has"]


@pytest.mark.parametrize(
    "specs, left, opens",
    [
        pytest.param([None, {"holderIdentity": HOLDER}], ["daemonset"], True, id="it-appears"),
        pytest.param(
            [{"holderIdentity": "a"}, {"holderIdentity": "b"}], ["daemonset"], True, id="hands"
        ),
        pytest.param([None, None], ["daemonset"], False, id="none"),
        pytest.param([{"renewTime": 1}, {"renewTime": 1}], ["daemonset"], False, id="a-dead-one-s"),
        pytest.param([None, {"holderIdentity": HOLDER}], [], False, id="with-ours-switched-off"),
        pytest.param([None, 403, 403, 403], ["daemonset"], True, id="it-may-not-be-read-any-more"),
        pytest.param([None, 403, 403, None], ["daemonset"], False, id="it-may-again"),
        pytest.param([None, 0, 503, 0, 429], ["daemonset"], False, id="the-server-is-down"),
        pytest.param([None, 403, 403, 403], [], False, id="unreadable-and-ours-switched-off"),
    ],
)
def test_a_manager_that_appears(
    specs: list[dict[str, Any] | int | None],
    left: list[str],
    opens: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(manager, "LOOK_SECONDS", 0.0)
    guard = Guard(UPSTREAM)

    async def unproven_with(holder: str) -> list[str]:
        return left

    with pytest.raises(asyncio.CancelledError):
        asyncio.run(watch_manager(cast(Any, Lease(specs, [])), unproven_with, guard, lambda: 1))
    assert [rule for rule, _ in guard.breakers] == (["manager"] if opens else [])
