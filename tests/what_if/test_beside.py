"""Several processes play one question: the answer is that of one, and no process is left behind."""

import os
import signal
import sys
import time
from functools import partial
from pathlib import Path

import pytest

from kubectl_nodelife.commands.answering import what_if
from kubectl_nodelife.commands.answering.what_if import cores, in_children
from kubectl_nodelife.engine.settings import make_settings
from kubectl_nodelife.kube.times import SECOND_NS
from kubectl_nodelife.outlook.what_if.acts import read_acts
from kubectl_nodelife.outlook.what_if.answer import make_answer
from kubectl_nodelife.outlook.what_if.question import Beside, Question, afterwards, play
from kubectl_nodelife.report.formats import render
from kubectl_nodelife.report.what_if import what_if_page
from tests.what_if.stand import ALL_KINDS, NOW_NS, cluster_of, workload

NEEDS_TWO = pytest.mark.skipif(
    sys.platform != "linux" or cores() < 2, reason="one core, or forks are unsafe: nothing forks"
)


def answer(words: str, beside: Beside) -> str:
    made = workload("web", ["a1", "a2", "b1"]) + workload("db", ["a1", "b2"], "StatefulSet")
    cluster, settings = cluster_of(made), make_settings("newest")
    acts = read_acts(words.split(), cluster, beta_zone_labels_only=False)
    question = Question(cluster, settings, NOW_NS, ALL_KINDS, acts, 3600 * SECOND_NS)
    plays = play(question, beside=beside)
    found = make_answer(plays, acts, settings, source={}, moment={}, warnings=())
    return render(what_if_page(found), "json")


@pytest.mark.parametrize("words", ["lose node a1", "lose zone a", "drain node b1"])
def test_two_processes_make_the_answer_of_one(words: str) -> None:
    assert answer(words, in_children) == answer(words, afterwards)


@NEEDS_TWO
def test_the_works_are_done_in_children_that_are_gone_then() -> None:
    with in_children([os.getpid, lambda: "second", os.getpid]) as made:
        first, second, third = made()
    assert os.getpid() not in (first, third) and second == "second"
    for child in (first, third):
        with pytest.raises(ProcessLookupError):
            os.kill(child, 0)


@pytest.mark.parametrize("usable", [1, 2, 3, 4, 9])
def test_each_work_is_done_once_whatever_the_cores(
    usable: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(what_if, "cores", lambda: usable)
    with in_children([partial(str, n) for n in range(4)]) as made:
        assert made() == ["0", "1", "2", "3"]


@NEEDS_TWO
def test_who_does_not_ask_for_them_does_not_wait_for_them() -> None:
    began = time.monotonic()
    with in_children([lambda: time.sleep(60)]):
        pass
    assert time.monotonic() - began < 30


@pytest.mark.parametrize("ends", [signal.SIGKILL, signal.SIGTERM])
def test_what_a_child_does_not_bring_is_made_here(ends: signal.Signals) -> None:
    ours = os.getpid()

    def work() -> int:
        if os.getpid() != ours:
            os.kill(os.getpid(), ends)
        return os.getpid()

    with in_children([work]) as made:
        assert made() == [ours]


def test_an_error_of_the_works_is_raised_here() -> None:
    def work() -> int:
        raise ValueError("both times")

    with pytest.raises(ValueError, match="both times"), in_children([work]) as made:
        made()


def left_seconds() -> float:
    return signal.getitimer(signal.ITIMER_REAL)[0]


@NEEDS_TWO
def test_a_child_has_no_more_time_than_this_process(tmp_path: Path) -> None:
    told = tmp_path / "left"
    before = signal.setitimer(signal.ITIMER_REAL, 1000)
    try:
        with in_children(
            [lambda: told.write_text(f"{signal.getitimer(signal.ITIMER_REAL)[0]}")]
        ) as m:
            m()
    finally:
        signal.setitimer(signal.ITIMER_REAL, *before)
    assert 0 < float(told.read_text()) <= 1000
