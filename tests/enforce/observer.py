"""Judges an enforcing daemon from outside: from an API server's audit log alone.

It knows nothing of the daemon's code. It follows every object through the answers of all writers,
and says of each write of ours which rule it broke: one without a held Lease, a delete without the
uid of what it deletes, an eviction that no taint asks for, a node called lost that was heard, more
than a cap allows, anything in a time in which nothing may be written.

An entry is a dict as the audit log has it, at level RequestResponse (node Leases: Metadata).
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

Json = dict[str, Any]

AGENT = "kubectl-nodelife/"
LEASE = "kubectl-nodelife-enforce"
NODE_LEASES = "kube-node-lease"
RENEW_DEADLINE_S = 10.0
_SLACK_S = 0.5
_MINUTE_S = 60.0

NO_EFFECT_ON_PODS = frozenset({"leases", "events", "selfsubjectaccessreviews"})
"""Resources whose writes need no Lease: they change nothing that anybody decides on."""


@dataclass(frozen=True)
class Span:
    """A time, in seconds since the epoch, in which we may write nothing, or do no harm."""

    begin: float
    end: float
    why: str
    harm_only: bool = False


@dataclass(frozen=True)
class Rules:
    """What an observer holds a daemon to. Caps are for a minute; None: not limited."""

    grace_s: float
    needs_lease: bool = True
    delay_s: float = 0.0
    noexecute_taints: int | None = None
    deletions: int | None = None
    quiet: tuple[Span, ...] = ()
    finished_pods_may_go: bool = True


@dataclass
class _Seen:
    """What the observer has learned so far."""

    objects: dict[tuple[str, str, str], Json] = field(default_factory=dict)
    renewed: dict[str, float] = field(default_factory=dict)
    led_until: float = float("-inf")
    tainted: list[float] = field(default_factory=list)
    deleted: list[float] = field(default_factory=list)
    taint_since: dict[str, dict[str, float]] = field(default_factory=dict)
    """Node -> key of a NoExecute taint -> its first timeAdded since it is there. One that is dated
    anew, as by a second try after a lost answer, lengthens no timer (`processPodOnNode`).
    """


def broken_rules(audit: Iterable[Json], rules: Rules) -> list[str]:
    """One sentence for each rule that a write of ours broke, in the order of the writes."""
    seen = _Seen()
    found: list[str] = []
    for entry in sorted(audit, key=lambda e: str(e["requestReceivedTimestamp"])):
        if "resource" not in (entry.get("objectRef") or {}):
            continue
        write = _Write(entry)
        if write.is_ours and write.resource not in NO_EFFECT_ON_PODS:
            text = f"{write.at:.3f} {write.agent_name} {write.verb} {write.where}"
            found += [f"{text}: {why}" for why in _judge(write, seen, rules)]
        _learn(write, seen)
    return found


def count_of_ours(audit: Iterable[Json]) -> int:
    """How many writes of ours were accepted; an observer that saw none has judged nothing."""
    made = (_Write(e) for e in audit if "resource" in (e.get("objectRef") or {}))
    return sum(w.is_ours and w.accepted and w.resource not in NO_EFFECT_ON_PODS for w in made)


class _Write:
    """One entry of the audit log."""

    def __init__(self, entry: Mapping[str, Any]) -> None:
        ref = entry["objectRef"]
        self.at = datetime.fromisoformat(entry["requestReceivedTimestamp"]).timestamp()
        self.agent = str(entry.get("userAgent", ""))
        self.verb = str(entry["verb"])
        self.resource = str(ref["resource"])
        self.subresource = str(ref.get("subresource", ""))
        self.code = int((entry.get("responseStatus") or {}).get("code", 0))
        self.sent: Json = entry.get("requestObject") or {}
        self.answer: Json = entry.get("responseObject") or {}
        named = self.answer.get("metadata") or {}
        self.namespace = str(ref.get("namespace", ""))
        self.name = str(ref.get("name") or named.get("name") or "")

    @property
    def is_ours(self) -> bool:
        return self.agent.startswith(AGENT)

    @property
    def agent_name(self) -> str:
        return self.agent.rpartition("/")[2]

    @property
    def accepted(self) -> bool:
        return 200 <= self.code < 300

    @property
    def key(self) -> tuple[str, str, str]:
        return (self.resource, self.namespace, self.name)

    @property
    def where(self) -> str:
        below = f"/{self.subresource}" if self.subresource else ""
        return f"{self.resource}{below} {self.namespace}/{self.name}".replace(" /", " ")


def _judge(write: _Write, seen: _Seen, rules: Rules) -> Iterator[str]:
    if rules.needs_lease and write.at > seen.led_until + _SLACK_S + rules.delay_s:
        yield "no Lease of ours was renewed in time"
    before = seen.objects.get(write.key)
    harm = not write.accepted or _is_harm(write, before)
    for span in rules.quiet:
        if span.begin <= write.at <= span.end and (harm or not span.harm_only):
            yield f"written {'harm ' if span.harm_only else ''}while {span.why}"
    if not write.accepted:
        return
    if write.verb == "delete":
        yield from _judge_delete(write, before, seen, rules)
    elif write.resource == "nodes":
        yield from _judge_node(write, before, seen, rules)


def _judge_delete(write: _Write, before: Json | None, seen: _Seen, rules: Rules) -> Iterator[str]:
    uid = (write.sent.get("preconditions") or {}).get("uid")
    if not uid:
        yield "a delete without the uid of what is deleted"
    elif before is not None and before["metadata"]["uid"] != uid:
        yield "a delete with the uid of another object"
    if write.resource != "pods" or before is None:
        return
    if not _may_go(write, before, seen, rules):
        yield "a pod deleted that nothing asks to go"
    yield from _within(seen.deleted, write.at, rules.deletions, "pods deleted")


def _judge_node(write: _Write, before: Json | None, seen: _Seen, rules: Rules) -> Iterator[str]:
    sent_version = (write.sent.get("metadata") or {}).get("resourceVersion")
    hangs_on_version = write.subresource == "status" or "taints" in (write.sent.get("spec") or {})
    if hangs_on_version and not sent_version:
        yield "a node written without the version that was decided on"
    if _calls_lost(write, before):
        renewed = seen.renewed.get(write.name)
        if renewed is not None and write.at - renewed < rules.grace_s - _SLACK_S:
            yield f"called lost {write.at - renewed:.1f}s after its kubelet was heard"
    if _adds_noexecute(write, before):
        yield from _within(seen.tainted, write.at, rules.noexecute_taints, "nodes tainted")


def _within(times: list[float], at: float, cap: int | None, what: str) -> Iterator[str]:
    times.append(at)
    recent = sum(at - t < _MINUTE_S for t in times)
    if cap is not None and recent > cap:
        yield f"{recent} {what} within a minute, {cap} are allowed"


def _is_harm(write: _Write, before: Json | None) -> bool:
    """What cold holds back: lost nodes, NoExecute taints, pods marked or deleted."""
    if write.resource == "nodes":
        return _calls_lost(write, before) or _adds_noexecute(write, before)
    if write.resource != "pods":
        return False
    if write.verb == "delete":
        phase = ((before or {}).get("status") or {}).get("phase")
        return phase not in ("Failed", "Succeeded") and "daemonset" not in write.agent_name
    return write.subresource == "status"


def _calls_lost(write: _Write, before: Json | None) -> bool:
    return _ready(write.answer) == "Unknown" and _ready(before or {}) != "Unknown"


def _adds_noexecute(write: _Write, before: Json | None) -> bool:
    return bool(_noexecute(write.answer) - _noexecute(before or {}))


def _may_go(write: _Write, pod: Json, seen: _Seen, rules: Rules) -> bool:
    finished = (pod.get("status") or {}).get("phase") in ("Failed", "Succeeded")
    owners = pod["metadata"].get("ownerReferences") or []
    of_set = any(o["kind"] == "DaemonSet" and o.get("controller") for o in owners)
    node = seen.objects.get(("nodes", "", (pod.get("spec") or {}).get("nodeName", "")))
    if write.agent_name.startswith("daemon"):
        return of_set
    if write.agent_name.startswith("pod-g"):
        unscheduled = not (pod.get("spec") or {}).get("nodeName")
        terminating = bool(pod["metadata"].get("deletionTimestamp"))
        return (
            node is None
            or (finished and rules.finished_pods_may_go)
            or (terminating and (unscheduled or _is_out_of_service(node)))
        )
    since = seen.taint_since.get((pod.get("spec") or {}).get("nodeName", ""), {})
    return node is not None and _asked_to_go(pod, node, since, write.at)


def _asked_to_go(pod: Json, node: Json, since: Mapping[str, float], at: float) -> bool:
    """True if a NoExecute taint of the node is not tolerated, or no longer."""
    tolerations = (pod.get("spec") or {}).get("tolerations") or []
    for taint in (node.get("spec") or {}).get("taints") or []:
        if taint["effect"] != "NoExecute":
            continue
        fitting = [t for t in tolerations if _tolerates(t, taint)]
        if not fitting:
            return True
        seconds = [
            t["tolerationSeconds"] for t in fitting if t.get("tolerationSeconds") is not None
        ]
        added = since.get(taint["key"])
        if seconds and (added is None or at >= added + max(0, min(seconds)) - _SLACK_S):
            return True
    return False


def _tolerates(toleration: Json, taint: Json) -> bool:
    if toleration.get("effect") and toleration["effect"] != taint["effect"]:
        return False
    key, operator = toleration.get("key", ""), toleration.get("operator") or "Equal"
    if operator == "Exists":
        return not key or key == taint["key"]
    return key == taint["key"] and toleration.get("value", "") == taint.get("value", "")


def _is_out_of_service(node: Json) -> bool:
    taints = (node.get("spec") or {}).get("taints") or []
    return any(t["key"] == "node.kubernetes.io/out-of-service" for t in taints)


def _learn(write: _Write, seen: _Seen) -> None:
    if not write.accepted:
        return
    if write.resource == "leases":
        if write.namespace == NODE_LEASES:
            seen.renewed[write.name] = write.at
        elif write.name == LEASE:
            held = write.is_ours and (write.answer.get("spec") or {}).get("holderIdentity")
            seen.led_until = write.at + RENEW_DEADLINE_S if held else write.at
    elif write.verb == "delete" and _is_over(write):
        seen.objects.pop(write.key, None)
        if write.resource == "nodes":
            seen.taint_since.pop(write.name, None)
    elif (write.answer.get("metadata") or {}).get("uid"):
        seen.objects[write.key] = write.answer
        if write.resource == "nodes":
            _learn_taints(write, seen)


def _learn_taints(write: _Write, seen: _Seen) -> None:
    before = seen.taint_since.get(write.name, {})
    dated = {
        t["key"]: _instant(t["timeAdded"])
        for t in (write.answer.get("spec") or {}).get("taints") or []
        if t["effect"] == "NoExecute" and t.get("timeAdded")
    }
    seen.taint_since[write.name] = {k: min(at, before.get(k, at)) for k, at in dated.items()}


def _is_over(write: _Write) -> bool:
    """True if a delete was the end of the object, not the beginning of its grace."""
    meta = write.answer.get("metadata") or {}
    if not meta.get("uid"):
        return True
    return not meta.get("finalizers") and not meta.get("deletionGracePeriodSeconds")


def _ready(node: Json) -> str:
    conditions = (node.get("status") or {}).get("conditions") or []
    return next((str(c["status"]) for c in conditions if c["type"] == "Ready"), "")


def _noexecute(node: Json) -> set[str]:
    taints = (node.get("spec") or {}).get("taints") or []
    return {t["key"] for t in taints if t["effect"] == "NoExecute"}


def _instant(text: str) -> float:
    return datetime.fromisoformat(text).timestamp()
