"""Sequences for a kubelet's status manager, played by ours and by Kubernetes' own (go/status.go).

A sequence has pods, steps at instants (what the kubelet and others do), how long each call takes,
and how long after a write the watch shows it. What is compared: each call with its instant,
its answer and the status that it wrote, and what `GetPodStatus` says after each step of the kubelet
and at the end.
"""

import heapq
import itertools
import json
import random
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
from msgspec.structs import replace

from kubectl_nodelife.engine.settings import parse_profile
from kubectl_nodelife.kube.meta import Time
from kubectl_nodelife.kube.pod import (
    Pod,
    PodCondition,
    PodStatus,
    VolumeHealthCondition,
    is_mirror_pod,
)
from kubectl_nodelife.kube.times import (
    MILLISECOND_NS,
    SECOND_NS,
    decode_time,
    format_time,
    parse_time,
)
from kubectl_nodelife.kubelet import machine
from kubectl_nodelife.kubelet.conditions import (
    containers_ready_condition,
    initialized_condition,
    pod_scheduled_condition,
    ready_condition,
    ready_to_start_condition,
)
from kubectl_nodelife.kubelet.releases import StatusRules, rules_for
from tests.real_code.workload_scenario import RELEASE

Json = dict[str, Any]
THROWS = 40
"""Upstream's coins are thrown again so often before a difference is one."""


def read(value: Any, type_: Any) -> Any:
    """A slice from plain JSON values."""
    return msgspec.convert(value, type_, dec_hook=decode_time)


