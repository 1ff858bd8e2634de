"""Dumps as other tools leave them: nested folders, archives, and what does not belong there."""

from __future__ import annotations

import gzip
import io
import json
import tarfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from kubectl_nodelife.cli import main
from kubectl_nodelife.commands.cluster import archive
from kubectl_nodelife.commands.cluster.dump import Dump, read_dump
from kubectl_nodelife.commands.cluster.dump_files import kind_told_by
from kubectl_nodelife.errors import BadInput
from kubectl_nodelife.kube.kinds import kind_of

Document = dict[str, Any]


def node(version: str = "1") -> Document:
    return {"metadata": {"name": "a1", "resourceVersion": version}}


def pod(name: str = "web-0") -> Document:
    return {"metadata": {"name": name, "namespace": "shop"}, "spec": {"nodeName": "a1"}}


def of_kind(kind: str, document: Document) -> Document:
    return {"apiVersion": "v1", "kind": kind, **document}


def text(document: object) -> str:
    return json.dumps(document)


KINDLESS = {"metadata": {"resourceVersion": "9"}, "items": [pod()]}
MUST_GATHER = "must-gather.local.1/quay-io-openshift-sha256-1"
LAYOUTS: dict[str, dict[str, str]] = {
    "kubectl cluster-info dump": {
        "nodes.json": text({"kind": "NodeList", "apiVersion": "v1", "items": [node()]}),
        "shop/pods.json": text({"kind": "PodList", "apiVersion": "v1", "items": [pod()]}),
        "shop/web-0/logs.txt": "==== START logs for container web ====",
    },
    "must-gather": {
        f"{MUST_GATHER}/cluster-scoped-resources/core/nodes/a1.yaml": yaml.safe_dump(
            of_kind("Node", node())
        ),
        f"{MUST_GATHER}/namespaces/shop/core/pods.yaml": yaml.safe_dump(
            {"apiVersion": "v1", "items": [pod()], "kind": "PodList"}
        ),
        f"{MUST_GATHER}/namespaces/shop/pods/web-0/web-0.yaml": yaml.safe_dump(
            of_kind("Pod", pod())
        ),
        f"{MUST_GATHER}/version": "v1",
    },
    "Troubleshoot's support bundle": {
        "bundle/cluster-resources/nodes.json": text([node()]),
        "bundle/cluster-resources/pods/shop.json": text([pod()]),
        "bundle/cluster-resources/pods-errors.json": "null",
        "bundle/analysis.json": text([{"name": "enough.memory", "severity": "debug"}]),
        "bundle/version.yaml": "apiVersion: troubleshoot.sh/v1beta2\nkind: SupportBundle\n",
    },
    "Insights archive": {
        "config/node/a1.json": text(node()),
        "config/pod/shop/web-0.json": text(pod()),
        "config/id": "5dcb",
    },
    "Sonobuoy": {
        "resources/cluster/core_v1_nodes.json": text({"items": [node()]}),
        "resources/ns/shop/core_v1_pods.json": text(KINDLESS),
        "resources/ns/shop/metrics.k8s.io_v1beta1_pods.json": text(KINDLESS),
        "podlogs/shop/web-0/logs/web.txt": "started",
    },
}


def folder_of(files: Mapping[str, str], place: Path) -> str:
    for name, content in files.items():
        path = place / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
    return str(place)


def archive_of(files: Mapping[str, str], path: Path) -> str:
    with tarfile.open(path, "w:gz" if path.suffix != ".tar" else "w") as made:
        for name, content in files.items():
            header = tarfile.TarInfo(f"./{name}")
            header.size = len(content.encode())
            made.addfile(header, io.BytesIO(content.encode()))
    return str(path)


def told(dump: Dump) -> list[str]:
    return sorted(f"{kind_of(obj)} {'/'.join(filter(None, obj.key))}" for obj in dump.objects)


@pytest.mark.parametrize("way", ["folder", ".tar.gz", ".tgz", ".tar"])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_each_tools_dump_is_read(layout: str, way: str, tmp_path: Path) -> None:
    files = LAYOUTS[layout]
    if way == "folder":
        name = folder_of(files, tmp_path / "dump")
    else:
        name = archive_of(files, tmp_path / f"dump{way}")
    dump = read_dump([name])
    assert told(dump) == ["Node a1", "Pod shop/web-0"]
    assert {"Node", "Pod"} <= dump.kinds_read


@pytest.mark.parametrize(
    "path, kind",
    {
        "out/shop/pods.json": "Pod",
        "cluster-resources/pods/jobs.json": "Pod",  # of the namespace jobs
        "jobs/pods.json": "Pod",
        "apps_v1_daemonsets.json": "DaemonSet",
        "metrics.k8s.io_v1beta1_nodes.json": None,
        "resources/ns/shop/configmaps.json": None,
        "sonobuoy/hosts/a1/healthz.json": None,
    }.items(),
)
def test_the_path_tells_a_kind_where_a_document_does_not(path: str, kind: str | None) -> None:
    found = kind_told_by(path)
    assert (found.name if found else None) == kind


