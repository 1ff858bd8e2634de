"""EvictionRequests and PodGroups of a real API server of v1.37, whose gates are on, and one whose
gates are off: what `explain pod`, `drain-plan`, `snapshot save` read of them."""

import json
from pathlib import Path
from typing import Any

import pytest

from kubectl_nodelife.cli import main
from tests.real.control_plane import ControlPlane, control_plane
from tests.real.kubelets import Kubelets

GATES_ON = (
    "--feature-gates=EvictionRequestAPI=true,GenericWorkload=true",
    "--runtime-config=lifecycle.k8s.io/v1alpha1=true,scheduling.k8s.io/v1beta1=true",
)
PODS = "/api/v1/namespaces/default/pods"
REQUESTS = "/apis/lifecycle.k8s.io/v1alpha1/namespaces/default/evictionrequests"
GROUPS = "/apis/scheduling.k8s.io/v1beta1/namespaces/default/podgroups"
DRAIN = ("drain-plan", "n1", "--force", "-o", "json", "--no-daemon")

Capture = pytest.CaptureFixture[str]


def pod(plane: ControlPlane, name: str, **spec: Any) -> dict[str, Any]:
    spec = {"nodeName": "n1", "containers": [{"name": "c", "image": "i"}], **spec}
    made: dict[str, Any] = plane.api.create(PODS, {"metadata": {"name": name}, "spec": spec})
    return made


def test_a_real_api_server_of_v1_37(
    tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    with control_plane(api_server=GATES_ON) as plane, Kubelets(plane.api) as kubelets:
        monkeypatch.setenv("KUBECONFIG", str(plane.kubeconfig))
        kubelets.add_node("n1")
        target = pod(plane, "db")
        policy = {"gang": {"minCount": 2}}
        group = {"metadata": {"name": "train"}, "spec": {"schedulingPolicy": policy}}
        plane.api.create(GROUPS, group)
        for name in ("train-0", "train-1"):
            pod(plane, name, schedulingGroup={"podGroupName": "train"})
        reference = {"name": "db", "uid": target["metadata"]["uid"]}
        spec = {"target": {"pod": reference}, "requester": "upgrade.example/wave"}
        request = {"metadata": {"name": "move"}, "spec": {**spec, "intent": "Eviction"}}
        plane.api.create(REQUESTS, request)

        assert main(["explain", "pod", "db", "-o", "json", "--no-daemon"]) == 0
        told = capsys.readouterr().out
        assert "upgrade.example/wave asks for it since" in told
        assert "No Eviction was made of it" in told, "v1.37 has the API alone"
        main([*DRAIN])
        warnings = " ".join(json.loads(capsys.readouterr().out)["warnings"])
        assert "default/db (for upgrade.example/wave)" in warnings
        assert "falls to 0, below its minCount of 2" in warnings

        assert main(["snapshot", "save", "s.json"]) == 0
        capsys.readouterr()
        assert main(["explain", "pod", "db", "-n", "default", "-f", "s.json"]) == 0
        assert "upgrade.example/wave asks for it since" in capsys.readouterr().out


def test_where_the_gates_are_off(
    tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    with control_plane() as plane, Kubelets(plane.api) as kubelets:
        monkeypatch.setenv("KUBECONFIG", str(plane.kubeconfig))
        kubelets.add_node("n1")
        pod(plane, "db")
        main([*DRAIN])
        out, err = capsys.readouterr()
        assert "cannot be read" not in err + out
        assert main(["explain", "pod", "db", "--no-daemon"]) == 0
        assert "Who asks for its eviction" not in capsys.readouterr().out