class Kubelet:
    """Our status manager with an API server of a few pods, at instants since the epoch.

    `coins`: of what the sender takes up first where a change and the period have both come while a
    batch was on its way, as upstream's `select` throws them, and of the order of pods in a batch.
    """

    def __init__(
        self, sequence: Json, t0_ns: int, rules: StatusRules, coins: random.Random
    ) -> None:
        self.sequence, self.t0_ns, self.now_ns = sequence, t0_ns, t0_ns
        self.rules, self.coins = rules, coins
        self.machine = machine.PodStatusMachine(rules, self)
        self.api: dict[str, Pod] = {}
        self.seen: dict[str, Pod] = {}
        self.running = False
        self.got = PodStatus()  # by the last GET, from which the patch starts
        self.faults: list[Json] = []
        self.is_signalled = self.is_due = False
        self.calls: machine.Calls | None = None
        self.record: Json = {"calls": [], "cached": []}
        self._agenda: list[tuple[int, int, Any, Any]] = []
        self._numbers = itertools.count()
        for raw in sequence["pods"]:
            pod = stored(raw)
            if not machine.is_static_pod(pod) or is_mirror_pod(pod):
                self.api[pod.name] = pod
            self.observe(pod)

    def could_have_running_containers(self, pod: Pod) -> bool:
        return self.running

    def pod_resources_are_reclaimed(self, pod: Pod, status: PodStatus) -> bool:
        raise AssertionError("asked by releases before 1.27 only")

    # -- time

    def at(self, at_ns: int, act: Any, subject: Any) -> None:
        heapq.heappush(self._agenda, (at_ns, next(self._numbers), act, subject))

    def play(self) -> Json:
        """All of it; returns the record."""
        end_ns = self.t0_ns + self.sequence["end"]
        for index, step in enumerate(self.sequence["steps"]):
            self.at(self.t0_ns + step["at"], self.take_step, (index, step))
        for at_ns in range(self.t0_ns + machine.SYNC_PERIOD_NS, end_ns, machine.SYNC_PERIOD_NS):
            self.at(at_ns, self.tick, None)
        while self._agenda and self._agenda[0][0] < end_ns:
            self.now_ns, _, act, subject = heapq.heappop(self._agenda)
            act(subject)
        for uid in self.seen:
            self.note(-1, uid)
        return self.record

    # -- the sender, one call at a time

    def tick(self, _: None) -> None:
        self.is_due = True
        self.go_on()

    def go_on(self) -> None:
        """Begin the next batch, unless one is on its way."""
        while self.calls is None and (self.is_due or self.is_signalled):
            statuses = list(self.machine.statuses.items())
            self.coins.shuffle(statuses)  # upstream's is a Go map
            self.machine.statuses = dict(statuses)
            if self.is_due and (not self.is_signalled or self.coins.random() < 0.5):
                self.is_due, self.calls = False, self.machine.sync_batch(self.now_ns)
            else:
                self.is_signalled, self.calls = False, self.machine.sync_changed(self.now_ns)
            self.send(None)

    def send(self, answer: machine.Answer) -> None:
        assert self.calls is not None
        try:
            call = self.calls.send(answer)
        except StopIteration:
            self.calls = None
            return
        self.at(self.now_ns + self.sequence["latency"], self.complete, call)

    def complete(self, call: machine.ApiCall) -> None:
        answer, code = self.answer(call)
        done: Json = {"at": self.now_ns - self.t0_ns, "verb": machine.CALL_WORDS[type(call)]}
        done |= {"pod": call.name, "code": code}
        if isinstance(answer, Pod) and isinstance(call, machine.PatchPodStatusCall):
            done["status"] = answer.status
        self.record["calls"].append(done)
        self.send(answer)
        self.go_on()

    # -- the API server

    def answer(self, call: machine.ApiCall) -> tuple[machine.Answer, int]:
        verb = machine.CALL_WORDS[type(call)]
        for fault in self.faults:
            if fault["verb"] == verb and fault["name"] == call.name and fault["times"] > 0:
                fault["times"] -= 1
                return None, fault["code"]
        pod = self.api.get(call.name)
        if pod is None:
            return None, 404
        if not isinstance(call, machine.GetPodCall) and call.uid and call.uid != pod.uid:
            return None, 409
        if isinstance(call, machine.GetPodCall):
            self.got = pod.status
        if isinstance(call, machine.PatchPodStatusCall):
            self.write(pod := replace(pod, status=patched(pod.status, self.got, call.status)))
        if isinstance(call, machine.DeletePodCall):
            self.remove(pod)
        return pod, 200

    def write(self, pod: Pod) -> None:
        before = self.api.get(pod.name)
        self.api[pod.name] = pod
        if before != pod:
            self.at(self.now_ns + self.sequence["lag"], self.observe, pod)

    def remove(self, pod: Pod) -> None:
        del self.api[pod.name]
        self.at(self.now_ns + self.sequence["lag"], self.machine.forget, pod)

    def observe(self, pod: Pod) -> None:
        """The watch shows a pod."""
        source = "file" if machine.is_static_pod(pod) and not is_mirror_pod(pod) else "api"
        annotations = {**(pod.metadata.annotations or {}), machine.CONFIG_SOURCE_ANNOTATION: source}
        pod = replace(pod, metadata=replace(pod.metadata, annotations=annotations))
        self.seen[pod.uid] = pod
        self.machine.observe(pod)

    # -- the steps

    def take_step(self, numbered: tuple[int, Json]) -> None:
        index, step = numbered
        is_known = "uid" not in step or step["uid"] in self.seen  # else it could not be made
        if is_known and STEPS[step["op"]](self, step):
            self.is_signalled = True
        if "uid" in step:
            self.note(index, step["uid"])
        self.go_on()

    def note(self, index: int, uid: str) -> None:
        status = self.machine.pod_status(uid)
        self.record["cached"].append({"step": index, "uid": uid, "status": status})

    def pod(self, uid: str) -> Pod:
        return self.machine.pods.by_uid(uid) or self.seen[uid]

    def set_pod_status(self, step: Json) -> bool:
        pod, status = self.pod(step["uid"]), read(step["status"], PodStatus)
        if step["generate"]:
            conditions = status.conditions
            for make in (initialized_condition, ready_condition, containers_ready_condition):
                conditions = (*conditions, make(pod.spec, status, self.rules))
            conditions = (*conditions, pod_scheduled_condition())
            status = replace(status, conditions=conditions)
        if step.get("noSandbox"):
            none = ready_to_start_condition(pod.spec, (), self.rules)
            status = replace(status, conditions=(*status.conditions, none))
        return self.machine.set_pod_status(pod, status, self.now_ns)

    def set_container_readiness(self, step: Json) -> bool:
        uid, container, ready = step["uid"], step["container"], step["value"]
        return self.machine.set_container_readiness(uid, container, ready, self.now_ns)

    def set_container_startup(self, step: Json) -> bool:
        uid, container, started = step["uid"], step["container"], step["value"]
        return self.machine.set_container_startup(uid, container, started, self.now_ns)

    def set_pod_volume_health(self, step: Json) -> bool:
        health = read(step["health"], tuple[VolumeHealthCondition, ...])
        return self.machine.set_pod_volume_health(step["uid"], step["volume"], health, self.now_ns)

    def terminate_pod(self, step: Json) -> bool:
        return self.machine.terminate_pod(self.pod(step["uid"]), self.now_ns)

    def remove_orphaned_statuses(self, step: Json) -> None:
        self.machine.remove_orphaned_statuses(step["keep"])

    def set_running(self, step: Json) -> None:
        self.running = step["value"]

    def fail(self, step: Json) -> None:
        self.faults.append(dict(step))

    def create(self, step: Json) -> None:
        pod = stored(step["pod"])
        if pod.name not in self.api:
            self.write(pod)

    def delete(self, step: Json) -> None:
        pod = self.api.get(step["name"])
        if pod is None:
            return
        if not step["grace"] or pod.status.phase in ("Failed", "Succeeded"):
            self.remove(pod)
        elif pod.metadata.deletion_timestamp is None:
            metadata = replace(pod.metadata, deletion_timestamp=Time(self.now_ns))
            self.write(replace(pod, metadata=metadata))

    def change(self, step: Json) -> None:
        """Somebody else writes the pod's status."""
        pod = self.api.get(step["name"])
        if pod is None:
            return
        conditions = tuple(c for c in pod.status.conditions if c.type not in step["drop"])
        conditions += read(step["conditions"], tuple[PodCondition, ...])
        fields = read(step["fields"], PodStatus)
        wanted = {name: getattr(fields, name) for name in ("phase", "reason", "message", "pod_ip")}
        wanted = {name: value for name, value in wanted.items() if value}
        self.write(replace(pod, status=replace(pod.status, conditions=conditions, **wanted)))


