"""DaemonSets on nodes of their own, under the real controller and under ours: the same outcome.

After each step of a set-up both clusters must have the same pods of the same revision on the same
nodes, the same revisions by number and content, and the same status; in the end our controller must
have made and deleted as many pods on each node, and recorded the same kinds of events.
"""

import time
from typing import NamedTuple

import msgspec
import pytest

from kubectl_nodelife.controllers.daemonset.behaviour import behaviour_of
from kubectl_nodelife.engine.settings import NEWEST, make_settings, parse_profile
from kubectl_nodelife.kube.load import load_objects
from kubectl_nodelife.outlook.daemonset.view import DaemonSets, cache_for
from tests.real.control_plane import control_plane
from tests.real.daemonset_play import FLAGS, START_S, STOP_S, UNHELD, Played, RealPlay, simulate
from tests.real.daemonset_stories import SETUPS
from tests.real.kubelets import Kubelets


class Both(NamedTuple):
    """What came of all set-ups."""

    real: dict[str, Played]
    ours: dict[str, Played]


@pytest.fixture(scope="module")
def both() -> Both:
    """All set-ups played, on the real cluster first."""
    with (
        control_plane(
            controller_manager=[f"--{f}={v}" for f, v in (FLAGS | UNHELD).items()],
            scheduler=True,
        ) as plane,
        Kubelets(plane.api, renew_every_s=5.0, start_s=START_S, stop_s=STOP_S) as kubelets,
    ):
        stage = RealPlay(plane, kubelets)
        real = stage.play(SETUPS)
        ours = {name: simulate(name, setup, stage.defaulted) for name, setup in SETUPS.items()}
    return Both(real, ours)


@pytest.mark.parametrize("name", SETUPS)
def test_the_outcome_of_each_step_is_the_real_ones(name: str, both: Both) -> None:
    assert len(both.real[name].outcomes) == len(SETUPS[name].steps)
    assert both.ours[name].outcomes == both.real[name].outcomes


@pytest.mark.parametrize("name", SETUPS)
def test_no_pod_is_made_or_deleted_more_often(name: str, both: Both) -> None:
    assert both.real[name].calls
    assert both.ours[name].calls == both.real[name].calls


@pytest.mark.parametrize("name", SETUPS)
def test_the_same_kinds_of_events_are_recorded(name: str, both: Both) -> None:
    assert both.real[name].events
    assert both.ours[name].events == both.real[name].events


@pytest.mark.parametrize("name", SETUPS)
def test_at_rest_our_copy_has_nothing_left_to_do(name: str, both: Both) -> None:
    assert len(both.real[name].at_rest) == len(SETUPS[name].steps)
    for objects in both.real[name].at_rest:
        content = msgspec.json.encode({"apiVersion": "v1", "kind": "List", "items": objects})
        now_ns = time.time_ns()
        rules = behaviour_of((1, parse_profile(NEWEST).minor), {})
        cache = cache_for(load_objects(content, name).objects, None, rules)
        sets = DaemonSets(cache, make_settings(NEWEST, {}), now_ns)
        for key in sets.set_keys():
            view = sets.view(key)
            assert view is not None
            assert view.current is not None, "the real revision is not recognized"
            step = view.update_step()
            assert step is None or (step.create, step.delete) == ([], [])
            assert not any(d.create_because or d.delete for d in view.decisions.values())


@pytest.mark.parametrize("name", [n for n, s in SETUPS.items() if "undo" in str(s.steps)])
def test_undoing_is_answered_as_by_kubectl(name: str, both: Both) -> None:
    assert both.real[name].said
    assert both.ours[name].said == both.real[name].said
