"""Holds the sentence and the exit code of `what-if` against a naive count of the same play."""

import io
import json
import random
import re
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from kubectl_nodelife.cli import main
from tests.claims.naive_play import Course, courses
from tests.objects import write_list
from tests.what_if.stand import budget, node, workload

Document = dict[str, Any]
END = 1800.0
MOMENT = ("--now", "2026-01-01T12:00:00Z", "--until", "30m")
NOTHING = "set large-cluster-size-threshold=50"


class Question(NamedTuple):
    """`act`: the words; `setting`: of a set beside it, or empty."""

    items: list[Document]
    act: str
    setting: str

    @property
    def words(self) -> list[str]:
        return [*self.setting.split(), *["--and"] * bool(self.setting), *self.act.split()]


def random_question(seed: int) -> Question:
    """The question of that seed."""
    rng = random.Random(f"what-if {seed}")
    names = [f"{zone}{i}" for zone in "ab" for i in range(1, rng.randint(2, 5))]
    cordoned = set(rng.sample(names, rng.choice([0, 0, 1, 2])))
    items: list[Document] = []
    for name in names:
        ages = rng.choice([4.0, 4.0, 4.0, 4.0, 20.0])
        node_, lease = node(name, lease_age=ages, cpu=rng.choice(["1", "4"]))
        if name in cordoned:
            node_["spec"] = {"unschedulable": True}
            taint = {"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}
            node_["spec"]["taints"] = [taint]
        items += [node_, lease]
    for number in range(rng.randint(1, 5)):
        items += _workload(rng, f"w{number}", names)
    return Question(items, _act(rng, names, sorted(cordoned), items), rng.choice(_SETTINGS))


_SETTINGS = ("", "", "", "", "set node-monitor-grace-period=20s", "set node-eviction-rate=1")


def _workload(rng: random.Random, name: str, names: list[str]) -> list[Document]:
    kind = rng.choice(["ReplicaSet", "ReplicaSet", "StatefulSet", "DaemonSet"])
    on = [rng.choice(names) for _ in range(rng.randint(1, 5))]
    if kind == "DaemonSet":
        on = sorted(set(on))
    cpu = rng.choice(["100m", "500m", "900m"])
    made = workload(name, on, kind, cpu=cpu, tolerates=rng.choice([300, 300, 30, 0, None]))
    if kind == "ReplicaSet" and rng.random() < 0.3:  # some of its pods have no node
        for pod in made[1:][: rng.randint(1, len(on))]:
            del pod["spec"]["nodeName"]
            pod["status"] = {"phase": "Pending"}
    if rng.random() < 0.5:
        made += budget(name, max(0, len(on) - rng.randint(0, 1)), len(on))
    return made


def _act(rng: random.Random, names: list[str], cordoned: list[str], items: list[Document]) -> str:
    some = " ".join(sorted(rng.sample(names, rng.randint(1, min(3, len(names))))))
    lasts = rng.choice(["", "", " --for 3m", " --for 10m"])
    pods = [o["metadata"] for o in items if o["kind"] == "Pod"]
    pod = rng.choice(pods)
    drains = rng.choice(["", " --ignore-daemonsets", " --ignore-daemonsets --timeout=2m"])
    acts = [f"lose node {some}{lasts}", f"lose zone a{lasts}", f"drain {some}{drains}"]
    acts += [f"drain {some} --ignore-daemonsets", f"cordon {some}", f"delete node {names[0]}"]
    acts += [f"taint node {some} maintenance=now:NoExecute"]
    acts += [f"delete pod {pod['namespace']}/{pod['name']}"]
    acts += [f"uncordon {' '.join(cordoned)}"] * 4 * bool(cordoned)
    return rng.choice(acts)


class Told(NamedTuple):
    """What was said, and the courses of the plays: of the future, and without any act."""

    text: str
    code: int
    future: dict[str, Course]
    without: dict[str, Course]
    drains: dict[str, str]


def run(*words: str) -> tuple[int, str]:
    """(exit code, what it prints) of a command."""
    out = io.StringIO()
    with redirect_stdout(out), redirect_stderr(io.StringIO()):
        code = main(list(words))
    return code, out.getvalue()


def ask(folder: Path, question: Question) -> Told:
    where = ("-f", write_list(folder / "dump.json", question.items), *MOMENT)
    code, first = run("what-if", *question.words, "--exit-code", *where)
    text = first.splitlines()[0].partition(": ")[2]
    played = [
        json.loads(run("what-if", *words, "-o", "timeline", *where)[1])["records"]
        for words in (question.words, NOTHING.split())
    ]
    future, without = (courses(question.items, records) for records in played)
    return Told(text, code, future, without, drains_of(played[0]))


def drains_of(records: list[Document]) -> dict[str, str]:
    """How each drain ends; empty where it does not."""
    ends: dict[str, str] = {}
    for record in records:
        if record["action"] == "RecordEvent" and record["detail"]["reason"].startswith("Drain"):
            reason = record["detail"]["reason"]
            ends[record["object"]["name"]] = "" if reason == "DrainStarted" else reason
    return ends


def span_of(text: str) -> float:
    """5m22s in seconds."""
    units = {"h": 3600.0, "m": 60.0, "s": 1.0}
    return sum(float(n) * units[u] for n, u in re.findall(r"([\d.]+)([hms])", text))


def lies_of_what_if(told: Told) -> list[str]:
    """What the sentence and the exit code claim, and the play does not bear out."""
    noticing = {
        name: course
        for name, course in told.future.items()
        if course.differs(told.without.get(name, Course([(0.0, 0)], 0)))
    }
    served = {n: c for n, c in noticing.items() if not c.serves_as(told.without[n])}
    lies = [*_lies_of_losses(told.text, served), *_lies_of_gains(told, noticing)]
    undone = [name for name, end in told.drains.items() if end != "Drained"]
    if bool(undone) != bool(re.search(r"not drained: |the drains? of ", told.text)):
        lies.append(f"drains that do not end: {undone}")
    down = {n for n, c in told.future.items() if c.goes_down()}
    worse = any(
        not told.without[n].goes_down() or _zero(told.future[n]) > _zero(told.without[n]) + 0.05
        for n in down
    )
    if not worse and told.code == 4 and not undone:
        lies.append("exit code 4, and nothing goes down that did not, nor longer")
    if (undone or any(not told.without[n].goes_down() for n in down)) and told.code != 4:
        lies.append(f"exit code {told.code}, and {down} are down, {undone} not drained")
    if told.text == "no workload notices" and noticing:
        lies.append(f"nobody notices, and {sorted(noticing)} do")
    return lies


def _zero(course: Course) -> float:
    return sum(b - a for a, b in course.zero_spans(END))


def _lies_of_losses(text: str, noticing: dict[str, Course]) -> list[str]:
    lies = []
    down = {n: c for n, c in noticing.items() if c.goes_down()}
    said = re.search(r"(?:(\d+) workloads are|(?<!, )\b(\S+) is) down, ([^;(]*)", text)
    if said is None:
        lies += [f"nothing is down, and {sorted(down)} are"] if down else []
    elif int(said[1] or 1) != len(down) or (said[2] and said[2] not in down):
        lies.append(f"{said[0]}, and {sorted(down)} are")
    else:
        lies += _lies_of_spans(said[3].strip(), list(down.values()))
    fewer = {n: c for n, c in noticing.items() if c.loses() and not c.goes_down()}
    said = re.search(r"(?:(\d+) workloads have|(\S+) has) fewer pods ([^;]*)", text)
    if said is None:
        lies += [f"none has fewer pods, and {sorted(fewer)} have"] if fewer else []
    elif int(said[1] or 1) != len(fewer) or (said[2] and said[2] not in fewer):
        lies.append(f"{said[0]}, and {sorted(fewer)} have")
    else:
        stay = sum(c.last < c.first for c in fewer.values())
        wants = "for a while" if not stay else f"for a while, {stay} of them to the end"
        wants = "to the end" if stay == len(fewer) else wants
        lies += [f"{said[3]}, and {stay} of {len(fewer)} stay"] if said[3] != wants else []
    return lies


def _rounded(span_s: float) -> float:
    """By how much a duration may be cut: from ten minutes on seconds are left out."""
    return 1.0 if span_s < 600 else 60.0


def _lies_of_spans(said: str, down: list[Course]) -> list[str]:
    spans = [course.zero_spans(END) for course in down]
    stay = [len(each) == 1 and each[0][1] == END for each in spans]
    if said == "to the end":
        return [] if all(stay) else [f"to the end, and {spans}"]
    longest = max(_zero(course) for course in down)
    to_end = re.search(r"(\d+) of them to the end", said)
    lies = []
    if (int(to_end[1]) if to_end else 0) != sum(stay):
        lies.append(f"{said}, and {sum(stay)} stay down: {spans}")
    span = re.match(r"(?:longest )?([\dhms.]+|to the end)", said)
    in_words = span_of(span[1]) if span is not None and span[1] != "to the end" else longest
    if abs(in_words - longest) > _rounded(longest):
        lies.append(f"{in_words}, and {longest}")
    times = re.search(r"in all, (\d+) times", said)
    if times and int(times[1]) not in {len(each) for each in spans}:
        lies.append(f"{times[1]} times, and {spans}")
    return lies


def _lies_of_gains(told: Told, noticing: dict[str, Course]) -> list[str]:
    lies = []
    more = {n: c.pending - told.without[n].pending for n, c in noticing.items()}
    for pattern, counts in (
        (r"(\d+) pods? finds? no place", sum(n for n in more.values() if n > 0)),
        (r"(\d+) pods? finds? a node", -sum(n for n in more.values() if n < 0)),
    ):
        said = re.search(pattern, told.text)
        if (int(said[1]) if said else 0) != counts:
            lies.append(f"{said and said[0]}, and {counts}")
    gain = {n: c for n, c in noticing.items() if c.last > told.without[n].last}
    again = {n for n in gain if not told.without[n].last}
    others = {n: c.last - told.without[n].last for n, c in gain.items() if n not in again}
    said = re.search(r"(?:(\d+) workloads are|(\S+) is) up at the end", told.text)
    if (int(said[1] or 1) if said else 0) != len(again):
        lies.append(f"{said and said[0]}, and {again} are up")
    for pattern, keep in (
        (r"(?:(\d+) workloads have|(\S+) has) (\d+) more pods?", False),
        (r"(?:(\d+) workloads keep|(\S+) keeps) (\d+) pods?", True),
    ):
        mine = {n: more for n, more in others.items() if (gain[n].lowest >= gain[n].last) == keep}
        said = re.search(pattern, told.text)
        if said is None and mine:
            lies.append(f"nobody has or keeps more, and {mine} do")
        if said and (int(said[1] or 1), int(said[3])) != (len(mine), sum(mine.values())):
            lies.append(f"{said[0]}, and {mine}")
    return lies


def test_the_sentence_and_the_exit_code_of_what_if_are_so(tmp_path: Path, seeds: range) -> None:
    for seed in range(2 * seeds.start, 2 * seeds.stop):
        question = random_question(seed)
        told = ask(tmp_path, question)
        assert lies_of_what_if(told) == [], (seed, " ".join(question.words), told.text)


@pytest.mark.parametrize(
    "truth, lie",
    [
        (r"(\d+) workloads are down", r"1\1 workloads are down"),
        (r"(\d+) workloads have fewer", r"1\1 workloads have fewer"),
        (r"is down, [\dms.]+", "is down, 17m"),
        (r"is down, [\dms.]+", "is down, to the end"),
        (r"down, to the end", "down, 1s"),
        (r"for a while", "to the end"),
        (r"fewer pods to the end", "fewer pods for a while"),
        (r"(\d+) pods? finds? ", r"9\1 pods find "),
        (r"have (\d+) more pods", r"have 9\1 more pods"),
        (r"(\w+) (is|are) not drained: .*", "no workload notices"),
        (r"the drains? of .*", "no workload notices"),
        (r".* down, .*", "no workload notices"),
        (r".* fewer pods.*", "no workload notices"),
    ],
)
def test_a_lie_of_what_if_is_caught(told_before: list[Told], truth: str, lie: str) -> None:
    planted = 0
    for told in told_before:
        false = re.sub(truth, lie, told.text, count=1)
        if false != told.text:
            planted += 1
            assert lies_of_what_if(told._replace(text=false)), (told.text, false)
    assert planted, "no sentence has such a part"


@pytest.fixture(scope="module")
def told_before(tmp_path_factory: pytest.TempPathFactory) -> list[Told]:
    """What is said of sixty questions, all of it so."""
    folder = tmp_path_factory.mktemp("told")
    return [ask(folder, random_question(seed)) for seed in range(60)]


def test_a_wrong_exit_code_is_caught(told_before: list[Told]) -> None:
    of_both = {told.code for told in told_before}
    assert of_both == {0, 4}
    for told in told_before:
        if told.code == 4:
            assert lies_of_what_if(told._replace(code=0)), told.text
