"""`what-if --enforced`: what kube-controller-manager does at the pace of its clients, and what our
daemon would do at its own."""

import pytest

from kubectl_nodelife.engine.settings import make_settings
from kubectl_nodelife.outlook.what_if.acts import enforced_act, read_acts
from kubectl_nodelife.outlook.what_if.answer import make_answer
from kubectl_nodelife.outlook.what_if.document import WhatIf, WriteSpan
from kubectl_nodelife.outlook.what_if.question import Question, play
from kubectl_nodelife.report.formats import render
from kubectl_nodelife.report.what_if import what_if_page
from tests.what_if.stand import ALL_KINDS, NOW_NS, ask, cluster_of, workload

PODS = 60
"""On each of three nodes."""


@pytest.fixture(scope="module")
def answer() -> WhatIf:
    """Zone a is lost with three nodes of 20 pods, all tainted in one second."""
    cluster = cluster_of(workload("web", ["a1", "a2", "a3"] * PODS, tolerates=5))
    settings = make_settings("newest", {"node-eviction-rate": "5"})
    words = ["lose", "zone", "a"]
    acts = [enforced_act(), *read_acts(words, cluster, beta_zone_labels_only=False)]
    plays = play(Question(cluster, settings, NOW_NS, ALL_KINDS, acts, 1200 * 10**9))
    return make_answer(plays, acts, settings, source={}, moment={}, warnings=())


def spans(answer: WhatIf) -> dict[str, tuple[WriteSpan, WriteSpan]]:
    return {each.write: (each.baseline, each.future) for each in answer.writes}


def test_both_write_the_same_and_ours_is_done_earlier(answer: WhatIf) -> None:
    told = spans(answer)
    assert told["called Unknown"][0].count == 3
    assert told["pods deleted"][0].count == told["pods marked not ready"][0].count == 3 * PODS
    for write, (theirs, ours) in told.items():
        assert theirs.count == ours.count, write
        assert theirs.last_seconds is not None and ours.last_seconds is not None
        assert ours.last_seconds <= theirs.last_seconds, write


def test_each_keeps_its_own_pace(answer: WhatIf) -> None:
    """180 pods are 540 requests of taint-eviction beside its Events, at 20 or at 200 a second."""
    told = spans(answer)
    waits = []
    for taints, deletions in zip(told["NoExecute taints"], told["pods deleted"], strict=True):
        assert taints.first_seconds is not None and deletions.last_seconds is not None
        waits.append(deletions.last_seconds - taints.first_seconds - 5)
    assert (540 - 30) / 20 - 1 < waits[0] < 720 / 20 + 1
    assert (540 - 400) / 200 - 0.1 < waits[1] < 720 / 200


def test_it_is_said(answer: WhatIf) -> None:
    page = render(what_if_page(answer), "table")
    pace = "kube-api-qps=200, kube-api-burst=400"
    assert f"what if our daemon enforces ({pace}; its caps aside)" in page
    (line,) = [line for line in page.splitlines() if line.startswith("pods deleted ")]
    assert line.split()[2] == line.split()[5] == str(3 * PODS)


def test_without_other_settings_there_is_no_such_table() -> None:
    assert ask("lose node a1", workload("web", ["a1"])).writes == []
