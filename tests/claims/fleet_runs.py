"""Runs of upgrades of fleets, led by the engine of a real leader in the virtual cluster, where what
a plan cannot know is as it assumes, or otherwise; and what came, read off their records."""

import json
import random
import re
from typing import Any, NamedTuple

import pytest

from kubectl_nodelife.controllers import make_controllers
from kubectl_nodelife.engine.controller import Controller
from kubectl_nodelife.engine.settings import Settings, make_settings
from kubectl_nodelife.kube.kinds import KINDS
from kubectl_nodelife.kube.load import load_documents
from kubectl_nodelife.kube.times import parse_time
from kubectl_nodelife.sim.run import run as play
from kubectl_nodelife.sim.scenario import PASS_DRIFT_NS, Given, Setting, assemble, parse_scenario
from kubectl_nodelife.upgrade.answers import decider_for
from kubectl_nodelife.workloads.placement import PlacementSimulator
from tests.claims.fleets import NOW, Document, Fleet
from tests.claims.test_what_if import span_of
from tests.sim.documents import document

PROFILE = "v1.37"
COLD = 50.0
"""The grace period of that release: so long a leader watches before it claims."""


class Unknown(NamedTuple):
    """What a plan cannot know of a run. `luck`: of several nodes of the best score a pod gets the
    first, the last, or any. `work`: shares of the work's length, at least and at most."""

    luck: str = "first"
    stops: str = ""
    work: tuple[float, float] = (1.0, 1.0)
    daemon_pods: str = "20s"
    seed: int = 0


class Course(NamedTuple):
    """What came: [(node, what, seconds since the leader might claim)], the result, and pods that
    have no node at the end."""

    came: list[tuple[str, str, float]]
    result: Document
    pending: int

    def at(self, name: str, what: str) -> list[float]:
        return [at for node, event, at in self.came if (node, event) == (name, what)]

    @property
    def ends(self) -> tuple[float, float]:
        """When the run is over, in seconds since its start: by its word, or, where it stands still
        for nodes that are held, with the last that happened to a node."""
        last = max((at for _, _, at in self.came), default=0.0)
        return self.result["seconds"], last + COLD

    @property
    def done(self) -> set[str]:
        """The nodes that are done, a newcomer by the name of the one before."""
        return {name.partition("-")[0] for name in self.result["done"]}


EVENTS = {
    "ClaimNode": "claimed",
    "OpenForProof": "settled",
    "ReleaseNode": "released",
    "RestoreNode": "restored",
    "FailNode": "failed",
}
STATES = {
    "Working": "drained",
    "Settling": "worked",
    "Done": "done",
    "Failed": "failed",
    "Held": "failed",
}


def setting_of(
    fleet: Fleet, unknown: Unknown, faults: tuple[Document, ...] = ()
) -> tuple[Setting, Settings]:
    """The fleet as a scenario in which it is upgraded at once. A gate that passes is none."""
    beside = ("selector", "gate")
    spec = {key: value for key, value in fleet.spec.items() if key not in beside}
    expected = span_of(spec.get("expectWork", "10m"))
    least, most = (expected * share for share in unknown.work)
    mode = fleet.spec["work"]["mode"]
    work = {
        "mode": "replace" if mode == "replace" else "reboot",
        "duration": f"{(least + most) / 2:.0f}s",
        "jitter": f"{int((most - least) / 2)}s",
        "seed": unknown.seed,
        "daemonPods": unknown.daemon_pods,
    }
    act = {"selector": fleet.spec["selector"], "policy": spec, "work": work}
    kubelet = {"podStopDuration": unknown.stops} if unknown.stops else {}
    events = [{"at": "0s", "upgrade": act | ({"faults": list(faults)} if faults else {})}]
    made = document(events=events, start="join", time=NOW, duration="8000h", kubelet=kubelet)
    settings = make_settings(PROFILE)
    loaded = load_documents(fleet.items, "fleet").objects
    every = frozenset(kind.name for kind in KINDS)
    given = Given(loaded, every, int(parse_time(NOW)), settings.profile)
    scenario = parse_scenario(json.dumps(made).encode(), "run.yaml")
    return assemble(scenario, given).under(settings), settings


def controllers_of(setting: Setting, settings: Settings) -> list[Controller]:
    """The cluster's own."""
    return make_controllers(settings, setting.scenario.controllers, pass_drift_ns=PASS_DRIFT_NS)


def played(fleet: Fleet, unknown: Unknown) -> Course:
    """The run, led by the engine of a real leader in the virtual cluster."""
    setting, settings = setting_of(fleet, unknown)
    with pytest.MonkeyPatch.context() as patch:
        if unknown.luck == "any":
            _play_with_any_luck(patch, unknown.seed)
        came = play(
            setting,
            controllers_of(setting, settings),
            make_decider=decider_for(settings),
            until_upgraded=lambda done: None,
            other_luck=unknown.luck == "last",
        )
    pending = sum(not pod.spec.node_name for pod in came.cluster.pods.values())
    return Course(_events_of(came.timeline.records(came.failures)), came.upgrade or {}, pending)


def _play_with_any_luck(patch: pytest.MonkeyPatch, seed: int) -> None:
    """Of several nodes of the best score any may be taken."""
    rng, best = random.Random(seed), PlacementSimulator.best

    def shuffled(placement: PlacementSimulator, pod: Any) -> list[str]:
        names = best(placement, pod)
        rng.shuffle(names)
        return names

    patch.setattr(PlacementSimulator, "best", shuffled)


def _events_of(records: Any) -> list[tuple[str, str, float]]:
    """What happened to each node; what happens to a newcomer, by the name of the one before."""
    came, before = [], dict[str, str]()
    for record in records:
        what = EVENTS.get(record.action) if record.controller == "upgrade" else None
        name = record.object.name
        if record.action == "SetUpgradeState":
            what = STATES.get(record.detail["to"])
            replaced = re.match(r"takes the place of (\w+)", record.reason)
            if replaced:
                before[name] = before.get(replaced[1], replaced[1])
        if what:
            came.append((before.get(name, name), what, round(record.at - COLD, 3)))
    return came
