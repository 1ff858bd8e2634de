"""A silent node whose Lease another client wrote to: what `status` and `explain node` say of it."""

import json
from pathlib import Path
from typing import Any

import pytest

from kubectl_nodelife.cli import main
from kubectl_nodelife.engine.cache import Cache
from kubectl_nodelife.engine.settings import make_settings
from kubectl_nodelife.kube.load import decode
from kubectl_nodelife.kube.times import MINUTE_NS, parse_time
from kubectl_nodelife.sim.present import join
from tests.objects import lease, node, write_list

NOW = "2026-01-01T12:00:05Z"
RENEWED = "2026-01-01T11:59:30Z"
TOUCH = {
    "manager": "kubectl-annotate",
    "operation": "Update",
    "time": "2026-01-01T11:59:50Z",
    "fieldsV1": {"f:metadata": {"f:annotations": {".": {}}}},
}
SENTENCE = (
    "its Lease was changed by kubectl-annotate at 2026-01-01T11:59:50Z: kube-controller-manager "
    "1.37 does not call it lost before it renews, the Lease is deleted, or the manager restarts"
)


def posted(name: str) -> dict[str, Any]:
    """A node whose kubelet posted its status two minutes ago."""
    return node(name, heartbeat="2026-01-01T11:58:00Z", since="2026-01-01T00:00:00Z")


def touched(name: str, *touches: dict[str, Any], renewed: str = RENEWED) -> dict[str, Any]:
    """The Lease of a kubelet that others wrote to as well."""
    renewal = {
        "manager": "kubelet",
        "operation": "Update",
        "time": renewed,
        "fieldsV1": {"f:spec": {"f:holderIdentity": {}, "f:renewTime": {}}},
    }
    return lease(name, renewed, version="77", metadata={"managedFields": [renewal, *touches]})


def told(
    folder: Path, capsys: pytest.CaptureFixture[str], objects: list[Any], *words: str
) -> dict[str, Any]:
    write_list(folder / "all.json", objects)
    assert main([*words, "-f", str(folder), "--now", NOW, "-o", "json"]) == 0
    document: dict[str, Any] = json.loads(capsys.readouterr().out)
    return document


OTHERS = [posted("ok"), touched("ok", renewed="2026-01-01T12:00:00Z")]


@pytest.mark.parametrize(
    ("release", "touches", "kept"),
    [
        pytest.param("v1.36", [TOUCH], False, id="up-to-1.36-the-lease-is-not-read"),
        pytest.param("v1.37", [TOUCH], True, id="since-1.37-it-is-never-lost"),
        pytest.param("v1.37", [], False, id="not-without-such-a-write"),
        pytest.param(
            "v1.37",
            [{**TOUCH, "time": "2026-01-01T11:59:20Z"}],
            False,
            id="not-where-the-kubelet-renewed-since",
        ),
    ],
)
def test_status_of_a_node_whose_lease_was_touched(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    release: str,
    touches: list[Any],
    kept: bool,
) -> None:
    objects = [*OTHERS, posted("n1"), touched("n1", *touches)]
    document = told(tmp_path, capsys, objects, "status", "--profile", release)
    (found,) = [n for n in document["nodes"] if n["name"] == "n1"]
    assert found["verdict"]["state"] == "silent"
    assert (SENTENCE in found["verdict"]["because"]) is kept
    assert ("unknownInSeconds" not in found) is kept


def test_explain_node_says_who_changed_it_and_what_ends_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    objects = [*OTHERS, posted("n1"), touched("n1", TOUCH)]
    document = told(tmp_path, capsys, objects, "explain", "node", "n1", "--profile", "v1.37")
    assert SENTENCE in json.dumps(document)


@pytest.mark.parametrize(("release", "lost"), [("v1.36", {"n1", "n2"}), ("v1.37", {"n2"})])
def test_a_play_of_the_present_loses_it_up_to_1_36(release: str, lost: set[str]) -> None:
    documents = [*OTHERS, posted("n1"), touched("n1", TOUCH), posted("n2"), touched("n2")]
    now_ns, cluster = int(parse_time(NOW)), Cache()
    cluster.fill([decode(d["kind"], d) for d in documents], now_ns)
    settings = make_settings(release, {})
    play = join(cluster, settings, now_ns, ("Node", "Lease", "Pod")).begin(10 * MINUTE_NS)
    play.play()
    assert {r.object.name for r in play.records() if r.action == "SetNodeCondition"} == lost
