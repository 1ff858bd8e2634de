"""`start: join` held against the real controllers, which do not join: they run from the start on.

At one instant of a run the judge writes down what a cluster's API server shows then: Nodes with the
taints that stand, Leases of some age, pods that start, run or end, half-done roll-outs. Our
simulation joins that, with the scenario's events that are yet to come, and from there on it is to
do what the controllers go on to do, that have the memory of all that was before.

The instant is the begin of a monitor pass at which pod-gc runs too, and no zone's queue holds a
node or has spent a token that is not back: phase, tokens and queues are what a join cannot see, and
what is told as a range elsewhere. The API keeps whole seconds, so instants may be a second apart.
"""

import json
import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from kubectl_nodelife.kube.times import SECOND_NS, parse_time
from kubectl_nodelife.sim.scenario import DEFAULT_TIME_NS
from tests.real_code import judge
from tests.real_code.generator import OWN

Json = dict[str, Any]

WHOLE_SECONDS_S = 1 + judge.TOLERANCE_S
"""taint's timeAdded, a pod's deletionTimestamp and the transition of its readiness are cut."""

_GC_S = 20
_DRIFT_S = 0.001
_MET = {"False": "not-ready", "Unknown": "unreachable"}


class Moment(NamedTuple):
    """An instant of a run (s), and the objects that there are then."""

    at: float
    objects: Sequence[Json]


def judge_joined(program: Path, document: Json, folder: Path) -> judge.Verdict | None:
    """Hold what follows upon a quiet instant of the scenario against the join of it; None where it
    has no such instant. Raises RuntimeError where the real controllers could not be played.
    """
    path = folder / f"{document['metadata']['name']}.json"
    path.write_text(json.dumps(document))
    quiet = _quiet_moment(program, document, path)
    if quiet is None:
        return None
    moment, real = quiet
    joined = scenario_of(document, moment)
    path.with_suffix(".joined.json").write_text(json.dumps(joined))
    ours = judge.Facts.of(
        _without_first_syncs(judge.simulate(joined), real, moment), _owned(moment)
    )
    theirs = _after(real, moment)
    for told in judge.Facts.of({**real, "records": _before(real, moment)}).values:
        if told[0] == "event":  # once more, it is counted up and not written anew
            theirs.values.pop(told, None)
            ours.values.pop(told, None)
    verdict = judge.Verdict(real=judge.differences(theirs, ours, WHOLE_SECONDS_S))
    for i, again in enumerate(judge.AGAIN):
        if not verdict.real:
            break
        other = judge.play_real(program, path, path.with_suffix(f".again{i}.json"), again)
        judge.tell_chance(verdict, theirs, ours, _after(other, moment), WHOLE_SECONDS_S)
    return verdict


def _quiet_moment(program: Path, document: Json, path: Path) -> tuple[Moment, Json] | None:
    """The first quiet instant after the middle of the run, else the last one before it, and the
    Timeline of the real controllers.
    """
    spec = document["spec"]
    middle = int(spec["duration"][:-1]) / 2
    passes = sorted(_passes(spec), key=lambda at: (at < middle, abs(at - middle)))
    dump = path.with_suffix(".dump.json")
    for at in passes[:4]:
        flags = (*judge.FIRST, f"-dump={dump}", f"-dump-at={at:.3f}s")
        real = judge.play_real(program, path, path.with_suffix(".real.json"), flags)
        moment = Moment(at, json.loads(dump.read_bytes())["items"])
        if all(_tokens_are_back(real, at, spec)) and _is_quiet(moment, spec):
            return moment, dict(real)
    return None


def _passes(spec: Json) -> Iterator[float]:
    """When passes begin at which pod-gc runs as well, in the middle part of the run."""
    period, duration = (
        int(t[:-1]) for t in (spec["flags"]["node-monitor-period"], spec["duration"])
    )
    step = math.lcm(period, _GC_S)
    for whole in range(step, int(duration * 0.8), step):
        if whole > duration * 0.2:
            yield whole + whole // period * _DRIFT_S


def _tokens_are_back(timeline: Mapping[str, Any], at: float, spec: Json) -> Iterator[bool]:
    """Of each taint that spent a token, whether there is another one by now."""
    rates = (float(spec["flags"][f"{word}node-eviction-rate"]) for word in ("", "secondary-"))
    back_s = 1 / min(rate for rate in rates if rate)
    for record in timeline["records"]:
        if record["action"] == "AddTaint" and record["detail"]["effect"] == "NoExecute":
            yield not at - back_s <= record["at"] < at


