"""Dumps as other tools leave them: nested folders, archives, and what does not belong there."""

import bz2
import gzip
import io
import json
import lzma
import tarfile
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from kubectl_nodelife.cli import main
from kubectl_nodelife.dumps.dump import Dump, read_dump, without_logs
from kubectl_nodelife.dumps.dump_files import kind_of_path
from kubectl_nodelife.errors import BadInput
from kubectl_nodelife.kube.kinds import kind_of
from kubectl_nodelife.kube.node import Node

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


def log_of(container: str, said: str) -> str:
    whose = f"logs for container {container} of pod shop/web-0 ===="
    return f"==== START {whose}\n{said}==== END {whose}\n"


STDOUT = "".join(
    (
        text({"kind": "NodeList", "apiVersion": "v1", "items": [node()]}) + "\n",
        text({"kind": "EventList", "apiVersion": "v1", "items": []}) + "\n",
        text({"kind": "PodList", "apiVersion": "v1", "items": [pod()]}) + "\n",
        log_of("web", "a line\n==== START logs\n" + text(of_kind("Pod", pod("said-in-a-log")))),
        log_of("side", ""),
    )
)
LAYOUTS["kubectl cluster-info dump to a file"] = {"out.json": STDOUT}


def folder_of(files: Mapping[str, str], place: Path) -> str:
    for name, content in files.items():
        path = place / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
    return str(place)


def archive_of(files: Mapping[str, str | bytes], path: Path) -> str:
    contents = {n: c.encode() if isinstance(c, str) else c for n, c in files.items()}
    if path.suffix == ".zip":
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as zipped:
            for name, content in contents.items():
                zipped.writestr(name, content)
        return str(path)
    packed = {".gz": "gz", ".tgz": "gz", ".bz2": "bz2", ".xz": "xz"}.get(path.suffix, "")
    with tarfile.open(path, f"w:{packed}") as made:
        for name, content in contents.items():
            header = tarfile.TarInfo(f"./{name}")
            header.size = len(content)
            made.addfile(header, io.BytesIO(content))
    return str(path)


def told(dump: Dump) -> list[str]:
    return sorted(f"{kind_of(obj)} {'/'.join(filter(None, obj.key))}" for obj in dump.objects)


WAYS = ["folder", ".tar.gz", ".tgz", ".tar", ".tar.bz2", ".tar.xz", ".zip"]


@pytest.mark.parametrize("way", WAYS)
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
        "cluster-resources/pod-disruption-budgets/shop.json": "PodDisruptionBudget",
        "cluster-resources/pvs.json": "PersistentVolume",
        "config/pdbs/shop/web.json": "PodDisruptionBudget",
        "run-example/run-example-events.json": "Event",
        "shop/pods.json.gz": "Pod",
        "custom-resource-definitions.json": None,
    }.items(),
)
def test_the_path_tells_a_kind_where_a_document_does_not(path: str, kind: str | None) -> None:
    found = kind_of_path(path)
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


@pytest.mark.parametrize(
    "pack, suffix", [(gzip.compress, ".gz"), (bz2.compress, ".bz2"), (lzma.compress, ".xz")]
)
def test_packed_files_are_read_named_or_found(
    pack: Callable[[bytes], bytes], suffix: str, tmp_path: Path
) -> None:
    path = tmp_path / f"nodes.json{suffix}"
    path.write_bytes(pack(text([node()]).encode()))
    assert told(read_dump([str(path)])) == told(read_dump([str(tmp_path)])) == ["Node a1"]


def test_a_list_of_something_else_without_its_kind_is_a_stranger(tmp_path: Path) -> None:
    """As Troubleshoot writes CustomResourceDefinitions, and the Insights Operator its events."""
    crds = text({"metadata": {"resourceVersion": "1"}, "items": [{"metadata": {"name": "a.b.c"}}]})
    events = text({"items": [{"namespace": "shop", "reason": "Failed", "message": "no"}]})
    files = {"custom-resource-definitions.json": crds, "events/shop.json": events}
    dump = read_dump([folder_of({**STRANGERS, **files}, tmp_path / "dump")])
    assert told(dump) == ["Node a1"]


@pytest.mark.parametrize("length", [1, 7, 50, 1 << 20])
def test_logs_are_taken_out_wherever_a_piece_ends(length: int) -> None:
    data = STDOUT.encode()
    pieces = (data[at : at + length] for at in range(0, len(data), length))
    left = b"".join(without_logs(pieces, "dump")).decode()
    assert left.split() == [line for line in STDOUT.splitlines()[:3] for line in line.split()]


def test_what_is_cut_off_in_a_log_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "dump.json"
    path.write_text(STDOUT[: STDOUT.index("==== END")])
    with pytest.raises(BadInput, match="cut off in the logs of container web of pod shop/web-0"):
        read_dump([str(path)])


@pytest.mark.parametrize("richer", ["1.json", "2.json"])
def test_a_node_with_and_without_its_managers_is_one(richer: str, tmp_path: Path) -> None:
    """must-gather has a file of its own for what a List holds as well, stripped otherwise."""
    entry = {
        "manager": "kubectl-cordon",
        "operation": "Update",
        "time": "2026-11-22T09:00:00Z",
        "fieldsV1": {"f:spec": {"f:unschedulable": {}}},
    }
    for name in ("1.json", "2.json"):
        found = of_kind("Node", node())
        if name == richer:
            found = {**found, "metadata": {**found["metadata"], "managedFields": [entry]}}
        (tmp_path / name).write_text(text(found))
    (kept,) = read_dump([str(tmp_path)]).objects
    assert isinstance(kept, Node) and kept.managers


HELM = "apiVersion: apps/v1\nkind: Deployment\n{{- if .Values.on }}\nspec: {}\n{{- end }}\n"


def test_a_helm_chart_is_a_stranger(tmp_path: Path) -> None:
    files = {**STRANGERS, "chart/templates/deployment.yaml": HELM}
    dump = read_dump([folder_of(files, tmp_path / "dump")])
    assert told(dump) == ["Node a1"]
    broken = "apiVersion: v1\nkind: Pod\nmetadata: [\n"
    with pytest.raises(BadInput, match="broken"):
        read_dump([folder_of({**files, "broken.yaml": broken}, tmp_path / "dump")])


def test_yaml_of_kinds_that_are_not_read_is_counted_unparsed(tmp_path: Path) -> None:
    """Its kind stands at the first column; a broken end shows that nothing else was looked at."""
    secret = {"apiVersion": "v1", "items": [{"data": {"a": "x"}}] * 3, "kind": "SecretList"}
    route = "apiVersion: route.openshift.io/v1\nkind: Route\nspec: [\n"
    several = "apiVersion: v1\nkind: Secret\n---\n" + yaml.safe_dump(of_kind("Pod", pod()))
    files = {"secrets.yaml": yaml.safe_dump(secret), "route.yaml": route, "both.yaml": several}
    dump = read_dump([folder_of(files, tmp_path / "dump")])
    assert told(dump) == ["Pod shop/web-0"]
    (warning,) = dump.warnings[:1]
    assert warning.endswith("passed over: Route (1), Secret (4)")
