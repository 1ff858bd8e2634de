"""`audit` and `repair` from the outside: words in, pages, documents and exit codes out."""

import json
import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import yaml

from kubectl_nodelife.cli import main

DUMP = str(Path(__file__).parents[1] / "dumps" / "stuck-pods.yaml")


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Any:
    """Run a command line; (exit code, stdout, stderr)."""

    def run(*words: str) -> tuple[int, str, str]:
        code = main(words)
        return code, *capsys.readouterr()

    return run


def document(run: Any, *words: str) -> Any:
    code, out, err = run(*words, "-o", "json")
    assert (code, err) == (0, "")
    return json.loads(out)


def test_the_document_of_an_audit(run: Any) -> None:
    answer = document(run, "audit", "-f", DUMP)
    assert (answer["kind"], answer["profile"]) == ("PodAudit", "v1.34")
    assert answer["moment"]["time"] == "2026-01-01T12:00:00.000000Z"
    assert answer["counts"]["stuck-not-ready"] == 2 and answer["counts"]["ok"] == 2
    (stuck,) = [f for f in answer["findings"] if f["name"] == "stuck"]
    assert (stuck["class"], stuck["severity"], stuck["ageSeconds"]) == (
        "stuck-not-ready",
        "wrong",
        1200,
    )
    assert stuck["uid"] == "pod-stuck" and stuck["node"] == "back"
    for key in ("because", "meaning", "remedy", "risk", "knownIssues", "evidence"):
        assert stuck[key], key
    assert {e["field"]: e["value"] for e in stuck["evidence"]}[
        "pod.status.conditions[Ready].status"
    ] == "False"


def test_an_older_profile_names_the_older_fault(run: Any) -> None:
    words = ("audit", "-f", DUMP, "--class", "stuck-not-ready")
    old = document(run, *words, "--profile", "v1.16")["findings"][0]["knownIssues"]
    new = document(run, *words)["findings"][0]["knownIssues"]
    assert "kubernetes/kubernetes#84951" in old
    assert "kubernetes/kubernetes#84951" not in new


def test_the_page_of_an_audit(run: Any) -> None:
    code, out, _ = run("audit", "-f", DUMP)
    assert code == 0
    assert out.splitlines()[3].startswith("NAMESPACE   POD ")
    assert "stuck-not-ready (2): " in out and "May it be forced? shop/db-0:" in out
    assert "12 pods are stuck, or say what is not so: 12 findings (" in out


def test_notes_about_many_pods_of_one_node_are_one_line(run: Any, tmp_path: Path) -> None:
    dump = yaml.safe_load(Path(DUMP).read_text())
    (pod,) = [o for o in dump["items"] if o["metadata"]["name"] == "marked"]
    for number in range(9):
        copy = json.loads(json.dumps(pod))
        copy["metadata"] |= {"name": f"copy-{number}", "uid": f"u-{number}"}
        dump["items"].append(copy)
    path = tmp_path / "many.json"
    path.write_text(json.dumps(dump))
    _, table, _ = run("audit", "-f", str(path))
    _, wide, _ = run("audit", "-f", str(path), "-o", "wide")
    assert "12 pods" in table and "copy-3" not in table
    assert "copy-3" in wide


def test_only_one_namespace_or_class(run: Any) -> None:
    assert document(run, "audit", "-f", DUMP, "-n", "other")["findings"] == []
    assert document(run, "audit", "-f", DUMP, "-n", "other", "-A")["findings"] != []
    found = document(run, "audit", "-f", DUMP, "--class", "gates", "--class", "lagging")
    assert [f["name"] for f in found["findings"]] == ["lagging", "gated"]


def test_exit_codes(run: Any) -> None:
    assert run("audit", "-f", DUMP, "--exit-code")[0] == 4
    assert run("audit", "-f", DUMP, "--exit-code", "--class", "gates")[0] == 0
    assert run("audit", "-f", DUMP, "--class", "stuck-no-ready")[0] == 2
    assert run("audit")[0] == 2


def test_a_wrong_class_names_the_nearest(run: Any) -> None:
    _, _, err = run("audit", "-f", DUMP, "--class", "stuck-no-ready")
    assert "did you mean stuck-not-ready" in err


def test_names(run: Any) -> None:
    _, out, _ = run("audit", "-f", DUMP, "-o", "name", "--class", "orphaned")
    assert out == "pod/shop/orphan\npod/shop/orphan-dying\n"


def test_a_repair_prints_its_requests_and_its_refusals(run: Any) -> None:
    plan = document(run, "repair", "-f", DUMP)
    assert (plan["kind"], plan["mode"]) == ("RepairPlan", "dry-run")
    outcomes = {s["name"]: s["outcome"] for s in plan["steps"]}
    assert outcomes["stuck"] == "would" and outcomes["db-0"] == "refused"
    for step in plan["steps"]:
        assert bool(step["request"]) == (step["outcome"] == "would") != bool(step["refusals"])
    assert "recovering" not in outcomes  # a note is planned only when asked for


def test_a_repair_of_a_pod_by_name(run: Any) -> None:
    for name in ("stuck", "pod/shop/stuck"):
        plan = document(run, "repair", name, "-f", DUMP, "-n", "shop")
        assert [s["name"] for s in plan["steps"]] == ["stuck"]
    plan = document(run, "repair", "pod/shop/recovering", "-f", DUMP)
    assert [s["outcome"] for s in plan["steps"]] == ["refused"]


