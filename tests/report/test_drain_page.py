"""The page of a drain plan: what its charts show, and that it is readable wherever it is read."""

from kubectl_nodelife.drain.plan import make_wave_plan
from kubectl_nodelife.drain.results import CORDON_FIRST, DrainPlan, WaveOptions
from kubectl_nodelife.kube.times import MINUTE_NS
from kubectl_nodelife.report.drain import html_page, plan_chart, wave_charts
from kubectl_nodelife.report.html import DrawnRow
from kubectl_nodelife.sim.kubectl.options import DrainOptions
from tests.drain.build import node, plan, replica_set, snapshot


def scarce() -> DrainPlan:
    """Two half-full nodes that are cordoned first: the pod of the first waits for its return."""
    big = {"spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": "5"}}}]}}
    made = [obj for name in ("a1", "a2") for obj in (*node(name), *replica_set(name, name, **big))]
    limits = WaveOptions(1, maintenance_ns=5 * MINUTE_NS, cordon=CORDON_FIRST)
    return make_wave_plan(snapshot(made), ["a1", "a2"], DrainOptions(), limits)


def row(rows: list[DrawnRow], label: str) -> DrawnRow:
    return next(one for one in rows if one.of.label == label)


def test_a_maintenance_is_drawn_as_one() -> None:
    first = row(plan_chart(scarce()).rows, "a1")
    assert [bar.style for bar in first.bars] == ["node", "maintenance"]
    drain, maintenance = (float(bar.width) for bar in first.bars)
    assert maintenance > 20 * drain
    assert "</span>maintenance</b>" in html_page(scarce(), {})


def test_a_bar_that_outlasts_its_wave_ends_with_the_chart_and_says_so() -> None:
    (_, chart), *_ = wave_charts(scarce())
    waits = row(chart.rows, "default/a1-0")
    assert waits.of.words.startswith("→ 5m0")
    assert all(float(bar.x) + float(bar.width) <= 100 for bar in waits.bars)


def test_unknown_is_said_once() -> None:
    answer = plan(node("a1"), node("a2"), replica_set("web", "a1", "a1"), read={"Node", "Pod"})
    assert answer.verdict == "unknown"
    assert not any(one.of.words for one in plan_chart(answer).rows)
    text = html_page(answer, {})
    assert text.count("what was not read may stop it") == 0
    assert text.count("because not read") == 1


def test_it_is_readable_in_the_dark_on_paper_small_and_aloud() -> None:
    text = html_page(scarce(), {})
    assert "@media screen and (prefers-color-scheme: dark)" in text  # paper stays white
    assert "@media (max-width: 600px)" in text and "@media print" in text
    assert "<main>" in text and text.count("<th>") == 0 and '<th scope="col">' in text
    regions = text.count('<div class="scroll" role="region" aria-label=')
    assert regions == text.count('class="scroll"') > 1
    tracks = text.count('<svg class="track" aria-hidden="true"><title>')
    scales = text.count('<li class="lane scale" aria-hidden="true">')
    assert text.count('<li class="lane ') == tracks + scales


def test_names_stand_beside_the_tracks_and_wrap() -> None:
    chart = plan_chart(scarce())
    assert row(chart.rows, "a1").of.note == "1 pod"
