"""The document of a study: what it says, its points, and what is refused, in one line each."""

from typing import Any

import msgspec
import pytest

from kubectl_nodelife.engine.settings import make_settings
from kubectl_nodelife.kube.times import HOUR_NS, MINUTE_NS, SECOND_NS
from kubectl_nodelife.sim.fields import FieldPath
from kubectl_nodelife.sim.generate import Generate
from kubectl_nodelife.sweep.failures import FIXED, Flap, Independent, Law
from kubectl_nodelife.sweep.points import (
    LatinHypercube,
    base_of_recipe,
    points_of,
    read_space,
    settled_points,
)
from kubectl_nodelife.sweep.result import Assertion, runs_of
from kubectl_nodelife.sweep.study import Study, read_study
from tests.sweep.stand import base, refusal

FLAP = {"kind": "flap", "every": "10m", "silence": {"lognormal": {"median": "30s", "sigma": 1}}}
SPEC: dict[str, Any] = {"base": {"generate": {"zones": 2}}, "failures": [FLAP]}


def read(spec: dict[str, Any], **top: Any) -> Study:
    document = {"apiVersion": "nodelife.dev/v1alpha1", "kind": "Study", "spec": spec, **top}
    return read_study(msgspec.json.encode(document), "s.yaml", lambda name: b"")


def test_a_study_says_little() -> None:
    found = read(SPEC)
    assert (found.name, found.seeds, found.duration_ns) == ("study", (1,), HOUR_NS)
    assert found.base == ("generate", {"zones": 2})
    law = Law("lognormal", 30 * SECOND_NS, 1.0)
    assert found.failures == (("flap", Flap(Law(FIXED, 10 * MINUTE_NS), law)),)


def test_a_study_says_much() -> None:
    machines = {"kind": "independent", "mtbf": {"weibull": {"mean": "1h", "shape": 0.7}}}
    spec = {
        **SPEC,
        "failures": [FLAP, {**machines, "mttr": "5m"}, FLAP],
        "space": {"tolerationSeconds": {"from": 0, "to": 300, "step": 150}},
        "sampling": "grid",
        "repeat": [4, 9],
        "duration": "2h",
        "measure": ["needlessEvictions", "evictions"],
        "assert": ["evictions < 10", "p95 blindMinutes <= 2.5"],
    }
    found = read(spec, metadata={"name": "much"})
    assert [name for name, _ in found.failures] == ["flap", "independent", "flap-2"]
    assert isinstance(found.failures[1][1], Independent)
    assert found.space == {"tolerationSeconds": (0, 150, 300)}
    assert (found.seeds, found.measures) == ((4, 9), ("evictions", "needlessEvictions"))
    assert found.assertions == (
        Assertion("mean", "evictions", "<", 10),
        Assertion("p95", "blindMinutes", "<=", 2.5),
    )


@pytest.mark.parametrize(
    ("change", "line"),
    [
        ({"base": {}}, "spec.base: names no cluster or several; give one of snapshot, dump,"),
        ({"sauce": 1}, "spec.sauce: unknown field; did you mean space?"),
        ({"failures": []}, "spec.failures: the list is empty; known here: independent,"),
        ({"failures": [{"kind": "flop"}]}, "unknown value 'flop'; did you mean flap?"),
        ({"failures": [{"kind": "flap"}]}, "spec.failures[0].every: the field is missing; flap"),
        ({"failures": [{**FLAP, "every": 5}]}, "every: 5 lacks a unit; write 5s for seconds"),
        ({"failures": [{**FLAP, "every": {"pareto": {}}}]}, "every.pareto: unknown field"),
        (
            {"failures": [{**FLAP, "every": {"exponential": {}}}]},
            "every.exponential: lacks the field mean",
        ),
        ({"failures": [{**FLAP, "share": 1.5}]}, "share: 1.5 is no number above 0 and at most 1"),
        (
            {"failures": [{"kind": "trace", "columns": {}}]},
            "failures[0].file: the field is missing",
        ),
        (
            {"space": {"colour": ["red"]}},
            "spec.space.colour: is not varied; known here: flags.",
        ),
        ({"space": {"zones": [0]}}, "spec.space.zones: 0 is out of range"),
        ({"space": {"zones": [2, 2]}}, "spec.space.zones: has a value twice"),
        ({"space": {"zones": []}}, "spec.space.zones: has no values"),
        ({"space": {"zones": {"from": 1}}}, "spec.space.zones: is no range; give from and to, and"),
        ({"space": {"leaseRenewInterval": ["soon"]}}, "'soon' is no interval"),
        ({"sampling": {"points": 3}}, "spec.sampling.points: unknown field"),
        ({"repeat": 0}, "spec.repeat: 0 is out of range"),
        ({"repeat": [3, 3]}, "spec.repeat: has no seeds, or one twice"),
        ({"duration": "25h"}, "spec.duration: 25h must be at most 24h0m0s"),
        ({"measure": ["joy"]}, "spec.measure[0]: unknown value 'joy'"),
        ({"assert": ["evictions"]}, "spec.assert[0]: 'evictions' is no assertion; write [p5|"),
        ({"assert": ["mode evictions < 1"]}, "unknown statistic 'mode'; did you mean mean?"),
        ({"assert": ["evictionz < 1"]}, "unknown measure 'evictionz'; did you mean evictions?"),
        ({"assert": ["evictions < few"]}, "'few' is no number"),
        ({"controllers": ["kubelet"]}, "spec.controllers[0]: unknown value 'kubelet'"),
    ],
)
def test_what_is_wrong_is_said_in_a_line(change: dict[str, Any], line: str) -> None:
    found = refusal(lambda: read({**SPEC, **change}))
    assert found.startswith("s.yaml: spec")
    assert line in found and "\n" not in found


