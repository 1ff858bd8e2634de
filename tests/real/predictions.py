"""What the daemon foretold, held against what the real controllers wrote, write by write.

The record is the API server's audit log; the foretelling is the journal, as `changes -o json`
prints it. Writes are compared by controller, action, object and main fields, the i-th with the
i-th. What is chance upstream is nobody's fault: nodes that were lost in the same pass stand for one
another. A write may come within one period of the loop that makes it, plus 1 % of the time passed:
when that loop runs nobody outside knows. What is over that by no more than the 0.6 s that any two
recordings may differ by is counted and told: on a busy machine a pass itself takes some tenths of a
second, which the period does not count.

One write has no instant that anybody promises. The pass that finds all nodes lost takes off the
taints that its copies of the nodes had when it began (`RemoveTaintOffNode` looks at the copy, and
sends nothing where it has none), and the goroutine that taints goes on meanwhile: what it puts on
during that pass, a node a zone, stays until its node is Ready again. Which nodes these are is
decided by tens of milliseconds, so that a removal foretold for that pass is right at either end.
"""

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import pairwise

from kubectl_nodelife.kube.times import parse_duration
from tests.real.audited import Json, instant

Key = tuple[str, ...]

MAIN: Mapping[str, tuple[str, ...]] = {
    "SetNodeCondition": ("type", "status", "reason"),
    "AddTaint": ("key", "effect"),
    "RemoveTaint": ("key", "effect"),
    "SetPodCondition": ("type", "status", "reason"),
    "MarkPodNotReady": (),
    "DeletePod": (),
}
"""The writes that are compared, and the fields of each that count."""

_DUE_IN = re.compile(r"already done by another controller, (\S+) before ours")

POD_GC_PERIOD_S = 20.0
BUSY_S = 0.6
SAME_PASS_S = 0.5


@dataclass
class Tally:
    """One line of the table. `seen`: matched, and the real controller was ahead; `over`: matched,
    and over the period by up to 0.6 s; `left_on`: matched, and a taint that was put on in the very
    pass that found all nodes lost; `withdrawn`: a plan that ended within the tolerance because
    something happened before its time.
    """

    matched: int = 0
    over: int = 0
    left_on: int = 0
    seen: int = 0
    withdrawn: int = 0
    missed: list[str] = field(default_factory=list)
    unmatched: list[str] = field(default_factory=list)
    largest_s: float = 0.0


@dataclass(frozen=True)
class Window:
    """A stretch of time (seconds since the epoch) in which predictions count, and the period."""

    begin: float
    end: float
    period_s: float

    def tolerance_s(self, controller: str, at: float) -> float:
        """How far a foretold instant may be from the real one."""
        loop_s = POD_GC_PERIOD_S if controller == "pod-gc" else self.period_s
        return loop_s + 0.01 * max(0.0, at - self.begin)


def compare(real: Iterable[Json], told: Iterable[Json], window: Window) -> Tally:
    """`real`: records with `at` in seconds since the epoch; `told`: the daemon's changes."""
    real = list(real)
    same = _lost_together(real)
    wrote = _by_key(((r, r["at"], r) for r in real), same)
    foretold = _by_key(((c, instant(c["time"]), c) for c in told), same)
    tally = Tally()
    for key in sorted(wrote.keys() | foretold.keys()):
        put_on = wrote.get((key[0], "AddTaint", *key[2:]), [])
        added = [at for at, _ in put_on] if key[1] == "RemoveTaint" else []
        _compare_one(key, wrote.get(key, []), foretold.get(key, []), window, tally, added)
    return tally


def _is_left_on(change: Json, at: float, added: Iterable[float], within_s: float) -> bool:
    """True if it was foretold for the pass that found all nodes lost, done once its node was Ready,
    and put on in that pass.
    """
    foretold_at = instant(change["time"])
    is_dark = change.get("reason", "").startswith("no zone has a single ready node")
    return is_dark and at > foretold_at and any(abs(a - foretold_at) <= within_s for a in added)


