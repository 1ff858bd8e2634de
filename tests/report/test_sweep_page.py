"""The page of a study: what is drawn where, and that texts stay texts."""

import re

import pytest
from msgspec.structs import replace

from kubectl_nodelife.report import sweep
from kubectl_nodelife.report.formats import FORMATTERS, render
from kubectl_nodelife.sweep import result
from kubectl_nodelife.sweep.points import RENEWS, ZONES, Point
from tests.sweep.stand import base, plan

EVIL = "<script>alert(1)</script>\"'&"
GRACE = "flags.node-monitor-grace-period"


def answer(points: int = 3, name: str = "50s", missing: int = 0) -> result.StudyResult:
    """`points` points with four seeds: the first one is today's, each is worse than the one before
    in one measure of the front and better in the other."""
    today: Point = {GRACE: name}
    values = [today, *({GRACE: f"{n}s"} for n in range(1, points))]
    runs = result.runs_of(values, [1, 2, 3, 4])
    of = plan(base([]))
    found = {}
    for run in runs[: len(runs) - missing]:
        figures = dict.fromkeys(of.measures, float(run.seed))
        figures["unavailablePodMinutes"] = run.seed + 10.0 * run.point_number
        figures["needlessEvictions"] = run.seed - 10.0 * run.point_number + 10.0 * points
        found[run.number] = figures
    asserted = [
        result.Assertion("mean", "evictions", "<", 2),
        result.Assertion("p95", "evictions", "<", 9),
    ]
    return result.summed_up(of, runs, found, asserted, today=today)


def test_differences_are_paired_and_the_front_is_marked() -> None:
    found = answer()
    assert [p.today for p in found.points] == [True, False, False]
    assert [p.front for p in found.points] == [True, True, True]
    moved = found.points[2].against_today["unavailablePodMinutes"]
    assert (moved.low, moved.mean, moved.high) == (20, 20, 20)
    assert [b.text for b in found.broken] == 3 * ["mean evictions < 2"]


def test_points_are_drawn_where_their_figures_are() -> None:
    found = answer()
    rows = sweep._plot("unavailablePodMinutes", found.points)[1].rows
    drawn = [{bar.style: bar for bar in row.bars} for row in rows]
    assert [bars.keys() - {"spread", "median", "mean"} for bars in drawn] == [
        {"today"},
        {"front"},
        {"front"},
    ]
    means = [float(bars["mean"].x) for bars in drawn]
    assert means == sorted(means) and means[1] - means[0] == pytest.approx(
        means[2] - means[1], 0.01
    )
    for bars, style in zip(drawn, ("today", "front", "front"), strict=True):
        spread, interval = bars["spread"], bars[style]
        assert float(spread.x) <= float(interval.x) <= float(bars["mean"].x)
        assert float(interval.width) <= float(spread.width)
    assert [row.of.words for row in rows] == [
        sweep.interval_words(point.measures["unavailablePodMinutes"]) for point in found.points
    ]
    scatter = sweep._scatter(found)
    assert len(scatter["spots"]) == len(scatter["front"]) == 3
    spots = [(float(spot["x"]), float(spot["y"])) for spot in scatter["spots"]]
    assert spots == sorted(spots), (
        "more unavailable pods, fewer needless evictions: lower on a page"
    )


def test_of_many_points_todays_and_the_front_are_drawn() -> None:
    found = answer(points=200)
    shown = sweep._shown(found)
    assert len(shown) == 60 and shown[0].today
    assert "and 140 more points" in sweep.html_page(found)


def test_differences_are_on_both_sides_of_nothing() -> None:
    found = answer()
    chart = sweep._difference_plot("needlessEvictions", found.points[1:])[1]
    drawn = [{bar.style: bar for bar in row.bars} for row in chart.rows]
    assert all(float(bars["less"].x) < float(bars["none"].x) for bars in drawn)
    assert all(row.of.words.startswith("-") for row in chart.rows)
    assert [tick.label for tick in chart.ticks] == ["-20", "-15", "-10", "-5", "0"]


def test_measures_without_any_difference_are_named_in_a_line() -> None:
    text = sweep.html_page(answer())
    named = re.findall(r"No difference at any point: (.*?)\.</p>", text)
    assert len(named) == 1 and "peak writes per second" in named[0]
    assert "needless evictions" not in named[0]
    assert text.count("<h3>needless evictions</h3>") == 2
    assert text.count("<h3>peak writes per second</h3>") == 1


def test_a_label_is_whole_and_says_which_point_is_todays() -> None:
    point = answer().points[0]
    values: Point = {GRACE: "2m0s", "tolerationSeconds": 120, RENEWS: "10s", ZONES: 3}
    (row,) = sweep._plot("evictions", [replace(point, point=values)])[1].rows
    assert row.of.label.startswith("node-monitor-grace-period 2m0s, tolerationSeconds 120")
    assert row.of.label.endswith("zones 3") and row.of.note == "today"


def test_where_nothing_differs_there_is_an_axis() -> None:
    point = answer().points[0]
    still = replace(
        point,
        measures={"evictions": result.Summary(*[0.0] * len(result.Summary.__struct_fields__))},
    )
    (row,) = sweep._plot("evictions", [still])[1].rows
    assert row.of.words == "0" and {bar.x for bar in row.bars} == {"0.00"}


@pytest.mark.parametrize(
    ("low", "high", "labels"),
    [
        (0, 3420, "0 1,000 2,000 3,000"),
        (-132, 35.8, "-100 -50 0"),
        (-1.25, 1.67, "-1 0 1"),
        (0, 0.003, "0.000 0.001 0.002 0.003"),
        (0, 1e7, "0 5,000,000 10,000,000"),
        (7, 7, "7"),
    ],
)
def test_an_axis_has_round_numbers_within_its_ends(low: float, high: float, labels: str) -> None:
    ticks = sweep._ticks(low, high, sweep._linear(low, high, 0, 100))
    assert " ".join(tick.label for tick in ticks) == labels
    assert all(0 <= float(tick.x) <= 100 for tick in ticks)


def test_texts_are_no_markup() -> None:
    text = sweep.html_page(answer(name=EVIL))
    assert "<script" not in text and "&lt;script&gt;" in text
    assert not re.search(r"(src|href)=", text)


def test_the_page_is_the_same_each_time() -> None:
    assert sweep.html_page(answer()) == sweep.html_page(answer())


@pytest.mark.parametrize("output", FORMATTERS)
def test_all_formats(output: str) -> None:
    text = render(sweep.study_page(answer(missing=2)), output)
    assert text


def test_what_is_missing_is_said() -> None:
    text = render(sweep.study_page(answer(missing=2)), "table")
    assert "2 runs are missing: --resume plays them" in text
    assert "asserted: mean evictions < 2: does not hold" in text
    assert "asserted: p95 evictions < 9: holds at every point" in text


@pytest.mark.parametrize(
    ("interval", "signed", "words"),
    [
        (result.Interval(0, 0, 0), False, "0"),
        (result.Interval(1.234, 0.5, 2), False, "1.23 [0.5, 2]"),
        (result.Interval(-0.001, -0.002, 0.004), True, "0"),
        (result.Interval(123.4, 100.2, 1500), True, "+123 [+100, +1500]"),
    ],
)
def test_intervals_have_about_three_figures(
    interval: result.Interval, signed: bool, words: str
) -> None:
    assert sweep.interval_words(interval, signed=signed) == words


def test_measures_are_words() -> None:
    assert sweep.measure_words("peakWritesPerSecond") == "peak writes per second"
