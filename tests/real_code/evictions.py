"""Single evictions, made from a seed, of pods in any state with budgets in any state, and how the
Eviction API answers them: code, reason, message and causes, and what is spent of a budget.

The budgets' statuses are as they stand, also such as the disruption controller would not leave.
"""

import json
import random
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from kubectl_nodelife.kube.pod import Pod
from kubectl_nodelife.kube.selectors import matches
from kubectl_nodelife.kube.times import decode_time
from kubectl_nodelife.kube.workload import PodDisruptionBudget, PodDisruptionBudgetStatus
from kubectl_nodelife.sandbox.deleting import status_of
from kubectl_nodelife.workloads.budgets import EvictionRefused, as_answered, decide_eviction

Json = dict[str, Any]
WHEN = "2025-12-31T23:00:00Z"


def generate(seed: int) -> Json:
    """A pod, and up to two budgets, most of which select it."""
    chance = random.Random(seed)
    pod: Json = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "p", "namespace": "default", "uid": "u1", "labels": {"app": "a"}},
        "spec": {"nodeName": "n1", "containers": [{"name": "c", "image": "i"}]},
        "status": {
            "phase": chance.choice(["Running"] * 8 + ["Pending", "Succeeded", "Failed", "Unknown"]),
            "conditions": [{"type": "Ready", "status": chance.choice(["True", "True", "False"])}],
        },
    }
    if chance.random() < 0.1:
        pod["metadata"] |= {"deletionTimestamp": WHEN, "deletionGracePeriodSeconds": 30}
    count = chance.choice([0, 1, 1, 1, 1, 1, 1, 2])
    return {"pod": pod, "budgets": [_budget(f"b{i}", chance) for i in range(count)]}


def _budget(name: str, chance: random.Random) -> Json:
    labels = {"app": "a"} if chance.random() < 0.9 else {"app": "b"}
    spec: Json = {"minAvailable": 1, "selector": {"matchLabels": labels}}
    if chance.random() < 0.5:
        spec["unhealthyPodEvictionPolicy"] = chance.choice(["AlwaysAllow", "IfHealthyBudget"])
    generation, allowed = chance.choice([1, 2]), chance.choice([-1, 0, 0, 0, 1, 2])
    status: Json = {
        "observedGeneration": generation - (chance.random() < 0.1),
        "disruptionsAllowed": allowed,
        "currentHealthy": chance.choice([0, 1, 2, 3]),
        "desiredHealthy": chance.choice([0, 1, 2, 3]),
        "expectedPods": 3,
    }
    if chance.random() < 0.6:
        status["conditions"] = [_condition(chance, allowed)]
    if chance.random() < 0.1:
        number = chance.choice([1, 2000, 2001])
        status["disruptedPods"] = {f"other-{i}": WHEN for i in range(number)}
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": name, "namespace": "default", "generation": generation},
        "spec": spec,
        "status": status,
    }


def _condition(chance: random.Random, allowed: int) -> Json:
    reason = "SufficientPods" if allowed else chance.choice(["InsufficientPods", "SyncFailed"])
    return {
        "type": "DisruptionAllowed",
        "status": "True" if allowed else chance.choice(["False", "False", "True"]),
        "reason": reason,
        "message": chance.choice(["", 'found no controllers for pod "p"']),
        "lastTransitionTime": WHEN,
    }


def play_real(program: Path, cases: list[Json], folder: Path) -> list[Json]:
    """What the real subresource answers to each. Raises CalledProcessError."""
    given, out = folder / "evictions.json", folder / "answers.json"
    given.write_text(json.dumps(cases))
    subprocess.run([program, "-evictions", given, out], check=True, capture_output=True)
    answers: list[Json] = json.loads(out.read_bytes())
    return answers


def differences(case: Json, real: Json, *, names_budget: bool) -> Iterator[str]:
    """How ours answers otherwise than the real one. `names_budget`: the row of SWITCHES."""
    pod = _read(case["pod"], Pod)
    budgets = [_read(raw, PodDisruptionBudget) for raw in case["budgets"]]
    matching = [b for b in budgets if matches(b.spec.selector, pod.metadata.labels)]
    answer = decide_eviction(pod, matching, 0)
    told = real["status"]
    theirs: Json = {"code": told["code"]}
    mine: Json = {"code": 201}
    spent = {}
    if isinstance(answer, EvictionRefused):
        refused = status_of(as_answered(answer, names_budget=names_budget), pod)
        causes = (refused.details or {}).get("causes", [])
        mine = {"code": refused.code, "message": refused.message, "causes": causes}
        mine |= {"reason": refused.reason, "after": refused.retry_after_s}
        details = told.get("details") or {}
        theirs |= {"message": told["message"], "causes": details.get("causes", [])}
        theirs |= {"reason": told.get("reason", ""), "after": details.get("retryAfterSeconds", 0)}
    elif answer.budget is not None and answer.status is not None:
        spent[answer.budget.name] = answer.status
    yield from (
        f"{k}: real {theirs.get(k)}, ours {mine[k]}" for k in mine if theirs.get(k) != mine[k]
    )
    for budget, after in zip(budgets, real["budgets"] or (), strict=True):
        ours = _counts(spent.get(budget.name, budget.status))
        if ours != (others := _counts(_read(after, PodDisruptionBudgetStatus))):
            yield f"{budget.name}: real {others}, ours {ours}"


def _counts(status: PodDisruptionBudgetStatus) -> tuple[int, list[str]]:
    return status.disruptions_allowed, sorted(status.disrupted_pods or ())


def _read(raw: Any, type_: Any) -> Any:
    return msgspec.convert(raw, type_, dec_hook=decode_time)
