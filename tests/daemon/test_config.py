"""The config file, the control plane's flags, and whose word counts."""

import json
from pathlib import Path

import pytest

from kubectl_nodelife.daemon.flags import Options, with_limits
from kubectl_nodelife.daemon.preflight import check_settings
from kubectl_nodelife.daemon.settings import (
    DetectedSettings,
    RequestedSettings,
    flags_of,
    load_config,
    resolve_settings,
)
from kubectl_nodelife.dumps.dump import load
from kubectl_nodelife.engine.cache import Cache
from kubectl_nodelife.engine.events import Put
from kubectl_nodelife.errors import BadInput, Refused
from kubectl_nodelife.kube.codec import decode
from kubectl_nodelife.kube.wellknown import ANNOTATION_RUNNING
from kubectl_nodelife.live.connection import Connection
from tests.objects import write_list

SERVER = "https://10.0.0.1:6443"
RUNNING = DetectedSettings(
    "v1.33.2",
    {"node-monitor-grace-period": "20s"},
    {"node-monitor-grace-period": "kube-controller-manager (pod kcm-1)"},
)


def written(folder: Path, text: str) -> str:
    path = folder / "config.yaml"
    path.write_text(text)
    return str(path)


def test_no_file_is_as_good_as_an_empty_one(tmp_path: Path) -> None:
    assert load_config(str(tmp_path / "none")).clusters == {}
    assert load_config(written(tmp_path, "")).clusters == {}


def test_a_section_is_found_by_server_and_by_context(tmp_path: Path) -> None:
    config = load_config(
        written(
            tmp_path,
            f"""
apiVersion: nodelife.dev/v1alpha1
kind: Config
clusters:
  {SERVER}: {{profile: v1.31}}
  prod: {{settings: {{node-eviction-rate: 0.2}}}}
""",
        )
    )
    assert config.section(SERVER, "prod").profile == "v1.31"
    assert config.section("https://other", "prod").settings == {"node-eviction-rate": 0.2}
    assert config.section("https://other", "dev").name == ""


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("clustres: {}", "unknown key 'clustres'; did you mean clusters?"),
        (
            "clusters: {a: {setings: {}}}",
            "clusters.a: unknown key 'setings'; did you mean settings",
        ),
        ("clusters: {a: {caps: {taint-per-minute: 3}}}", "unknown key 'taint-per-minute'; did you"),
        ("clusters: {a: {caps: {zone-percent: -3}}}", "clusters.a: Expected `int` >= 0"),
        ("clusters: {a: {caps: {zone-percent: 3%}}}", "clusters.a: Expected `int`"),
        ("clusters: {a: {maxResponseSize: 5Qi}}", 'a.maxResponseSize: invalid size "5Qi"'),
        ("clusters: {a: {settings: 3}}", "clusters.a: Expected `object`, got `int`"),
        ("- a", "must be a map"),
        ("a: b: c", "is not YAML in line 1"),
    ],
)
def test_what_makes_no_sense_is_named_with_its_place(
    tmp_path: Path, text: str, complaint: str
) -> None:
    path = written(tmp_path, text)
    with pytest.raises(BadInput) as wrong:
        load_config(path)
    assert str(wrong.value).startswith(path) and complaint in str(wrong.value)


def test_the_file_limits_what_a_daemon_reads_unless_a_flag_does(tmp_path: Path) -> None:
    text = "clusters: {prod: {maxResponseSize: 1Gi, maxWrites: 5, caps: {zone-percent: 20}}}"
    section = load_config(written(tmp_path, text)).section(SERVER, "prod")
    assert (section.max_writes, section.caps) == (5, {"zone-percent": 20})
    by_file = with_limits(Options(Connection(), {}), section)
    by_flag = with_limits(Options(Connection(max_response_size="2Mi"), {}), section)
    assert by_file.overrides.max_response_size == "1Gi"
    assert by_flag.overrides.max_response_size == "2Mi"


def test_the_running_flags_count_then_the_config_then_the_release(tmp_path: Path) -> None:
    text = """
clusters:
  prod:
    settings: {node-monitor-grace-period: 99s, node-eviction-rate: "0.5"}
"""
    requested = RequestedSettings(config=load_config(written(tmp_path, text)))
    settings = resolve_settings(requested, RUNNING, Cache(), SERVER, "prod").settings
    assert settings.profile.name == "v1.33"
    assert settings.flags["node-monitor-grace-period"] == "20s"
    assert settings.flags["node-eviction-rate"] == "0.5"
    assert settings.origins["node-monitor-grace-period"] == "kube-controller-manager (pod kcm-1)"
    assert settings.origins["node-eviction-rate"] == f"{tmp_path}/config.yaml, clusters.prod"
    assert settings.origins["node-monitor-period"] == "default of v1.33"


def test_set_wins_and_a_contradiction_is_said() -> None:
    requested = RequestedSettings(assignments=("node-monitor-grace-period=7s",))
    decided = resolve_settings(requested, RUNNING, Cache(), SERVER, "prod")
    assert decided.settings.flags["node-monitor-grace-period"] == "7s"
    assert decided.settings.origins["node-monitor-grace-period"] == "--set"
    assert decided.warnings == ["--set node-monitor-grace-period=7s, but it runs with 20s"]