def _is_quiet(moment: Moment, spec: Json) -> bool:
    """True if no node awaits its taint, no pod its end in pod-gc's quarantine, each NoExecute taint
    has its date, and it can be seen of each kubelet that fell silent, with what it believes.
    """
    renewed = {
        o["metadata"]["name"]: _since_start(o["spec"]["renewTime"])
        for o in moment.objects
        if o["kind"] == "Lease"
    }
    late_s = _LATE * float(spec["kubelet"]["leaseRenewInterval"][:-1])
    silent = {name for name, at in renewed.items() if at < moment.at - late_s}
    troubled = {o["metadata"]["name"] for o in spec["objects"] if _is_troubled(o)}
    for event in spec["events"]:
        kubelet = event.get("kubelet", {})
        happened = float(event["at"][:-1])
        if happened > moment.at:
            continue
        if kubelet.get("heartbeats") == "stop" and happened > moment.at - late_s - _LAST_S:
            return False
        if _LEASE_MEMORY & event.keys():
            return False
        if "conditions" in kubelet:
            troubled.update(kubelet["nodes"])
        if _is_troubled(event.get("apply", {})):
            troubled.add(event["apply"]["metadata"]["name"])
    if silent & troubled:
        return False
    if any(float(read["from"][:-1]) <= moment.at for read in spec.get("failingReads", ())):
        return False
    nodes = {o["metadata"]["name"]: o for o in moment.objects if o["kind"] == "Node"}
    pods = (o for o in moment.objects if o["kind"] == "Pod")
    return not any(
        [
            any(pod["spec"].get("nodeName", "") not in {"", *nodes} for pod in pods),
            any(_awaits_taint(node) or _tells_little(node, renewed) for node in nodes.values()),
            any(
                taint["effect"] == "NoExecute" and "timeAdded" not in taint
                for node in nodes.values()
                for taint in node["spec"].get("taints", ())
            ),
        ]
    )


_LEASE_MEMORY = frozenset({"lease", "controllers"})
"""Events of which the controllers remember, since v1.37, what no object shows: a Lease that another
client wrote, a view of Leases that stood still; of reads that failed they do so as well."""

_LATE = 1.5
"""Intervals between renewals after which a kubelet is late."""

_LAST_S = 20
"""The longest interval between two renewals: the last one came at most so long before an end."""


def _is_troubled(made: Json) -> bool:
    """True if it is a Node whose kubelet sees something wrong with it, which the API forgets once
    its conditions are Unknown.
    """
    if made.get("kind") != "Node":
        return False
    conditions = made.get("status", {}).get("conditions", ())
    return any((c["type"] == "Ready") is (c["status"] != "True") for c in conditions)


def _tells_little(node: Json, renewed: Collection[str]) -> bool:
    """True if nothing says if the kubelet lives, or the conditions that it lacks if it knows them
    or when they are posted.
    """
    conditions = node["status"].get("conditions", ())
    never = any(c["reason"] == "NodeStatusNeverUpdated" for c in conditions)
    return not conditions or never or node["metadata"]["name"] not in renewed


def _awaits_taint(node: Json) -> bool:
    """True if the node is not Ready and lacks the NoExecute taint for that."""
    ready = [c["status"] for c in node["status"].get("conditions", ()) if c["type"] == "Ready"]
    taints = {(t["key"], t["effect"]) for t in node["spec"].get("taints", ())}
    wanted = OWN + _MET.get(ready[0], "") if ready else ""
    return wanted not in ("", OWN) and (wanted, "NoExecute") not in taints


