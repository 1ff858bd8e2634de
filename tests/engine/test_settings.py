"""Flags and gates per release: defaults, origins, and one clear error for each kind of mistake."""

from collections.abc import Mapping

import pytest

from kubectl_nodelife.engine.settings import FLAGS, SettingsError, make_settings
from kubectl_nodelife.kube.times import MINUTE_NS, SECOND_NS


@pytest.mark.parametrize(
    ("profile", "grace_s"),
    [("v1.16", 40), ("v1.29", 40), ("v1.31", 40), ("v1.32", 50), ("v1.36", 50), ("v1.99", 50)],
)
def test_the_grace_period_grew_in_1_32(profile: str, grace_s: int) -> None:
    assert make_settings(profile).node_monitor_grace_period_ns == grace_s * SECOND_NS


def test_values_are_parsed_into_numbers_and_ns() -> None:
    flags = {
        "node-monitor-period": "1s",
        "node-eviction-rate": 0.5,
        "large-cluster-size-threshold": 5,
        "unhealthy-zone-threshold": "0.7",
        "pod-eviction-timeout": "90s",
        "terminated-pod-gc-threshold": -1,
    }
    settings = make_settings("v1.16", flags)
    assert settings.node_monitor_period_ns == SECOND_NS
    assert settings.node_eviction_rate == 0.5
    assert settings.large_cluster_size_threshold == 5
    assert settings.unhealthy_zone_threshold == 0.7
    assert settings.pod_eviction_timeout_ns == 90 * SECOND_NS
    assert settings.terminated_pod_gc_threshold == -1
    assert settings.node_startup_grace_period_ns == MINUTE_NS


def test_effective_flags_are_printed_as_the_flags_print_them() -> None:
    given = {"node-monitor-grace-period": "90s", "enable-taint-manager": "T"}
    flags = make_settings("v1.16", given).flags
    assert flags["node-monitor-grace-period"] == "1m30s"
    assert flags["enable-taint-manager"] == "true"
    assert flags["pod-eviction-timeout"] == "5m0s"
    assert flags.keys() == FLAGS.keys()
    assert "pod-eviction-timeout" not in make_settings("v1.27").flags


def test_the_origin_of_each_value_is_known() -> None:
    settings = make_settings(
        "v1.30",
        {"node-monitor-period": "1s", "node-eviction-rate": 1},
        origins={"node-eviction-rate": "scenario.yaml"},
    )
    assert settings.origins["node-monitor-period"] == "--set"
    assert settings.origins["node-eviction-rate"] == "scenario.yaml"
    assert settings.origins["node-startup-grace-period"] == "default of v1.30"


@pytest.mark.parametrize(
    ("profile", "flags", "words"),
    [
        ("v1.36", {"node-monitor-graceperiod": "1s"}, ["did you mean node-monitor-grace-period"]),
        ("v1.36", {"zzz": "1s"}, ["unknown flag zzz", "v1.36", "node-monitor-period"]),
        ("v1.36", {"pod-eviction-timeout": "1s"}, ["pod-eviction-timeout", "removed in v1.27"]),
        ("v1.27", {"enable-taint-manager": True}, ["enable-taint-manager", "v1.27"]),
        ("v1.36", {"node-monitor-period": "5"}, ["node-monitor-period", "'5'"]),
        ("v1.36", {"node-monitor-period": "-5s"}, ["node-monitor-period", "negative"]),
        ("v1.36", {"node-monitor-period": "1us"}, ["node-monitor-period", "1ms"]),
        ("v1.36", {"node-eviction-rate": "fast"}, ["node-eviction-rate", "'fast'"]),
        ("v1.36", {"node-eviction-rate": -0.1}, ["node-eviction-rate", "0 or more"]),
        ("v1.36", {"node-eviction-rate": float("nan")}, ["node-eviction-rate", "nan"]),
        ("v1.36", {"node-eviction-rate": "1e39"}, ["node-eviction-rate"]),
        ("v1.36", {"node-eviction-rate": "1_0"}, ["node-eviction-rate"]),
        ("v1.36", {"unhealthy-zone-threshold": 1.1}, ["unhealthy-zone-threshold", "0 to 1"]),
        ("v1.36", {"large-cluster-size-threshold": "0.5"}, ["large-cluster-size-threshold"]),
        ("v1.36", {"large-cluster-size-threshold": 1 << 31}, ["large-cluster-size-threshold"]),
        ("v1.16", {"enable-taint-manager": "maybe"}, ["enable-taint-manager", "true or false"]),
        ("v1.36", {"node-monitor-period": ["5s"]}, ["node-monitor-period", "text or a number"]),
        ("v1.36", {"feature-gates": "NodeLeese=true"}, ["NodeLeese"]),
        ("v1.16", {"feature-gates": "NodeLeese=true"}, ["did you mean NodeLease"]),
        ("v1.16", {"feature-gates": "NodeLease"}, ["NodeLease=true"]),
        ("v1.16", {"feature-gates": "NodeLease=perhaps"}, ["NodeLease=perhaps"]),
        ("v1.36", {"feature-gates": "NodeLease=false"}, ["NodeLease", "v1.36"]),
        ("v1.20", {"feature-gates": "NodeLease=false"}, ["locked to true since v1.17"]),
        ("one", {}, ["unknown profile 'one'"]),
        ("v1.10", {}, ["v1.11"]),
    ],
)
def test_mistakes_are_named_with_a_remedy(
    profile: str, flags: Mapping[str, object], words: list[str]
) -> None:
    with pytest.raises(SettingsError) as error:
        make_settings(profile, flags)
    for word in words:
        assert word in str(error.value)


