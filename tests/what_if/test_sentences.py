"""The sentence of an answer says what is so: of settings, refused drains, circles, recoveries."""

from pathlib import Path

import pytest

from kubectl_nodelife.cli import main
from tests.objects import write_list
from tests.what_if.stand import SIX, Document, ask, budget, node, of, workload

WEB = workload("web", ["a1", "b1", "b2"])
ONE = workload("one", ["a1"])


def said(words: str, objects: list[Document], **more: float) -> str:
    """The sentence, without the question."""
    return ask(words, objects, **more).verdict.text.partition(": ")[2]  # type: ignore[arg-type]


def test_a_loss_under_other_settings_is_a_loss() -> None:
    answer = ask("set node-monitor-grace-period=20s --and lose node a1", ONE)
    text = answer.verdict.text
    assert text.endswith("one is down, 5m22s (with today's settings 5m52s)"), text
    figure = answer.verdict.workloads_at_zero
    assert (figure.baseline, figure.future, figure.without_acts) == (1, 1, 0)
    assert figure.rises()


def test_settings_that_change_nothing_of_a_loss() -> None:
    text = said("set large-cluster-size-threshold=60 --and lose node a1", ONE)
    assert text == "one is down, 5m52s (with today's settings as long)"


def daemon(on: str) -> list[Document]:
    return workload("agent", [on], "DaemonSet")


def test_a_drain_that_kubectl_refuses_is_no_good_news() -> None:
    answer = ask("drain a1", [*WEB, *daemon("a1")])
    (drain,) = answer.drains
    assert (drain.node, drain.ended) == ("a1", "refused")
    assert "a1 is not drained: kubectl touches nothing there: cannot delete" in answer.verdict.text
    assert answer.verdict.drains_unfinished.rises()


def test_a_drain_that_a_budget_holds_does_not_end() -> None:
    answer = ask("drain a1", [*WEB, *budget("web", 3, 3)])
    assert "the drain of a1 does not end: default/web-0: 429" in answer.verdict.text
    ended = ask("drain a1", WEB)
    assert [(each.node, each.ended) for each in ended.drains] == [("a1", "drained")]
    assert not ended.verdict.drains_unfinished.rises()


def test_exit_code_4_for_a_drain_that_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    items = [
        *(d for name in SIX for d in node(name)),
        *WEB,
        *daemon("a1"),
        *workload("one", ["b3"]),
    ]
    dump = write_list(tmp_path / "dump.json", items)
    words = ["what-if", "-f", dump, "--now", "2026-01-01T12:00:00Z", "--exit-code"]
    assert main([*words, "drain", "a1"]) == 4
    assert main([*words, "drain", "a1", "--ignore-daemonsets"]) == 0
    assert main([*words, "cordon", "b3"]) == 0
    setting = ["set", "node-monitor-grace-period=20s", "--and"]
    assert main([*words, *setting, "lose", "node", "b3"]) == 4, "one goes down"


def test_a_circle_is_not_down_to_the_end() -> None:
    """It goes every 30 s, and is up in between."""
    slow = workload("slow", ["a1"])
    for document in slow:
        spec = document["spec"].get("template", document)["spec"]
        spec["tolerations"] = [
            {"key": "maintenance", "operator": "Exists", "tolerationSeconds": 60}
        ]
        spec["nodeSelector"] = {"only": "here"}
    here = node("a1")
    here[0]["metadata"]["labels"]["only"] = "here"
    answer = ask("taint node a1 maintenance=now:NoExecute", [*here, *slow])
    (repeat,) = answer.repeats
    assert repeat.pods > 10
    assert " in all, " in answer.verdict.text and "to the end" not in answer.verdict.text
    assert of(answer, "slow").at_zero_seconds < 3600


def pending(name: str, count: int) -> list[Document]:
    """A workload whose pods have no node."""
    owner, *pods = workload(name, [""] * count, cpu="1")
    for pod in pods:
        pod["status"] = {"phase": "Pending"}
    return [owner, *pods]


def test_what_gets_better_is_said_with_the_time() -> None:
    nodes = ("a1",)
    cordoned = node("a1", cpu="4", unschedulable=True)
    cordoned[0]["spec"]["taints"] = [
        {"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}
    ]
    answer = ask("uncordon a1", [*cordoned, *pending("db", 6)], nodes=nodes)
    text = answer.verdict.text
    assert "4 pods find a node, 2 still find none; db is up at the end, from " in text, text
    assert text.endswith("on, and not without it")
    assert of(answer, "db").without_acts.pending == 6


def test_no_pod_is_said_to_find_no_place_that_found_none_before() -> None:
    owner, *pods = pending("huge", 30)
    for document in (owner, *pods):
        spec = document["spec"].get("template", document)["spec"]
        spec["nodeSelector"] = {"none": "such"}
    text = said("lose node b1", [owner, *pods, *WEB])
    assert "find no place" not in text and "finds no place" not in text