def patched(now: PodStatus, got: PodStatus, wanted: PodStatus) -> PodStatus:
    """The status after the strategic merge patch that makes `wanted` of `got`, in whole seconds."""
    before = {condition.type: condition for condition in got.conditions}
    after = {condition.type: condition for condition in wanted.conditions}
    there = {condition.type: condition for condition in now.conditions}
    for type_ in before.keys() - after.keys():
        there.pop(type_, None)
    for type_, condition in after.items():
        touched = _changes(before.get(type_, PodCondition()), condition)
        if touched:
            there[type_] = replace(there.get(type_, PodCondition(type=type_)), **touched)
    ordered = [type_ for type_ in (*after, *(there.keys() - after.keys())) if type_ in there]
    conditions = tuple(there[type_] for type_ in ordered)
    status = replace(now, **_changes(got, wanted) | {"conditions": conditions})
    return in_seconds(status)


def in_seconds(status: PodStatus) -> PodStatus:
    """The status as an API server keeps it."""
    kept: PodStatus = read(msgspec.to_builtins(status, enc_hook=format_time), PodStatus)
    return kept


def stored(raw: Json) -> Pod:
    """The pod as an API server keeps it."""
    pod: Pod = read(raw, Pod)
    return replace(pod, status=in_seconds(pod.status))


def _changes(old: msgspec.Struct, new: msgspec.Struct) -> Json:
    names = new.__struct_fields__
    return {n: getattr(new, n) for n in names if getattr(new, n) != getattr(old, n)}


STEPS: Any = {
    "setPodStatus": Kubelet.set_pod_status,
    "setContainerReadiness": Kubelet.set_container_readiness,
    "setContainerStartup": Kubelet.set_container_startup,
    "setPodVolumeHealth": Kubelet.set_pod_volume_health,
    "terminatePod": Kubelet.terminate_pod,
    "removeOrphanedStatuses": Kubelet.remove_orphaned_statuses,
    "kubelet": Kubelet.set_running,
    "fail": Kubelet.fail,
    "create": Kubelet.create,
    "delete": Kubelet.delete,
    "change": Kubelet.change,
}


def play_real(program: Path, sequences: list[Json], folder: Path) -> list[Json]:
    """What Kubernetes' own status manager does on each. Raises CalledProcessError."""
    given, out = folder / "sequences.json", folder / "real.json"
    given.write_text(json.dumps(sequences))
    subprocess.run([program, "-status", given, out], check=True, capture_output=True)
    answers: list[Json] = json.loads(out.read_bytes())
    return answers


