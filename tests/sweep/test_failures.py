"""Models of failures: what they draw, that draws are apart from one another, and what is merged."""

from collections.abc import Sequence
from statistics import fmean, median

import pytest

from kubectl_nodelife.kube.times import HOUR_NS, MINUTE_NS, SECOND_NS
from kubectl_nodelife.sweep.failures import (
    FIXED,
    Flap,
    Group,
    Independent,
    LateHeartbeats,
    Law,
    Link,
    MachineOutage,
    Model,
    RollingPower,
    Silence,
    Terrain,
    Trace,
    events_of,
    merged,
    stream,
)
from kubectl_nodelife.sweep.study import read_trace
from tests.sweep.stand import refusal

MINUTE = Law(FIXED, MINUTE_NS)
TEN_MINUTES = Law(FIXED, 10 * MINUTE_NS)
NAMES = ("a1", "a2", "b1", "b2")


def terrain(seed: int = 1, names: Sequence[str] = NAMES, model: str = "m") -> Terrain:
    labels = {name: {"zone": name[0]} for name in names}
    first = dict.fromkeys(names, 6 * SECOND_NS)
    return Terrain(labels, first, 10 * SECOND_NS, HOUR_NS, stream("s", model, seed))


RANDOM: list[Model] = [
    Independent(Law("weibull", HOUR_NS, 0.7), Law("lognormal", MINUTE_NS)),
    Group("zone", Law("exponential", HOUR_NS // 2), MINUTE, 0.5),
    Flap(Law("exponential", 5 * MINUTE_NS), Law("lognormal", MINUTE_NS), 0.8),
    LateHeartbeats(Law("uniform", SECOND_NS, to_ns=MINUTE_NS), 0.05),
    Link(Law("exponential", HOUR_NS // 2), MINUTE, "zone"),
    RollingPower("zone", Law("uniform", SECOND_NS, to_ns=MINUTE_NS), MINUTE, MINUTE),
]


@pytest.mark.parametrize("model", RANDOM, ids=lambda model: type(model).__name__)
def test_a_seed_gives_the_same_each_time_and_another_one_does_not(model: Model) -> None:
    many = [list(model.silences(terrain(seed))) for seed in (1, 1, 2, 3)]
    assert many[0] == many[1]
    assert len({tuple(each) for each in many}) == 3


@pytest.mark.parametrize("model", RANDOM[:1] + RANDOM[2:4], ids=lambda m: type(m).__name__)
def test_another_node_changes_no_draw(model: Model) -> None:
    fewer = list(model.silences(terrain()))
    more = list(model.silences(terrain(names=(*NAMES, "c1"))))
    assert [each for each in more if each.node != "c1"] == fewer


def test_models_of_one_kind_draw_apart() -> None:
    model = RANDOM[0]
    first, second = (list(model.silences(terrain(model=name))) for name in ("m", "m-2"))
    assert first != second


@pytest.mark.parametrize(
    ("law", "statistic", "expected"),
    [
        (Law("exponential", HOUR_NS), fmean, HOUR_NS),
        (Law("weibull", HOUR_NS, 0.7), fmean, HOUR_NS),
        (Law("lognormal", HOUR_NS, 1.5), median, HOUR_NS),
        (Law("uniform", HOUR_NS, to_ns=3 * HOUR_NS), fmean, 2 * HOUR_NS),
        (Law(FIXED, HOUR_NS), fmean, HOUR_NS),
    ],
    ids=lambda each: each.kind if isinstance(each, Law) else "",
)
def test_a_law_has_the_mean_or_median_that_it_names(
    law: Law, statistic: object, expected: int
) -> None:
    chance = stream("s", "m", 1)("")
    draws = [law.draw(chance) for _ in range(20_000)]
    assert callable(statistic)
    assert statistic(draws) == pytest.approx(expected, rel=0.05)


def test_late_renewals_follow_one_another_an_interval_after_the_last_success() -> None:
    model = LateHeartbeats(Law(FIXED, 30 * SECOND_NS), 1.0)
    found = [s for s in model.silences(terrain()) if s.node == "a1"]
    due_s = [(s.from_ns / SECOND_NS, s.to_ns / SECOND_NS) for s in found[:3]]
    assert due_s == [(5.999, 36), (45.999, 76), (85.999, 116)]
    assert not any(s.off for s in found)


def test_power_goes_from_group_to_group() -> None:
    model = RollingPower("zone", TEN_MINUTES, TEN_MINUTES, MINUTE)
    found = [
        (s.node, s.from_ns // MINUTE_NS, s.to_ns // MINUTE_NS) for s in model.silences(terrain())
    ]
    assert found == [("a1", 10, 11), ("a2", 10, 11), ("b1", 20, 21), ("b2", 20, 21)]


def test_a_group_fails_at_once() -> None:
    found = list(Group("zone", TEN_MINUTES, MINUTE).silences(terrain()))
    assert {(s.node[0], s.from_ns) for s in found} == {
        (zone, (10 + 11 * k) * MINUTE_NS) for zone in "ab" for k in range(5)
    }
    assert all(s.off for s in found)


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        pytest.param([("a", 1, 5, 0), ("a", 4, 9, 1)], [("a", 1, 9, 1)], id="overlap: off"),
        pytest.param([("a", 1, 5, 0), ("a", 5, 9, 0)], [("a", 1, 9, 0)], id="they touch"),
        pytest.param([("a", 1, 9, 1), ("a", 2, 3, 0)], [("a", 1, 9, 1)], id="one in the other"),
        pytest.param(
            [("b", 1, 5, 0), ("a", 4, 9, 1)], [("a", 4, 9, 1), ("b", 1, 5, 0)], id="two nodes"
        ),
        pytest.param([("a", 100, 101, 0)], [], id="after the end"),
    ],
)
def test_silences_of_a_node_are_merged(
    given: list[tuple[str, int, int, int]], expected: list[tuple[str, int, int, int]]
) -> None:
    silences = [Silence(node, begin, end, bool(off)) for node, begin, end, off in given]
    found = merged(silences, 100)
    assert [(s.node, s.from_ns, s.to_ns, int(s.off)) for s in found] == expected


def test_events_are_in_the_order_of_time_and_then_of_nodes() -> None:
    silences = [Silence("b", 5, 9, True), Silence("a", 5, 9, False), Silence("c", 1, 2, True)]
    found = [(event.at_ns, event.what) for event in events_of(silences)]
    assert [(at, what.targets.nodes, what.link, what.for_ns) for at, what in found] == [
        (1, ("c",), False, 1),
        (5, ("a",), True, 4),
        (5, ("b",), False, 4),
    ]


def test_a_trace_hits_nodes_by_name_or_each_machine_one() -> None:
    outages = (MachineOutage("a1", 0, SECOND_NS), MachineOutage("zz", 5 * SECOND_NS, 6 * SECOND_NS))
    by_name = list(Trace(outages, by_name=True).silences(terrain()))
    assert [each.node for each in by_name] == ["a1"]
    by_seed = [[s.node for s in Trace(outages).silences(terrain(seed))] for seed in range(20)]
    assert all(len(set(nodes)) == 2 for nodes in by_seed)
    assert len({tuple(nodes) for nodes in by_seed}) > 5


CSV = "time,machine,event,duration\n"


@pytest.mark.parametrize(
    "content",
    [
        CSV + "10,m1,down,5\n20,m2,down,\n30,m2,up,\n",
        '[{"time":10,"machine":"m1","event":"down","duration":5},'
        '{"time":20,"machine":"m2","event":"down"},{"time":30,"machine":"m2","event":"up"}]',
    ],
    ids=["CSV", "JSON"],
)
def test_a_trace_is_read(content: str) -> None:
    found = read_trace(content.encode(), "t", {})
    assert found == (
        MachineOutage("m1", 10 * SECOND_NS, 15 * SECOND_NS),
        MachineOutage("m2", 20 * SECOND_NS, 30 * SECOND_NS),
    )


def test_a_trace_may_call_its_columns_otherwise() -> None:
    content = b"start,host,event,len\n10,m1,down,5\n"
    names = {"time": "start", "machine": "host", "duration": "len"}
    assert read_trace(content, "t", names) == (MachineOutage("m1", 10 * SECOND_NS, 15 * SECOND_NS),)


@pytest.mark.parametrize(
    ("rows", "line"),
    [
        ("10,m,down,\n", "t: m goes down and never up; give its duration"),
        ("10,m,up,\n", "t:2: m goes up and is up already"),
        ("10,m,down,\n11,m,down,\n", "t:3: m goes down and is down already"),
        ("10,m,down,5\n12,m,down,5\n", "t:3: m is down already or time goes back"),
        ("10,m,asleep,5\n", "t:2: 'asleep' is no event; write down or up"),
        ("x,m,down,5\n", "t:2: 'x' is no time in seconds"),
        ("10,m,down,-5\n", "t:2: '-5' is no duration in seconds"),
        ("10,,down,5\n", "t:2: names no machine"),
        ("nan,m,down,5\n", "t:2: 'nan' is no time in seconds"),
    ],
)
def test_gaps_and_overlaps_of_a_trace_are_refused(rows: str, line: str) -> None:
    assert refusal(lambda: read_trace((CSV + rows).encode(), "t", {})) == line
