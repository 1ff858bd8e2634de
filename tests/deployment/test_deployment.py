"""`daemon install --kind deployment`: the least rights, and a pod that is `restricted`."""

import re
from itertools import product
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner

from kubectl_nodelife.commands.access_rules import RULES
from kubectl_nodelife.commands.daemon import daemon
from kubectl_nodelife.commands.daemon_install import PORT, USER
from kubectl_nodelife.errors import BadInput

ROOT = Path(__file__).parents[2]


def text(*words: str) -> str:
    """What is printed."""
    command = ["install", "--print", "--kind", "deployment", *words]
    done = CliRunner().invoke(daemon, command, catch_exceptions=False)
    assert done.exit_code == 0 and "&id" not in done.stdout
    return done.stdout


def printed(*words: str) -> dict[str, dict[str, Any]]:
    """The objects by kind."""
    return {each["kind"]: each for each in yaml.safe_load_all(text(*words))}


def pod(*words: str) -> dict[str, Any]:
    found: dict[str, Any] = printed(*words)["Deployment"]["spec"]["template"]["spec"]
    return found


def test_nothing_can_be_written_and_nothing_is_granted_that_rbac_does_not_grant() -> None:
    rules = printed()["ClusterRole"]["rules"]
    granted = {
        (group, resource, verb)
        for rule in rules
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }
    reader = {
        (group, each, verb) for group, each_, verbs in RULES for each in each_ for verb in verbs
    }
    assert {verb for _, _, verb in granted} <= {"get", "list", "watch"}
    assert granted < reader


def test_what_the_user_gives_is_text_wherever_it_is_put() -> None:
    image = "a\U0001f600\x7fb\"'\n: {{ image }} # <&>"
    (container,) = pod("--image", image)["containers"]
    assert container["image"] == image
    made = list(yaml.safe_load_all(text("-n", "on", "--create-namespace", "--enforce=pod-gc")))
    assert made[0]["metadata"]["name"] == "on"
    inside = {each["metadata"]["namespace"] for each in made if "namespace" in each["metadata"]}
    assert inside == {"on", "kube-system"}


def test_the_pod_is_restricted() -> None:
    spec = pod()
    (container,) = spec["containers"]
    assert spec["securityContext"]["runAsNonRoot"] and spec["securityContext"]["runAsUser"] == USER
    assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert "priorityClassName" not in spec and "hostNetwork" not in spec
    assert printed()["ServiceAccount"]["automountServiceAccountToken"] is False
    assert spec["automountServiceAccountToken"] is True


def test_all_that_it_writes_is_in_its_volume() -> None:
    (container,) = pod()["containers"]
    (mount,) = container["volumeMounts"]
    environ = {each["name"]: each.get("value", "") for each in container["env"]}
    for name in ("HOME", "NODELIFE_STATE_DIR", "NODELIFE_RUNTIME_DIR"):
        assert environ[name].startswith(mount["mountPath"])


def test_the_watcher_of_lost_nodes_leaves_one_soon() -> None:
    tolerations = pod()["tolerations"]
    assert {t["key"].rpartition("/")[2] for t in tolerations} == {"not-ready", "unreachable"}
    assert {t["tolerationSeconds"] for t in tolerations} == {30}


SCRAPED = {
    "from": [{"namespaceSelector": {"matchLabels": {"metrics": "enabled"}}}],
    "ports": [{"port": PORT, "protocol": "TCP"}],
}


def test_only_scrapers_reach_the_metrics_port_and_only_servers_and_names_are_asked() -> None:
    spec = printed()["NetworkPolicy"]["spec"]
    assert spec["ingress"] == [SCRAPED]
    assert "#   kubectl label namespace NAMESPACE metrics=enabled" in text().splitlines()
    assert sorted({each["port"] for rule in spec["egress"] for each in rule["ports"]}) == [
        53,
        443,
        6443,
    ]
    assert spec["policyTypes"] == ["Ingress", "Egress"]


