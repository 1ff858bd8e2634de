"""Plays the set-ups: side by side on a real cluster, and one by one in the simulator."""

import time
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import msgspec

from kubectl_nodelife.controllers import make_controllers
from kubectl_nodelife.engine.actions import CreatePod, DeletePod, RecordEvent
from kubectl_nodelife.engine.settings import NEWEST, make_settings
from kubectl_nodelife.kube.codec import encode
from kubectl_nodelife.kube.workload import ControllerRevision, DaemonSet
from kubectl_nodelife.outlook.daemonset.kubectl_rollout import history_of, rollback, template_of
from kubectl_nodelife.sim.api import MakePod
from kubectl_nodelife.sim.run import Run, run
from kubectl_nodelife.sim.scenario import assemble, parse_scenario
from tests.real.audited import writes
from tests.real.control_plane import ControlPlane
from tests.real.daemonset_outcome import SET, Json, Seen, is_overlooked, outcome, target_node
from tests.real.daemonset_setups import GRACE_S, Setup, gone, patch
from tests.real.kubelets import Kubelets
from tests.real.stage import Stage, kind_named, merge_patch, path_of

TIMEOUT_S = 300.0
POLL_S = 0.5
SECONDS_A_STEP = 30
DELETE_PODS = ("daemon-set-controller", "node-controller", "taint-eviction-controller")
START_S = STOP_S = 1
FLAGS = {"node-monitor-grace-period": f"{GRACE_S}s", "node-eviction-rate": "1"}
UNHELD = {"kube-api-qps": "1000", "kube-api-burst": "1000"}
"""Else so many sets at once wait for the controller manager's turn at the API server."""

Default = Callable[[Json], Json]


class Played(NamedTuple):
    """What came of a set-up: the outcome after each step, the controller's calls, its words.

    `calls`: how many pods the controller made and controllers deleted on which node; two of them
    may delete one pod, and it is chance which is first. `events`: the reasons of those that the
    controller recorded. `said`: what the undoing of each step was answered with. `at_rest`: all
    objects as they were after each step of the real cluster.
    """

    outcomes: list[Json]
    calls: list[tuple[str, int, int]]
    events: set[str]
    said: list[str]
    at_rest: list[list[Json]] = []


# --- the real cluster ----------------------------------------------------------------------------


class _Story:
    """One set-up under way on the real cluster."""

    def __init__(self, name: str, setup: Setup) -> None:
        self.name = name
        self.setup = setup
        self.outcomes: list[Json] = []
        self.said: list[str] = []
        self.at_rest: list[list[Json]] = []
        self.due: list[tuple[float, Json]] = []
        self.last: Any = None
        self.since = 0.0
        self.begun = 0

    def late(self, seconds: float) -> None:
        """What is still due comes later by so much, so that pauses are kept."""
        self.due = [(at + seconds, event) for at, event in self.due]

    @property
    def over(self) -> bool:
        return len(self.outcomes) == len(self.setup.steps)


