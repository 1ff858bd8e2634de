"""Holds a simulated scenario against the real controllers on the same scenario.

Compared is, each within a tolerance: every write of the controllers by (controller, action, object,
fields), the i-th with the i-th; of a DaemonSet's pods when they are made and lost, and how many on
each node; its last status; Events on nodes and on the scenario's own pods; and the end: readiness
and taints of nodes, every pod. What comes in the last second is held against neither side.

A difference is chance where the real controllers, played again with other seeds and other lags,
differ among themselves in that very fact no later than we do. What a DaemonSet does on single nodes
is one fact: whose turn it is in a roll-out is the random order of a map.
"""

from __future__ import annotations

import json
import subprocess
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from kubectl_nodelife.engine.settings import make_settings
from kubectl_nodelife.sim.run import summarize_run
from kubectl_nodelife.sim.scenario import assemble, parse_scenario
from tests.simulating import play
from tests.traces.compare import CONTROLLERS, MAIN_FIELDS

Json = Mapping[str, Any]
Key = tuple[str, ...]

TOLERANCE_S = 0.25
"""A zone's queue is looked at each 100 ms, and a write takes some milliseconds to be seen."""

_FAST = ("-lag-min=200us", "-lag-max=500us")
_WRITES = ("-write-min=2ms", "-write-max=4ms")
FIRST = (*_FAST, *_WRITES)
AGAIN = (
    ("-seed=2", *FIRST),
    ("-seed=3", "-lag-min=4ms", "-lag-max=6ms"),
    ("-seed=4", *FIRST, "-order=false"),
    ("-seed=5", "-lag-min=4ms", "-lag-max=6ms", "-write-min=8ms", "-write-max=12ms"),
    ("-seed=6", "-lag-min=1ms", "-lag-max=20ms", "-write-min=1ms", "-write-max=8ms"),
    ("-seed=7", *_FAST),
    (
        "-seed=8",
        "-lag-min=200us",
        "-lag-max=2ms",
        "-write-min=1ms",
        "-write-max=5ms",
        "-order=false",
    ),
    ("-seed=9", "-lag-min=8ms", "-lag-max=12ms", "-write-min=8ms", "-write-max=12ms"),
    *((f"-seed={seed}", *FIRST) for seed in range(10, 18)),
    *((f"-seed={seed}", *FIRST, "-order=false") for seed in range(18, 24)),
    ("-seed=24", *FIRST, "-drift=950us"),
    *((f"-seed={seed}", *FIRST) for seed in range(25, 120)),
)
"""Other seeds, lags and phases of the monitor pass: how far apart upstream's own runs may be. The
many at the end are for roll-outs, which begin at any node that there is: one of twelve is never the
first in all of them once in thousands of seeds.
"""


@dataclass
class Difference:
    """When two runs part in a fact, in seconds, and how."""

    at: float
    text: str


@dataclass
class Verdict:
    """What of a scenario differs, and what of that the real controllers' own runs differ in."""

    real: dict[Key, Difference] = field(default_factory=dict)
    by_chance: dict[Key, Difference] = field(default_factory=dict)

    def __str__(self) -> str:
        lines = [f"{' '.join(filter(None, key))}: {d.text}" for key, d in self.real.items()]
        return "\n".join(sorted(lines))


def judge(program: Path, document: Json, folder: Path) -> Verdict:
    """Play a scenario on both sides. `folder`: for files, which stay where something differs.

    Raises RuntimeError where the real controllers could not be played.
    """
    path = folder / f"{document['metadata']['name']}.json"
    path.write_text(json.dumps(document))

    def theirs(name: str, flags: tuple[str, ...]) -> Facts:
        return Facts.of(play_real(program, path, path.with_suffix(f".{name}.json"), flags))

    real = theirs("real", FIRST)
    ours = Facts.of(simulate(document))
    verdict = Verdict(real=differences(real, ours))
    for i, flags in enumerate(AGAIN):
        if not verdict.real:
            break
        tell_chance(verdict, real, ours, theirs(f"again{i}", flags))
    if not verdict.real:
        for file in folder.glob(f"{path.stem}.*"):
            file.unlink()
    return verdict


