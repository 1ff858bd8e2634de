"""`diverge -f`: what one moment of a cluster shows undone, too early, or done by another client."""

import json
from pathlib import Path
from typing import Any

import pytest

from kubectl_nodelife.cli import main
from kubectl_nodelife.engine.settings import make_settings
from kubectl_nodelife.kube.times import SECOND_NS, format_micro_time, format_time
from kubectl_nodelife.outlook.diverge import dump_observations
from kubectl_nodelife.outlook.diverge.judgement import divergence_judgement
from kubectl_nodelife.outlook.node import join_controllers
from kubectl_nodelife.sim.scenario import assemble, parse_scenario
from tests import objects
from tests.objects import NOT_READY, UNREACHABLE, condition, lease, node, owner, pod, taint
from tests.simulating import play

Capture = pytest.CaptureFixture[str]
Document = dict[str, Any]

NOW_NS = 1_790_000_000 * SECOND_NS


def ago(seconds: float) -> str:
    return format_time(NOW_NS - round(seconds * SECOND_NS))


def of_zone(
    name: str, status: str = "True", since: float = 9000, *, zone: str = "a", **more: Any
) -> Document:
    """A node whose Ready is that for so many seconds."""
    reason = {"True": "KubeletReady", "False": "KubeletNotReady"}.get(status, "NodeStatusUnknown")
    times = {"since": ago(since), "created": ago(99_000)}
    return node(name, status, reason, zone=zone, **times, **more)


def lost_taints(key: str, seconds: float) -> tuple[Document, ...]:
    return taint(key, "NoSchedule", added=ago(seconds)), taint(key, added=ago(seconds))


def written_by(manager: str, field: str, seconds: float, of: Document) -> Document:
    entry = {
        "manager": manager,
        "operation": "Update",
        "time": ago(seconds),
        "fieldsV1": {"f:spec": {field: {}}},
    }
    of["metadata"].setdefault("managedFields", []).append(entry)
    return of


def web(name: str, on: str, tolerated_s: int = 300, **more: Any) -> Document:
    """A pod that tolerates lost nodes so long."""
    return pod(name, on, namespace="shop", tolerates=tolerated_s, **more)


HEALTHY = [item for n in "bcd" for item in (of_zone(n), lease(n, ago(2)))]


@pytest.fixture
def diverge(tmp_path: Path, capsys: Capture) -> Any:
    def asked(*objects: Document, words: tuple[str, ...] = (), code: int = 0) -> Document:
        path = tmp_path / "dump.json"
        pods = {"apiVersion": "v1", "kind": "PodList", "items": []}
        path.write_text("\n".join(json.dumps(obj) for obj in (*HEALTHY, pods, *objects)))
        words = ("-f", str(path), "--now", format_micro_time(NOW_NS), *words)
        assert main(["diverge", "-o", "json", *words]) == code
        document: Document = json.loads(capsys.readouterr().out)
        return document

    return asked


def told(document: Document) -> list[tuple[str, str, str]]:
    return [(i["kind"], i["object"]["name"], i.get("detail", "")) for i in document["items"]]


def test_a_quiet_cluster_agrees(diverge: Any) -> None:
    document = diverge(words=("--exit-code",))
    assert (document["verdict"], document["items"]) == ("agrees", [])
    assert document["because"] == (
        "nothing that was due is undone; whether kube-controller-manager runs is not known:"
        " the dump has no Lease kube-system/kube-controller-manager"
    )
    assert any("one moment" in sentence for sentence in document["notEvaluated"])


def test_taints_that_never_came_are_missing(diverge: Any) -> None:
    document = diverge(
        of_zone("a", "False", 3600), lease("a", ago(1)), words=("--exit-code",), code=4
    )
    both = {("missing", "a", f"{NOT_READY}:NoSchedule"), ("missing", "a", f"{NOT_READY}:NoExecute")}
    assert set(told(document)) == both
    assert "is due for 59m50s and has not come" in document["because"]  # a token took 10 s
    assert min(i["expectedTime"] for i in document["items"]).startswith(ago(3600)[:-1])


def test_what_has_just_become_due_may_have_been_read_before(diverge: Any) -> None:
    document = diverge(of_zone("a", "False", 200), lease("a", ago(1)))
    assert document["items"] == []
    assert any("2 writes that became due within" in s for s in document["notEvaluated"])


def test_a_stopped_zone_owes_no_taint(diverge: Any) -> None:
    """Three of four nodes are not ready there: in a zone of at most 50 that stops evictions."""
    tainted = [taint(NOT_READY, "NoSchedule", added=ago(3600))]
    dark = [of_zone(f"z{n}", "False", 3600, taints=tainted, zone="z") for n in range(3)]
    document = diverge(*dark, of_zone("z3", zone="z"), *(lease(f"z{n}", ago(1)) for n in range(4)))
    assert document["items"] == []
    assert any("stopped by its brake" in sentence for sentence in document["notEvaluated"])


