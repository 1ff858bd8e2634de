"""Holds the first line of `budgets` against a naive count in the objects.

A pod cannot go now if two budgets match it, or one that has no room: of a pod that is not Ready
only where too few others are healthy. A drain leaves the pods of DaemonSets alone.
"""

import random
import re
from pathlib import Path

from tests.claims.test_drain_plan import NOW
from tests.claims.test_what_if import Document, random_question, run
from tests.objects import write_list


def guarded(seed: int) -> list[Document]:
    """A random cluster; some of its pods are not Ready, and some have two budgets."""
    items = random_question(seed).items
    rng = random.Random(f"budgets {seed}")
    for budget in [o for o in items if o["kind"] == "PodDisruptionBudget"]:
        pods = [pod for pod in items if pod["kind"] == "Pod" and _matches(budget, pod)]
        for pod in pods:
            if rng.random() < 0.2 and "conditions" in pod["status"]:
                pod["status"]["conditions"] = [{"type": "Ready", "status": "False"}]
        healthy = sum(is_ready(pod) for pod in pods)
        allowed = max(0, healthy - budget["status"]["desiredHealthy"])
        budget["status"] |= {"currentHealthy": healthy, "disruptionsAllowed": allowed}
        if rng.random() < 0.15:
            meta = {**budget["metadata"], "name": f"{budget['metadata']['name']}-too", "uid": "too"}
            items.append({**budget, "metadata": meta})
    return items


def _matches(budget: Document, pod: Document) -> bool:
    wanted = budget["spec"]["selector"]["matchLabels"]
    return bool(wanted.items() <= pod["metadata"]["labels"].items())


def is_ready(pod: Document) -> bool:
    conditions = pod["status"].get("conditions", [])
    return any(c["type"] == "Ready" and c["status"] == "True" for c in conditions)


def held(items: list[Document]) -> tuple[int, set[str], set[str]]:
    """How many budgets there are, which of them hold a pod now, and on which nodes."""
    budgets = [o for o in items if o["kind"] == "PodDisruptionBudget"]
    holding, nodes = set(), set()
    for pod in (o for o in items if o["kind"] == "Pod" and o["spec"].get("nodeName")):
        if pod["metadata"]["ownerReferences"][0]["kind"] == "DaemonSet":
            continue
        mine = [budget for budget in budgets if _matches(budget, pod)]
        full = [b for b in mine if not _lets_go(b["status"], pod)]
        if len(mine) > 1 or full:
            holding |= {b["metadata"]["name"] for b in (mine if len(mine) > 1 else full)}
            nodes.add(pod["spec"]["nodeName"])
    return len(budgets), holding, nodes


def _lets_go(status: Document, pod: Document) -> bool:
    if status["disruptionsAllowed"] > 0:
        return True
    enough = status["currentHealthy"] >= status["desiredHealthy"] > 0
    return not is_ready(pod) and enough


def lies_of_budgets(items: list[Document], said: str) -> list[str]:
    many, holding, nodes = held(items)
    found = re.match(r"(None|\d+) of (\d+) budgets? keeps? (?:a|(\d+)) nodes? from being", said)
    if found is None:
        return [f"no count: {said}"] if many else []
    told = (0 if found[1] == "None" else int(found[1]), int(found[2]), int(found[3] or 0))
    true = (len(holding), many, len(nodes))
    return [] if told == true else [f"{told}, and {true}: {sorted(holding)}, {sorted(nodes)}"]


def said_of(folder: Path, items: list[Document]) -> str:
    dump = write_list(folder / "dump.json", items)
    code, text = run("budgets", "-A", "-f", dump, *NOW)
    assert code == 0, text
    return text.partition("\n")[0]


def test_the_first_line_of_budgets_is_so(tmp_path: Path, seeds: range) -> None:
    for seed in range(10 * seeds.start, 10 * seeds.stop):
        items = guarded(seed)
        said = said_of(tmp_path, items)
        assert lies_of_budgets(items, said) == [], (seed, said)


def test_a_lie_about_budgets_is_caught(tmp_path: Path) -> None:
    caught = 0
    for seed in range(40):
        items = guarded(seed)
        said = said_of(tmp_path, items)
        for truth, lie in ((r"^\d+", r"1\g<0>"), (r"keeps? \d+", "keep 77"), ("^None", "1")):
            false = re.sub(truth, lie, said, count=1)
            if false != said:
                caught += 1
                assert lies_of_budgets(items, false), (seed, false)
    assert caught > 20