def test_what_lies_below_nodes_without_being_one_is_a_stranger(tmp_path: Path) -> None:
    files = {"nodes/a1.yaml": yaml.safe_dump(of_kind("Node", node())), "nodes/stats.json": "{}"}
    dump = read_dump([folder_of(files, tmp_path / "dump")])
    assert told(dump) == ["Node a1"] and "stats.json" in dump.warnings[0]


STRANGERS = {
    "nodes.json": text({"kind": "NodeList", "apiVersion": "v1", "items": [node()]}),
    "chart/values.yaml": "replicas: 3\nimage: web\n",
    "chart/empty.yaml": "",
}


def test_strangers_are_skipped_and_named(tmp_path: Path) -> None:
    dump = read_dump([folder_of(STRANGERS, tmp_path / "dump")])
    assert told(dump) == ["Node a1"]
    (warning,) = (w for w in dump.warnings if "skipped" in w)
    assert warning.startswith("files without Kubernetes objects were skipped: ")
    assert "values.yaml" in warning and "empty.yaml" in warning


def test_strict_refuses_strangers(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    name = folder_of(STRANGERS, tmp_path / "dump")
    assert main(["status", "-f", name]) == 0
    assert main(["status", "-f", name, "--strict"]) == 2
    (error,) = [line for line in capsys.readouterr().err.splitlines() if "error:" in line]
    assert "empty.yaml" in error and "--strict" in error


@pytest.mark.parametrize(
    "name, content",
    {
        "pods.json": '{"kind": "PodList", "apiVersion": "v1", "items": [{"metad',
        "pods.yaml": "",
        "all.json": text({"apiVersion": "v1", "kind": "List", "items": [5, of_kind("Pod", pod())]}),
        "all.yaml": "apiVersion: v1\nitems:\n- metadata: {name: web-0}\n",
    }.items(),
)
def test_a_damaged_part_of_the_dump_is_no_stranger(name: str, content: str, tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=name):
        read_dump([folder_of({**STRANGERS, name: content}, tmp_path / "dump")])


def test_a_stranger_that_is_named_is_refused(tmp_path: Path) -> None:
    folder_of(STRANGERS, tmp_path)
    with pytest.raises(BadInput, match="not a Kubernetes object"):
        read_dump([str(tmp_path / "chart/values.yaml")])
    with pytest.raises(BadInput, match="no file of it holds"):
        read_dump([str(tmp_path / "chart")])


def test_links_lead_nowhere(tmp_path: Path) -> None:
    """Neither in a folder nor in an archive: what is outside the dump is not read."""
    outside = tmp_path / "outside.json"
    outside.write_text(text(of_kind("Pod", pod("outside"))))
    place = Path(folder_of(STRANGERS, tmp_path / "dump"))
    (place / "link.json").symlink_to(outside)
    (place / "more").symlink_to(tmp_path)
    with tarfile.open(tmp_path / "dump.tar.gz", "w:gz") as made:
        made.add(place, "dump")
        for sort in (tarfile.SYMTYPE, tarfile.LNKTYPE):
            header = tarfile.TarInfo("dump/linked.json")
            header.type, header.linkname = sort, str(outside)
            made.addfile(header)
    for name in (str(place), str(tmp_path / "dump.tar.gz")):
        assert told(read_dump([name])) == ["Node a1"]


def test_archives_inside_are_named_and_not_opened(tmp_path: Path) -> None:
    name = archive_of({**STRANGERS, "insights/data.tar.gz": "?"}, tmp_path / "dump.tgz")
    assert any(
        "data.tar.gz; name them with -f" in warning for warning in read_dump([name]).warnings
    )


def test_an_archive_bomb_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is passed over counts, too; so do many files, and headers that want much memory."""
    blanks = archive_of({**STRANGERS, "audit.log": " " * (3 << 20)}, tmp_path / "dump.tar.gz")
    assert main(["status", "-f", blanks, "--max-file-size", "1Mi"]) == 2
    assert "holds more than 1,048,576 bytes" in capsys.readouterr().err
    header = tarfile.TarInfo("././@LongLink")
    header.type, header.size = tarfile.GNUTYPE_LONGNAME, 64 << 20
    long = tmp_path / "long.tar"
    long.write_bytes(header.tobuf() + b"a" * 5000)
    with pytest.raises(BadInput, match="a header of 67,108,864 bytes"):
        read_dump([str(long)])
    monkeypatch.setattr(archive, "MOST_MEMBERS", 2)
    with pytest.raises(BadInput, match="holds more than 2 files"):
        read_dump([archive_of(STRANGERS, tmp_path / "many.tar")])


@pytest.mark.parametrize("cut", ["gzip", "tar"])
def test_an_archive_that_is_cut_off_is_refused(cut: str, tmp_path: Path) -> None:
    """Wherever it is cut: in the middle of a file, or of what it is packed in."""
    path = tmp_path / "dump.tar.gz"
    archive_of({"nodes.json": STRANGERS["nodes.json"] + " " * 5000}, path)
    whole = path.read_bytes()
    path.write_bytes(whole[:-20] if cut == "gzip" else gzip.compress(gzip.decompress(whole)[:1500]))
    with pytest.raises(BadInput, match="is cut off or no tar archive"):
        read_dump([str(path)])
