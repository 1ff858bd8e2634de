"""The caps as the command line names them, and how many pods of a DaemonSet may go."""

from typing import Any

import pytest
from msgspec.structs import replace

from kubectl_nodelife.daemon.enforce.write_gate import caps_of, set_of
from kubectl_nodelife.daemon.flags import Orders, parse_flags
from kubectl_nodelife.daemon.settings import ClusterConfig
from kubectl_nodelife.engine.actions import DeletePod
from kubectl_nodelife.engine.cache import Cache
from kubectl_nodelife.engine.events import Put
from kubectl_nodelife.engine.guard import CAP_NAMES, UPSTREAM, Caps
from kubectl_nodelife.errors import BadInput
from kubectl_nodelife.kube import workload
from kubectl_nodelife.kube.meta import ObjectMeta, OwnerReference
from kubectl_nodelife.kube.pod import Pod, PodSpec


def test_upstream_takes_every_cap_away_and_each_can_be_given_back() -> None:
    for name, (field, in_percent) in CAP_NAMES.items():
        assert getattr(Caps(), field) is not None and getattr(UPSTREAM, field) is None
        given = caps_of(Orders(caps="upstream", single_caps=(f"{name}=7",)))
        assert getattr(given, field) == (0.07 if in_percent else 7)
    others = {"total", "set_deletions_by_budget", "claims_a_minute"}  # the last one is upgrades'
    rows = {f for f in Caps.__struct_fields__ if f not in others}
    assert rows == {field for field, _ in CAP_NAMES.values()}, "each row with a dagger has a name"


def test_a_flag_counts_before_the_config_file() -> None:
    said = ClusterConfig(caps={"taints-per-minute": 3, "zone-percent": 20}, max_writes=9)
    by_file = caps_of(Orders(), said)
    assert (by_file.taints_a_minute, by_file.zone_share, by_file.total) == (3, 0.2, 9)
    by_flag = caps_of(Orders(single_caps=("taints-per-minute=7",), max_writes=2), said)
    assert (by_flag.taints_a_minute, by_flag.zone_share, by_flag.total) == (7, 0.2, 2)
    assert caps_of(Orders(caps="upstream"), said) == replace(UPSTREAM, total=9)


@pytest.mark.parametrize("text", ["pods=1", "taints-per-minute", "taints-per-minute=-1", "=1"])
def test_no_such_cap(text: str) -> None:
    with pytest.raises(BadInput, match="is no cap") as caught:
        parse_flags({"--cap": (text,)}).check()
    assert all(name in caught.value.remedy for name in CAP_NAMES)


def test_an_unknown_controller_is_named_with_those_there_are() -> None:
    with pytest.raises(BadInput, match="'scheduler'") as caught:
        parse_flags({"--enforce": "scheduler"})
    assert "node-lifecycle, taint-eviction, pod-gc and daemonset" in caught.value.remedy


@pytest.mark.parametrize(
    "down, surge, expected",
    [
        pytest.param(3, 0, 3, id="a-number"),
        pytest.param("10%", 0, 5, id="percent-of-the-desired"),
        pytest.param(0, 4, 4, id="surge"),
        pytest.param("x", 0, 0, id="nonsense"),
    ],
)
def test_how_many_of_a_set_an_update_takes_down(down: Any, surge: Any, expected: int) -> None:
    rolling = workload.RollingUpdateDaemonSet(max_unavailable=down, max_surge=surge)
    strategy = workload.DaemonSetUpdateStrategy("RollingUpdate", rolling)
    one = workload.DaemonSet(
        ObjectMeta(name="s", namespace="d", uid="u"),
        workload.DaemonSetSpec(update_strategy=strategy),
        workload.DaemonSetStatus(desired_number_scheduled=50),
    )
    owner = OwnerReference("DaemonSet", "s", "u", "apps/v1", True)
    pod = Pod(ObjectMeta(name="p", namespace="d", owner_references=(owner,)), PodSpec())
    cache = Cache()
    for obj in (one, pod):
        cache.apply(Put(type(obj).__name__, obj), 1)
    who: dict[str, Any] = {"controller": "daemonset", "because": "b", "namespace": "d"}
    found = set_of(cache)
    assert found(DeletePod(**who, pod="p")) == ("u", expected)
    assert found(DeletePod(**who, pod="gone")) == ("", 0)