def scenario_of(document: Json, moment: Moment) -> Json:
    """The scenario that joins the cluster of that moment."""
    spec = document["spec"]
    kubelet = {k: v for k, v in spec["kubelet"].items() if k != "leaseRenewPhase"}
    at_ms = round(moment.at * 1000)
    minutes, ms = divmod(at_ms, 60_000)
    hours, minutes = divmod(minutes, 60)
    events = []
    applied = (event["apply"] for event in spec["events"] if "apply" in event)
    there = {o["metadata"]["name"] for o in (*moment.objects, *applied) if o["kind"] == "Node"}
    for event in spec["events"]:
        after = float(event["at"][:-1]) - moment.at
        event = _of_nodes({**event, "at": f"{after:.3f}s"}, there)
        if after > 0 and not any(_names_none(what) for what in event.values()):
            events.append(event)
    joined = {
        **spec,
        "start": "join",
        "time": f"2026-01-01T{hours:02}:{minutes:02}:{ms / 1000:06.3f}Z",
        "duration": f"{int(spec['duration'][:-1]) - moment.at:.3f}s",
        "kubelet": kubelet,
        "objects": moment.objects,
        "events": events,
        "failingReads": [
            read | {at: f"{float(read[at][:-1]) - moment.at:.3f}s" for at in ("from", "until")}
            for read in spec.get("failingReads", ())
        ],
    }
    return {**document, "spec": joined}


def _of_nodes(event: Json, there: Collection[str]) -> Json:
    """The event, about those nodes alone that are ever there."""
    return {
        word: {**what, "nodes": [name for name in what["nodes"] if name in there]}
        if isinstance(what, dict) and "nodes" in what
        else what
        for word, what in event.items()
    }


def _names_none(what: Any) -> bool:
    return isinstance(what, dict) and what.get("nodes") == []


def _owned(moment: Moment) -> dict[tuple[str, str], tuple[str, str]]:
    """(owner, node) of the pods that there are, by namespace and name."""
    owned = {}
    for pod in moment.objects:
        meta = pod["metadata"]
        owners = [o["name"] for o in meta.get("ownerReferences", ()) if o.get("controller")]
        if pod["kind"] == "Pod" and owners:
            node = pod["spec"].get("nodeName") or _target(pod)
            owned[meta["namespace"], meta["name"]] = (owners[0], node)
    return owned


def _target(pod: Json) -> str:
    """The node that a daemon pod's affinity names."""
    required = pod["spec"]["affinity"]["nodeAffinity"][
        "requiredDuringSchedulingIgnoredDuringExecution"
    ]
    return str(required["nodeSelectorTerms"][0]["matchFields"][0]["values"][0])


def _without_first_syncs(ours: Mapping[str, Any], real: Mapping[str, Any], moment: Moment) -> Json:
    """Who joins syncs each set once, and may write a status that the running controller left: since
    v1.33 it does not sync a set for a node that needs no other pods.
    """
    written = {
        record["object"]["name"]
        for record in real["records"]
        if record["at"] > moment.at and record["action"] == _WRITES_STATUS
    }
    records = [
        record
        for record in ours["records"]
        if record["at"] > 0
        or record["action"] != _WRITES_STATUS
        or record["object"]["name"] in written
    ]
    return {**ours, "records": [*_statuses(moment), *records]}


_WRITES_STATUS = "UpdateDaemonSetStatus"


def _statuses(moment: Moment) -> Iterator[Json]:
    """The DaemonSets' statuses of that moment, as if somebody wrote them then."""
    for found in moment.objects:
        if found["kind"] == "DaemonSet":
            yield {
                "at": 0.0,
                "controller": "daemonset",
                "action": _WRITES_STATUS,
                "object": {"kind": "DaemonSet", **_name_of(found)},
                "detail": {"numberUnavailable": 0, **found["status"]},
            }


def _name_of(found: Json) -> Json:
    return {key: found["metadata"][key] for key in ("namespace", "name")}


def _before(timeline: Mapping[str, Any], moment: Moment) -> list[Json]:
    return [record for record in timeline["records"] if record["at"] < moment.at]


def _after(timeline: Mapping[str, Any], moment: Moment) -> judge.Facts:
    """The facts of a run from the moment on, counted from there."""
    records = [
        *_statuses(moment),
        *(
            {**record, "at": round(record["at"] - moment.at, 3)}
            for record in timeline["records"]
            if record["at"] >= moment.at
        ),
    ]
    made = {
        (r["object"].get("namespace") or "", r["object"]["name"]): (
            r["detail"]["owner"],
            r["detail"]["node"],
        )
        for r in timeline["records"]
        if r["action"] == "CreatePod"
    }
    rest = {**timeline, "records": records, "duration": timeline["duration"] - moment.at}
    return judge.Facts.of(rest, {**_owned(moment), **made})


def _since_start(instant: str) -> float:
    """Seconds from the scenario's start."""
    return (parse_time(instant) - DEFAULT_TIME_NS) / SECOND_NS
