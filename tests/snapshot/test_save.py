"""`snapshot save`: what is asked of the cluster, what the file says, and what is not in it."""

import contextlib
import gzip
import json
import os
import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from kubectl_nodelife import snapshot as file
from kubectl_nodelife.cli import main
from kubectl_nodelife.commands.access_rules import RULES
from kubectl_nodelife.commands.cluster import saving
from kubectl_nodelife.dumps import dump
from kubectl_nodelife.kube.kinds import OPTIONAL_KINDS, group_of, kind_named
from kubectl_nodelife.report import live_line
from tests.objects import write_list
from tests.raw_server import RawServer, Request, in_a_thread, raw_server
from tests.snapshot.planted import SECRETS, items_of, more, plant, read_dump
from tests.snapshot.test_redact import control_plane

DUMP = Path(__file__).parents[1] / "dumps" / "two-zones"
Capture = pytest.CaptureFixture[str]
MANAGER = "kube-controller-manager"


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[RawServer]:
    flags = ("--node-monitor-grace-period=33s", "--token=s3cr3t-flag")
    manager = {"apiVersion": "v1", "kind": "Pod", **control_plane(MANAGER, *flags)}
    secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "hidden"}}
    objects = [*items_of(plant(read_dump(DUMP))), *more(), manager, secret]
    with in_a_thread(raw_server(objects)) as found:
        monkeypatch.setenv("KUBECONFIG", found.kubeconfig(tmp_path))
        monkeypatch.setenv("HOME", str(tmp_path))
        monkeypatch.setenv("NODELIFE_RUNTIME_DIR", str(tmp_path / "run"))
        monkeypatch.chdir(tmp_path)
        yield found


def save(*words: str, file: str = "s.json") -> dict[str, Any]:
    """The snapshot as a document."""
    assert main(["snapshot", "save", file, *words]) == 0
    content = Path(file).read_bytes()
    document: dict[str, Any] = json.loads(gzip.decompress(content) if ".gz" in file else content)
    return document


def test_a_list_with_everything_and_its_kinds(cluster: RawServer, capsys: Capture) -> None:
    document = save()
    assert (document["apiVersion"], document["kind"]) == ("v1", "List")
    noted = document["metadata"]["annotations"]
    served = [kind for kind in saving.KINDS if kind not in OPTIONAL_KINDS]  # gates are off there
    kinds = [kind_named(kind).plural for kind in served]
    assert noted["nodelife.dev/kinds"].split(",") == kinds
    assert "nodelife.dev/not-read" not in noted
    kept = {(i["kind"], i["metadata"]["name"]) for i in document["items"]}
    assert len(kept) == len(document["items"])
    assert {k for k, _ in kept} >= {"Node", "Pod", "Lease", "ControllerRevision", "StorageClass"}
    there = {i["metadata"]["name"] for plural in kinds for i in cluster.objects(plural)}
    assert {name for _, name in kept} == there
    assert "s.json: " in capsys.readouterr().err


def test_nothing_but_gets_and_never_secrets(cluster: RawServer) -> None:
    save()
    save("--full")
    assert not cluster.writes
    paths = [request.target for request in cluster.requests]
    assert not [p for p in paths if "secrets" in p or "configmaps" in p]
    assert all("watch" not in path for path in paths)


def test_no_planted_secret_is_anywhere_in_the_file(cluster: RawServer) -> None:
    save()
    content = Path("s.json").read_text()
    planted = json.dumps(cluster.objects())
    assert [secret for secret in SECRETS if secret in planted] == list(SECRETS)
    assert not [secret for secret in SECRETS if secret in content]


def test_full_keeps_everything_as_it_is(cluster: RawServer) -> None:
    document = save("--full")
    pods = [i for i in document["items"] if i["kind"] == "Pod"]
    assert cluster.objects("pods") == pods
    assert document["metadata"]["annotations"]["nodelife.dev/values"] == "as they are"


def test_each_snapshot_has_a_key_of_its_own(cluster: RawServer) -> None:
    def values(document: dict[str, Any]) -> list[str]:
        pods = [i for i in document["items"] if i["kind"] == "Pod" and "env" in json.dumps(i)]
        return [e["value"] for e in pods[0]["spec"]["containers"][0]["env"] if "value" in e]

    one, other = values(save()), values(save())
    assert one and one != other


def test_what_rbac_refuses_is_declared(cluster: RawServer, capsys: Capture) -> None:
    cluster.refused = {"poddisruptionbudgets": 403, "storageclasses": 403}
    noted = save()["metadata"]["annotations"]
    assert not {"poddisruptionbudgets", "storageclasses"} & set(
        noted["nodelife.dev/kinds"].split(",")
    )
    assert noted["nodelife.dev/not-read"] == "poddisruptionbudgets,storageclasses"
    assert "PodDisruptionBudget, StorageClass cannot be read" in capsys.readouterr().err
    force = ("--ignore-daemonsets", "--delete-emptydir-data", "--force")
    dump = ("-f", "s.json", "--now", "2026-11-21T15:06:45Z")  # when its kubelets were alive
    assert main(["drain-plan", "worker-a1", *force, *dump, "-o", "json"]) == 0
    plan = json.loads(capsys.readouterr().out)
    assert "PodDisruptionBudget" in [missing["kind"] for missing in plan["notEvaluated"]]


def test_a_kind_that_is_not_served_has_no_objects(cluster: RawServer) -> None:
    cluster.refused = {"validatingadmissionpolicies": 404}
    noted = save()["metadata"]["annotations"]
    assert "validatingadmissionpolicies" in noted["nodelife.dev/kinds"].split(",")


