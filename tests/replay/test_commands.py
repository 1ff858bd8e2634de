"""`replay` on a small API server: formats, filters, what cannot be read, and nothing but reads."""

import json
import time
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from kubectl_nodelife.cli import main
from kubectl_nodelife.kube.times import SECOND_NS, format_time
from tests.objects import event, node, write_list
from tests.raw_server import RawServer, in_a_thread, raw_server

Capture = pytest.CaptureFixture[str]


def ago(seconds: float) -> str:
    return format_time(time.time_ns() - round(seconds * SECOND_NS))


def said(
    kind: str, name: str, reason: str, message: str, component: str, seconds: float
) -> dict[str, Any]:
    host = "a1" if component == "kubelet" else ""
    when = {"when": ago(seconds), "by": component, "host": host}
    return event((kind, name), reason, message, namespace="shop", **when)


def drained() -> dict[str, Any]:
    fields = {"f:spec": {"f:unschedulable": {}}}
    manager = {"manager": "kubectl", "operation": "Update", "time": ago(101), "fieldsV1": fields}
    return node("a1", uid="", metadata={"managedFields": [manager]}, unschedulable=True)


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[RawServer]:
    evil = "<script>alert(1)</script>\x1b[31m"
    pod = {"metadata": {"namespace": "shop", "name": "web-1-b"}, "spec": {"nodeName": "b1"}}
    objects = [
        {"apiVersion": "v1", "kind": "Pod", **pod},
        drained(),
        said("Pod", "web-1-a", "Killing", "Stopping container c", "kubelet", 100),
        said("ReplicaSet", "web-1", "SuccessfulCreate", "Created pod: web-1-b", "rs", 99),
        said("Pod", "web-1-b", "Scheduled", "assigned", "default-scheduler", 98),
        said("Pod", "old", "Killing", "long ago", "kubelet", 7000),
        said("Pod", "odd", "FailedMount", evil, "kubelet", 60),
    ]
    with in_a_thread(raw_server(objects)) as found:
        monkeypatch.setenv("KUBECONFIG", found.kubeconfig(tmp_path))
        monkeypatch.setenv("HOME", str(tmp_path))
        monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
        monkeypatch.setenv("NODELIFE_RUNTIME_DIR", str(tmp_path / "run"))
        yield found


def replay(capsys: Capture, *words: str, code: int = 0) -> tuple[str, str]:
    """stdout and stderr."""
    assert main(["replay", *words]) == code
    out, err = capsys.readouterr()
    return out, err


def test_the_table_says_who_and_after_what(cluster: RawServer, capsys: Capture) -> None:
    out, err = replay(capsys, "--all-events")
    answer, table, lanes = out.split("\n\n", 2)
    assert "no node was lost" in answer
    header, *rows = table.splitlines()
    assert header.split() == ["#", "TIME", "WHO", "WHAT", "OBJECT", "AFTER", "WHY"]
    told = [" ".join(row.split()[2:7]) for row in rows]
    assert told[0].startswith("kubectl (a user) Cordon unschedulable")
    assert told[1].startswith("kubectl (a user) Drain 1")
    assert told[2].startswith("kubelet a1 Killing")
    assert "ReplicaSet/shop/web-1" in rows[3] and "#3?" in rows[3]
    assert "Pod/shop/web-1-b" in rows[4] and "#4?" in rows[4]
    assert len(rows) == 6
    bar = lanes.splitlines()[1].split()
    assert bar[:2] == ["a1", "cordoned"] and bar[-3:] == ["goes", "on", "<none>"]
    assert "\x1b" not in out
    assert "daemon start" in err


def test_the_document_has_each_line_and_its_actor(cluster: RawServer, capsys: Capture) -> None:
    document = json.loads(replay(capsys, "-o", "json")[0])
    assert (document["apiVersion"], document["kind"]) == ("nodelife.dev/v1alpha1", "Replay")
    items = document["items"]
    assert [item["id"] for item in items] == list(range(len(items)))
    actors = [(item["actor"]["kind"], item["actor"]["name"]) for item in items]
    assert actors == [
        ("user", "kubectl (a user)"),
        ("user", "kubectl (a user)"),
        ("kubelet", "kubelet a1"),
        ("controller", "rs"),
        ("controller", "scheduler"),
        ("kubelet", "kubelet a1"),
    ]
    assert [item["cause"] for item in items] == [None, 0, 1, 2, 3, None]
    assert items[4]["causeInferred"] is True
    assert items[4]["node"] == "b1"
    assert items[0]["seenBy"] == ["object"]
    assert document["source"]["server"].startswith("http://127.0.0.1")