@pytest.mark.parametrize("nodes, memory", [("50", "96Mi"), ("1000", "192Mi"), ("9000", "512Mi")])
def test_requests_go_by_size(nodes: str, memory: str) -> None:
    (container,) = pod("--nodes", nodes)["containers"]
    assert container["resources"]["requests"]["memory"] == memory


def enforcing(*words: str) -> list[dict[str, Any]]:
    """All objects of a Deployment that enforces the pod garbage collector."""
    return list(yaml.safe_load_all(text("-n", "ops", "--enforce=podgc", *words)))


def test_one_that_enforces_may_write_what_its_controllers_write_and_has_its_lease_at_home() -> None:
    made = enforcing("--assume-stopped=pod-gc", "--set", "terminated-pod-gc-threshold=10")
    granted: dict[tuple[str, str, str], set[str]] = {}
    for each in made:
        for rule in each.get("rules", ()):
            for group, resource in product(rule["apiGroups"], rule["resources"]):
                key = (each["metadata"].get("namespace", ""), group, resource)
                granted.setdefault(key, set()).update(rule["verbs"])
    writing = {
        key: verbs - {"get", "list", "watch"}
        for key, verbs in granted.items()
        if verbs - {"get", "list", "watch"}
    }
    assert writing == {
        ("", "", "pods"): {"delete"},
        ("", "", "pods/status"): {"patch"},
        ("", "", "events"): {"create", "patch"},
        ("ops", "coordination.k8s.io", "leases"): {"create", "update"},
    }
    assert granted[("kube-system", "", "configmaps")] == {"get"}
    named = {
        (each["metadata"]["namespace"], *rule["verbs"], *rule["resourceNames"])
        for each in made
        if each["kind"] == "Role"
        for rule in each["rules"]
        if rule["verbs"] != ["create"]
    }
    assert named == {
        ("kube-system", "get", "nodelife-stop"),
        ("ops", "get", "update", "kubectl-nodelife-enforce"),
    }
    bound = [each for each in made if each["kind"].endswith("Binding")]
    assert {each["subjects"][0]["namespace"] for each in bound} == {"ops"} and len(bound) == 3
    (spec,) = (e["spec"]["template"]["spec"] for e in made if e["kind"] == "Deployment")
    assert spec["priorityClassName"] == "system-cluster-critical"
    assert spec["containers"][0]["args"] == [
        "daemon", "run", "--in-cluster", "--set=terminated-pod-gc-threshold=10",
        "--enforce=pod-gc", "--assume-stopped=pod-gc", "--lease-namespace=ops", "--wait", "--yes",
        "--metrics-bind-address=$(POD_IP):9876",
    ]  # fmt: skip


@pytest.mark.parametrize(
    "words, is_printed",
    [
        pytest.param((), True, id="our-own"),
        pytest.param(("-n", "nodelife"), True, id="our-own-by-name"),
        pytest.param(("-n", "ops"), False, id="one-that-is-there"),
        pytest.param(("-n", "ops", "--create-namespace"), True, id="one-to-be-made"),
    ],
)
def test_a_namespace_is_printed_where_it_is_the_daemons_alone(
    words: tuple[str, ...], is_printed: bool
) -> None:
    """Applied to one that is there, it would forbid all new pods that are not `restricted`, and
    `kubectl delete -f` would delete it with all that is in it.
    """
    assert ("Namespace" in printed(*words)) is is_printed
    said = [line for line in text(*words).splitlines() if line.startswith("#")]
    label = "namespace ops pod-security.kubernetes.io/enforce=restricted"
    assert (f"#   kubectl label --dry-run=server {label}" in said) is not is_printed


@pytest.mark.parametrize("extra", [(), ("--create-namespace",), ("--enforce=podgc",)])
@pytest.mark.parametrize("name", ["kube-system", "kube-public", "kube-node-lease", "default"])
def test_nothing_is_printed_for_a_namespace_of_kubernetes(
    name: str, extra: tuple[str, ...]
) -> None:
    with pytest.raises(BadInput, match=f"namespace {name}: it is not for the daemon alone"):
        text("-n", name, *extra)


