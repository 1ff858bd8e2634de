"""`upgrade preview`: of what differs between two releases, what concerns a cluster's objects."""

from typing import Any

import pytest

from kubectl_nodelife.cli import main
from kubectl_nodelife.engine.settings import make_settings, parse_profile
from kubectl_nodelife.kube.meta import KubeObject
from kubectl_nodelife.outlook.releases import ReleasePreview, preview
from tests.objects import budget, lease, node, of_kind, owner, pod, typed

EMPTY_SPREAD = {
    "maxSkew": 1,
    "topologyKey": "topology.kubernetes.io/zone",
    "whenUnsatisfiable": "DoNotSchedule",
    "labelSelector": {},
}


def of_version(name: str, kubelet: str = "v1.37.2") -> KubeObject:
    return typed(node(name, status={"nodeInfo": {"kubeletVersion": kubelet}}))


def of_shop(name: str, kind: str = "", **spec: Any) -> KubeObject:
    """A pod of the app of its name, whose controller is of that kind."""
    by = owner(kind, "o", apiVersion="x/v1") if kind else None
    return typed(pod(name, "a", namespace="shop", labels={"app": name}, owner=by, **spec))


def allowing(name: str, app: str, **status: Any) -> KubeObject:
    return typed(budget(name, app, namespace="shop", status=status))


def going(
    *objects: KubeObject, to: str = "v1.38", since: str = "v1.37", **flags: str
) -> ReleasePreview:
    given = {name.replace("_", "-"): value for name, value in flags.items()}
    settings = make_settings(since, given)
    return preview(objects, settings, parse_profile(to))


def concerned(found: ReleasePreview) -> dict[str, tuple[str, tuple[str, ...]]]:
    return {a.change.switch: (a.concerns, a.names) for a in found.changes}


ATTACHED = typed(of_kind("VolumeAttachment", "x", spec={"nodeName": "b"}))
CLAIM = {"volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "c"}}]}


@pytest.mark.parametrize(
    ("switch", "since", "to", "with_it", "names", "without"),
    [
        (
            "syncs_every_budget",
            "v1.37",
            "v1.38",
            [of_shop("web"), allowing("one", "web"), allowing("two", "web")],
            ("pod/shop/web",),
            [of_shop("web"), allowing("one", "web"), allowing("two", "other")],
        ),
        (
            "empty_selector_spreads",
            "v1.37",
            "v1.38",
            [of_shop("web", topologySpreadConstraints=[EMPTY_SPREAD])],
            ("pod/shop/web",),
            [of_shop("web", topologySpreadConstraints=[{**EMPTY_SPREAD, "labelSelector": None}])],
        ),
        (
            "detach_when_node_is_gone",
            "v1.37",
            "v1.38",
            [of_shop("db", **CLAIM)],
            ("pod/shop/db",),
            [of_shop("db")],
        ),
        (
            "detach_when_node_is_gone",
            "v1.37",
            "v1.38",
            [
                of_shop("db", **CLAIM),
                ATTACHED,
            ],
            ("node/b",),
            [],
        ),
        (
            "evicted_stays_failed",
            "v1.37",
            "v1.38",
            [of_version("a"), of_shop("job-1", "Job")],
            ("pod/shop/job-1",),
            [of_version("a", "v1.38.0"), of_shop("job-1", "Job")],  # its kubelet does so already
        ),
        (
            "refusals_name_budget",
            "v1.36",
            "v1.37",
            [allowing("odd", "web", disruptionsAllowed=-1)],
            ("poddisruptionbudget/shop/odd",),
            [allowing("even", "web", disruptionsAllowed=0)],
        ),
        (
            "drains_daemon_sets_by_kind",
            "v1.33",
            "v1.34",
            [of_shop("agent", "DaemonSet")],
            ("pod/shop/agent",),
            [of_shop("agent", "ReplicaSet")],
        ),
    ],
)
def test_a_change_is_shown_where_it_concerns_something(
    switch: str,
    since: str,
    to: str,
    with_it: list[KubeObject],
    names: tuple[str, ...],
    without: list[KubeObject],
) -> None:
    assert concerned(going(*with_it, since=since, to=to))[switch][1] == names
    assert switch not in concerned(going(*without, since=since, to=to))


def test_the_silent_nodes_rule_names_nodes_whose_lease_was_touched() -> None:
    renewed = {"manager": "kubelet", "time": "2026-01-01T00:00:00Z",
               "fieldsV1": {"f:spec": {"f:renewTime": {}}}}  # fmt: skip
    label = {"manager": "kubectl", "time": "2026-01-01T00:01:00Z", "fieldsV1": {}}
    managers = {"managedFields": [renewed, label]}
    nodes = [of_version("a"), of_version("b")]
    touched = typed(lease("b", None, metadata=managers))
    quiet = concerned(going(*nodes, since="v1.36", to="v1.37"))
    assert quiet["lease_circuit_breaker"] == ("all nodes", ())
    found = concerned(going(*nodes, touched, since="v1.36", to="v1.37"))
    assert found["lease_circuit_breaker"] == ("1 node", ("node/b",))


def test_a_default_that_moves_concerns_who_does_not_set_it() -> None:
    name = "node-monitor-grace-period"
    assert name in concerned(going(of_version("a"), since="v1.31", to="v1.32"))
    set_so = going(of_version("a"), since="v1.31", to="v1.32", node_monitor_grace_period="1m")
    assert name not in concerned(set_so)


def test_a_gate_that_goes_concerns_who_names_it() -> None:
    gate = "SeparateTaintEvictionController"
    assert gate not in concerned(going(of_version("a")))
    assert gate in concerned(going(of_version("a"), feature_gates=f"{gate}=true"))


def test_only_releases_between_the_two_count() -> None:
    found = going(of_version("a", "v1.30.0"), of_shop("web"), since="v1.30", to="v1.33")
    releases = {applied.change.release for applied in found.changes}
    assert releases <= {"v1.31", "v1.32", "v1.33"}
    assert "v1.33" in releases
    assert found.elsewhere > 0


DUMP = "tests/dumps/two-zones"


def test_the_command_says_it_of_a_dump(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["upgrade", "preview", "v1.38", "--profile", "v1.37", "-f", DUMP]) == 0
    out, err = capsys.readouterr()
    assert out.startswith("Going from v1.37 to v1.38, a beta that may still change, ")
    assert "a Node that is deleted and made again" in out
    assert "v1.37 " not in out.split("\n", 2)[2]
    assert "its beta is followed, which may change" in err


def test_an_older_release_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["upgrade", "preview", "v1.36", "--profile", "v1.37", "-f", DUMP]) == 2
    assert "v1.36 is not newer than the cluster's v1.37" in capsys.readouterr().err


def test_a_release_lists_its_defaults(capsys: pytest.CaptureFixture[str]) -> None:
    def value(release: str, name: str) -> str:
        assert main(["options", "--profile", release]) == 0
        lines = [line.split() for line in capsys.readouterr().out.splitlines()]
        return next((line[1] for line in lines if line and line[0] == name), "")

    assert value("v1.31", "--node-monitor-grace-period") == "40s"
    assert value("v1.37", "--node-monitor-grace-period") == "50s"
    assert value("v1.26", "--enable-taint-manager") == "true"
    assert value("v1.27", "--enable-taint-manager") == ""
    assert value("v1.37", "SeparateTaintEvictionController") == "true"
    assert value("v1.38", "SeparateTaintEvictionController") == ""