def test_since_reaches_further_back(cluster: RawServer, capsys: Capture) -> None:
    out, err = replay(capsys, "--since", "3h", "-o", "json")
    assert "old" in [item["object"]["name"] for item in json.loads(out)["items"]]
    assert "forgets Events" in err


def test_narrowed_to_a_pod_and_a_node(cluster: RawServer, capsys: Capture) -> None:
    out, _ = replay(capsys, "pod", "web-1-b", "-n", "shop", "-o", "name")
    chain = ["node/a1", "pod/shop/web-1-a", "replicaset/shop/web-1", "pod/shop/web-1-b"]
    assert out.split() == chain  # who cordoned the node of the pod that it replaces, first
    out, _ = replay(capsys, "node", "a1", "-o", "name")
    assert out.split()[0] == "node/a1"
    out, err = replay(capsys, "node", "nowhere")
    assert (out, "Nothing was found" in err) == ("", True)


class Page(HTMLParser):
    """Tags, the ids that are there and those that links lead to."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.ids: set[str] = set()
        self.links: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        for name, value in attrs:
            assert name != "src"
            if name == "id":
                self.ids.add(str(value))
            elif name == "href":
                self.links.add(str(value))


def test_the_page_is_one_file_and_its_links_lead_somewhere(
    cluster: RawServer, capsys: Capture
) -> None:
    out, _ = replay(capsys, "-o", "html")
    page = Page(out)
    assert "script" not in page.tags and "link" not in page.tags
    assert {"svg", "rect", "table"} <= page.tags
    assert page.links and {link.removeprefix("#") for link in page.links} <= page.ids
    assert "&lt;script&gt;" in out and "\x1b" not in out
    assert "kubectl (a user)" in out


def test_what_may_not_be_read_is_said(cluster: RawServer, capsys: Capture) -> None:
    cluster.refused = {"events": 403}
    out, err = replay(capsys, "-o", "json")
    assert "Event cannot be read" in err
    assert [item["action"] for item in json.loads(out)["items"]] == ["Cordon"]
    cluster.refused |= {"nodes": 403, "pods": 403}
    _, err = replay(capsys, code=1)
    assert "nodelife rbac" in err.splitlines()[-1]


@pytest.mark.parametrize("since", ["soon", "0s", "-1h"])
def test_a_wrong_since(cluster: RawServer, capsys: Capture, since: str) -> None:
    _, err = replay(capsys, f"--since={since}", code=2)
    assert "error: --since" in err


def test_nothing_but_gets(cluster: RawServer, capsys: Capture) -> None:
    replay(capsys)
    assert cluster.requests and not cluster.writes


def test_the_page_begins_with_the_story_of_nodes(cluster: RawServer, capsys: Capture) -> None:
    out, _ = replay(capsys)
    _, table, rest, _ = out.split("\n\n", 3)
    rows = [" ".join(row.split()[2:7]) for row in table.splitlines()[1:]]
    assert rows[0].startswith("kubectl (a user) Cordon unschedulable")
    assert rows[1].startswith("kubectl (a user) Drain 1")
    assert len(rows) == 2
    assert rest == "4 more lines about pods and other objects (--all-events)"
    items = json.loads(replay(capsys, "-o", "json")[0])["items"]
    assert len(items) >= 6  # a document has all of it


def test_a_dump_tells_as_much_as_the_cluster(
    tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its moment is the newest sign in it, and no cluster is asked."""
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "none"))
    killing = said("Pod", "web-1-a", "Killing", "Stopping container c", "kubelet", 100)
    files = {"nodes.json": [drained()], "events.json": [killing]}
    for name, items in files.items():
        write_list(tmp_path / name, items)
    out, err = replay(capsys, "-f", str(tmp_path), "--all-events")
    table = out.split("\n\n")[1]
    rows = [" ".join(row.split()[2:7]) for row in table.splitlines()[1:]]
    assert rows[0].startswith("kubectl (a user) Cordon unschedulable")
    assert rows[1].startswith("kubelet a1 Killing Pod/shop/web-1-a")
    assert len(rows) == 2 and "daemon" not in err
    (tmp_path / "events.json").unlink()
    out, err = replay(capsys, "-f", str(tmp_path), "--now", ago(0), "node", "a1")
    assert "Cordon" in out and "no Events were read" in err
    _, err = replay(capsys, "-f", str(tmp_path), "--drain", "a1")
    assert "no PodDisruptionBudgets were read" in err
