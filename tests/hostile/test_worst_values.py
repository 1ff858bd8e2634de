"""The worst values that the API takes: every answer stays fast and small.

Grace periods and tolerations of 292 years, replicas and budgets of 2^31 - 1, quantities at the edge
of int64, instants in the years 1 and 9999, and policies with very long messages.
"""

import asyncio
import resource
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from tests.daemon.user import user
from tests.drain import build
from tests.objects import manifest, write_list
from tests.raw_server import raw_server

MOST_64 = (1 << 63) - 1
MOST_32 = (1 << 31) - 1
FIRST, LAST = "0001-01-01T00:00:01Z", "9999-12-31T23:59:59Z"
SECONDS = 40
"""Of CPU, which a busy machine does not add to. Each takes about one; what is not bounded takes
for ever."""
MOST_BYTES = 5_000_000
UNREACHABLE = "node.kubernetes.io/unreachable"


def nodes() -> list[build.Json]:
    made: list[build.Json] = []
    for i, (time_, memory) in enumerate(
        [(FIRST, str(MOST_64)), (LAST, "1e18"), (build.NOW, "8Ei"), (build.CREATED, "999E")]
    ):
        taint = {"key": UNREACHABLE, "effect": "NoExecute", "timeAdded": time_}
        condition = {"type": "Ready", "status": "True", "lastHeartbeatTime": time_}
        more: build.Json = {
            "metadata": {"creationTimestamp": time_},
            "spec": {"taints": [taint] if i else []},
            "status": {
                "allocatable": {"cpu": str(MOST_64), "memory": memory, "pods": str(MOST_64)},
                "conditions": [{**condition, "lastTransitionTime": time_}],
            },
        }
        found, lease = build.node(f"n{i}", lease=time_)
        lease["spec"]["leaseDurationSeconds"] = MOST_32
        made += [build.merged(found, more), lease]
    return made


def workloads() -> list[build.Json]:
    tolerations = [
        {"key": UNREACHABLE, "operator": "Exists", "tolerationSeconds": MOST_64},
        {"operator": "Exists", "effect": "NoExecute", "tolerationSeconds": -MOST_64},
    ]
    made: list[build.Json] = []
    for name, grace in (
        ("ages", MOST_64),
        ("none", 0),
        ("years", 9000 * 31_536_000),
        ("days", 864_000),
    ):
        large = name == "ages"
        requests = {"cpu": str(MOST_64), "memory": "8Ei"} if large else {"cpu": "1m"}
        spec: build.Json = {
            "terminationGracePeriodSeconds": grace,
            "tolerations": tolerations,
            "containers": [{"name": "c", "resources": {"requests": requests}}],
            "topologySpreadConstraints": [
                {
                    "maxSkew": MOST_32,
                    "topologyKey": "kubernetes.io/hostname",
                    "whenUnsatisfiable": "DoNotSchedule",
                    "labelSelector": {"matchLabels": {"app": name}},
                }
            ],
        }
        group = build.replica_set(name, "n0", "n1", "n2", "n3", spec=spec)
        group[0]["spec"] |= {"replicas": MOST_32, "minReadySeconds": MOST_32}
        most = MOST_32 if large else 3
        made += [*group, build.budget(name, name, healthy=4, desired=most, expected=most + 1)]
    sets = build.stateful_set(
        "db", "n0", "n1", pod_more={"spec": {"terminationGracePeriodSeconds": MOST_64}}
    )
    sets[0]["spec"] |= {"replicas": MOST_32, "ordinals": {"start": MOST_32}}
    update = {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": MOST_32, "maxSurge": 0}}
    more: build.Json = {"minReadySeconds": MOST_32, "updateStrategy": update}
    container = {"name": "c", "image": "registry.example/c:1"}
    template = {"metadata": {"labels": {"app": "ds"}}, "spec": {"containers": [container]}}
    daemons = build.workload("DaemonSet", "ds", 0, template=template, **more)
    job = build.workload("Job", "job", 0, parallelism=MOST_32, activeDeadlineSeconds=MOST_64)
    return [
        *made,
        *sets,
        daemons,
        build.owned("DaemonSet", "ds", "n0", 0),
        job,
        build.owned("Job", "job", "n0", 0),
    ]


def going(name: str, at: str) -> build.Json:
    marked = {"deletionTimestamp": at, "deletionGracePeriodSeconds": MOST_64}
    return build.pod(name, "n1", metadata=marked, grace=MOST_64)


def worst() -> list[build.Json]:
    return build.flattened(
        (
            nodes(),
            workloads(),
            going("long-gone", FIRST),
            going("never-gone", LAST),
            build.namespace(),
        )
    )


def answered(command: list[str]) -> subprocess.CompletedProcess[bytes]:
    """What a command answers; it is ended by SIGXCPU if it computes for longer than SECONDS."""

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_CPU, (SECONDS, SECONDS))

    return subprocess.run(command, capture_output=True, preexec_fn=limit, check=False)


