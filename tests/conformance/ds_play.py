"""DaemonSet vectors as a play: what each step of a vector does in its world."""

import copy
from collections.abc import Callable
from functools import partial

from msgspec.structs import replace

from kubectl_nodelife.controllers.daemonset.handlers import should_ignore_node_update
from kubectl_nodelife.controllers.daemonset.history import hash_label
from kubectl_nodelife.controllers.daemonset.node_status_index import status_from_tally
from kubectl_nodelife.controllers.daemonset.pods_on_node import failed_pods_backoff_key
from kubectl_nodelife.controllers.daemonset.sync import store_status
from kubectl_nodelife.controllers.daemonset.template import get_target_node_name
from kubectl_nodelife.engine.events import Gone, Put
from kubectl_nodelife.kube.meta import Time
from kubectl_nodelife.kube.node import Node
from kubectl_nodelife.kube.pod import Pod, PodCondition
from kubectl_nodelife.kube.times import parse_time
from kubectl_nodelife.kube.workload import DaemonSet, DaemonSetSpec, DaemonSetStatus
from tests.conformance.checks import only
from tests.conformance.ds_world import Json, SyncReport, World
from tests.conformance.world import decode


class Play:
    """One vector in one profile, step by step."""

    def __init__(self, case: Json, profile: str) -> None:
        self.case = case
        self.world = World(case, profile)
        self.reports: list[SyncReport] = []
        self.statuses: list[DaemonSetStatus] = []
        self.notes: Json = {}
        self.presets = "expectations" in case["given"]

    # --- syncs -----------------------------------------------------------------------------------

    def sync(self, observeCreations: bool = True) -> None:  # noqa: N803
        keep = self.presets or not observeCreations
        report = self.world.sync(observeCreations, keep_expectations=keep)
        self.reports.append(report)
        self.statuses.append(report.status)
        tracked = self.world.controller.expectations.get(self.world.key)
        done = tracked is None or tracked.fulfilled()
        self.notes["expectationsAfterSecondSync"] = "satisfied" if done else "unsatisfied"

    def sync_until_stable(self, maxSyncs: int) -> None:  # noqa: N803
        for _ in range(maxSyncs):
            before = len(self.world.actions)
            report = self.world.sync()
            self.reports.append(report)
            if len(self.world.actions) == before and not report.error:
                return

    def compute_status(self) -> None:
        tracked = self.world.tracked
        revision_hash = hash_label(tracked.history.current) if tracked.history else self.world.hash
        node_index = tracked.refresh(self.world.now, revision_hash)
        self.statuses.append(
            status_from_tally(self.world.daemon_set, node_index.tally, observe=True)
        )

    def store_status(self) -> None:
        counts = self.case["given"]["newCounts"]
        wanted = DaemonSetStatus(
            desired_number_scheduled=counts["desired"],
            current_number_scheduled=counts["current"],
            number_misscheduled=counts["misscheduled"],
            number_ready=counts["ready"],
            updated_number_scheduled=counts["updated"],
            number_available=counts["available"],
            number_unavailable=counts["unavailable"],
        )
        step = partial(store_status, lambda _: wanted)
        self.notes["error"] = self.world.drive(step).error

    # --- changes ---------------------------------------------------------------------------------

    def update_daemon_set(
        self,
        image: str | None = None,
        updateStrategy: Json | None = None,  # noqa: N803
        tolerations: list[Json] | None = None,
        minReadySeconds: int | None = None,  # noqa: N803
    ) -> None:
        old = self.world.daemon_set
        template = copy.deepcopy(old.spec.template)
        if image is not None:
            template["spec"]["containers"][0]["image"] = image
        if tolerations is not None:
            template["spec"]["tolerations"] = tolerations
        spec = replace(old.spec, template=template)
        if updateStrategy is not None:
            raw = {"spec": {"updateStrategy": updateStrategy}}
            spec = replace(spec, update_strategy=decode(raw, DaemonSet).spec.update_strategy)
        if minReadySeconds is not None:
            spec = replace(spec, min_ready_seconds=minReadySeconds)
        self._put_spec(spec)

    def update_template(self, template: Json) -> None:
        """Somebody gives the set this pod template, as `kubectl rollout undo` does."""
        self._put_spec(replace(self.world.daemon_set.spec, template=template))

    def _put_spec(self, spec: DaemonSetSpec) -> None:
        old = self.world.daemon_set
        meta = replace(old.metadata, generation=old.metadata.generation + 1)
        self.world.see(Put("DaemonSet", replace(old, spec=spec, metadata=meta)))

    def set_ready(self, count: int, ready: bool, which: str) -> None:
        only([which], {"all", "new", "old-on-node-without-new"}, "choice of pods")
        status = "True" if ready else "False"
        revisions = self.world.tracked.history
        current = hash_label(revisions.current) if revisions else self.world.hash
        with_new = {
            p.spec.node_name or _target(p) for p in self.world.own_pods() if has_hash(p, current)
        }
        for pod in self.world.own_pods():
            condition = pod.status.condition("Ready")
            same = (condition.status if condition else "False") == status
            if count == 0 or same or pod.metadata.deletion_timestamp is not None:
                continue
            if which == "new" and not has_hash(pod, current):
                continue
            if which == "old-on-node-without-new" and _target(pod) in with_new:
                continue
            self.put_ready(pod, status)
            count -= 1
        assert count == 0, f"{count} pods too few"

    def set_ready_on(self, node: str, ready: bool) -> None:
        for pod in self.world.own_pods():
            if _target(pod) == node:
                self.put_ready(pod, "True" if ready else "False")

    def mark_all_pods_ready(self) -> None:
        for pod in list(self.world.cache.pods.values()):
            self.put_ready(pod, "True")

    def put_ready(self, pod: Pod, status: str) -> None:
        condition = PodCondition(
            type="Ready", status=status, last_transition_time=Time(self.world.now)
        )
        others = tuple(c for c in pod.status.conditions if c.type != "Ready")
        new = replace(pod, status=replace(pod.status, conditions=(*others, condition)))
        self.world.see(Put("Pod", new))

    def delete_pod_on(self, node: str) -> None:
        for pod in self.world.own_pods():
            if _target(pod) == node:
                self.world.see(Gone("Pod", pod.key))

    def set_taints(self, node: str, taints: list[Json]) -> None:
        old = self.world.cache.nodes[node]
        raw = {"metadata": {"name": node}, "spec": {"taints": taints}}
        new = replace(old, spec=replace(old.spec, taints=decode(raw, Node).spec.taints))
        self.world.see(Put("Node", new))

    def advance(self, toBackoffDelayOf: str, minusNanos: int = 0) -> None:  # noqa: N803
        world = self.world
        node = toBackoffDelayOf
        named = world.cache.pods.get((world.key[0], toBackoffDelayOf))
        if named is not None:
            node = _target(named)
        key = failed_pods_backoff_key(world.daemon_set, node)
        entry = world.backoff.entry(key)
        assert entry is not None, f"no backoff for {key}"
        world.now = entry.last_update_ns + entry.delay_ns - minusNanos

    # --- events ----------------------------------------------------------------------------------

    def pod_update(self, old: Json, new: Json) -> None:
        self.world.see_quietly(Put("Pod", self.world.pod(old)))
        self.world.see(Put("Pod", self.world.pod(new)))

    def pod_delete(self, pod: Json) -> None:
        gone = self.world.pod(pod)
        self.world.see_quietly(Put("Pod", gone))
        self.world.see(Gone("Pod", gone.key))

    def node_update(self, old: Json, new: Json) -> None:
        self.world.see_quietly(Put("Node", decode(old, Node)))
        self.world.see(Put("Node", decode(new, Node)))

    def should_ignore_node_update(self, old: Json, new: Json) -> None:
        rules = self.world.controller.rules
        ignored = should_ignore_node_update(decode(old, Node), decode(new, Node), rules)
        self.notes["ignored"] = ignored

    def daemon_set_delete(self, key: str | None = None) -> None:
        world = self.world
        wanted = tuple(key.split("/")) if key else world.key
        assert len(wanted) == 2
        self.notes["deletedSet"] = world.cache.get("DaemonSet", wanted)
        world.see(Gone("DaemonSet", wanted))
        record = world.controller.expectations.get(wanted)
        self.notes["expectationsAfterDelete"] = "none" if record is None else "some"

    def daemon_set_add(
        self,
        uid: str | None = None,
        key: str | None = None,
        daemonSet: Json | None = None,  # noqa: N803
    ) -> None:
        if daemonSet is not None:
            self.world.see(Put("DaemonSet", decode(daemonSet, DaemonSet)))
            return
        old = self.notes["deletedSet"]
        assert isinstance(old, DaemonSet) and (key is None or key == "/".join(old.key))
        meta = replace(old.metadata, uid=uid or old.uid)
        self.world.see(Put("DaemonSet", replace(old, metadata=meta)))