def test_a_repair_of_what_is_well_or_not_there(run: Any) -> None:
    code, _, err = run("repair", "fine", "-n", "shop", "-f", DUMP)
    assert code == 0 and "pod shop/fine: nothing to repair" in err
    assert run("repair", "nobody", "-n", "shop", "-f", DUMP)[0] == 1
    assert run("repair", "-f", DUMP, "--fenced", "no-such-node")[0] == 1
    assert run("repair", "a/b/c", "-f", DUMP)[0] == 2


def test_fencing_is_the_operators_word(run: Any) -> None:
    plan = document(run, "repair", "pod/shop/db-0", "-f", DUMP, "--fenced", "lost")
    (step,) = plan["steps"]
    assert step["request"]["verb"] == "DELETE"
    assert step["request"]["body"]["preconditions"]["uid"] == "pod-db-0"


def test_an_earlier_look_shows_a_kubelet_at_work(run: Any, tmp_path: Path) -> None:
    earlier = tmp_path / "earlier.yaml"
    text = Path(DUMP).read_text().replace("12:00:00.000000Z", "11:58:10.000000Z")
    text = text.replace("11:59:", "11:58:").replace(
        "resourceVersion: '2002'", "resourceVersion: '1'"
    )
    earlier.write_text(text)
    words = ("repair", "-f", DUMP, "--before", str(earlier), "--class", "stuck-not-ready")
    outcomes = {s["name"]: s for s in document(run, *words)["steps"]}
    assert outcomes["stuck"]["outcome"] == "would"
    assert "a kubelet at work" in outcomes["stuck-and-old-news"]["refusals"][0]


def test_the_page_of_a_repair(run: Any) -> None:
    _, out, _ = run("repair", "-f", DUMP, "--class", "stuck-not-ready", "--dry-run")
    assert "PATCH /api/v1/namespaces/shop/pods/stuck/status" in out
    assert out.startswith(
        "2 requests are to be sent, 0 findings refused; nothing was sent (dry run)."
    )


def test_the_first_line_of_a_repair_says_what_most_is_refused_for(run: Any) -> None:
    steps = document(run, "repair", "-A", "-f", DUMP)["steps"]
    why = Counter(
        "; ".join(s["refusals"]) or s["because"] for s in steps if s["outcome"] == "refused"
    )
    first = run("repair", "-A", "-f", DUMP)[1].splitlines()[0]
    said = re.search(r"(\d+) findings refused, (\d+) of them because (.*); nothing was sent", first)
    assert said is not None and int(said[1]) == sum(why.values())
    assert int(said[2]) == why[said[3]] == max(why.values())


def test_what_is_wrong_with_a_pod_is_said_first(run: Any) -> None:
    for found in document(run, "audit", "-A", "-f", DUMP)["findings"]:
        second = run("explain", "pod", found["name"], "-n", found["namespace"], "-f", DUMP)[1]
        second = second.splitlines()[1]
        if found["class"] in ("stuck-not-ready", "stale-ready"):
            assert second.startswith(f"{found['class']}: {found['because']}. Do: "), second
        elif found["class"] == "recovering":
            assert found["because"] not in second  # a note


def test_when_a_pod_on_a_dead_node_is_evicted(run: Any) -> None:
    """By hand: the taint came at 11:56:05, 300 s are tolerated, and it is 12:00:00."""
    found = document(run, "audit", "-f", DUMP)["findings"]
    due = {f["name"]: f["eviction"]["inSeconds"] for f in found if f["eviction"]}
    assert due == {
        "agent-sick": None,
        "stale-on-lost": 65,
        "stale-on-sick": 65,
        "agent-lost": None,
        "marked": 65,
        "static-lost": None,
    }
    _, table, _ = run("audit", "-f", DUMP)
    assert "evicted in 65s" in table and "never evicted" in table


def test_an_eviction_that_did_not_come_is_overdue(run: Any) -> None:
    """Due at 12:01:05, and a minute late is not overdue."""
    _, table, _ = run("audit", "-f", DUMP, "--now", "2026-01-01T12:01:15Z")
    assert "evicted now" in table and "its deletion is overdue" not in table
    words = ("audit", "-f", DUMP, "--now", "2026-01-01T12:03:05Z")
    found = json.loads(run(*words, "-o", "json")[1])["findings"]
    late = {f["name"]: f["eviction"].get("overdueSince") for f in found if f["eviction"]}
    assert late["marked"] == late["stale-on-lost"] == "2026-01-01T12:01:05Z"
    assert late["agent-lost"] is None
    _, table, _ = run(*words)
    assert "its deletion is overdue since 2026-01-01T12:01:05Z (2m)" in table
    assert "evicted now" not in table


def test_evictions_that_a_controller_at_work_comes_to_are_not_overdue(
    run: Any, tmp_path: Path
) -> None:
    """taint-eviction has marked another pod of the node five seconds ago."""
    dump = yaml.safe_load(Path(DUMP).read_text())
    items = dump["items"] if isinstance(dump, dict) else dump
    marked = next(o for o in items if o["metadata"]["name"] == "marked")
    mark = {"type": "DisruptionTarget", "status": "True", "reason": "DeletionByTaintManager"}
    mark["lastTransitionTime"] = "2026-01-01T12:03:00Z"
    marked["status"]["conditions"].append(mark)
    at_work = tmp_path / "dump.json"
    at_work.write_text(json.dumps(dump))
    _, table, _ = run("audit", "-f", str(at_work), "--now", "2026-01-01T12:03:05Z")
    assert "evicted now" in table and "its deletion is overdue" not in table