def play_real(program: Path, scenario: Path, out: Path, flags: tuple[str, ...]) -> Json:
    """The Timeline of the real controllers. Raises RuntimeError."""
    done = subprocess.run([program, *flags, scenario, out], capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"{scenario.stem}: {done.stderr[:2000]}")
    timeline: Json = json.loads(out.read_bytes())
    return timeline


def simulate(document: Json) -> Json:
    """Our Timeline, with every pod at the end."""
    scenario = parse_scenario(json.dumps(document).encode(), "scenario")
    setting = assemble(scenario)
    done = play(setting)
    story = summarize_run(done, make_settings(setting.profile, scenario.flags))
    timeline = msgspec.json.decode(msgspec.json.encode(story.document()))
    timeline["final"]["podList"] = [
        {
            "namespace": pod.namespace,
            "name": pod.name,
            "node": pod.spec.node_name,
            "ready": next((c.status for c in pod.status.conditions if c.type == "Ready"), None),
            "terminating": pod.metadata.deletion_timestamp is not None,
            "owner": next((o.name for o in pod.metadata.owner_references if o.controller), ""),
        }
        for pod in done.cluster.pods.values()
    ]
    return dict(timeline)


def tell_chance(
    verdict: Verdict, real: Facts, ours: Facts, other: Facts, tolerance_s: float = TOLERANCE_S
) -> None:
    """Move what another run of the real controllers shows to be chance."""
    between = differences(real, other, tolerance_s)
    still = differences(other, ours, tolerance_s)
    loose: dict[Key, float] = {}
    for key, difference in between.items():
        if family := _family(key):
            loose[family] = min(difference.at, loose.get(family, difference.at))
    for key, difference in list(verdict.real.items()):
        instants = [between[key].at] if key in between else []
        instants += [loose[f] for f in [_family(key)] if f in loose]
        differs_first = bool(instants) and difference.at >= min(instants) - tolerance_s
        if key not in still or differs_first:
            verdict.by_chance[key] = verdict.real.pop(key)


def differences(
    one: Facts, other: Facts, tolerance_s: float = TOLERANCE_S
) -> dict[Key, Difference]:
    """What two runs do not have in common."""
    found: dict[Key, Difference] = {}
    ends_apart = False
    for key in one.times.keys() | other.times.keys():
        a, b = sorted(one.times.get(key, [])), sorted(other.times.get(key, []))
        for i in range(max(len(a), len(b))):
            s, t = (side[i] if i < len(side) else None for side in (a, b))
            if s is None or t is None:
                alone = t if s is None else s
                assert alone is not None
                if alone > one.end - 1:
                    ends_apart = True
                    continue
                found.setdefault(key, Difference(alone, f"{_SIDES[s is None]} at {alone}"))
            elif abs(s - t) > tolerance_s:
                found.setdefault(key, Difference(min(s, t), f"real {s}, ours {t}"))
    if not ends_apart:
        for key in one.values.keys() | other.values.keys():
            x, y = one.values.get(key), other.values.get(key)
            if x != y:
                found[key] = Difference(one.end, f"real {x}, ours {y}")
    return found


_SIDES = ("real alone", "ours alone")


def _family(key: Key) -> Key:
    """The DaemonSet that a fact is about, by its pods on single nodes; () for another fact."""
    if key[0] in ("made", "lost", "pods"):
        return key[-3:-1]
    if key[0] == "status":
        return key[1:3]
    if len(key) > 3 and key[3].startswith("pod of "):
        return (key[2], key[3].split()[2])
    if len(key) > 3 and key[1] in _OF_A_SET:
        return key[2:4]
    return ()


_OF_A_SET = (
    "CreatePod",
    "DeletePod",
    "CreateControllerRevision",
    "UpdateControllerRevision",
    "DeleteControllerRevision",
)


_NONE: Mapping[tuple[str, str], tuple[str, str]] = {}