def test_answers_are_served_only_where_that_is_asked_for() -> None:
    (container,) = pod()["containers"]
    assert not [word for word in container["args"] if "serve-answers" in word]
    assert [port["name"] for port in container["ports"]] == ["metrics"]
    (container,) = pod("--serve-answers")["containers"]
    assert "--serve-answers=9877" in container["args"]
    assert container["ports"][1] == {"name": "answers", "containerPort": 9877}
    for made in (printed("--serve-answers"), printed()):
        assert made["NetworkPolicy"]["spec"]["ingress"] == [SCRAPED]
        assert [port["name"] for port in made["Service"]["spec"]["ports"]] == ["metrics"]


def test_notices_go_to_a_webhook_whose_token_is_a_secrets() -> None:
    words = ("--webhook", "https://hooks.example/x", "--notify-on", "nodeLost")
    (container,) = pod(*words)["containers"]
    assert {"--webhook=https://hooks.example/x", "--notify-on=nodeLost"} <= set(container["args"])
    secret = {"name": "kubectl-nodelife", "key": "webhook-token", "optional": True}
    token = {"name": "NODELIFE_WEBHOOK_TOKEN", "valueFrom": {"secretKeyRef": secret}}
    assert token in container["env"] and token not in pod()["containers"][0]["env"]


def test_flags() -> None:
    made = printed("-n", "ops", "--image", "own/image@sha256:0", "--replicas", "3",
                   "--service-monitor", "--set", "node-monitor-grace-period=40s")  # fmt: skip
    assert {o["metadata"].get("namespace", "ops") for o in made.values()} == {"ops"}
    assert made["Deployment"]["spec"]["replicas"] == 3 and "ServiceMonitor" in made
    (container,) = made["Deployment"]["spec"]["template"]["spec"]["containers"]
    assert container["image"] == "own/image@sha256:0"
    assert container["args"][3] == "--set=node-monitor-grace-period=40s"


@pytest.mark.parametrize(
    "words, message",
    [
        (["--kind", "deployment", "--for", "systemd"], "no such manager"),
        (["--kind", "deployment", "--context", "here"], "its own service account"),
        (["--kind", "deployment", "-n", "Ops"], "no namespace can have this name"),
        (["--image", "x"], "are for --kind deployment"),
        (["--create-namespace"], "are for --kind deployment"),
        (["--serve-answers"], "are for --kind deployment"),
        (["--kind", "deployment", "--webhook", "http://hooks.example"], "a webhook is https"),
        (["--kind", "deployment", "--webhook", "https://h", "--notify-on", "x"], "no event 'x'"),
        (["--enforce", "pod-gc"], "are for --kind deployment"),
        (["--kind", "deployment", "--assume-stopped", "pod-gc"], "it is for --enforce"),
        (["--kind", "deployment", "--enforce", "all"], "no controller 'all'"),
    ],
)
def test_what_does_not_go_together(words: list[str], message: str) -> None:
    with pytest.raises(BadInput, match=message):
        CliRunner().invoke(daemon, ["install", "--print", *words], catch_exceptions=False)


def test_the_containerfile_names_no_registry_and_ends_without_rights() -> None:
    lines = (ROOT / "Containerfile").read_text().splitlines()
    bases = [line.split()[1] for line in lines if line.startswith("FROM ")]
    assert bases == ["${BUILD}", "${BASE}"]
    assert f"USER {USER}:{USER}" in lines
    copied = [w for line in lines if line.startswith("COPY ") for w in line.split()[1:-1]]
    for name in copied:
        for architecture in ("amd64", "arm64"):
            path = ROOT / name.replace("${TARGETARCH}", architecture)
            assert name.startswith(("--", "/")) or path.exists()
    (installed,) = (line for line in lines if "pip install" in line)
    assert {"--require-hashes", "--only-binary"} <= set(installed.split())
    assert "-r /lock.txt" in installed, "the lock of the release, and nothing else"
    entry = next(line for line in lines if line.startswith("ENTRYPOINT"))
    assert re.search(r'"-m", "kubectl_nodelife"', entry)