def test_another_kind_is_no_study() -> None:
    found = refusal(lambda: read(SPEC, kind="Scenario"))
    assert found == "s.yaml: kind: found 'Scenario'; a study has kind: Study"


@pytest.mark.parametrize(
    ("written", "values"),
    [
        (["20s", "40s"], ("20s", "40s")),
        ({"from": "20s", "to": "1m", "step": "20s"}, ("20s", "40s", "1m0s")),
        ({"from": 1, "to": 100, "log": 3}, (1, 10, 100)),
        ({"from": "10s", "to": "10m", "log": 3}, ("10s", "1m17.5s", "10m0s")),
        ({"from": 0.1, "to": 0.3, "step": 0.1}, (0.1, 0.2, 0.3)),
    ],
)
def test_the_values_of_a_name(written: Any, values: tuple[object, ...]) -> None:
    name = "flags.node-monitor-grace-period"
    assert read_space({name: written}, FieldPath("s"))[name] == values


def test_a_grid_has_every_combination_and_a_hypercube_each_value_as_often() -> None:
    space = {"zones": (1, 2, 3, 4), "replicas": (1, 2)}
    grid = points_of(space, None)
    assert grid[:3] == [
        {"zones": 1, "replicas": 1},
        {"zones": 1, "replicas": 2},
        {"zones": 2, "replicas": 1},
    ]
    assert len(grid) == 8
    found = points_of(space, LatinHypercube(8, seed=1))
    assert [sum(p["zones"] == zone for p in found) for zone in (1, 2, 3, 4)] == [2, 2, 2, 2]
    assert [sum(p["replicas"] == many for p in found) for many in (1, 2)] == [4, 4]
    assert found == points_of(space, LatinHypercube(8, seed=1))
    assert found != points_of(space, LatinHypercube(8, seed=2))
    assert points_of({}, None) == points_of({}, LatinHypercube(3, 1)) == [{}]


RECIPE = base_of_recipe(Generate(zones=3), make_settings("newest"))
GRACE = "flags.node-monitor-grace-period"


def test_todays_point_is_played_too() -> None:
    points, today = settled_points(RECIPE, {GRACE: ("20s",), "zones": (2,)}, None)
    assert today == {GRACE: "50s", "zones": 3}
    assert points == [today, {GRACE: "20s", "zones": 2}]
    again, _ = settled_points(RECIPE, {GRACE: ("20s", "50s")}, None)
    assert again == [{GRACE: "20s"}, {GRACE: "50s"}]


@pytest.mark.parametrize(
    ("space", "line"),
    [
        ({"flags.node-monitor-grace": ("20s",)}, "node-monitor-grace"),
        ({GRACE: ("soon",)}, "soon"),
    ],
)
def test_a_flag_that_is_none_is_refused(space: dict[str, tuple[str]], line: str) -> None:
    found = refusal(lambda: settled_points(RECIPE, space, None))
    assert found.startswith("spec.space: ") and line in found


def test_zones_of_a_given_cluster_cannot_be_varied() -> None:
    found = refusal(lambda: settled_points(base([]), {"zones": (2,)}, None))
    assert found.startswith("zones: cannot be varied on a cluster that is given; vary it on")


def test_runs_are_numbered_point_by_point() -> None:
    found = [
        (run.number, run.point["zones"], run.seed)
        for run in runs_of([{"zones": 1}, {"zones": 2}], [5, 6])
    ]
    assert found == [(0, 1, 5), (1, 1, 6), (2, 2, 5), (3, 2, 6)]
