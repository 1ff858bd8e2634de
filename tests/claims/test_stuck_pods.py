"""Holds the first lines of `audit` and `repair` against what a naive reader knows of each pod.

`repair` is asked of a dump: it says what it would send. Nothing may be sent about a pod of a node
that does not report, nor without a precondition.
"""

import json
import re
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from kubectl_nodelife.cli import main
from tests.claims.aftermaths import Aftermath, Document, aftermath
from tests.claims.test_first_lines import MOMENT, Capture, asked, seconds_ago
from tests.claims.test_what_was import apart, catch, counted

NOTES = ("marked-node-down", "gates", "evicted-leftover")
"""What is as it should be, and good to know."""
QUIET = ("consistent", "little", "unheard")
RUNNING = ("serving", "refused", "cancelled", "preempted", "reborn")
LEAST_S = 600
"""A pod that is bound for less is starting."""


def classes_of(cluster: Aftermath, pod: Document) -> list[str]:
    """The classes of findings that there must be of the pod; one of QUIET for none."""
    fate, node = cluster.pods[pod["metadata"]["name"]], cluster.nodes[pod["spec"]["nodeName"]]
    if node == "removed":
        return ["orphaned"]
    found = _of_fate(pod, fate, down=node in ("lost", "false"))
    return ["unheard"] if node == "lost" and found[0] in ("consistent", "little") else found


def _of_fate(pod: Document, fate: str, *, down: bool) -> list[str]:
    if fate in ("terminating", "finalizer"):
        slow = "terminating-slow" if fate == "terminating" else "terminating-finalizer"
        return ["terminating-dead-node"] if down else [slow]
    if fate in RUNNING:
        return ["stale-ready"] if down else ["consistent"]
    if fate == "marked":
        return ["marked-node-down"] if down else ["stuck-not-ready"]
    if fate == "waiting":
        (bound,) = pod["status"]["conditions"]
        waits = seconds_ago(bound["lastTransitionTime"]) > LEAST_S
        return ["not-starting"] if waits and not down else ["little"]
    known = {"evicted": "evicted-leftover", "shutdown": "evicted-leftover", "gate": "gates"}
    return [known.get(fate, "little" if fate == "untold" else "consistent")]


def classes(cluster: Aftermath) -> dict[str, list[str]]:
    """Of each pod that is there."""
    pods = (o for o in cluster.items if o["kind"] == "Pod")
    return {pod["metadata"]["name"]: classes_of(cluster, pod) for pod in pods}


def numbers(words: str) -> dict[str, int]:
    """`1 gates, 2 orphaned` as numbers."""
    return {name: int(number) for number, name in re.findall(r"(\d+) ([\w-]+)", words)}


def lies_of_audit(cluster: Aftermath, said: str, code: int) -> list[str]:
    """What the first two lines and the exit code claim, and the objects do not bear out."""
    of_pods = classes(cluster)
    quiet = (*QUIET, *NOTES)
    wrong = Counter(word for found in of_pods.values() for word in found if word not in quiet)
    notes = Counter(word for found in of_pods.values() for word in found if word in NOTES)
    pods = sum(any(word in wrong for word in found) for found in of_pods.values())
    named = re.search(r"what is not so: \d+ findings? \(([^)]*)\)", said)
    noted = re.search(r"Good to know of \d+ pods?: ([^.]*)\.", said)
    return apart(
        ("pods", counted(r"^(\d+) pods? (?:is|are) stuck", said), pods),
        ("findings", counted(r"(\d+) findings? \(", said), sum(wrong.values())),
        ("wrong", numbers(named[1] if named else ""), dict(wrong)),
        ("notes", numbers(noted[1] if noted else ""), dict(notes)),
        ("consistent", counted(r"(\d+) pods? (?:is|are) consistent", said),
         sum(found == ["consistent"] for found in of_pods.values())),
        ("say little", counted(r"(\d+) says? too little", said),
         sum(found == ["little"] for found in of_pods.values())),
        ("unheard", _unheard(said), _unheard_pods(cluster)),
        ("exit code", code, 4 if wrong else 0),
    )  # fmt: skip


def _unheard(said: str) -> tuple[int, int]:
    found = re.search(r"(\d+) on (\d+) nodes? that do(?:es)? not report", said)
    return (int(found[1]), int(found[2])) if found else (0, 0)


def _unheard_pods(cluster: Aftermath) -> tuple[int, int]:
    """How many pods, on how many nodes."""
    pods = {o["metadata"]["name"]: o for o in cluster.items if o["kind"] == "Pod"}
    nodes = [
        pods[name]["spec"]["nodeName"]
        for name, found in classes(cluster).items()
        if found == ["unheard"]
    ]
    return len(nodes), len(set(nodes))