def test_who_may_list_nothing_gets_no_file(cluster: RawServer, capsys: Capture) -> None:
    cluster.refused = {kind_named(kind).plural: 403 for kind in saving.KINDS}
    assert main(["snapshot", "save", "s.json"]) == 1
    assert "nothing may be listed" in capsys.readouterr().err
    assert not list(Path().glob("*s.json*"))


def test_the_role_that_we_print_is_enough() -> None:
    granted = {(group, name) for group, names, verbs in RULES if "list" in verbs for name in names}
    kinds = [kind_named(kind) for kind in saving.KINDS]
    assert {(group_of(kind.api_version), kind.plural) for kind in kinds} <= granted


def test_the_bar_knows_how_much_there_is(
    cluster: RawServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun: list[int | None] = []
    steps: list[int] = []

    @contextlib.contextmanager
    def bar(what: str, total: int | None = None) -> Iterator[Callable[[int], None]]:
        begun.append(total)
        yield steps.append

    monkeypatch.setattr(live_line, "progress_bar", bar)
    items = save()["items"]
    assert begun == [len(items)]
    assert steps == sorted(steps) and steps[-1] == len(items)


@pytest.mark.parametrize("expire", [0, 2])
def test_pages_also_when_a_token_expires(
    cluster: RawServer, monkeypatch: pytest.MonkeyPatch, expire: int
) -> None:
    monkeypatch.setattr(file, "PAGE_SIZE", 3)
    tokens = iter(range(expire))

    async def too_old(request: Request) -> bool:
        if "continue" not in request.query or next(tokens, None) is None:
            return False
        await request.status(410, "too old", "Expired")
        return True

    cluster.sickness = too_old
    items = save()["items"]
    pods = sorted(i["metadata"]["name"] for i in items if i["kind"] == "Pod")
    assert pods == sorted(p["metadata"]["name"] for p in cluster.objects("pods"))
    limits = {request.query.get("limit") for request in cluster.requests}
    assert limits == {None, "1", "3"}  # the version and pods by name; the counts; the pages


def test_a_failure_on_the_way_leaves_the_old_file(
    cluster: RawServer, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    monkeypatch.setattr(file, "PAGE_SIZE", 3)
    Path("s.json").write_text("old")

    async def no_second_page(request: Request) -> bool:
        if request.plural != "pods" or "continue" not in request.query:
            return False
        await request.status(500, "etcd is gone")
        return True

    cluster.sickness = no_second_page
    assert main(["snapshot", "save", "s.json"]) == 1
    assert capsys.readouterr().err.splitlines()[-1] == "error: pods: etcd is gone; try again"
    assert Path("s.json").read_text() == "old"
    assert [p.name for p in Path().iterdir() if p.name.startswith(".s.json")] == []


@pytest.mark.parametrize("file", ["s.json", "s.json.gz"])
def test_the_file_is_private_and_readable_here(
    cluster: RawServer, capsys: Capture, file: str
) -> None:
    save(file=file)
    assert stat.S_IMODE(Path(file).stat().st_mode) == 0o600
    assert main(["status", "-f", file, "-o", "json"]) == 0
    assert len(json.loads(capsys.readouterr().out)["nodes"]) == len(cluster.objects("nodes"))


@pytest.mark.parametrize(
    "file, told", [(".", ".: is a folder"), ("no/where.json", "no/where.json: cannot be written")]
)
def test_no_place_for_a_file(cluster: RawServer, capsys: Capture, file: str, told: str) -> None:
    assert main(["snapshot", "save", file]) in (1, 2)
    assert capsys.readouterr().err.startswith(f"error: {told}")


def test_what_is_no_file_is_not_replaced(cluster: RawServer, capsys: Capture) -> None:
    """As root `snapshot save /dev/stdout` would put a file in the place of a device."""
    os.mkfifo("pipe")
    assert main(["snapshot", "save", "pipe"]) == 2
    assert capsys.readouterr().err == "error: pipe: is no regular file; name a file\n"
    assert Path("pipe").is_fifo()
    Path("link.json").symlink_to("kept.json")
    assert main(["snapshot", "save", "link.json"]) == 0
    assert Path("link.json").is_symlink() and Path("kept.json").is_file()


def test_moment_release_and_flags_come_back(cluster: RawServer, capsys: Capture) -> None:
    cluster.release = "v1.31.4"
    document = save()
    assert main(["status", "-f", "s.json", "-o", "json"]) == 0
    status = json.loads(capsys.readouterr().out)
    assert status["profile"] == "v1.31"
    assert status["moment"]["time"] == document["metadata"]["annotations"]["nodelife.dev/moment"]
    assert status["moment"]["origin"] == "noted in the snapshot"
    settings = dump.settings_of(dump.read_dump(["s.json"]), ())
    assert settings.flags["node-monitor-grace-period"] == "33s"
    assert settings.origins["node-monitor-grace-period"] == f"{MANAGER} (pod {MANAGER}-cp-1)"
    named = dump.read_dump(["s.json"], profile="v1.29", now="2026-11-21T15:00:00Z")
    assert (named.profile.name, named.moment_origin) == ("v1.29", "--now")
    assert dump.settings_of(named, ("node-eviction-rate=0.3",)).node_eviction_rate == 0.3


def test_notes_that_make_no_sense_are_said(tmp_path: Path) -> None:
    noted = {"nodelife.dev/moment": "soon", "nodelife.dev/running": "[1]"}
    file = write_list(tmp_path / "s.json", [], annotations=noted)
    warnings = " ".join(dump.read_dump([file]).warnings)
    assert "nodelife.dev/moment is no time" in warnings
    assert "nodelife.dev/running cannot be decoded" in warnings
    packed = tmp_path / "s.json.gz"
    packed.write_bytes(b"no gzip")
    assert main(["status", "-f", str(packed)]) == 2