def test_nodes_that_wait_for_tokens_are_not_late(diverge: Any) -> None:
    """At 0.1 a second the last of 100 nodes is due 990 s after the first."""
    tainted = [taint(NOT_READY, "NoSchedule", added=ago(900))]
    zone = [of_zone(f"n{n:03}", "False", 900, taints=tainted, zone="z") for n in range(100)]
    zone += [of_zone(f"m{n:03}", zone="z") for n in range(100)]
    leases = [lease(o["metadata"]["name"], ago(1)) for o in zone]
    document = diverge(*zone, *leases)
    assert 55 < len(document["items"]) < 62  # 10 s each, in the 600 s before the last 5 minutes


def test_taints_that_stayed_are_missing_removals(diverge: Any) -> None:
    document = diverge(of_zone("a", taints=lost_taints(UNREACHABLE, 9100)), lease("a", ago(1)))
    removals = [item for item in document["items"] if item["action"] == "RemoveTaint"]
    assert {item["detail"] for item in removals} >= {f"{UNREACHABLE}:NoSchedule"}
    assert {item["kind"] for item in removals} == {"missing"}


def test_a_silent_kubelet_that_is_not_unknown(diverge: Any) -> None:
    document = diverge(of_zone("a"), lease("a", ago(1000)))
    assert ("missing", "a", "Ready=Unknown") in told(document)


def test_pods_whose_tolerations_ran_out(diverge: Any) -> None:
    lost = of_zone("a", "Unknown", 3600, taints=lost_taints(UNREACHABLE, 3600))
    document = diverge(
        lost,
        lease("a", ago(3650)),
        web("web", "a"),
        web("db", "a", 7200),
        web("up", "a", 7200, ready=True),
    )
    assert ("missing", "web", "") in told(document)
    actions = {(item["object"]["name"], item["action"]) for item in document["items"]}
    assert actions == {("web", "DeletePod"), ("up", "MarkPodNotReady")}


def test_a_deletion_before_its_time(diverge: Any) -> None:
    early = web(
        "web",
        "a",
        conditions=[
            condition("DisruptionTarget", reason="DeletionByTaintManager", changed=ago(500))
        ],
        deleted=ago(470),
        metadata={"deletionGracePeriodSeconds": 30},
        created=ago(550),
    )
    lost = of_zone("a", "Unknown", 600, taints=lost_taints(UNREACHABLE, 600))
    (found,) = diverge(lost, lease("a", ago(650)), early)["items"]
    assert found["kind"] == "early" and "came 3m20s before its tolerations" in found["message"]


def test_who_cordoned_and_tainted_is_a_note(diverge: Any) -> None:
    cordon = taint("node.kubernetes.io/unschedulable", "NoSchedule", added=ago(700))
    cordoned = of_zone("a", unschedulable=True, taints=[taint("team/hold"), cordon])
    written_by("kubectl-cordon", "f:unschedulable", 700, cordoned)
    written_by("kubectl-taint", "f:taints", 800, cordoned)
    document = diverge(cordoned, lease("a", ago(1)))
    assert document["verdict"] == "agrees"
    notes = {(i["kind"], i["action"], i["by"]["manager"]) for i in document["items"]}
    assert notes == {
        ("other-actor", "AddTaint", "kubectl-taint"),
        ("other-actor", "Cordon", "kubectl-cordon"),
    }
    assert diverge(cordoned, lease("a", ago(1)), words=("--since", "750s"))["items"][0]["by"] == {
        "manager": "kubectl-cordon",
        "operation": "Update",
        "time": format_micro_time(NOW_NS - 700 * SECOND_NS),
    }


def test_a_taint_of_the_controllers_that_somebody_else_set(diverge: Any) -> None:
    tainted = of_zone("a", taints=(taint(UNREACHABLE, added=ago(900)),))
    written_by("kubectl-edit", "f:taints", 900, tainted)
    found = {item["kind"]: item for item in diverge(tainted, lease("a", ago(1)))["items"]}
    assert found["extra"]["by"]["manager"] == "kubectl-edit"


@pytest.mark.parametrize("age, kinds", [(30, []), (1200, ["stalled"])])
def test_the_managers_lease_beside_the_others(age: float, kinds: list[str], diverge: Any) -> None:
    """Not by the dump's moment, which may be long after the Leases were read."""
    of_manager = {"namespace": "kube-system", "seconds": 15}
    document = diverge(lease("kube-controller-manager", ago(age), **of_manager))
    assert [item["kind"] for item in document["items"]] == kinds
    assert ("; kube-controller-manager runs: " in document["because"]) == (not kinds)