def _compare_one(
    key: Key,
    wrote: list[tuple[float, Json]],
    foretold: list[tuple[float, Json]],
    window: Window,
    tally: Tally,
    added: Iterable[float],
) -> None:
    """`added`: when the taints that the key is about were put on."""
    standing = []
    for at, change in foretold:
        if change["outcome"] == "superseded":
            lasted = instant(change["settledTime"]) - at
            if lasted <= window.tolerance_s(key[0], at) + BUSY_S:
                tally.withdrawn += 1
                continue
        standing.append((at, change))
    for i in range(max(len(wrote), len(standing))):
        at = wrote[i][0] if i < len(wrote) else standing[i][0]
        if not window.begin <= at <= window.end - window.tolerance_s(key[0], at):
            continue
        text = f"{at - window.begin:8.3f} {' '.join(k for k in key if k)}"
        if i >= len(standing):
            tally.missed.append(text)
        elif i >= len(wrote):
            tally.unmatched.append(f"{text} ({standing[i][1]['outcome']})")
        else:
            error = abs(wrote[i][0] - due(standing[i][1]))
            tally.matched += 1
            tally.seen += standing[i][1].get("settledBecause", "").startswith("already done")
            over_s = error - window.tolerance_s(key[0], at)
            within_s = window.tolerance_s(key[0], at) + BUSY_S
            if over_s > BUSY_S and _is_left_on(standing[i][1], at, added, within_s):
                tally.left_on += 1
                continue
            tally.largest_s = max(tally.largest_s, error)
            tally.over += 0 < over_s <= BUSY_S
            if over_s > BUSY_S:
                tally.unmatched.append(f"{text}: foretold for {error:+.3f} s from it")


def due(change: Json) -> float:
    """When it was foretold for; where another controller was first, when ours was due."""
    found = _DUE_IN.search(change.get("settledBecause", ""))
    later_ns = parse_duration(found[1]) if found is not None else 0
    return instant(change["time"]) + later_ns / 1e9


def _by_key(
    found: Iterable[tuple[Json, float, Json]], same: Mapping[str, str]
) -> dict[Key, list[tuple[float, Json]]]:
    """In order of time. Of a pod's deletions the first counts, and one by pod-gc besides."""
    lists: dict[Key, list[tuple[float, Json]]] = defaultdict(list)
    for record, at, kept in sorted(found, key=lambda f: f[1]):
        action, name = record["action"], record["object"]["name"]
        if action not in MAIN:
            continue
        controller = record["controller"]
        fields = (str(record["detail"].get(f)) for f in MAIN[action])
        label = name if action == "SetNodeCondition" else same.get(name, name)
        key = (controller, action, record["object"].get("namespace", ""), label, *fields)
        standing = [k for _, k in lists.get(key, ()) if k.get("outcome") != "superseded"]
        if action == "DeletePod" and standing and record.get("outcome") != "superseded":
            continue
        lists[key].append((at, kept))
    return lists


def _lost_together(real: Iterable[Json]) -> dict[str, str]:
    """Node -> the nodes that were lost in one pass with it."""
    lost = sorted(
        (r["at"], r["object"]["name"])
        for r in real
        if r["action"] == "SetNodeCondition" and r["detail"]["type"] == "Ready"
    )
    groups: dict[str, set[str]] = {name: {name} for _, name in lost}
    for (t, a), (u, b) in pairwise(lost):
        if u - t <= SAME_PASS_S:
            joined = groups[a] | groups[b]
            for name in joined:
                groups[name] = joined
    return {name: "+".join(sorted(names)) for name, names in groups.items()}


def table(rows: Mapping[str, Tally]) -> Iterator[str]:
    """The table, a line a set-up."""
    columns = ("set-up", "matched", "seen first", "over", "left on", "withdrawn", "missed")
    columns += ("unmatched",)
    yield f"| {' | '.join(columns)} | largest error |"
    yield "| --- " * (len(columns) + 1) + "|"
    for name, tally in rows.items():
        counts = (tally.matched, tally.seen, tally.over, tally.left_on, tally.withdrawn)
        faults = (len(tally.missed), len(tally.unmatched))
        cells = [name, *map(str, (*counts, *faults)), f"{tally.largest_s:.2f} s"]
        yield f"| {' | '.join(cells)} |"


def twice(told: Iterable[Json]) -> Iterator[str]:
    """Changes that were told two times: the same write, seen at the same instant."""
    seen: dict[tuple[str, ...], Json] = {}
    for change in told:
        if change["action"] not in MAIN or change["outcome"] != "confirmed":
            continue
        fields = (str(change["detail"].get(f)) for f in MAIN[change["action"]])
        about = change["object"]
        key = (change["controller"], change["action"], about["name"], about.get("uid", ""), *fields)
        before = seen.get(key)
        if before is not None and before["settledTime"] == change["settledTime"]:
            yield f"{before['id']} and {change['id']}: {' '.join(key)}"
        seen[key] = change