@dataclass
class Facts:
    """What a Timeline says, in the form in which it is compared: when what is done, and what is."""

    end: float
    times: dict[Key, list[float]] = field(default_factory=lambda: defaultdict(list))
    values: dict[Key, Any] = field(default_factory=dict)
    _owned: dict[tuple[str, str], tuple[str, str]] = field(default_factory=dict)
    _deleted: set[Key] = field(default_factory=set)
    _stamped: set[tuple[str, str, int]] = field(default_factory=set)

    @classmethod
    def of(cls, timeline: Json, owned: Mapping[tuple[str, str], tuple[str, str]] = _NONE) -> Facts:
        """Those of a timeline. `owned`: (owner, node) of pods that were there before it."""
        facts = cls(timeline["duration"])
        facts._owned.update(owned)
        final = timeline["final"]
        for pod in final["podList"]:
            if pod["owner"]:
                facts._owned[pod["namespace"], pod["name"]] = (pod["owner"], pod["node"])
        done = (r for r in timeline["records"] if not r.get("error"))
        written = [r for r in done if r["controller"] in CONTROLLERS]
        for record in written:
            if record["action"] == "CreatePod":
                detail = record["detail"]
                facts._owned[_key_of(record)] = (detail["owner"], detail["node"])
        for record in written:
            facts._take(record)
        facts._take_end(final)
        return facts

    def _take(self, record: Json) -> None:
        action, detail = record["action"], record.get("detail") or {}
        namespace, name = _key_of(record)
        owned = self._owned.get((namespace, name)) if record["object"]["kind"] == "Pod" else None
        if action == "CreatePod":
            self._note(record, record["controller"], action, namespace, detail["owner"])
            self._count("made", namespace, detail["owner"], detail["node"])
        elif action == "DeletePod":
            self._take_delete(record, owned)
        elif action == "RecordEvent" and record["object"]["kind"] in ("Node", "Pod") and not owned:
            about = record["object"]["kind"], name, str(detail.get("reason"))
            self.values["event", record["controller"], *about] = True
        elif action == "UpdateDaemonSetStatus":
            counts = {k: v for k, v in detail.items() if k != "observedGeneration"}
            self.values.setdefault(("status", namespace, name), {}).update(counts)
        elif action in MAIN_FIELDS or action == "UpdateTaint":
            action = action.replace("UpdateTaint", "AddTaint")  # ours calls both so
            if action == "AddTaint" and self._is_stamped(record):
                return
            if record["object"]["kind"] == "ControllerRevision":
                name = name.rpartition("-")[0]
            label = f"pod of {owned[0]} on {owned[1]}" if owned else name
            fields = (str(detail.get(k)) for k in MAIN_FIELDS[action])
            self._note(record, record["controller"], action, namespace, label, *fields)

    def _take_delete(self, record: Json, owned: tuple[str, str] | None) -> None:
        """Who of the controllers but pod-gc is first is a race, and so is whether all ask."""
        by = record["controller"] if record["controller"] == "pod-gc" else ""
        namespace, name = _key_of(record)
        if (by, namespace, name) in self._deleted:
            return
        self._deleted.add((by, namespace, name))
        self._note(record, by, "DeletePod", namespace, owned[0] if owned else name)
        if owned:
            self._count("lost", by, namespace, *owned)

    def _is_stamped(self, record: Json) -> bool:
        """True if the taint was added within this second: timeAdded has whole seconds, so nothing
        is patched.
        """
        taint = f"{record['object']['name']} {record['detail']}", record["controller"]
        stamp = (*taint, int(record["at"]))
        if stamp in self._stamped:
            return True
        self._stamped.add(stamp)
        return False

    def _take_end(self, final: Json) -> None:
        for node in final["nodes"]:
            state = (node["ready"], tuple(sorted(node["taints"])))
            self.values["node", node["name"]] = state
        owned: dict[Key, list[tuple[bool, bool]]] = defaultdict(list)
        for pod in final["podList"]:
            ready, terminating = pod["ready"] or "", pod["terminating"]
            if pod["owner"]:
                key = "pods", pod["namespace"], pod["owner"], pod["node"]
                owned[key].append((ready == "True", terminating))
            else:
                state = (pod["node"] or "", ready, terminating)
                self.values["pod", pod["namespace"], pod["name"]] = state
        self.values.update((key, tuple(sorted(pods))) for key, pods in owned.items())

    def _note(self, record: Json, *key: str) -> None:
        self.times[key].append(record["at"])

    def _count(self, *key: str) -> None:
        self.values[key] = self.values.get(key, 0) + 1


def _key_of(record: Json) -> tuple[str, str]:
    return record["object"].get("namespace") or "", record["object"]["name"]
