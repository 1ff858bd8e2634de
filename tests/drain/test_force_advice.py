"""What every verb says about forcing a pod away comes from one place: four verbs, one sentence."""

import json
from pathlib import Path
from typing import Any

import pytest

from kubectl_nodelife.cli import main
from tests.drain.build import NOW, flattened, node, replica_set
from tests.objects import write_list

Capture = pytest.CaptureFixture[str]
LONG_AGO = "2026-01-01T00:10:00Z"
HALF_A_MINUTE_AGO = "2026-01-01T00:59:30Z"


def stuck(ready: str, lease: str) -> list[dict[str, Any]]:
    """Node a1 with a pod that should have been gone for long, and another node."""
    status = {"conditions": [{"type": "Ready", "status": ready, "lastHeartbeatTime": lease}]}
    deleted = {"deletionTimestamp": LONG_AGO, "deletionGracePeriodSeconds": 2}
    web = replica_set("web", "a1", metadata=deleted)
    return flattened((node("a1", lease=lease, status=status), node("a2"), web))


def said(capsys: Capture, path: str, *words: str) -> Any:
    assert main([*words, "-f", path, "--now", NOW, "-o", "json"]) == 0
    return json.loads(capsys.readouterr().out)


@pytest.mark.parametrize(
    "ready, lease, profile, sentence",
    [
        pytest.param(
            "Unknown",
            LONG_AGO,
            "v1.36",
            "only once the machine of a1 is known to be off: kubectl taint node a1"
            " node.kubernetes.io/out-of-service=nodeshutdown:NoExecute, and pod-gc deletes its"
            " terminating pods",
            id="silent",
        ),
        pytest.param(
            "Unknown",
            LONG_AGO,
            "v1.20",
            "only once the machine of a1 is known to be off: kubectl delete pod -n default web-0"
            " --grace-period=0 --force",
            id="silent-where-pod-gc-knows-no-taint",
        ),
        pytest.param(
            "True",
            HALF_A_MINUTE_AGO,
            "v1.36",
            "do not force-delete: the kubelet of a1 reported 30s ago, so the machine is on;"
            " look there at its containers, its volumes and the kubelet's log",
            id="its-kubelet-speaks",
        ),
        pytest.param(
            "False",
            HALF_A_MINUTE_AGO,
            "v1.36",
            "do not force-delete: the kubelet of a1 reported 30s ago, so the machine is on;"
            " repair the node, whose kubelet says why it is not ready",
            id="its-kubelet-says-it-is-not-ready",
        ),
    ],
)
def test_four_verbs_say_the_same(
    ready: str, lease: str, profile: str, sentence: str, tmp_path: Path, capsys: Capture
) -> None:
    path = write_list(tmp_path / "dump.json", stuck(ready, lease))
    rest = ("--profile", profile)
    plan = said(capsys, path, "drain-plan", "a1", *rest)
    explained = said(capsys, path, "explain", "pod", "web-0", *rest)
    audited = said(capsys, path, "audit", *rest)
    repaired = said(capsys, path, "repair", *rest)

    (of_plan,) = [pod for wave in plan["waves"] for pod in wave["pods"]]
    assert of_plan["gate"] == "kubelet-unreachable"
    unblock = of_plan["unblock"] or {"change": of_plan["unblockHint"]}
    assert sentence in unblock["change"]
    assert sentence in explained["answers"][1]["sentences"][0]
    (finding,) = [f for f in audited["findings"] if f["name"] == "web-0"]
    assert finding["remedy"] == finding["advice"]["sentence"] == sentence
    (step,) = repaired["steps"]
    if sentence.startswith("do not"):
        assert sentence in step["refusals"][0]
    else:  # repair wants to be told that it is off, and then does what is said
        assert step["refusals"] == ["nothing proves that node a1 is off; say so with --fenced a1"]
