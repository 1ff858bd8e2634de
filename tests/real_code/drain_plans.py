"""Plans of single drains, made of the cluster as the real controllers left it when the drain
begins, and what is compared of them with the real drain: kubectl's exit, how long it takes, and of
each owner how many pods go, how many of these at once, and whether an eviction is refused.

Pods take their whole grace period to stop, as the plan's middle assumes.
"""

import json
import math
from collections import Counter, defaultdict
from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple

from kubectl_nodelife.drain.plan import make_plan
from kubectl_nodelife.drain.results import READY, SLOW, DrainPlan, PodPlan
from kubectl_nodelife.drain.snapshot import PlanSnapshot
from kubectl_nodelife.engine.settings import make_settings, parse_profile
from kubectl_nodelife.kube.load import load_documents
from kubectl_nodelife.kube.times import SECOND_NS
from kubectl_nodelife.sim.events import DrainEvent
from kubectl_nodelife.sim.scenario import DEFAULT_TIME_NS, parse_scenario
from tests.real_code import drains
from tests.real_code.judge import play_real
from tests.real_code.workload_scenario import RELEASE

Json = dict[str, Any]

AT_ONCE_S = 4.5
"""What kubectl is refused it asks for again 5 s later."""


_READY = datetime(2025, 12, 31, 23)
"""When the pods of `drains` became Ready."""

_TIMEOUTS = {"4s": "3s", "11s": "13s", "23s": "28s", "47s": "48s"}
"""Tries come each 5 s, and pods take 1, 5 or 20 s to go: none of them ends near one of these."""


class Drained(NamedTuple):
    """What a drain does, or will do. `exit`: whether kubectl ends well; None: it goes on.
    `seconds`: when it ends, at least and at most, from its start; None: that is not foretold.
    `evicted`, `at_once`: by owner, how many pods. `refused`: owners of pods that it must ask for
    again. `may_fail`: of a plan, that kubectl may give up.
    """

    exit: bool | None
    seconds: tuple[float, float] | None
    evicted: Counter[str]
    at_once: Counter[str]
    refused: set[str]
    may_fail: bool = False


def generate(seed: int) -> Json:
    """The first drain of a seed of `drains`, with nothing else that happens. Its pods have taken as
    long to be Ready as those will that replace them.
    """
    document = drains.generate(seed)
    spec = document["spec"]
    spec["events"] = [next(event for event in spec["events"] if "drain" in event)]
    spec["kubelet"]["podStopDuration"] = "30s"
    bound = _READY - timedelta(seconds=int(spec["kubelet"]["podStartDuration"][:-1]))
    for pod in (obj for obj in spec["objects"] if obj["kind"] == "Pod"):
        for condition in pod["status"]["conditions"]:
            if condition["type"] == "PodScheduled":
                condition["lastTransitionTime"] = f"{bound:%Y-%m-%dT%H:%M:%SZ}"
    drain = spec["events"][0]["drain"]
    if "timeout" in drain:
        drain["timeout"] = _TIMEOUTS[drain["timeout"]]
    return document


def real_drain(document: Json, program: Path, folder: Path, flags: tuple[str, ...]) -> Drained:
    """What the real code does; the cluster as it was then is in cluster.json."""
    scenario, at = folder / "scenario.json", _start_of(document)
    scenario.write_text(json.dumps(document))
    dump = (f"-dump={folder / 'cluster.json'}", f"-dump-at={at}s")
    real = play_real(program, scenario, folder / "real.json", (*flags, *dump))
    times: dict[str, list[float]] = defaultdict(list)
    refused, exits, owner_of = set(), [], drains.owners_of(real, document)
    for key, instants in drains.facts(real, document).items():
        if key[0] == "evicted":
            times[key[1]] = [instant - at for instant in instants]
        elif key[0] == "refused":
            refused.add(key[1])
    for record in real["records"]:
        if record["action"] == "Exit":
            exits.append((record["detail"]["code"] == 0, record["at"] - at))
        elif record["action"] == "DeletePod" and record["controller"] == "kubectl":
            times[owner_of[record["object"]["name"]]].append(record["at"] - at)
    ended = exits[0] if exits else (None, math.inf)
    return Drained(
        ended[0],
        (ended[1], ended[1]),
        Counter({owner: len(instants) for owner, instants in times.items()}),
        Counter({o: n for o, each in times.items() if (n := sum(t < AT_ONCE_S for t in each))}),
        refused,
    )


def plan_of(document: Json, folder: Path) -> Drained:
    """What `drain-plan` says of the cluster in cluster.json."""
    text = (folder / "cluster.json").read_bytes()
    scenario = parse_scenario(json.dumps(document).encode(), "scenario")
    objects = load_documents([json.loads(text)], "cluster.json").objects
    settings = make_settings(parse_profile(RELEASE), scenario.flags)
    now_ns = DEFAULT_TIME_NS + round(_start_of(document) * SECOND_NS)
    snapshot = PlanSnapshot(objects, now_ns, settings=settings)
    event = scenario.events[0].what
    assert isinstance(event, DrainEvent)
    nodes = document["spec"]["events"][0]["drain"]["nodes"]
    return _foretold(make_plan(snapshot, nodes, event.options))


def _foretold(plan: DrainPlan) -> Drained:
    goes = [pod for pod in plan.pods() if pod.start is not None]
    at_once = [pod for pod in goes if pod.start is not None and pod.start < AT_ONCE_S]
    seconds = (plan.estimate.low, plan.estimate.high) if plan.estimate is not None else None
    return Drained(
        plan.verdict in (READY, SLOW),
        seconds,
        Counter(map(_owner, goes)),
        Counter(map(_owner, at_once)),
        {_owner(pod) for pod in plan.pods() if pod.tries > (pod.start is not None)},
        any(node.may_fail for node in plan.nodes),
    )


def _owner(pod: PodPlan) -> str:
    return pod.owner.rpartition("/")[2] if pod.owner else pod.name


def differences(real: Drained, plan: Drained) -> Iterator[str]:
    """What the real drain does otherwise than the plan says."""
    if plan.may_fail and not real.exit:  # the plan tells the play in which it does not
        return
    if bool(real.exit) != plan.exit:
        yield f"exit: real {real.exit}, plan {plan.exit}"
    if real.exit and plan.exit and real.seconds is not None and plan.seconds is not None:
        ends_s, (low_s, high_s) = real.seconds[0], plan.seconds
        if not low_s <= ends_s <= high_s:
            yield f"ends: real {ends_s}, plan {plan.seconds}"
    for what in ("evicted", "at_once", "refused"):
        a, b = getattr(real, what), getattr(plan, what)
        if a != b:
            yield f"{what}: real {a}, plan {b}"


def _start_of(document: Json) -> float:
    return float(document["spec"]["events"][0]["at"][:-1])
