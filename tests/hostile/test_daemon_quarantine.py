"""The daemon meets objects that it cannot read: it names them, keeps off them, and goes on."""

import logging
from pathlib import Path
from typing import Any

import pytest

from kubectl_nodelife.daemon.logs import QuarantineLog, log_bug
from kubectl_nodelife.daemon.server import health
from kubectl_nodelife.engine.events import Unreadable
from kubectl_nodelife.kube.kinds import kind_named
from kubectl_nodelife.kube.unreadable import reason
from kubectl_nodelife.live.listwatch import WatchStream
from kubectl_nodelife.live.news import ListNews, WatchNews
from tests.daemon.lab import Lab, lease, make_lab, node, pod, unreachable
from tests.daemonset.shown import agent, revision
from tests.deep import one_of
from tests.hostile.bad import BAD, line

LOST = node("n1", "Unknown", taints=(unreachable(),))
OTHER = node("n2", "Unknown", taints=(unreachable(),), zone="b")
N1 = Unreadable("Node", ("", "n1"), "w")


def documents(lab: Lab) -> list[dict[str, Any]]:
    found: dict[str, Any] = health(lab.sources, {}, [])
    assert all(line in found["warnings"] for line in lab.decisions.host.cache.quarantine.lines())
    entries: list[dict[str, Any]] = found["quarantine"]
    return entries


@pytest.mark.parametrize("name", one_of(3, BAD))
async def test_no_object_ends_the_daemon(tmp_path: Path, name: str) -> None:
    kind, document = BAD[name]
    stream: WatchStream[Any] = WatchStream(kind_named(kind).type)
    (event,) = stream.feed(line("ADDED", document))
    lab = make_lab(tmp_path)
    await lab.begin(node("n1"), lease("n1"), pod("p1"), agent(), revision(1))
    await lab.tell(WatchNews(kind, [event.object]))
    await lab.after(20, "n1")
    (entry,) = documents(lab)
    assert (entry["kind"], entry["name"]) == (kind, "bad")
    assert any((f"{kind} " in w and "/bad" in w) or " bad " in w for w in lab.look().warnings)


async def test_decisions_on_it_and_its_pods_are_off_and_all_others_go_on(tmp_path: Path) -> None:
    lab = make_lab(tmp_path)
    beats = [lease("n1"), lease("n2")]
    pods = [pod("p1", on="n1"), pod("p2", on="n2")]
    await lab.begin(LOST, OTHER, *beats, *pods)
    await lab.tell(WatchNews("Node", [N1]))
    await lab.after(400)
    told = await lab.told(outcome="would")
    assert ("DeletePod", "p2", "would") in told
    assert not [row for row in told if row[0] == "DeletePod" and row[1] == "p1"]


async def test_it_is_lifted_by_the_next_version_or_list(tmp_path: Path) -> None:
    lab = make_lab(tmp_path)
    kept = lab.version(node("n1"))
    await lab.begin(kept, lease("n1"), pod("p1"))
    await lab.tell(WatchNews("Node", [N1]))
    assert documents(lab)
    await lab.see(node("n1"))
    assert not documents(lab)
    await lab.tell(ListNews("Node", [], unreadable=[N1]))
    assert [entry["name"] for entry in documents(lab)] == ["n1"]
    present = lab.decisions.host.cache.node("n1")
    assert present is not None, "it is there all the same"
    await lab.tell(ListNews("Node", [present]))
    assert not documents(lab)


async def test_the_first_list_may_hold_one(tmp_path: Path) -> None:
    lab = make_lab(tmp_path)
    await lab.tell(ListNews("Node", [], unreadable=[N1]))
    await lab.begin(lease("n1"), pod("p1", on="n1"))
    await lab.tell(ListNews("Node", [], unreadable=[N1]))
    await lab.after(200, "n1")
    assert await lab.told() == [], "the pod of a node that cannot be read is no orphan"


async def test_a_bug_in_observing_is_contained(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lab = make_lab(tmp_path)
    await lab.begin(node("n1"), lease("n1"), pod("p1"))
    real = lab.decisions.host.observe

    def fails(event: Any, now_ns: int) -> Any:
        if getattr(event, "obj", None) is not None and event.obj.name == "p1":
            raise KeyError("secret")
        return real(event, now_ns)

    monkeypatch.setattr(lab.decisions.host, "observe", fails)
    await lab.see(pod("p1"))
    await lab.after(20, "n1")
    (entry,) = documents(lab)
    assert (entry["controller"], entry["at"]) == ("overlay", "Pod default/p1")


async def test_a_bug_in_laying_out_a_plan_is_contained(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lab = make_lab(tmp_path)
    await lab.begin(LOST, OTHER, lease("n1"), lease("n2"), pod("p1", "n1"), pod("p2", "n2"))
    real = lab.decisions.host.overlay.project

    def fails(action: Any, now_ns: int) -> Any:
        if getattr(action, "pod", "") == "p1":
            raise KeyError("secret")
        return real(action, now_ns)

    monkeypatch.setattr(lab.decisions.host.overlay, "project", fails)
    await lab.after(400)
    assert ("DeletePod", "p2", "would") in await lab.told()
    assert {entry["at"] for entry in documents(lab)} == {"Pod default/p1"}


def test_the_log_names_objects_and_quotes_nothing(caplog: pytest.LogCaptureFixture) -> None:
    from kubectl_nodelife.engine.quarantine import Quarantine

    quarantine, told = Quarantine(), QuarantineLog()
    quarantine.put(Unreadable("Pod", ("d", "p"), reason("requests['cpu']: 'hunter2' is none")), 0)
    logging.getLogger("nodelife").propagate = True
    with caplog.at_level(logging.INFO, "nodelife"):
        told.log_changes(quarantine)
        told.log_changes(quarantine)
        for number in range(1000):
            quarantine.put(Unreadable("Pod", ("d", f"q{number}"), "w"), 0)
        told.log_changes(quarantine)
        log_bug(quarantine.failed("c", "k", ValueError("hunter2"), 0))
    assert "hunter2" not in caplog.text
    assert "hunter2" not in str([quarantine.lines(), quarantine.documents()])
    assert caplog.text.count("Pod d/p cannot be read") == 1
    assert len(caplog.records) == 1 + 20 + 1 + 1, "a thousand at once are not a thousand lines"


async def test_planned_pods_are_not_counted_as_pods(tmp_path: Path) -> None:
    lab = make_lab(tmp_path)
    beats = [lease(name) for name in ("n1", "n2")]
    await lab.begin(node("n1"), node("n2"), *beats, agent(), revision(1))
    await lab.after(5, "n1", "n2")
    assert [row for row in await lab.told() if row[0] == "CreatePod"], "pods are planned"
    found: dict[str, Any] = health(lab.sources, {}, [])
    counted = {entry["kind"]: entry["objects"] for entry in found["kinds"]}
    assert (counted["Pod"], counted["Node"]) == (0, 2)
    shown = lab.look().outlook.cache
    assert shown.pod_counts() == {} and not list(shown.nodes_with_pods())
    assert shown.pods_of("ds") == []
