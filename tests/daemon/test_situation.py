"""The sentence of the live page, held against what then happens to a zone of the lab."""

from pathlib import Path

from msgspec.structs import replace

from kubectl_nodelife.commands.answering.status import finished
from kubectl_nodelife.engine.events import Gone
from kubectl_nodelife.kube.meta import ObjectMeta
from kubectl_nodelife.kube.pod import Pod
from kubectl_nodelife.kube.service import Service, ServiceSpec
from kubectl_nodelife.kube.times import Time
from kubectl_nodelife.live.news import FAILING, KindPhase
from kubectl_nodelife.outlook.fates import Lane
from kubectl_nodelife.outlook.live_wall import LiveFrame, LiveWall
from kubectl_nodelife.outlook.node_verdict import WORST_FIRST
from kubectl_nodelife.outlook.situation import Situation, blind
from kubectl_nodelife.outlook.status import status_steps
from kubectl_nodelife.outlook.works import Wait, WorkInProgress
from tests.daemon.lab import SECOND, T0, UNREACHABLE, Lab, lease, make_lab, node, pod, unreachable
from tests.daemon.test_foreteller import DARK, LIT, foreteller_of, twelve_fall_silent


def framed(wall: LiveWall, lab: Lab, foretold: object = None, works: object = ()) -> LiveFrame:
    view = lab.sources._replace(foretold=lambda: foretold).view()
    made: LiveFrame = finished(wall.steps(view, works))  # type: ignore[arg-type]
    return made


def said(frame: LiveFrame) -> Situation:
    assert frame.situation is not None
    return frame.situation


def is_tainted(lab: Lab, name: str) -> bool:
    return lab.decisions.host.cache.nodes[name].has_taint(UNREACHABLE, "NoExecute")


def states(frame: LiveFrame) -> dict[str, str]:
    return {name: WORST_FIRST[row.state] for name, row in frame.nodes.items()}


async def test_a_silent_zone_is_one_sentence_and_its_clock_comes_true(tmp_path: Path) -> None:
    lab, wall = make_lab(tmp_path), LiveWall()
    peace = "None of 15 nodes is in trouble."
    nodes = [*(node(name) for name in DARK), *(node(name, zone="b") for name in LIT)]
    pods = [
        pod("web-1", "a0", owner="web"), pod("web-2", "b1", owner="web"),
        pod("db-1", "a1", owner="db"), pod("cache-1", "b2", owner="cache"),
    ]  # fmt: skip
    await lab.begin(*nodes, *pods, *map(lease, [*DARK, *LIT]))
    await lab.after(60, *DARK, *LIT)
    assert said(framed(wall, lab)) == Situation("peace", peace, advice="Nothing to do.")
    foreteller, _ = foreteller_of(lab)
    await lab.after(20, *LIT)
    await foreteller.take()
    told = said(framed(wall, lab, foreteller.foretold))
    assert told.sentence == "Zone a: 12 of 12 nodes are silent." and told.level == "worse"
    assert told.since_s is not None and wall.epoch_s + told.since_s == (T0 / SECOND) + 60
    assert told.hurts.startswith("2 pods of 2 workloads; default/db has no pod on any other")
    assert told.hurts.endswith("partly default/web (1 of 2 pods)")
    assert told.options[0].command == "kubectl nodelife explain zone a"
    (lane,) = told.lanes
    assert lane.name == "12 nodes of a: a0, a1 and 10 more" and lane.since_s == told.since_s
    becomes, tainted, leave = lane.coming
    assert (becomes.says, tainted.says, leave.says) == ("Unknown", "tainted", "pods leave")
    assert leave.low_s == tainted.low_s + 300
    lows = [each.low_s for each in told.coming]
    assert lows == sorted(lows)
    (full,) = [each for each in told.coming if "FullDisruption" in each.says]
    (unknown,) = [each for each in told.coming if "Unknown" in each.says]
    assert "the first of 12 nodes" in unknown.says
    zones = lab.decisions.host.lifecycle.memory.zones  # type: ignore[union-attr]
    while zones.states[":\0:a"] == "Normal":
        await lab.after(1, *LIT)
    at_s = lab.now / SECOND - wall.epoch_s
    assert full.low_s <= at_s <= full.high_s + 1
    seen = [at_s]
    while not any(is_tainted(lab, name) for name in DARK):
        await lab.after(1, *LIT)
        seen.append(lab.now / SECOND - wall.epoch_s)
    assert tainted.low_s <= seen[-1] <= tainted.high_s + 1


