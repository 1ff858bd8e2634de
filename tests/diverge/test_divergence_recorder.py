"""The record that a daemon keeps: from its own plans and the cluster's changes to an answer."""

import asyncio
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from kubectl_nodelife.kube.pod import PodCondition
from kubectl_nodelife.live.news import KindPhase
from tests.daemon.lab import SECOND, WATCHING, Lab, lease, make_lab, node, pod, unreachable
from tests.diverge.recorded import RecordedLab, recorded_lab, unknown, with_taints

NOT_READY = PodCondition("Ready", "False")
GRACE = {"node_monitor_grace_period": "40s"}


async def begun(folder: Path, *more: Any, refused: tuple[str, ...] = ()) -> tuple[Lab, RecordedLab]:
    """A lab with two nodes, watched for longer than it is cold."""
    lab = make_lab(folder, **GRACE)
    watch = recorded_lab(lab)
    watch.recorder.note_watching(lab.now)
    objects = (node(), node("n2"), lease(), lease("n2"), pod(), *more)
    await lab.begin(*objects, refused=refused)
    await watch.after(50, "n1", "n2")
    return lab, watch


def kinds(made: dict[str, Any]) -> list[str]:
    return [item["kind"] for item in made["items"]]


async def test_a_healthy_cluster(tmp_path: Path) -> None:
    _, watch = await begun(tmp_path)
    made = await watch.answer()
    assert (made["items"], made["verdict"]) == ([], "agrees")
    assert made["source"]["server"] == "https://10.0.0.1:6443"
    assert made["notEvaluated"] == []


async def test_a_loss_that_comes_when_it_is_due(tmp_path: Path) -> None:
    lab, watch = await begun(tmp_path)
    await watch.until_planned("SetNodeCondition", "n2")
    await watch.after(3, "n2")
    marked = replace(pod(), status=replace(pod().status, conditions=(NOT_READY,)))
    await lab.see(with_taints(unknown(), unreachable("NoSchedule"), unreachable()), marked)
    await watch.after(20, "n2")
    made = await watch.answer()
    assert (made["items"], made["verdict"]) == ([], "agrees")
    assert made["writes"]["onTime"] >= 3


async def test_a_loss_that_nobody_writes(tmp_path: Path) -> None:
    _, watch = await begun(tmp_path)
    await watch.after(70, "n2")
    assert kinds(await watch.answer()) == ["missing"]  # it may be a longer grace period
    await watch.after(40, "n2")
    made = await watch.answer()
    assert kinds(made) == ["stalled", "missing"]
    assert "has made no write for" in made["because"]
    missing = made["items"][1]
    assert (missing["object"]["name"], missing["detail"]) == ("n1", "Ready=Unknown")
    assert "3 more depend on it" in missing["message"]


async def test_cold_blind_and_back(tmp_path: Path) -> None:
    lab = make_lab(tmp_path, **GRACE)
    watch = recorded_lab(lab)
    assert "still reads" in (await watch.answer())["because"]
    await lab.begin(node(), lease())
    await watch.after(3, "n1")
    made = await watch.answer()
    assert made["verdict"] == "not-evaluated"
    assert "warming up: the daemon has just started" in made["because"]
    await watch.after(50)
    await watch.after(60)
    assert kinds(await watch.answer()) == ["stalled", "missing"]

    lab.feed.states["Pod"].broken_since_ns = 1
    await watch.after(5)
    blind = await watch.answer()
    assert (blind["verdict"], blind["items"]) == ("not-evaluated", [])
    assert "no working watch of Pod" in blind["because"]
    lab.feed.states["Pod"].broken_since_ns = None
    await lab.tell(KindPhase("Pod", WATCHING, 8 * SECOND))
    assert "waiting for a new list of Pod" in lab.decisions.stands_still
    await lab.relist()
    watch.recorder.note_watching(lab.now)
    assert "warming up: nothing was seen for" in (await watch.answer())["because"]


async def test_a_kind_that_may_not_be_read_is_said(tmp_path: Path) -> None:
    _, watch = await begun(tmp_path, refused=("Pod",))
    made = await watch.answer()
    assert made["verdict"] == "agrees"  # node-lifecycle can do without pods
    assert "Pod cannot be read" in made["notEvaluated"][0]


async def test_without_nodes_nothing_is_evaluated(tmp_path: Path) -> None:
    _, watch = await begun(tmp_path, refused=("Node", "Lease"))
    made = await watch.answer()
    assert made["verdict"] == "not-evaluated"


async def test_a_daemon_that_was_held_up_judges_nothing_of_that_time(tmp_path: Path) -> None:
    lab, watch = await begun(tmp_path)
    await watch.after(40, "n2")
    await lab.after(30, "n2")  # nobody looked
    await lab.see(unknown())
    watch.recorder.note_watching(lab.now)
    await watch.after(2, "n2")
    assert "late" not in kinds(await watch.answer())


async def test_plans_of_the_daemon_before_this_one_are_known(tmp_path: Path) -> None:
    lab, watch = await begun(tmp_path)
    await watch.after(60, "n2")
    await watch.answer()
    await lab.journal.close()
    later = make_lab(tmp_path, **GRACE)
    later.steady, later.wall = lab.steady, lab.wall
    later.awake = lab.steady
    again = recorded_lab(later)
    again.recorder.note_watching(later.now)
    await later.begin(node(), node("n2"), lease(), lease("n2", later.now - lab.now), pod())
    await again.after(100, "n2")
    assert kinds(await again.answer()) == ["stalled", "missing"]
    await later.journal.close()


async def test_a_pods_write_that_came_in_time_is_only_counted(tmp_path: Path) -> None:
    pods = [pod(f"p{n}") for n in range(2, 40)]
    lab, watch = await begun(tmp_path, *pods)
    await watch.until_planned("MarkPodNotReady", "n2")
    await lab.see(unknown())
    for one in (pod(), *pods):
        await lab.see(replace(one, status=replace(one.status, conditions=(NOT_READY,))))
    made = await watch.answer()
    assert made["writes"]["onTime"] >= 40
    record = watch.recorder.record(lab.now, 0)
    assert sum(w.kind == "Pod" and w.action == "MarkPodNotReady" for w in record.writes) == 0


async def test_watching_tells_again_only_what_is_new(tmp_path: Path) -> None:
    lab, watch = await begun(tmp_path)
    answers = watch.recorder.watch({})
    first = await anext(answers)
    assert first["document"]["verdict"] == "agrees"
    coming = asyncio.ensure_future(anext(answers))
    await watch.after(110, "n2")
    await watch.answer()
    second = await asyncio.wait_for(coming, 20)
    assert kinds(second["document"]) == ["stalled", "missing"]
    await answers.aclose()  # type: ignore[attr-defined]
    assert lab.now