def test_the_release_is_told_by_the_user_the_config_the_server_or_a_kubelet(
    tmp_path: Path,
) -> None:
    config = load_config(written(tmp_path, "clusters: {prod: {profile: v1.30}}"))
    told = [
        resolve_settings(requested, running, Cache(), SERVER, "prod")
        for requested, running in (
            (RequestedSettings("v1.29", config=config), RUNNING),
            (RequestedSettings(config=config), RUNNING),
            (RequestedSettings(), RUNNING),
            (RequestedSettings(), DetectedSettings()),
        )
    ]
    assert [(d.settings.profile.name, d.profile_origin) for d in told] == [
        ("v1.29", "--profile"),
        ("v1.30", f"{tmp_path}/config.yaml, clusters.prod"),
        ("v1.33", "the API server's version"),
        ("v1.37", "the newest release known here"),
    ]
    assert told[-1].warnings == ["the API server's version is not known"]


@pytest.mark.parametrize(
    ("server", "kubelets", "named", "release", "said"),
    [
        ("v1.33.4+k3s1", ["v1.31.0"], "", "v1.33", ""),
        ("v1.9.11", ["v1.9.11"], "", "v1.11", "v1.9.11, is older than any release known here"),
        ("", ["v1.9.11", "v1.12.1"], "", "v1.12", "profile v1.12: the behaviour of v1.16"),
        ("", ["v1.9.11"], "", "v1.11", "the newest kubelet, v1.9.11, is older than any release"),
        ("v2.0-custom", ["other"], "", "v1.37", ""),
        ("v1.99.0", ["v1.98.0"], "", "v1.99", "the behaviour of v1.38, a beta and the newest"),
        ("v1.9.11", ["v1.9.11"], "v1.30", "v1.30", ""),
    ],
)
def test_a_cluster_and_its_dump_follow_one_release_and_say_what_stands_in(
    tmp_path: Path, server: str, kubelets: list[str], named: str, release: str, said: str
) -> None:
    raw = [
        {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": f"n{number}"},
            "status": {"nodeInfo": {"kubeletVersion": version}},
        }
        for number, version in enumerate(kubelets)
    ]
    cache = Cache()
    for node in raw:
        cache.apply(Put("Node", decode("Node", node)), 0)
    live = resolve_settings(RequestedSettings(named), DetectedSettings(server), cache, SERVER, "")
    notes = {ANNOTATION_RUNNING: json.dumps({"version": server})} if server else {}
    file = write_list(tmp_path / "dump.json", raw, annotations=notes)
    dump = load([file], None, named or None)
    assert live.settings.profile.name == dump.profile.name == release
    for warnings in (live.warnings, dump.warnings):
        assert any(said in one for one in warnings) or not said
        assert any("the behaviour of" in one for one in warnings) == bool(said)


@pytest.mark.parametrize(
    ("requested", "complaint"),
    [
        (RequestedSettings("v9"), "--profile: unknown profile 'v9'"),
        (
            RequestedSettings(assignments=("grace=1s",)),
            "--set: unknown flag grace in profile v1.33",
        ),
        (
            RequestedSettings(assignments=("node-monitor-period",)),
            "'node-monitor-period' is not FLAG=VALUE",
        ),
        (
            RequestedSettings(assignments=("node-eviction-rate=fast",)),
            "--set: flag node-eviction-rate: malformed value 'fast'",
        ),
    ],
)
def test_a_wrong_word_of_the_users_is_an_error_with_its_place(
    requested: RequestedSettings, complaint: str
) -> None:
    with pytest.raises(BadInput) as wrong:
        resolve_settings(requested, RUNNING, Cache(), SERVER, "prod")
    assert complaint in str(wrong.value)


def test_a_running_flag_that_the_release_does_not_know_is_left_out() -> None:
    flags = {"pod-eviction-timeout": "1m", "feature-gates": "PodDisruptionConditions=false,X=true"}
    running = DetectedSettings("v1.36.0", flags, dict.fromkeys(flags, "pod"))
    settings = resolve_settings(RequestedSettings(), running, Cache(), SERVER, "").settings
    assert "pod-eviction-timeout" not in settings.flags
    assert settings.flags["feature-gates"] == ""


def test_a_running_flag_that_cannot_be_read_is_left_out_and_said() -> None:
    flags = {"node-monitor-grace-period": "$(GRACE)", "node-eviction-rate": "2"}
    running = DetectedSettings("v1.36.0", flags, dict.fromkeys(flags, "pod"))
    decided = resolve_settings(RequestedSettings(), running, Cache(), SERVER, "")
    assert decided.settings.flags["node-monitor-grace-period"] == "50s"
    assert decided.settings.flags["node-eviction-rate"] == "2"
    (said,) = decided.warnings
    assert said.startswith("it runs with --node-monitor-grace-period=$(GRACE), which is left out")
    with pytest.raises(Refused):
        check_settings(decided.warnings)


def kcm(**container: object) -> dict[str, object]:
    return {"spec": {"containers": [{"name": "kube-controller-manager", **container}]}}


@pytest.mark.parametrize(
    "pod",
    [
        kcm(command=["kube-controller-manager", "--node-monitor-grace-period=16s", "--v=2"]),
        kcm(command=["kube-controller-manager"], args=["--node-monitor-grace-period", "16s"]),
        kcm(command=["/bin/sh", "-c", "exec kcm --node-monitor-grace-period=16s --v=2 2>&1"]),
        kcm(args=["-node-monitor-grace-period=16s"]),
    ],
)
def test_flags_are_found_in_a_pods_command_line(pod: dict[str, object]) -> None:
    found = dict(flags_of(pod, "kube-controller-manager"))
    assert found == {"node-monitor-grace-period": "16s"}


def test_a_switch_may_stand_alone() -> None:
    pod = kcm(command=["kcm", "--enable-taint-manager", "--node-eviction-rate=0.2"])
    found = dict(flags_of(pod, "kube-controller-manager"))
    assert found == {"enable-taint-manager": "true", "node-eviction-rate": "0.2"}