def _target(pod: Pod) -> str:
    return get_target_node_name(pod)


def has_hash(pod: Pod, revision_hash: str) -> bool:
    """True if the pod carries that hash label."""
    return (pod.metadata.labels or {}).get("controller-revision-hash") == revision_hash


STEPS: dict[str, Callable[..., None]] = {
    "sync": Play.sync,
    "syncUntilStable": Play.sync_until_stable,
    "computeStatus": Play.compute_status,
    "storeStatus": Play.store_status,
    "updateDaemonSet": Play.update_daemon_set,
    "setReady": Play.set_ready,
    "setReadyOn": Play.set_ready_on,
    "markAllPodsReady": Play.mark_all_pods_ready,
    "deletePodOn": Play.delete_pod_on,
    "addPod": lambda play, pod: play.world.see(Put("Pod", play.world.pod(pod))) and None,
    "setTaints": Play.set_taints,
    "setClock": lambda play, to: setattr(play.world, "now", int(parse_time(to))),
    "setFeatureGate": lambda play, name, value: play.world.set_gate(name, value),
    "advance": Play.advance,
    "podAdd": lambda play, pod: play.world.see(Put("Pod", play.world.pod(pod))) and None,
    "podUpdate": Play.pod_update,
    "podDelete": Play.pod_delete,
    "nodeAdd": lambda play, node: play.world.see(Put("Node", decode(node, Node))) and None,
    "nodeUpdate": Play.node_update,
    "drainNodeQueue": lambda play: play.world.controller.handlers.drain_nodes(play.world.cache),
    "shouldIgnoreNodeUpdate": Play.should_ignore_node_update,
    "daemonSetDelete": Play.daemon_set_delete,
    "daemonSetDeleteTombstone": Play.daemon_set_delete,
    "daemonSetAdd": Play.daemon_set_add,
}