def lies_of_repair(cluster: Aftermath, said: str, sent: set[str]) -> list[str]:
    """What the first line claims, and who gets a request that must not, or none that must."""
    of_pods, items = classes(cluster), {o["metadata"]["name"]: o for o in cluster.items}
    must = set()
    for name, found in of_pods.items():
        pod = items[name]
        node = cluster.nodes[pod["spec"]["nodeName"]]
        leads = {"stuck-not-ready": ("well", "back")}.get(found[0], tuple(cluster.nodes.values()))
        is_left = found[0] == "orphaned" and cluster.pods[name] == "terminating"
        goes = found[0] in ("stuck-not-ready",) or is_left
        if goes and node in leads and "resourceVersion" in pod["metadata"]:
            must.add(name)
    quiet = (*QUIET, *NOTES)
    wrong = sum(word not in quiet for found in of_pods.values() for word in found)
    lies = [] if sent == must else [f"sent about {sent}, and must be about {must}"]
    lies += apart(
        ("requests", counted(r"^(\d+) requests? ", said), len(must)),
        ("refused", counted(r"(\d+) findings? refused", said), wrong - len(must)),
    )
    if ("There is nothing to repair" in said) != (not wrong):
        lies.append(f"{said}, and {wrong} are wrong")
    return lies


def audited(folder: Path, capsys: Capture, cluster: Aftermath) -> tuple[str, int]:
    capsys.readouterr()
    code = main(["audit", "-A", "--exit-code", "-f", cluster.write(folder), *MOMENT])
    return capsys.readouterr().out.partition("\n\n")[0], code


def repaired(folder: Path, capsys: Capture, cluster: Aftermath) -> tuple[str, set[str]]:
    """The first line, and the pods about which a request would be sent."""
    words = ("repair", "-A", "-f", cluster.write(folder), *MOMENT)
    steps = json.loads(asked(capsys, *words, "-o", "json"))["steps"]
    sent = {step["name"] for step in steps if step["request"]}
    return asked(capsys, *words).partition("\n\n")[0], sent


def test_the_first_lines_of_audit_are_so(tmp_path: Path, capsys: Capture, seeds: range) -> None:
    for seed in range(10 * seeds.start, 10 * seeds.stop):
        cluster = aftermath(seed)
        said, code = audited(tmp_path, capsys, cluster)
        assert lies_of_audit(cluster, said, code) == [], (seed, said, classes(cluster))


def test_the_first_line_of_repair_is_so(tmp_path: Path, capsys: Capture, seeds: range) -> None:
    for seed in range(10 * seeds.start, 10 * seeds.stop):
        cluster = aftermath(seed)
        said, sent = repaired(tmp_path, capsys, cluster)
        assert lies_of_repair(cluster, said, sent) == [], (seed, said)


@pytest.mark.parametrize(
    "verb, truth, lie",
    [
        ("audit", r"^(\d+) pods? (is|are) stuck", r"1\1 pods are stuck"),
        ("audit", r"^\d+ pods? (is|are) stuck.*?\.", "No pod is stuck."),
        ("audit", r"(\d+) findings?", r"1\1 findings"),
        ("audit", r"orphaned", "recovering"),
        ("audit", r" Good to know of [^.]*\.", ""),
        ("audit", r"(\d+) pods? (is|are) consistent", r"1\1 pods are consistent"),
        ("audit", r"(\d+) on \d+ node", r"1\1 on 1 node"),
        ("audit", r"(\d+) says? too little", r"1\1 say too little"),
        ("repair", r"^(\d+) request", r"1\1 request"),
        ("repair", r"(\d+) finding", r"1\1 finding"),
        ("repair", r"^There is nothing to repair", "2 requests are to be sent"),
    ],
)
def test_a_lie_about_stuck_pods_is_caught(
    tmp_path: Path, capsys: Capture, verb: str, truth: str, lie: str
) -> None:
    def judged(cluster: Aftermath) -> tuple[str, Callable[[str], list[str]]]:
        if verb == "audit":
            said, code = audited(tmp_path, capsys, cluster)
            return said, lambda false: lies_of_audit(cluster, false, code)
        said, sent = repaired(tmp_path, capsys, cluster)
        return said, lambda false: lies_of_repair(cluster, false, sent)

    catch(judged, truth, lie)


def test_a_wrong_exit_code_and_a_wrong_request_are_caught(tmp_path: Path, capsys: Capture) -> None:
    cluster = aftermath(1)
    said, code = audited(tmp_path, capsys, cluster)
    assert code == 4 and lies_of_audit(cluster, said, 0)
    said, sent = repaired(tmp_path, capsys, cluster)
    assert lies_of_repair(cluster, said, {*sent, "web-2"})