def event(component: str, seconds: float) -> Document:
    about = {"when": ago(seconds), "by": component, "namespace": "shop"}
    return objects.event(("Pod", "web"), "", name=f"{component}-{seconds}", **about)


def made_by_replica_set(seconds: float) -> Document:
    return web("web", "b", created=ago(seconds), owner=owner("ReplicaSet"))


HEARD_BEFORE = event("replicaset-controller", 5000)
OTHERS_HEARD_SINCE = event("kubelet", 600)


@pytest.mark.parametrize(
    "signs, accused",
    [
        pytest.param([HEARD_BEFORE, OTHERS_HEARD_SINCE], True, id="others-were-heard-since"),
        pytest.param([HEARD_BEFORE], False, id="nobody-was-heard-since"),
        pytest.param([OTHERS_HEARD_SINCE], False, id="it-was-never-heard"),
        pytest.param(
            [HEARD_BEFORE, OTHERS_HEARD_SINCE, event("controllermanager", 900)],
            False,
            id="heard-by-its-old-name",
        ),
        pytest.param(
            [HEARD_BEFORE, OTHERS_HEARD_SINCE, event("attachdetach-controller", 900)],
            False,
            id="another-of-its-controllers",
        ),
        pytest.param(
            [HEARD_BEFORE, OTHERS_HEARD_SINCE, event("service-controller", 900)],
            True,
            id="that-may-be-the-cloud-controller-manager",
        ),
        pytest.param(
            [HEARD_BEFORE, OTHERS_HEARD_SINCE, made_by_replica_set(900)], False, id="made-a-pod"
        ),
        pytest.param(
            [
                HEARD_BEFORE,
                OTHERS_HEARD_SINCE,
                written_by("hyperkube", "f:taints", 900, of_zone("b2")),
                lease("b2", ago(1)),
            ],
            False,
            id="wrote-to-a-node",
        ),
    ],
)
def test_a_manager_without_a_lease_is_accused_only_where_it_would_have_been_heard(
    signs: list[Document], accused: bool, diverge: Any
) -> None:
    document = diverge(of_zone("a", "False", 3600), lease("a", ago(1)), *signs)
    kinds = {item["kind"] for item in document["items"]}
    assert ("stalled" in kinds) == accused
    assert accused or "missing" in kinds or "disabled" in kinds


def test_no_pods_is_no_agreement_on_evictions(tmp_path: Path, capsys: Capture) -> None:
    path = tmp_path / "nodes.json"
    path.write_text(json.dumps(of_zone("a")))
    assert main(["diverge", "-f", str(path)]) == 0
    assert "no pods were read: evictions" in capsys.readouterr().err
    path.write_text(json.dumps(web("web", "a")))
    assert main(["diverge", "-f", str(path)]) == 2
    assert "no nodes were read" in capsys.readouterr().err


@pytest.mark.parametrize(
    "words, told", [(("-f", "x", "-w"), "does not change"), (("--set", "a=b"), "is for dumps")]
)
def test_what_does_not_go_together(words: tuple[str, ...], told: str, capsys: Capture) -> None:
    assert main(["diverge", *words]) == 2
    assert told in capsys.readouterr().err


SCENARIOS = Path(__file__).parents[1] / "scenarios"


@pytest.mark.parametrize(
    "name",
    [
        "one-node-lost-defaults",
        "all-zones-dark",
        "drain-while-a-zone-is-dark",
        "kubelet-says-not-ready",
        "maintenance-taint",
        "node-deleted",
        "partial-disruption-slows-a-large-zone",
        "partial-disruption-stops-a-small-zone",
        "recovers-in-time",
    ],
)
def test_a_cluster_whose_controllers_work_is_never_accused(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At any moment of a simulated outage, even where a dump is read in no time."""
    monkeypatch.setattr(dump_observations, "READING_NS", 0)
    path = SCENARIOS / f"{name}.yaml"
    setting = assemble(parse_scenario(path.read_bytes(), path.name))
    settings = make_settings(setting.profile, setting.scenario.flags)
    for seconds in (20, 61, 90, 150, 300, 365, 600):
        run = play(setting, until_ns=seconds * SECOND_NS)
        outlook, overdue = join_controllers(run.cluster, settings, run.end_ns)
        record = dump_observations.dump_observations(outlook, overdue, ())
        found = divergence_judgement(record, run.end_ns).findings
        assert [f.message for f in found if not f.note] == [], seconds