class RealPlay:
    """All set-ups side by side on one real cluster."""

    def __init__(self, plane: ControlPlane, kubelets: Kubelets) -> None:
        self._plane = plane
        self._stage = Stage(plane.api, kubelets)
        self._defaulted: dict[bytes, Json] = {}

    def defaulted(self, daemon_set: Json) -> Json:
        """The set as the API server completes it."""
        key = msgspec.json.encode(daemon_set)
        if key not in self._defaulted:
            path = f"{path_of('DaemonSet', 'default')}?dryRun=All"
            meta = {**daemon_set["metadata"], "namespace": "default"}
            made = self._plane.api.create(path, {**daemon_set, "metadata": meta})
            self._defaulted[key] = {**daemon_set, "spec": made["spec"]}
        return self._defaulted[key]

    def play(self, setups: Mapping[str, Setup]) -> dict[str, Played]:
        """Play them all to their ends. Raises AssertionError if one never comes to rest."""
        stories = [_Story(name, setup) for name, setup in setups.items()]
        for story in stories:
            self._plane.api.create("/api/v1/namespaces", {"metadata": {"name": story.name}})
            for obj in story.setup.nodes:
                self._stage.play({"apply": obj})
        self._wait_for_nodes()
        deadline = time.monotonic() + TIMEOUT_S
        while unfinished := [story for story in stories if not story.over]:
            assert time.monotonic() < deadline, [(s.name, s.begun, s.last) for s in unfinished]
            time.sleep(POLL_S)
            seen = self._look()
            for story in unfinished:
                self._go_on(story, seen.get(story.name, Seen(None, [], [])))
        calls, events = self._calls(), self._events()
        return {
            s.name: Played(
                s.outcomes,
                by_node(calls[s.name], s.setup),
                events.get(s.name, set()),
                s.said,
                s.at_rest,
            )
            for s in stories
        }

    def _wait_for_nodes(self) -> None:
        """Until all are Ready, and the taint that they are born with is gone."""
        deadline = time.monotonic() + TIMEOUT_S
        not_ready = {"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}
        while True:
            nodes = self._plane.api.get("/api/v1/nodes")["items"]
            waiting = [n for n in nodes if not_ready in n["spec"].get("taints", [])]
            if not waiting:
                return
            assert time.monotonic() < deadline, [n["metadata"]["name"] for n in waiting]
            time.sleep(POLL_S)

    def _go_on(self, story: _Story, seen: Seen) -> None:
        """Let happen what is due; when all is at rest, note the outcome and begin the next step."""
        now = time.monotonic()
        while story.due and story.due[0][0] <= now + POLL_S:
            at, event = story.due.pop(0)
            time.sleep(max(0.0, at - time.monotonic()))
            self._happen(story, event, seen)
            story.late(time.monotonic() - at)
            story.since = time.monotonic()
        found = outcome(seen, story.setup.anywhere)
        if found != story.last:
            story.last, story.since = found, now
        if not is_observed(seen) or self._under_way(seen):
            story.since = now
        if story.due or (story.begun and now - story.since < story.setup.rests_s):
            return
        if is_overlooked(seen, time.time()):
            self._wake(story)
            story.since = now
            return
        if story.begun:
            story.outcomes.append(found)
            story.at_rest.append(self._all_of(story, seen))
        if not story.over:
            events = events_of(story.setup, story.begun, seen)
            story.due = [(now + after, event) for after, event in events]
            story.begun += 1

    def _wake(self, story: _Story) -> None:
        """Change the set in a way that asks for nothing but one more sync."""
        annotations = {"seen-at-rest": str(time.time_ns())}
        path = path_of("DaemonSet", story.name, SET)
        self._plane.api.merge(path, {"metadata": {"annotations": annotations}})

    def _all_of(self, story: _Story, seen: Seen) -> list[Json]:
        """What `kubectl get` would save of a story."""
        found = [("DaemonSet", seen.daemon_set)] if seen.daemon_set is not None else []
        found += [("Pod", pod) for pod in seen.pods]
        found += [("ControllerRevision", revision) for revision in seen.revisions]
        for node in self._plane.api.get("/api/v1/nodes")["items"]:
            if node["metadata"]["labels"].get("setup") == story.name:
                found.append(("Node", node))
        return [
            {"apiVersion": kind_named(kind).api_version, "kind": kind, **o} for kind, o in found
        ]

    def _under_way(self, seen: Seen) -> bool:
        """True if a live kubelet has yet to start or to end a pod."""
        return any(
            self._stage.is_alive(pod["spec"].get("nodeName", ""))
            and not pod["metadata"].get("finalizers")
            and not has_arrived(pod)
            for pod in seen.pods
        )

    def _happen(self, story: _Story, event: Json, seen: Seen) -> None:
        if "undo" in event:
            words = ("rollout", "undo", f"daemonset/{SET}", "-n", story.name)
            said = self._plane.kubectl(*words, f"--to-revision={event['undo']}")
            story.said.append(said.removeprefix(f"daemonset.apps/{SET} ").strip())
            return
        if "orphan" in event:
            path = path_of("DaemonSet", story.name, SET)
            self._plane.api.delete(path, {"propagationPolicy": "Orphan"})
            return
        if event.get("apply", {}).get("kind") == "DaemonSet" and seen.daemon_set is not None:
            path = path_of("DaemonSet", story.name, SET)
            seen = seen._replace(daemon_set=self._plane.api.get(path))
        self._stage.play(completed(event, seen, self.defaulted))

    def _look(self) -> dict[str, Seen]:
        api = self._plane.api
        found: dict[str, Seen] = {}
        for kind in ("DaemonSet", "Pod", "ControllerRevision"):
            for obj in api.get(path_of(kind, ""))["items"]:
                namespace = obj["metadata"]["namespace"]
                seen = found.setdefault(namespace, Seen(None, [], []))
                if kind == "DaemonSet":
                    found[namespace] = seen._replace(daemon_set=obj)
                else:
                    (seen.pods if kind == "Pod" else seen.revisions).append(obj)
        return found

    def _calls(self) -> dict[str, Counter[tuple[str, str]]]:
        """The controllers' successful calls on pods, from the audit log."""
        calls: dict[str, Counter[tuple[str, str]]] = defaultdict(Counter)
        where: dict[str, str] = {}
        deleted: set[str] = set()
        for write in writes(self._plane.audit()):
            if write.resource != "pods" or write.subresource or not write.accepted:
                continue
            uid = write.answer["metadata"]["uid"]
            own = calls[write.namespace]
            if write.verb == "create":
                where[uid] = target_node(write.answer)
                own["made", where[uid]] += write.who == "daemon-set-controller"
            elif write.verb == "delete" and write.who in DELETE_PODS and uid not in deleted:
                deleted.add(uid)
                own["deleted", where[uid]] += 1
        return calls

    def _events(self) -> dict[str, set[str]]:
        found: dict[str, set[str]] = {}
        for event in self._plane.api.get("/api/v1/events")["items"]:
            if event["involvedObject"]["kind"] == "DaemonSet":
                found.setdefault(event["metadata"]["namespace"], set()).add(event["reason"])
        return found


# --- the simulation ------------------------------------------------------------------------------


def simulate(name: str, setup: Setup, defaulted: Default) -> Played:
    """Play a set-up under our controller; each event is made of what the run until then shows."""
    events: list[Json] = []
    outcomes: list[Json] = []
    said: list[str] = []
    begin = 1.0
    for step in range(len(setup.steps)):
        after = 0.0
        for after, event in events_of(setup, step, _seen(_run(name, setup, events, begin), name)):
            done = _run(name, setup, events, begin + after)
            at = {"at": f"{begin + after}s"}
            if "undo" in event:
                event, answer = _undone(done, name, event["undo"])
                said.append(answer)
                events.append({**at, **event})
            elif "orphan" in event:
                events += [{**at, **one} for one in _orphaned(_seen(done, name))]
            else:
                events.append({**at, **completed(event, _seen(done, name), defaulted)})
        begin += after + SECONDS_A_STEP
        done = _run(name, setup, events, begin)
        outcomes.append(outcome(_seen(done, name), setup.anywhere))
    return Played(outcomes, by_node(_simulated_calls(done), setup), _simulated_events(done), said)


def _run(name: str, setup: Setup, events: list[Json], until_s: float) -> Run:
    scenario = {
        "apiVersion": "nodelife.dev/v1alpha1",
        "kind": "Scenario",
        "metadata": {"name": name},
        "spec": {
            "profile": NEWEST,
            "flags": FLAGS,
            "controllers": ["node-lifecycle", "taint-eviction", "daemonset", "pod-gc"],
            "duration": f"{until_s}s",
            "kubelet": {"podStartDuration": f"{START_S}s", "podStopDuration": f"{STOP_S}s"},
            "objects": setup.nodes,
            "events": events,
        },
    }
    setting = assemble(parse_scenario(msgspec.json.encode(scenario), f"{name}.json"))
    settings = make_settings(setting.profile, setting.scenario.flags)
    return run(setting, make_controllers(settings, setting.scenario.controllers))


def _seen(done: Run, name: str) -> Seen:
    """The simulated cluster as the API would show it."""
    daemon_set = done.cluster.get("DaemonSet", (name, SET))
    return Seen(
        encode(daemon_set) if daemon_set is not None else None,
        [encode(pod) for pod in done.cluster.all("Pod")],
        [encode(revision) for revision in done.cluster.all("ControllerRevision")],
    )


def _undone(done: Run, name: str, number: int) -> tuple[Json, str]:
    """Our own `daemonset undo`: the event that has its effect, and what it says."""
    daemon_set = done.cluster.get("DaemonSet", (name, SET))
    assert isinstance(daemon_set, DaemonSet)
    revisions = [r for r in done.cluster.all("ControllerRevision") if r.namespace == name]
    history = history_of(daemon_set, [r for r in revisions if isinstance(r, ControllerRevision)])
    back = rollback(daemon_set, history, number)
    template = merge_patch(daemon_set.spec.template, template_of(back.revision))
    meta = {"name": SET, "namespace": name}
    types = {"apiVersion": "apps/v1", "kind": "DaemonSet"}
    return {"apply": {**types, "metadata": meta, "spec": {"template": template}}}, back.message


def _orphaned(seen: Seen) -> list[Json]:
    """What `kubectl delete --cascade=orphan` leads to."""
    free: Json = {"ownerReferences": None}
    kept = [("Pod", pod) for pod in seen.pods]
    kept += [("ControllerRevision", revision) for revision in seen.revisions]
    return [
        *(
            patch(kind, obj["metadata"]["name"], seen.namespace, metadata=free)
            for kind, obj in kept
        ),
        gone("DaemonSet", SET, seen.namespace),
    ]


def _simulated_calls(done: Run) -> Counter[tuple[str, str]]:
    calls: Counter[tuple[str, str]] = Counter()
    where: dict[str, str] = {}
    deleted: set[str] = set()
    refused = {id(failure.action) for failure in done.failures}
    for _, action in done.timeline.entries:
        if id(action) in refused:
            continue
        if isinstance(action, CreatePod | MakePod):
            where[action.pod] = action.node
            calls["made", action.node] += isinstance(action, CreatePod)
        elif isinstance(action, DeletePod) and action.controller in ("daemonset", "taint-eviction"):
            calls["deleted", where[action.pod]] += action.pod not in deleted
            deleted.add(action.pod)
    return calls


def _simulated_events(done: Run) -> set[str]:
    return {
        action.reason
        for _, action in done.timeline.entries
        if isinstance(action, RecordEvent) and action.controller == "daemonset"
    }


# --- both ----------------------------------------------------------------------------------------


def by_node(calls: Counter[tuple[str, str]], setup: Setup) -> list[tuple[str, int, int]]:
    """(node, pods made, pods deleted), the node "" where it is chance which one that is."""
    nodes = sorted({node for _, node in calls})
    return sorted(
        ("" if setup.anywhere else node, calls["made", node], calls["deleted", node])
        for node in nodes
    )


def is_observed(seen: Seen) -> bool:
    """True if the controller has said something about the set as it is now."""
    if seen.daemon_set is None:
        return True
    generation = seen.daemon_set["metadata"]["generation"]
    return bool(seen.daemon_set["status"].get("observedGeneration") == generation)


def has_arrived(pod: Json) -> bool:
    """True if the pod runs, or is over, and is not to go."""
    conditions = {c["type"]: c["status"] for c in pod["status"].get("conditions", [])}
    ended = pod["status"].get("phase") in ("Succeeded", "Failed")
    return "deletionTimestamp" not in pod["metadata"] and (
        ended or conditions.get("Ready") == "True"
    )


def events_of(setup: Setup, step: int, seen: Seen) -> list[tuple[float, Json]]:
    """(seconds after the step's begin, event); a `pause` moves those behind it."""
    wanted = setup.steps[step]
    after = 0.0
    events = []
    for event in wanted(seen) if callable(wanted) else wanted:
        after += event.get("pause", 0.0)
        if "pause" not in event:
            events.append((after, event))
    return events


def completed(event: Json, seen: Seen, defaulted: Default) -> Json:
    """The event with a DaemonSet as the API server completes it, as a patch if there is one."""
    wanted = event.get("apply", {})
    if wanted.get("kind") != "DaemonSet":
        return event
    wanted = defaulted(wanted)
    if seen.daemon_set is None:
        return {"apply": wanted}
    return {"apply": {**wanted, "spec": merge_patch(seen.daemon_set["spec"], wanted["spec"])}}
