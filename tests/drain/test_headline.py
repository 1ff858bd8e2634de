"""The first lines of a plan: what must not be overread beside "finishes"."""

from kubectl_nodelife.drain.plan import make_wave_plan
from kubectl_nodelife.drain.results import WaveOptions
from kubectl_nodelife.report.drain import consequences, headline
from kubectl_nodelife.sim.kubectl.options import DrainOptions
from tests.drain.build import budget, node, plan, pod, replica_set, snapshot

BIG = {"spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": "6"}}}]}}


def test_workloads_at_zero_stand_beside_the_time() -> None:
    answer = plan(node("a1"), node("a2"), replica_set("one", "a1"), replica_set("two", "a1", "a2"))
    text = headline(answer)
    assert text.startswith("This drain finishes in ")
    assert text.endswith(". Meanwhile 1 of 2 workloads has no ready pod for up to 2.1s")


def test_pods_that_land_nowhere_and_outages_without_an_end() -> None:
    answer = plan(node("a1"), node("a2", cpu="1"), replica_set("one", "a1", **BIG))
    told = "1 of 1 workload has no ready pod, which does not end by itself"
    assert headline(answer).endswith(f"Meanwhile {told}, and 1 pod finds no node to land on")


def test_what_is_lost_is_named_with_the_flag_that_allows_it() -> None:
    scratch = {"spec": {"volumes": [{"name": "cache", "emptyDir": {}}]}}
    lost = (pod("lonely", "a1"), replica_set("web", "a1", **scratch))
    refused = plan(node("a1"), node("a2"), *lost)
    assert list(consequences(refused)) == [
        "gone for good (--force), no controller makes them anew: default/lonely",
        "emptyDir data lost (--delete-emptydir-data): default/web-0 (cache)",
    ]
    allowed = plan(node("a1"), node("a2"), *lost, force=True, delete_emptydir_data=True)
    assert list(consequences(allowed)) == [
        "gone for good, no controller makes them anew: default/lonely",
        "emptyDir data lost: default/web-0 (cache)",
    ]


def test_the_largest_set_that_can_go_together_is_named() -> None:
    """web spares one of its three pods; a4 has none of them."""
    guard = budget("web", "web", healthy=3, desired=2, expected=3, maxUnavailable=1)
    names = ("a1", "a2", "a3", "a4")
    made = [obj for name in (*names, "b1") for obj in node(name)]
    answer = plan(made, replica_set("web", "a1", "a2", "a3"), guard, nodes=names)
    (line,) = consequences(answer)
    assert line == "together can go, at most: a1, a4 (2 of 4 nodes)"
    found = snapshot(made, replica_set("web", "a1", "a2", "a3"), guard)
    waves = make_wave_plan(found, list(names), DrainOptions(), WaveOptions(1))
    assert list(consequences(waves)) == [line]


def test_nodes_that_share_nothing_can_go_all_at_once() -> None:
    made = [obj for name in ("a1", "a2", "b1") for obj in node(name)]
    pods = (replica_set("web", "a1"), replica_set("db", "a2"))
    (line,) = consequences(plan(made, *pods, nodes=("a1", "a2")))
    assert line == "together can go: all 2 nodes"