def differences(sequence: Json, real: Json, rules: StatusRules | None = None) -> list[str]:
    """How ours, by the rules of the release or by these, differs from what the real one did,
    whichever way the sender's coins fell."""
    t0_ns = parse_time(real["t0"])
    slack_s = (
        3 * sequence["latency"] // SECOND_NS + 1 if sequence["latency"] > MILLISECOND_NS else 0
    )
    apart: list[str] = []
    rules = rules or rules_for(parse_profile(RELEASE))
    for throws in range(THROWS):
        ours = Kubelet(sequence, t0_ns, rules, random.Random(throws)).play()
        apart = [
            *_calls_apart(ours["calls"], real["calls"] or [], slack_s),
            *_cached_apart(ours, real, slack_s),
        ]
        if not apart:
            break
    return apart


def _calls_apart(ours: list[Json], theirs: list[Json], slack_s: float) -> Iterator[str]:
    """By pod: a batch takes the pods in the order of a Go map, each call later by the latency."""
    for name in sorted({call["pod"] for call in (*ours, *theirs)}):
        mine = [call for call in ours if call["pod"] == name]
        real = [call for call in theirs if call["pod"] == name]
        for a, b in itertools.zip_longest(mine, real):
            if a is None or b is None:
                yield f"{name}: ours {_told(a)}, really {_told(b)}"
                return
            if (a["verb"], a["code"]) != (b["verb"], b["code"]) or abs(a["at"] - b["at"]) > 20_000:
                yield f"{name}: ours {_told(a)}, really {_told(b)}"
                return
            if "status" in a:
                yield from _status_apart(f"{name}: {_told(a)}", a["status"], b["status"], slack_s)


def _told(call: Json | None) -> str:
    return f"{call['verb']} at {call['at'] / 1e9} ({call['code']})" if call else "none"


def _cached_apart(ours: Json, real: Json, slack_s: float) -> Iterator[str]:
    theirs = {(entry["step"], entry["uid"]): entry["status"] for entry in real["cached"] or []}
    for entry in ours["cached"]:
        key = entry["step"], entry["uid"]
        real_status = theirs[key]
        if real_status is not None:  # its merging dates this one in the cached status as well
            for condition in real_status.get("conditions", ()):
                if condition["type"] == "DisruptionTarget":
                    condition["lastTransitionTime"] = _disruption_time(entry["status"])
        yield from _status_apart(f"cached after {key}", entry["status"], real_status, slack_s)


def _disruption_time(status: PodStatus | None) -> str | None:
    condition = status and status.condition("DisruptionTarget")
    if not condition or condition.last_transition_time is None:
        return None
    return format_time(condition.last_transition_time)


def _status_apart(
    where: str, ours: PodStatus | None, real: Any, slack_s: float = 0
) -> Iterator[str]:
    if ours is None or real is None:
        if ours is not None or real is not None:
            yield f"{where}: ours {ours}, really {real}"
        return
    mine, theirs = _fields(ours), _fields(read(real, PodStatus))
    for name in sorted(mine | theirs):
        a, b = mine.get(name), theirs.get(name)
        if a != b and not _are_same_but_for_time(a, b, slack_s):
            yield f"{where}: {name}: ours {a}, really {b}"


def _fields(status: PodStatus) -> Json:
    """What is there by name, conditions by type; times in whole seconds, as JSON has them."""
    fields: Json = {name: getattr(status, name) or None for name in PodStatus.__struct_fields__}
    del fields["conditions"]
    fields["volume_health"] = [
        replace(volume, last_transition_time=(volume.last_transition_time or 0) // SECOND_NS)
        for volume in status.volume_health
    ]
    for condition in status.conditions:
        fields[condition.type] = replace(condition, observed_generation=0)
    return fields


def _are_same_but_for_time(a: Any, b: Any, slack_s: float) -> bool:
    """True of two conditions that began within so many seconds. Simulated calls take no time, so
    that ours dates what it merges at the beginning of the batch, and not after the GET."""
    if not (isinstance(a, PodCondition) and isinstance(b, PodCondition)):
        return False
    times = [condition.last_transition_time or 0 for condition in (a, b)]
    same = replace(a, last_transition_time=None) == replace(b, last_transition_time=None)
    return same and abs(times[0] - times[1]) <= slack_s * SECOND_NS