@pytest.fixture(scope="module")
def dump(tmp_path_factory: pytest.TempPathFactory) -> str:
    return write_list(tmp_path_factory.mktemp("worst") / "cluster.json", worst())


DRAIN = ["--force", "--ignore-daemonsets", "--delete-emptydir-data"]


@pytest.mark.parametrize(
    "arguments",
    [
        *(
            ["drain-plan", "n0", "n1", "n2", *DRAIN, "-o", form]
            for form in ("table", "json", "html")
        ),
        ["drain-plan", "--all", *DRAIN, "-o", "html"],
        ["drain-plan", "n0", *DRAIN, "--disable-eviction", "-o", "html"],
        ["drain-plan", "n0", *DRAIN, "--timeout", "2540400h", "-o", "json"],
        ["drain-plan", "n0", *DRAIN, "--skip-wait-for-delete-timeout", "2147483647"],
        ["status"],
        ["status", "-o", "json"],
        ["explain", "node", "n1"],
        ["explain", "pod", "ages-1"],
        ["explain", "pod", "never-gone", "-o", "json"],
        ["budgets"],
        ["daemonset", "ds"],
        ["audit", "-o", "json"],
    ],
    ids=" ".join,
)
def test_answers_stay_fast_and_small(arguments: list[str], dump: str) -> None:
    command = [sys.executable, "-m", "kubectl_nodelife", *arguments, "-f", dump]
    done = answered(command)
    assert done.returncode == 0, done.stderr.decode()
    assert done.stdout and len(done.stdout) < MOST_BYTES


def test_a_wait_of_ten_days_takes_no_longer_than_one_of_an_hour() -> None:
    def seconds(grace: int) -> float:
        pods: list[Any] = [build.replica_set(f"r{i}", "a1", grace=grace) for i in range(8)]
        held = build.budget("held", "r0", healthy=1, desired=1, expected=1)
        began = time.process_time()
        build.plan(build.node("a1"), build.node("a2"), *pods, held, build.namespace())
        return time.process_time() - began

    seconds(3600)
    assert seconds(864_000) < 4 * seconds(3600) + 1


def test_a_page_is_small_though_a_policy_talks_much(tmp_path: Path) -> None:
    rule = {"operations": ["*"], "apiGroups": ["*"], "apiVersions": ["*"], "resources": ["*/*"]}
    denies = {"expression": "false", "message": "<no>" * 100_000}
    rules = {"matchConstraints": {"resourceRules": [rule]}, "validations": [denies]}
    policy = manifest("ValidatingAdmissionPolicy", "p", spec=rules)
    binds = {"policyName": "p", "validationActions": ["Deny"]}
    binding = manifest("ValidatingAdmissionPolicyBinding", "b", spec=binds)
    pods = [build.replica_set(f"r{i}", "n2") for i in range(200)]
    items = build.flattened((nodes(), *pods, policy, binding, build.namespace()))
    path = write_list(tmp_path / "cluster.json", items)
    command = [sys.executable, "-m", "kubectl_nodelife", "drain-plan", "n2", "-o", "html"]
    done = answered([*command, "-f", path])
    assert done.returncode == 0, done.stderr.decode()[:500]
    assert b"<no>" not in done.stdout and b"&lt;no&gt;" in done.stdout
    assert len(done.stdout) < MOST_BYTES


def test_the_page_of_5000_nodes_with_the_longest_names_is_small(tmp_path: Path) -> None:
    items = build.flattened(
        [
            *build.node(f"{'x' * 248}{i:05d}"),
            build.pod(f"{'p' * 248}{i:05d}", f"{'x' * 248}{i:05d}"),
        ]
        for i in range(5000)
    )
    path = write_list(tmp_path / "cluster.json", items)
    command = [sys.executable, "-m", "kubectl_nodelife", "drain-plan", "--all", "--force"]
    command += ["-o", "html", "-f", path]
    done = answered(command)
    assert done.returncode == 0, done.stderr.decode()[:500]
    assert len(done.stdout) < MOST_BYTES
    assert b"and 3000 more" in done.stdout


async def test_live_answers_through_a_daemon_stay_fast_and_small(tmp_path: Path) -> None:
    async with raw_server(worst()) as server, user(server.kubeconfig(tmp_path)) as someone:
        await someone.begin()
        questions = (
            ["status", "-o", "json"],
            ["explain", "pod", "never-gone", "-o", "json"],
            ["changes", "-o", "json"],
            ["drain-plan", "n0", "n1", *DRAIN, "-o", "html"],
            ["replay", "-o", "html"],
        )
        async with asyncio.timeout(2 * SECONDS):
            answers = await asyncio.gather(*(someone.run(*words) for words in questions))
        for words, said in zip(questions, answers, strict=True):
            assert said.code == 0, (words, said.err)
            assert len(said.out) < MOST_BYTES, words
        health = await someone.health()
        assert health["synced"] and health["residentBytes"] < 300 << 20
