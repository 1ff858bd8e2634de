"""An observer from outside of clusters whose nodes are upgraded: it says what must not be."""

from __future__ import annotations

import contextlib
import json
import threading
from collections import Counter
from typing import Any

from tests.real.control_plane import Refused
from tests.real.upgrading import ANNOTATION, LEASE, STATE, ZONE, Fleet, is_ready

Json = dict[str, Any]

REPORT = "nodelife.dev/upgrade-report"
_UNHEALTHY_SHARE = 0.55
_KEPT_EMPTY = ("Draining", "Working", "Settling", "Proving")


class Observer:
    """Watches the cluster from outside, and says what must not be (`faults`).

    `lowest`: the fewest nodes that were available at once. `heard`: what the leader said on the
    run's Lease of each node, gate and step, in order.
    """

    def __init__(self, fleet: Fleet, floor: int) -> None:
        self.faults: list[str] = []
        self.lowest = len(fleet.nodes)
        self.heard: dict[str, list[str]] = {}
        self._fleet, self._floor = fleet, floor
        self._cordons: set[str] = set()
        self._before: dict[str, set[str]] = {}
        self._excused: set[str] = set()
        self._known = len(fleet.plane.audit())
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Observer:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end.set()
        self._thread.join(10)
        self._look_at_writes()

    def cordoned_by_person(self, *names: str) -> None:
        """From now on these nodes' cordons are somebody's, and must stay."""
        self._cordons |= set(names)

    def excuse(self, *names: str) -> None:
        """What befalls these nodes is not our doing: floor and zones are counted with them."""
        self._excused |= set(names)

    def has_heard(self, what: str, words: str) -> bool:
        """True if the leader said something with these words of a node, gate or step."""
        return any(words in sentence for sentence in self.heard.get(what, ()))

    def _listen(self) -> None:
        """What the leader says of its last pass."""
        with contextlib.suppress(Refused):
            notes = self._fleet.api.get(LEASE)["metadata"].get("annotations") or {}
            parts = json.loads(notes.get(REPORT, "{}"))
            for part in ("gates", "waits", "holds", "skipped"):
                for what, told in parts.get(part, {}).items():
                    sentence = told if isinstance(told, str) else ": ".join(told)  # of a hold
                    said = self.heard.setdefault(what, [])
                    if sentence not in said[-1:]:
                        said.append(sentence)

    def _run(self) -> None:
        while not self._end.wait(0.25):
            with contextlib.suppress(OSError, Refused):
                self._look()

    def _look(self) -> None:
        nodes = self._fleet.api.get("/api/v1/nodes")["items"]
        available = sum(is_available(n) or n["metadata"]["name"] in self._excused for n in nodes)
        self.lowest = min(self.lowest, available)
        if available < self._floor:
            self._fault(f"only {available} nodes are available, {self._floor} must be")
        for node in nodes:
            name = node["metadata"]["name"]
            if name in self._cordons and not node["spec"].get("unschedulable"):
                self._fault(f"{name}: a person's cordon is gone")
        self._listen()
        self._look_at_zones(nodes)
        self._look_at_budgets()
        self._look_at_pods({n["metadata"]["name"]: n for n in nodes})

    def _look_at_zones(self, nodes: list[Json]) -> None:
        """No zone leaves Normal, as the node lifecycle controller counts."""
        zones = [n["metadata"]["labels"][ZONE] for n in nodes]
        down = Counter(
            node["metadata"]["labels"][ZONE]
            for node in nodes
            if not is_ready(node) and node["metadata"]["name"] not in self._excused
        )
        for zone, count in down.items():
            most = zones.count(zone)
            if count == most or (count > 2 and count / most >= _UNHEALTHY_SHARE):
                self._fault(f"zone {zone}: {count} of {most} nodes are not Ready")

    def _look_at_budgets(self) -> None:
        """No disruption budget of the shop is overdrawn."""
        path = "/apis/policy/v1/namespaces/shop/poddisruptionbudgets"
        for budget in self._fleet.api.get(path)["items"]:
            status = budget["status"]
            healthy, desired = status["currentHealthy"], status["desiredHealthy"]
            if healthy < desired:
                name = budget["metadata"]["name"]
                self._fault(f"budget {name}: {healthy} healthy, {desired} must be")

    def _look_at_writes(self) -> None:
        """What the API server has recorded: pods of others leave by the Eviction API alone, and a
        leader that was succeeded writes no more.
        """
        epochs: dict[tuple[str, str], int] = {}
        for entry in self._fleet.plane.audit()[self._known :]:
            ref = entry.get("objectRef") or {}
            if entry["user"]["username"] != self._fleet.account:
                continue
            deletes = entry["verb"].startswith("delete") and ref.get("resource") == "pods"
            if deletes and ref.get("namespace") != "nodelife":
                self._fault(f"pod {ref.get('name')} was deleted, not evicted")
            mark = mark_written(entry)
            if mark:
                key, epoch = (mark["run"], ref["name"]), int(mark.get("epoch", 0))
                if epoch < epochs.get(key, 0):
                    self._fault(f"{key[1]} is written in epoch {epoch} after {epochs[key]}")
                epochs[key] = max(epoch, epochs.get(key, 0))

    def _look_at_pods(self, nodes: dict[str, Json]) -> None:
        """No ordinary pod is bound between claim and release."""
        on: dict[str, set[str]] = {name: set() for name in nodes}
        for pod in self._fleet.api.get("/api/v1/namespaces/shop/pods")["items"]:
            owners = pod["metadata"].get("ownerReferences") or [{}]
            if owners[0].get("kind") != "DaemonSet" and pod["spec"].get("nodeName") in on:
                on[pod["spec"]["nodeName"]].add(pod["metadata"]["name"])
        for name, node in nodes.items():
            state = (node["metadata"].get("labels") or {}).get(STATE, "")
            if state in _KEPT_EMPTY:
                came = on[name] - self._before.setdefault(name, on[name])
                if came:
                    self._fault(f"{name}, {state}: {', '.join(came)} came")
            else:
                self._before.pop(name, None)

    def _fault(self, text: str) -> None:
        if text not in self.faults:
            self.faults.append(text)


def mark_written(entry: Json) -> Json:
    """The annotation on a node after a request in the audit log; empty for none."""
    if (entry.get("objectRef") or {}).get("resource") != "nodes":
        return {}
    meta = (entry.get("responseObject") or {}).get("metadata") or {}
    mark: Json = json.loads((meta.get("annotations") or {}).get(ANNOTATION, "{}"))
    return mark


def is_available(node: Json) -> bool:
    """True if a node can take an ordinary pod now."""
    taints = node["spec"].get("taints") or ()
    keep_off = [t for t in taints if t["effect"] != "PreferNoSchedule"]
    return is_ready(node) and not node["spec"].get("unschedulable") and not keep_off