def test_gates_follow_their_stages() -> None:
    assert not make_settings("v1.16").gate("NodeDisruptionExclusion")
    assert make_settings("v1.19").gate("NodeDisruptionExclusion")
    assert make_settings("v1.16").gate("LegacyNodeRoleBehavior")
    assert not make_settings("v1.21").gate("LegacyNodeRoleBehavior")
    assert not make_settings("v1.36").gate("TaintTolerationComparisonOperators")
    assert not make_settings("v1.34").gate("TaintTolerationComparisonOperators")
    gates = {"feature-gates": "TaintTolerationComparisonOperators=true"}
    assert make_settings("v1.36", gates).gate("TaintTolerationComparisonOperators")


def test_setting_a_locked_gate_to_what_it_is_does_no_harm() -> None:
    assert make_settings("v1.20", {"feature-gates": "NodeLease=true"}).gate("NodeLease")


def test_an_older_release_than_described_has_the_gates_of_the_oldest() -> None:
    oldest, older = make_settings("v1.16"), make_settings("v1.11")
    for gate in ("TaintBasedEvictions", "TaintNodesByCondition", "NodeLease"):
        assert older.gate(gate)
        assert oldest.gate(gate)
    assert older.taint_mode
    assert not older.gate("ScheduleDaemonSetPods")


@pytest.mark.parametrize(
    ("profile", "flags", "taint_mode", "taint_manager"),
    [
        ("v1.16", {}, True, True),
        ("v1.16", {"enable-taint-manager": "false"}, False, False),
        ("v1.16", {"feature-gates": "TaintBasedEvictions=false"}, False, True),
        ("v1.26", {"enable-taint-manager": "false"}, False, False),
        ("v1.27", {}, True, True),
        ("v1.36", {}, True, True),
    ],
)
def test_who_evicts(
    profile: str, flags: Mapping[str, object], taint_mode: bool, taint_manager: bool
) -> None:
    settings = make_settings(profile, flags)
    assert (settings.taint_mode, settings.taint_manager) == (taint_mode, taint_manager)


@pytest.mark.parametrize(
    ("profile", "flags", "said"),
    [
        pytest.param("v1.36", {}, [], id="defaults"),
        pytest.param(
            "v1.36",
            {"node-monitor-grace-period": "3s"},
            ["3s is not longer than the 10s between two heartbeats"],
            id="a grace period within one heartbeat interval",
        ),
        pytest.param(
            "v1.36",
            {"node-monitor-grace-period": "15s"},
            ["15s is less than twice the 10s between two heartbeats"],
            id="a grace period that allows no late heartbeat",
        ),
        pytest.param(
            "v1.16",
            {"feature-gates": "TaintBasedEvictions=false", "pod-eviction-timeout": "30s"},
            ["pod-eviction-timeout 30s is not longer than node-monitor-grace-period 40s"],
            id="an eviction timeout below the grace period",
        ),
        pytest.param(
            "v1.16", {"pod-eviction-timeout": "30s"}, [], id="an eviction timeout that nobody reads"
        ),
    ],
)
def test_settings_that_upstream_warns_of(
    profile: str, flags: Mapping[str, object], said: list[str]
) -> None:
    doubts = make_settings(profile, flags).doubts(10 * SECOND_NS)
    assert len(doubts) == len(said)
    assert all(part in doubt for part, doubt in zip(said, doubts, strict=True))