async def test_a_link_that_is_silent_makes_no_node_worse(tmp_path: Path) -> None:
    lab, wall = make_lab(tmp_path), LiveWall()
    nodes = [node(name) for name in DARK]
    await lab.begin(*nodes, *map(lease, DARK))
    await lab.after(60, *DARK)
    before = framed(wall, lab)
    assert set(states(before).values()) == {"healthy"}
    heard_s = lab.decisions.last_news_ns / SECOND
    for _ in range(30):
        await lab.after(1)
        frame = framed(wall, lab)
        assert states(frame) == states(before) and frame.zones == before.zones
    told = said(frame)
    assert told.level == "blind" and "the link to it is down, or all nodes" in told.sentence
    assert told.since_s is not None and abs(wall.epoch_s + told.since_s - heard_s) < 2
    await lab.after(20, *DARK[:4])  # it was the nodes
    assert states(framed(wall, lab))["a11"] != "healthy"


async def test_status_is_of_the_last_news_while_nothing_is_decided(tmp_path: Path) -> None:
    """The link was down before the daemon noticed; the silence of that time is no node's."""
    lab = make_lab(tmp_path)
    await lab.begin(*(node(name) for name in DARK), *map(lease, DARK))
    await lab.after(60, *DARK)
    heard_ns = lab.now
    await lab.after(25)
    status = finished(status_steps(lab.sources.view()))
    assert {n.verdict.state for n in status.nodes} == {"silent"}
    assert any(w.startswith("nothing comes from") for w in status.warnings)
    lab.feed.states["Lease"].broken_since_ns = lab.steady
    await lab.tell(KindPhase("Lease", FAILING))
    status = finished(status_steps(lab.sources.view()))
    assert lab.decisions.stands_still and status.now_ns == heard_ns
    assert {n.verdict.state for n in status.nodes} == {"healthy"}
    assert "all is shown as last seen, 25s ago" in " ".join(status.warnings)


async def test_nodes_of_which_some_go_on_are_silent_and_not_the_link(tmp_path: Path) -> None:
    lab, wall = make_lab(tmp_path), LiveWall()
    await twelve_fall_silent(lab, 1)
    for _ in range(20):
        await lab.after(1, *LIT)
        frame = framed(wall, lab)
    told = said(frame)
    assert told.level == "worse" and states(frame)["a1"] == "silent"
    unseen = blind("the API server does not answer", 1.0, told)
    assert unseen.sentence.endswith("as it was then: zone a: 12 of 12 nodes are silent.")
    assert unseen.lanes == told.lanes and unseen.lanes and not unseen.coming
    assert unseen.uncoming.startswith("What comes next is not known")


async def test_what_people_do_is_said_where_nothing_else_is(tmp_path: Path) -> None:
    lab, wall = make_lab(tmp_path), LiveWall()
    gone = pod("gone", "a", owner="gone")
    leaving = replace(gone, metadata=replace(gone.metadata, deletion_timestamp=Time(T0)))
    pods = [
        pod("web-1", "a", owner="web"), pod("web-2", "b", owner="web"),
        pod("db-1", "a", owner="db"), leaving,
    ]  # fmt: skip
    await lab.begin(node("a"), node("b"), *pods, lease("a"), lease("b"))
    await lab.after(60, "a", "b")
    drained = WorkInProgress("Node", "a", 2, 5, "cordoned", "the command", expected=(70.0, 90.0))
    told = said(framed(wall, lab, works=[drained]))
    assert told.level == "ours" and told.sentence == "Node a is drained: cordoned."
    assert told.hurts == "2 pods of 2 workloads; default/db has no pod on any other node; " + (
        "partly default/web (1 of 2 pods)"
    )
    assert (told.coming[0].low_s, told.options[0].command) == (70.0, "the command")
    (lane,) = told.lanes
    assert (lane.name, lane.state, lane.coming[0].says) == ("Node a", "2 of 5 done", "ends")
    waits = [Wait("pod web-1", "budget web can spare none")]
    stuck = said(framed(wall, lab, works=[replace(drained, expected=None, waits=waits)]))
    assert stuck.uncoming.startswith("No end of it is foreseen") and not told.uncoming
    assert stuck.lanes[0].stays == "waits for pod web-1: budget web can spare none"


async def test_pods_that_nobody_removes_are_told(tmp_path: Path) -> None:
    """A lost node whose pods were deleted: its kubelet ends none of them."""
    lab, wall = make_lab(tmp_path), LiveWall()
    names = ["a", "b", "c", "d"]
    web = pod("web-1", "a", tolerates_s=5)
    await lab.begin(*map(node, names), web, *map(lease, names))
    await lab.after(60, *names)
    await lab.after(70, *names[1:])
    lost = node("a", "Unknown")
    await lab.see(lost, replace(web, metadata=replace(web.metadata, deletion_timestamp=lab.now)))
    await lab.after(30, *names[1:])
    frame = framed(wall, lab)
    assert frame.nodes["a"].leaving == 1
    told = said(frame)
    assert "1 pod is Terminating on nodes whose kubelet is silent" in told.hurts
    waiting, *by_hand = told.options
    assert (waiting.command, waiting.acts) == ("kubectl nodelife explain node a", "")
    assert [f"kubectl {each.acts}" for each in by_hand] == [each.command for each in by_hand]
    assert [each.acts.split()[0] for each in by_hand] == ["taint", "delete"]
    assert all("once its machine is known to be off" in each.effect for each in by_hand)
    await lab.see(Gone("Pod", web.key))
    assert framed(wall, lab).nodes["a"].leaving == 0


