"""kube-api-qps is learnt from how fast controllers write in an outage: off recordings of real
managers at their default pace, and off what a dump of such an outage shows.
"""

import json
from pathlib import Path

import pytest
from msgspec.structs import replace

from kubectl_nodelife.engine.pace import Pace
from kubectl_nodelife.engine.settings import make_settings
from kubectl_nodelife.outlook.diverge.dump_observations import dump_observations
from kubectl_nodelife.outlook.diverge.judgement import divergence_judgement
from kubectl_nodelife.outlook.diverge.observations import ExpectedWrite, Judgement, Observations
from kubectl_nodelife.outlook.diverge.setting_estimates import guess_pace
from kubectl_nodelife.outlook.node import join_controllers
from kubectl_nodelife.sim.scenario import Scenario, assemble, parse_scenario
from tests.diverge.rows import at, record
from tests.simulating import begin

PACE = Path(__file__).parent.parent / "pace"
TAINTED_BY_HAND = 5.0
ACTIONS = ("SetNodeCondition", "MarkPodNotReady", "DeletePod")


def recorded(name: str, assumed: Pace | None) -> Observations:
    """What a daemon beside that manager would have recorded, which expects each write at once."""
    told = json.loads((PACE / name / "timeline.json").read_bytes())
    writes, deleted = [], set()
    for number, r in enumerate(told["records"]):
        pod, detail = r["object"]["name"], r.get("detail", {})
        if r["action"] not in ACTIONS or r.get("error") or r["controller"] == "cluster":
            continue
        if r["action"] == "DeletePod" and (pod in deleted or deleted.add(pod)):
            continue
        due = TAINTED_BY_HAND if r["action"] == "DeletePod" else r["at"]
        writes.append(
            ExpectedWrite(
                id=number,
                time_ns=at(due),
                controller=r["controller"],
                action=r["action"],
                kind=r["object"]["kind"],
                namespace=r["object"].get("namespace", ""),
                name=pod,
                node="",
                what=f"{detail.get('type')}={detail.get('status')}",
                because="",
                outcome="confirmed",
                settled_ns=at(r["at"]),
            )
        )
    made = record(*writes)
    return replace(made, assumed=replace(made.assumed, pace=assumed))


@pytest.mark.parametrize("name", ["zone-of-ten", "default-settings-all-dark"])
def test_a_real_manager_is_seen_to_make_twenty_a_second(name: str) -> None:
    marks = recorded(name, Pace(20, 30))
    marks = replace(marks, writes=tuple(w for w in marks.writes if w.action != "DeletePod"))
    guess = guess_pace(marks)
    assert guess is not None and guess.fits and guess.likely == 20
    other = guess_pace(replace(marks, assumed=replace(marks.assumed, pace=Pace(100, 150))))
    assert other is not None and not other.fits and other.likely == 20


def test_deletions_show_it_too() -> None:
    by_hand = recorded("taint-by-hand", Pace(100, 150))
    guess = guess_pace(by_hand)
    assert guess is not None and not guess.fits and guess.likely == 20


def test_without_a_limit_nothing_is_learnt() -> None:
    assert guess_pace(recorded("zone-of-ten", None)) is None


def played(qps: int) -> Scenario:
    file = PACE / "default-settings-all-dark" / "scenario.yaml"
    scenario = parse_scenario(file.read_bytes(), file.name)
    flags = {"kube-api-qps": str(qps), "kube-api-burst": str(qps * 3 // 2)}
    return replace(scenario, flags={**scenario.flags, **flags})


def judged(qps: int) -> Judgement:
    """What a dump after 110 s of that outage shows."""
    setting = assemble(played(qps))
    branch = begin(setting)
    api = branch.world.api
    branch.play_to(api.now_ns + 110 * 10**9)
    outlook, overdue = join_controllers(api.store, make_settings(setting.profile, {}), api.now_ns)
    return divergence_judgement(dump_observations(outlook, overdue, ()), api.now_ns)


@pytest.mark.parametrize("qps", [10, 30, 50, 100])
def test_a_dump_of_an_outage_shows_it(qps: int) -> None:
    (found,) = [f for f in judged(qps).findings if f.name == "kube-api-qps"]
    assert found.message.startswith(f"kube-api-qps is likely {qps} (we assume 20): ")
    assert "writes of one client without a pause took" in found.message


def test_of_the_default_it_says_that_it_agrees() -> None:
    judgement = judged(20)
    (guess,) = [g for g in judgement.guesses if g.flag == "kube-api-qps"]
    assert guess.fits and not [f for f in judgement.findings if f.name == "kube-api-qps"]
