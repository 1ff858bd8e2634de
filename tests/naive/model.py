"""A second, naive model of node lifecycle and taint eviction: every pass looks at every node.

Written from the behaviour's description, sharing no code with the controllers: plain dicts, times
in ms, every lease renewal and every status post made one by one, every round of the 100 ms loop
run. Slow and obvious. It knows restarts in taint mode, of v1.16 and of 1.19 and later, for small
clusters of which no node comes or goes.
"""

import struct
from typing import Any, NamedTuple

NEVER = -1


class Kubelet(NamedTuple):
    """What happens to one node's kubelet: (ms, "stop" | "start" | "False" | "True")."""

    node: str
    at_ms: int
    what: str


class Pod(NamedTuple):
    """A pod: its node and how many seconds it tolerates either NoExecute taint (None: for ever)."""

    name: str
    node: str
    seconds: int | None


class Case(NamedTuple):
    """One small cluster and what happens to it. Times in ms, rates in nodes a second."""

    minor: int
    zones: dict[str, str]
    pods: list[Pod]
    happenings: list[Kubelet]
    period: int
    grace: int
    renew_every: int
    renew_phase: int
    report_every: int
    rate: float
    secondary_rate: float
    large: int
    threshold: float
    duration: int
    leases: bool = True


class Node:
    """One node: what the API shows, what its kubelet does, what the controller remembers."""

    def __init__(self, name: str, zone: str) -> None:
        self.name, self.zone = name, zone
        self.ready, self.heartbeat, self.changed = "True", NEVER, NEVER
        self.taints: set[str] = set()
        self.alive, self.sees = True, "True"
        self.lease, self.next_renewal, self.next_post = None, 0, 0
        self.saved: tuple[int, int] | None = None  # (heartbeat, changed) remembered
        self.probe = 0
        self.saved_lease: int | None = None


class Bucket:
    """A token bucket with a burst of one; rate 0 stands for the limiter that never gives."""

    def __init__(self, rate: float) -> None:
        self.rate, self.tokens, self.last = _f32(rate), 1.0, 0
        self.never = False

    def take(self, now: int) -> bool:
        if self.never:
            return False
        tokens = min(1.0, self.tokens + (now - self.last) / 1000 * self.rate)
        if tokens - 1 < 0 and int((1 - tokens) / self.rate * 1e9) > 0:
            return False
        self.tokens, self.last = tokens - 1, now
        return True


