"""Two dumps in one input: what is gone in the newer one does not come back from the older."""

import json
from pathlib import Path
from typing import Any

import pytest

from kubectl_nodelife.dumps.dump import read_dump
from tests.commands.test_dumps_as_they_come import archive_of, of_kind, pod, text, told
from tests.objects import write_list

Document = dict[str, Any]


def node(posted: str, version: str) -> Document:
    ready = {"type": "Ready", "status": "True", "lastHeartbeatTime": f"2026-11-{posted}Z"}
    return of_kind(
        "Node",
        {
            "metadata": {"name": "a1", "resourceVersion": version},
            "status": {"conditions": [ready]},
        },
    )


def bundle(posted: str, version: str, *pods: str) -> dict[str, str]:
    listed = {"apiVersion": "v1", "kind": "PodList", "items": [pod(name) for name in pods]}
    return {"nodes.json": text([node(posted, version)]), "pods.json": text(listed)}


SET = {**of_kind("ReplicaSet", pod("web")), "apiVersion": "apps/v1"}
MONDAY = bundle("16T09:00:00", "1", "gone", "web-0")
TUESDAY = bundle("17T10:00:00", "2", "web-0")


@pytest.mark.parametrize("way", ["two names", "one folder", "one inside the other"])
def test_a_pod_that_is_gone_stays_gone(way: str, tmp_path: Path) -> None:
    old = archive_of(
        {**MONDAY, "sets.json": text([SET])},
        tmp_path / "monday.tar.gz",
    )
    new = archive_of(TUESDAY, tmp_path / "tuesday.zip")
    if way == "two names":
        dump = read_dump([old, new])
    elif way == "one folder":
        dump = read_dump([str(tmp_path)])
    else:
        inside = Path(old).read_bytes()
        dump = read_dump([archive_of({**TUESDAY, "m.tar.gz": inside}, tmp_path / "both.zip")])
    assert told(dump) == ["Node a1", "Pod shop/web-0", "ReplicaSet shop/web"]
    assert dump.moment()["time"].startswith("2026-11-17")
    (warning,) = (w for w in dump.warnings if "older" in w)
    assert "25h older than the newest dump here: of it only ReplicaSet counts" in warning


def test_what_was_read_within_minutes_is_one_dump(tmp_path: Path) -> None:
    first = archive_of(bundle("17T09:56:00", "1", "early"), tmp_path / "1.zip")
    dump = read_dump([first, archive_of(TUESDAY, tmp_path / "2.zip")])
    assert "Pod shop/early" in told(dump)


def test_a_file_that_tells_no_moment_belongs_to_any(tmp_path: Path) -> None:
    (tmp_path / "pods.json").write_text(json.dumps([of_kind("Pod", pod("more"))]))
    dump = read_dump([archive_of(TUESDAY, tmp_path / "2.zip"), str(tmp_path / "pods.json")])
    assert "Pod shop/more" in told(dump)


def test_two_snapshots_have_the_moment_of_the_newer(tmp_path: Path) -> None:
    names = []
    for day in ("17", "16"):
        noted = {"nodelife.dev/moment": f"2026-11-{day}T00:00:00.000000Z"}
        items = [of_kind("Pod", pod(f"of-{day}"))]
        meta = {"annotations": {**noted, "nodelife.dev/kinds": "pods"}}
        names.append(write_list(tmp_path / f"{day}.json", items, **meta))
    dump = read_dump(names)
    assert told(dump) == ["Pod shop/of-17"]
    assert dump.moment()["time"].startswith("2026-11-17")