async def test_workloads_and_services_that_lose_pods_are_told_with_their_hour(
    tmp_path: Path,
) -> None:
    """Before, at the lowest, and when: held against when the nodes become Unknown."""
    lab, wall = make_lab(tmp_path), LiveWall()
    nodes = [*(node(name) for name in DARK), *(node(name, zone="b") for name in LIT)]
    pods = [
        labelled(pod(f"{name}-{number}", on, owner=name), app=name)
        for name, where in {"web": ("a0", "a1", "b1"), "db": ("a2",), "far": ("b2",)}.items()
        for number, on in enumerate(where)
    ]
    services = [service("web", app="web"), service("db", app="db"), service("far", app="far")]
    await lab.begin(*nodes, *pods, *map(lease, [*DARK, *LIT]))
    await lab.after(60, *DARK, *LIT)

    async def harmed() -> list[Lane]:
        framed(wall, lab)
        finished(wall.harm_steps(lab.decisions.host.cache, services, lab.now))
        return said(framed(wall, lab)).harmed

    assert await harmed() == []
    await lab.after(20, *LIT)
    lanes = await harmed()
    assert [(lane.name, lane.state) for lane in lanes] == [
        ("default/db", "1 → 0"),
        ("Service default/db", "1 → 0"),
        ("default/web", "3 → 1"),
        ("Service default/web", "3 → 1"),
    ]
    (coming,) = lanes[0].coming
    assert coming.says == "0 of 1 ready"
    while states(framed(wall, lab))["a2"] == "silent":
        await lab.after(1, *LIT)
    assert coming.low_s <= lab.now / SECOND - wall.epoch_s <= coming.high_s + 1
    await lab.see(node("a2", "Unknown", posted_ns=lab.now - T0))
    (db, *_) = await harmed()
    assert (db.coming, db.stays) == ([], "0 of 1 ready")


async def test_nodes_that_are_back_have_a_clock_that_comes_true(tmp_path: Path) -> None:
    lab, wall = make_lab(tmp_path), LiveWall()
    names = ["a", "b", "c"]
    await lab.begin(*map(node, names), *map(lease, names))
    await lab.after(60, *names)
    await lab.see(node("a", taints=(unreachable(),)))
    told = said(framed(wall, lab))
    assert told.sentence == "a is back: Kubernetes takes its taint off in its next pass."
    (coming,) = told.coming
    assert coming.says == "the NoExecute taint of a is taken off"
    assert told.lanes[0].coming[0].says == "taint off"
    assert told.hurts == "nobody more: pods that were not deleted yet stay"
    while is_tainted(lab, "a"):
        await lab.after(1, *names)
    assert coming.low_s <= lab.now / SECOND - wall.epoch_s <= coming.high_s + 1
    await lab.see(node("a"))
    assert said(framed(wall, lab)).sentence == "None of 3 nodes is in trouble."


async def test_a_brake_keeps_pods_but_those_of_nodes_tainted_before(tmp_path: Path) -> None:
    lab, wall = make_lab(tmp_path), LiveWall()
    pods = [pod(f"web-{name}", name, owner="web") for name in DARK]
    nodes = [*(node(name) for name in DARK), *(node(name, zone="b") for name in LIT)]
    await lab.begin(*nodes, *pods, *map(lease, [*DARK, *LIT]))
    await lab.after(60, *DARK, *LIT)
    told = said(framed(wall, lab))
    while "tainting is stopped there" not in told.sentence:
        await lab.after(1, *DARK[:4], *LIT)
        told = said(framed(wall, lab))
    assert told.advice.endswith("not ready, no pod is deleted for it.")
    assert "is deleted" not in str(told.coming)
    assert bool(told.uncoming) == (told.coming == [])
    lost = node("a7", "Unknown", posted_ns=lab.now - T0, taints=(unreachable(),))
    await lab.see(lost)
    told = said(framed(wall, lab))
    assert told.advice.endswith("1 pod on 1 node tainted before still goes."), told.advice
    assert "pod default/web-a7 on a7 is deleted" in [each.says for each in told.coming]


def labelled(of: Pod, **labels: str) -> Pod:
    return replace(of, metadata=replace(of.metadata, labels=labels))


def service(name: str, **selector: str) -> Service:
    metadata = ObjectMeta(name=name, namespace="default", uid=f"uid-{name}")
    return Service(metadata=metadata, spec=ServiceSpec(selector=selector))
