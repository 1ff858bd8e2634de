"""What `audit` tells to do about a class of findings: nothing that a pod's own advice forbids."""

import json
from pathlib import Path

import pytest

from kubectl_nodelife.cli import main
from tests.diverge.test_of_dump import ago, of_zone, web


def test_the_class_does_not_advise_what_the_pod_forbids(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The node's own kubelet says that it is not ready: its machine is on."""
    sick = of_zone("a", "False", 3600)
    sick["status"]["conditions"][0]["lastHeartbeatTime"] = ago(1)
    stuck = web("web", "a")
    stuck["metadata"] |= {"deletionTimestamp": ago(3000), "deletionGracePeriodSeconds": 30}
    path = tmp_path / "dump.json"
    path.write_text("\n".join(json.dumps(obj) for obj in (sick, stuck)))
    assert main(["audit", "-f", str(path), "--now", ago(0)]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "Do: do not force-delete: the kubelet of a reported 1s ago" in said
    assert "make sure that the machine is off" not in said


@pytest.mark.parametrize(
    "words",
    [["-A"], ["-A", "--class", "stuck-not-ready", "-o", "json"], ["stuck", "-n", "shop"], ["-x"]],
    ids=" ".join,
)
def test_audit_repair_is_repair(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    dump = str(Path(__file__).parents[1] / "dumps/stuck-pods.yaml")
    said = []
    for verb in (["repair"], ["audit", "--repair"]):
        code = main([*verb, *words, "-f", dump])
        said.append((code, *capsys.readouterr()))
    assert said[0] == said[1]