class Model:
    """The whole cluster. `run` returns what was done: (ms, what, object, more)."""

    def __init__(self, case: Case) -> None:
        self.case = case
        self.nodes = {name: Node(name, zone) for name, zone in sorted(case.zones.items())}
        for node in self.nodes.values():
            node.next_renewal = case.renew_phase
            node.next_post = case.renew_phase
        self.pods = {p.name: "True" for p in case.pods}  # name -> Ready; "gone" once deleted
        self.states = dict.fromkeys(sorted(set(case.zones.values())), "Initial")
        self.buckets = {zone: Bucket(case.rate) for zone in self.states}
        self.queues: dict[str, list[tuple[int, int, str]]] = {zone: [] for zone in self.states}
        self.remembered: dict[str, set[str]] = {zone: set() for zone in self.states}
        self.sequence = 0
        self.timers: dict[str, int] = {}
        self.listed: dict[str, frozenset[str]] = {}
        self.done: list[tuple[int, str, str, Any]] = []

    def run(self) -> list[tuple[int, str, str, Any]]:
        """Step through every instant at which anything could happen."""
        case = self.case
        passes = set(range(0, case.duration + 1, case.period + 1))
        loops = set(range(0, case.duration + 1, 100))
        happenings = sorted(case.happenings, key=lambda h: h.at_ms)
        now = 0
        while now <= case.duration:
            for h in happenings:
                if h.at_ms == now:
                    self.happen(h, now)
            for node in self.nodes.values():
                self.kubelet(node, now)
            if now in passes:
                self.monitor(now)
            if now in loops and now:
                self.taint_round(now)
            self.fire(now)
            later = [h.at_ms for h in happenings if h.at_ms > now]
            later += [t for n in self.nodes.values() if n.alive for t in _next(n) if t > now]
            later += [t for t in self.timers.values() if t > now]
            later.append((now // (case.period + 1) + 1) * (case.period + 1))
            later.append((now // 100 + 1) * 100)
            now = min(later)
        return self.done

    # kubelets

    def happen(self, h: Kubelet, now: int) -> None:
        """Something happens to a kubelet."""
        node = self.nodes[h.node]
        if h.what == "stop":
            node.alive = False
        elif h.what == "start":
            node.alive = True
            node.next_renewal = node.next_post = now
        elif node.sees != h.what:
            node.sees = h.what
            node.next_post = now

    def kubelet(self, node: Node, now: int) -> None:
        """Renew and post if it is time."""
        if not node.alive:
            return
        if node.next_renewal == now:
            node.lease = now
            node.next_renewal = now + self.case.renew_every
        if node.next_post == now:
            node.next_post = now + self.case.report_every
            node.heartbeat = now // 1000
            if node.ready != node.sees:
                self.set_ready(node, node.sees, now)

    def set_ready(self, node: Node, status: str, now: int) -> None:
        """Ready changes, and with it at once the NoSchedule taint that mirrors it."""
        node.ready, node.changed = status, now // 1000
        mirror = {"False": "not-ready:NoSchedule", "Unknown": "unreachable:NoSchedule"}.get(status)
        for taint in ("not-ready:NoSchedule", "unreachable:NoSchedule"):
            if taint == mirror and taint not in node.taints:
                self.taint(node, taint, now)
        for taint in ("not-ready:NoSchedule", "unreachable:NoSchedule"):
            if taint != mirror and taint in node.taints:
                self.untaint(node, taint, now)

    # the monitor

    def monitor(self, now: int) -> None:
        """One pass over all nodes, which it lists once:

        its own writes are not seen before the next.
        """
        self.listed = {name: frozenset(node.taints) for name, node in self.nodes.items()}
        for node in self.nodes.values():
            self.check(node, now)
        self.disruption(now)

    def check(self, node: Node, now: int) -> None:
        """One node's part of a pass."""
        before_lease = node.saved_lease
        if node.saved is None or node.saved[0] != node.heartbeat:
            node.probe, node.saved_lease = now, None
        node.saved = (node.heartbeat, node.changed)
        counts = self.case.leases and node.lease is not None
        if counts and (before_lease is None or before_lease < node.lease):
            node.saved_lease, node.probe = node.lease, now
        observed = node.ready
        if now > node.probe + self.case.grace and node.ready != "Unknown":
            self.note(now, "SetNodeCondition", node.name, "Unknown")
            self.set_ready(node, "Unknown", now)
            node.saved = (node.heartbeat, node.changed)
            node.saved_lease = node.lease
        deciding = node.ready if self.case.minor >= 34 else observed
        self.decide(node, deciding, now)
        if observed == "True" and node.ready != "True":
            for pod in self.case.pods:
                if pod.node == node.name and self.pods[pod.name] == "True":
                    self.pods[pod.name] = "False"
                    self.note(now, "MarkPodNotReady", pod.name, None)

    def decide(self, node: Node, status: str, now: int) -> None:
        """Queue, exchange or release."""
        if status == "True":
            self.release(node, now)
            return
        wanted, other = _wanted(status)
        listed = self.listed[node.name]
        if other in listed:
            self.taint(node, wanted, now)
            self.untaint(node, other, now)
            return
        if self.case.minor >= 19 and wanted not in listed:
            self.forget(node)
        if node.name not in self.remembered[node.zone]:
            self.remembered[node.zone].add(node.name)
            self.sequence += 1
            self.queues[node.zone].append((now, self.sequence, node.name))

    def release(self, node: Node, now: int) -> None:
        """No NoExecute taint, no place in the queue."""
        for taint in ("unreachable:NoExecute", "not-ready:NoExecute"):
            if taint in self.listed[node.name]:
                self.untaint(node, taint, now)
        self.forget(node)

    def forget(self, node: Node) -> None:
        """Out of the queue and of its memory."""
        self.remembered[node.zone].discard(node.name)
        queue = self.queues[node.zone]
        queue[:] = [entry for entry in queue if entry[2] != node.name]

    def disruption(self, now: int) -> None:
        """Zone states and rates."""
        new = {zone: self.state(zone) for zone in self.states}
        all_are = all(s == "FullDisruption" for s in new.values())
        all_were = all(s == "FullDisruption" for s in self.states.values())
        if all_are and all_were:
            return
        if all_are:
            for node in self.nodes.values():
                self.release(node, now)
            for zone in self.states:
                self.set_state(zone, "FullDisruption", 0.0, now)
            return
        if all_were:
            for node in self.nodes.values():
                node.probe = now
        for zone, state in new.items():
            if all_were or state != self.states[zone]:
                size = sum(n.zone == zone for n in self.nodes.values())
                rate = self.case.rate
                if state == "PartialDisruption":
                    rate = self.case.secondary_rate if size > self.case.large else 0.0
                self.set_state(zone, state, rate, now)

    def state(self, zone: str) -> str:
        """A zone's state from its nodes' conditions."""
        ready = [n.ready == "True" for n in self.nodes.values() if n.zone == zone]
        lost = len(ready) - sum(ready)
        if lost == len(ready):
            return "FullDisruption"
        if lost > 2 and _f32(lost / len(ready)) >= _f32(self.case.threshold):
            return "PartialDisruption"
        return "Normal"

    def set_state(self, zone: str, state: str, rate: float, now: int) -> None:
        """Exchange the limiter; an old one without a token leaves the new one drained."""
        self.note(now, "SetZoneState", zone, state)
        self.states[zone] = state
        old = self.buckets[zone]
        reported = 1.0 if old.never else old.rate
        if reported == _f32(rate):
            return
        new = Bucket(rate)
        new.never = rate <= 0
        new.last = now
        if not new.never and not old.take(now):
            new.tokens = 0.0
        self.buckets[zone] = new

    def taint_round(self, now: int) -> None:
        """One round of the 100 ms loop."""
        for zone, queue in self.queues.items():
            while queue:
                queue.sort()
                if not self.buckets[zone].take(now):
                    break
                node = self.nodes[queue.pop(0)[2]]
                if node.ready in ("False", "Unknown"):
                    wanted, other = _wanted(node.ready)
                    self.taint(node, wanted, now)
                    if other in node.taints:
                        self.untaint(node, other, now)

    # taints and what they do to pods

    def taint(self, node: Node, taint: str, now: int) -> None:
        """Add a taint."""
        self.note(now, "AddTaint", node.name, taint)
        node.taints.add(taint)
        self.evict(node, now)

    def untaint(self, node: Node, taint: str, now: int) -> None:
        """Take a taint off."""
        self.note(now, "RemoveTaint", node.name, taint)
        node.taints.discard(taint)
        self.evict(node, now)

    def evict(self, node: Node, now: int) -> None:
        """The pods' timers after a change of taints:

        set once, dropped when no NoExecute taint is left.
        """
        tainted = any(t.endswith("NoExecute") for t in node.taints)
        for pod in self.case.pods:
            if pod.node != node.name or self.pods[pod.name] == "gone":
                continue
            if not tainted:
                self.timers.pop(pod.name, None)
            elif pod.seconds is not None and pod.name not in self.timers:
                self.timers[pod.name] = now + pod.seconds * 1000

    def fire(self, now: int) -> None:
        """Delete the pods that are due."""
        for name, due in sorted(self.timers.items()):
            if due <= now:
                del self.timers[name]
                self.pods[name] = "gone"
                self.note(now, "DeletePod", name, None)

    def note(self, now: int, what: str, name: str, more: Any) -> None:
        """Keep what was done."""
        self.done.append((now, what, name, more))


def _wanted(status: str) -> tuple[str, str]:
    pair = ("not-ready:NoExecute", "unreachable:NoExecute")
    return pair if status == "False" else (pair[1], pair[0])


def _next(node: Node) -> tuple[int, int]:
    return node.next_renewal, node.next_post


def _f32(value: float) -> float:
    return float(struct.unpack("f", struct.pack("f", value))[0])
