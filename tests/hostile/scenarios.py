"""The rows of the battery: who lies about what, and when.

A row names a target (which requests), a lie (what becomes of them) and a time. `SCENARIOS` is what
CI plays; whoever finds another way to be believed adds a row.
"""

import asyncio
import json
from collections.abc import Callable
from functools import partial
from typing import Any

from kubectl_nodelife.daemon.gate import KINDS
from kubectl_nodelife.engine.calls.call import STRATEGIC_MERGE
from kubectl_nodelife.kube.times import SECOND_NS, format_micro_time, format_time
from tests.enforce.observer import LEASE
from tests.enforce.simulated_api import Fault, Sent
from tests.enforce.simulated_daemon import Process
from tests.enforce.simulation import story
from tests.enforce.virtual_time import EPOCH_NS
from tests.hostile.battery import Scenario, Stand
from tests.hostile.sicknesses import restore_with_lower_versions

Lie = Callable[[Sent], Fault]
Target = Callable[[Sent], bool]

NODES = 6
LOGIN = b"<html><body>Please log in</body></html>"


def _path(sent: Sent) -> str:
    return sent.url.partition("?")[0]


TARGETS: dict[str, Target] = {
    "lease-put": lambda s: s.method == "PUT" and LEASE in s.url,
    "lease-get": lambda s: s.method == "GET" and LEASE in s.url,
    "lease-post": lambda s: s.method == "POST" and _path(s).endswith("/leases"),
    "node-status": lambda s: s.method == "PATCH" and _path(s).split("/")[-3] == "nodes",
    "node-taints": lambda s: s.method == "PATCH" and _path(s).split("/")[-2] == "nodes",
    "node-get": lambda s: s.method == "GET" and _path(s).split("/")[-2] == "nodes",
    "kubelet-lease-get": lambda s: s.method == "GET" and "kube-node-lease" in s.url,
    "pod-status": lambda s: s.method == "PATCH" and "/pods/" in s.url,
    "pod-get": lambda s: s.method == "GET" and "/pods/" in s.url,
    "pod-delete": lambda s: s.method == "DELETE" and "/pods/" in s.url,
    "pod-create": lambda s: s.method == "POST" and _path(s).endswith("/pods"),
    "daemonset-status": lambda s: s.method == "PATCH" and "/daemonsets/" in s.url,
    "revision-create": lambda s: s.method == "POST" and "controllerrevisions" in s.url,
    "any-write": lambda s: s.method != "GET" and not _path(s).endswith("/events"),
    "anything": lambda s: True,
}


def instead(body: bytes, code: int = 200) -> Lie:
    """The request is swallowed, and answered by another client."""
    return lambda sent: Fault(reaches=False, code=code, body=body)


def after(body: bytes, code: int = 200) -> Lie:
    """The request is carried out, and its answer replaced."""
    return lambda sent: Fault(code=code, body=body)


def echo(sent: Sent) -> Fault:
    """The request is swallowed, and its own body comes back."""
    return Fault(reaches=False, code=200, body=sent.content or b"")


def changed(**members: Any) -> Lie:
    """The request is carried out, and the answer's metadata are another object's."""
    return lambda sent: Fault(rewrite=lambda body: _with(body, "metadata", members))


def spec(**members: Any) -> Lie:
    """The request is carried out, and the answer's spec says something else."""
    return lambda sent: Fault(rewrite=lambda body: _with(body, "spec", members))


def _with(body: bytes, part: str, members: dict[str, Any]) -> bytes:
    document = json.loads(body)
    if isinstance(document.get(part), dict):
        document[part] |= members
    return json.dumps(document).encode()


LIES: dict[str, Lie] = {
    "login-page": instead(LOGIN),
    "login-page-after-it-was-done": after(LOGIN),
    "nothing": instead(b""),
    "a-list": instead(b"[]"),
    "success": instead(b'{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Success"}'),
    "half-a-json": instead(b'{"kind":"Node","metadata":{"na'),
    "another-kind": instead(b'{"kind":"Secret","apiVersion":"v1","metadata":{"name":"x"}}'),
    "its-own-body": echo,
    "another-name": changed(name="another"),
    "another-uid": changed(uid="another"),
    "another-holder": spec(holderIdentity="thief"),
    "another-time": spec(renewTime="2020-01-01T00:00:00.000000Z"),
    "no-number": spec(leaseTransitions="x"),
    "deep-number": spec(leaseDurationSeconds=1 << 70),
}


def lying(target: str, lie: str, begin_s: float = 12, end_s: float = 30, most: int = 0) -> Scenario:
    """That lie about that target, for a while, `most` times at most where that is given."""

    def lies(stand: Stand, sent: Sent) -> Fault | None:
        if not begin_s <= stand.at_s < end_s or not TARGETS[target](sent):
            return None
        return None if most and stand.lied >= most else LIES[lie](sent)

    words = f"-{most}-times" if most else "-from-the-beginning" if not begin_s else ""
    name = f"{target}-answered-by-{lie}{words}"
    return Scenario(name, lies, begins_late=not begin_s)


def stolen_behind(lie: str) -> Scenario:
    """Somebody takes the Lease, and whoever is on the way says that our renewals succeed."""
    hidden = lying("lease-put", lie, 12, 34)
    return Scenario(f"stolen-behind-{lie}", hidden.lies, ((12, lambda stand: stand.steal(22)),))


def _short(stand: Stand, kind: str, seconds: float) -> None:
    """That watch stays open, and says nothing for so long."""
    stand.processes[0].watches.hang(kind, round(seconds * SECOND_NS))


def _returning(number: int) -> bytes:
    """Four nodes are lost, and come back when the pods on them are about to be evicted."""
    document = json.loads(story(number))
    spec = document["spec"]
    spec["generate"]["tolerationSeconds"] = 4
    at = {name: 20.0 + 0.35 * i for i, name in enumerate(("a1", "a2", "b1", "b2"))}
    spec["events"] = [
        {"at": f"{round(second * 1000)}ms", "kubelet": {"nodes": [name], "heartbeats": word}}
        for name, back in at.items()
        for word, second in (("stop", 10), ("start", back + number * 0.21))
    ]
    spec["events"].sort(key=lambda event: int(event["at"][:-2]))
    return json.dumps(document).encode()


def late(late_s: float) -> Scenario:
    """A slow server: our own removal of a taint is done, and neither answer nor watch says so."""

    def lies(stand: Stand, sent: Sent) -> Fault | None:
        taken_off = TARGETS["node-taints"](sent) and b"NoExecute" not in (sent.content or b"")
        if not taken_off or not 19 <= stand.at_s < 24:
            return None
        _short(stand, "Node", late_s)
        return Fault(late_ns=round(late_s * SECOND_NS))

    name = f"a-removed-taint-is-told-{late_s:g}s-late"
    return Scenario(name, lies, story=_returning, ends_alike=False)


def _calm(number: int) -> bytes:
    """Nothing happens: every kubelet lives."""
    document = json.loads(story(number))
    document["spec"]["events"] = []
    return json.dumps(document).encode()


def _answer_for_nodes(stand: Stand) -> None:
    """Kubelets that find their nodes called lost say within a second that they are Ready."""
    world, server = stand.world, stand.server
    now = format_time(world.now_ns)
    for (_, name), entry in server.store.collections["Node"].entries.items():
        conditions = entry.document()["status"]["conditions"]
        if any(c["type"] == "Ready" and c["status"] == "Unknown" for c in conditions):
            ready = {"type": "Ready", "status": "True", "reason": "KubeletReady"}
            ready |= {"lastHeartbeatTime": now, "lastTransitionTime": now}
            body = json.dumps({"status": {"conditions": [ready]}}).encode()
            headers = {"User-Agent": "kubelet", "Content-Type": STRATEGIC_MERGE}
            server.answer(Sent("PATCH", f"/api/v1/nodes/{name}/status", body, headers))
    world.at(world.now_ns + SECOND_NS, lambda: _answer_for_nodes(stand))


def stale_reads(begin_s: float = 5, end_s: float = 46) -> Scenario:
    """Leases are served by a replica that is behind: the watch is deaf, and each read is old.

    Each kubelet contradicts us right after its node was called lost. Once is chance; twice on three
    nodes, and nothing harmful is written any more, until Leases have been seen to move.
    """

    def lies(stand: Stand, sent: Sent) -> Fault | None:
        if not TARGETS["kubelet-lease-get"](sent) or not begin_s <= stand.at_s < end_s:
            return None
        return Fault(rewrite=lambda body: _older(body, begin_s))

    return Scenario(
        f"leases-read-from-a-stale-replica-until-{end_s:g}s",
        lies,
        (
            (begin_s, lambda stand: stand.processes[0].watches.fall_behind("Lease")),
            (begin_s, _answer_for_nodes),
            (end_s, lambda stand: stand.processes[0].watches.go_on("Lease")),
        ),
        story=_calm,
        allows=("called lost", 2 * NODES),
        resumed_from_s=end_s + 10,
    )


def _older(body: bytes, begin_s: float) -> bytes:
    """The Lease, or each of a list, as it was when the replica fell behind."""
    found = json.loads(body)
    for lease in found.get("items", [found]):
        if "spec" in lease:
            lease["spec"]["renewTime"] = format_micro_time(EPOCH_NS + round(begin_s * SECOND_NS))
    return json.dumps(found).encode()


def _ahead(seconds: float) -> Callable[[Stand], None]:
    """Somebody sets the machine's wall clock."""

    def happens(stand: Stand) -> None:
        stand.world.wall_ahead_ns = round(seconds * SECOND_NS)

    return happens


def _jump(seconds: float) -> Callable[[Stand], None]:
    """The clocks that nobody sets jump, the one that counts suspend and the event loop's."""

    def happens(stand: Stand) -> None:
        stand.world.steady_ahead_ns += round(seconds * SECOND_NS)

    return happens


def _sleep(seconds: float) -> Callable[[Stand], None]:
    """The lid is closed."""

    def happens(stand: Stand) -> None:
        duration_ns = round(seconds * SECOND_NS)
        sleep = partial(stand.world.stand_still, duration_ns, suspended=True)
        asyncio.get_event_loop().call_soon(sleep)

    return happens


def _freeze(stand: Stand) -> None:
    """The machine is halted with its clocks; another takes the Lease meanwhile."""
    stand.steal(10)
    asyncio.get_event_loop().call_soon(lambda: stand.world.freeze(20 * SECOND_NS))


CLOCKS = (
    Scenario("the-wall-clock-jumps-an-hour-ahead", happens=((12, _ahead(3600)),)),
    Scenario("the-wall-clock-jumps-a-year-back", happens=((12, _ahead(-31_536_000)),)),
    Scenario(
        "the-wall-clock-jumps-to-and-fro",
        happens=tuple((8 + i, _ahead((-1) ** i * 40.0 * i)) for i in range(12)),
    ),
    *(
        Scenario(f"the-steady-clock-jumps-ahead-at-{at_s}s", happens=((at_s, _jump(600)),))
        for at_s in (9, 12, 15, 18, 21)
    ),
    Scenario("the-steady-clock-jumps-ten-seconds-ahead", happens=((15, _jump(10)),)),
    Scenario("the-steady-clock-jumps-back", happens=((15, _jump(-12)),)),
    Scenario("the-machine-sleeps-for-half-a-minute", happens=((12, _sleep(30)),), ends_alike=False),
    *(
        Scenario(f"the-machine-and-its-clocks-stand-still-at-{at_s}s", happens=((at_s, _freeze),))
        for at_s in (12, 15, 18)
    ),
)


def _end_the_keeper(stand: Stand) -> None:
    """A bug of ours: the keeper of the Lease ends. A person's `resume`, 28 s later, begins it."""
    keeper = stand.processes[0].enforcement.keeper
    attempt = keeper.attempt

    async def fail() -> bool:
        keeper.attempt = attempt  # type: ignore[method-assign]
        raise KeyError

    keeper.attempt = fail  # type: ignore[method-assign]


def _leader(stand: Stand) -> Process:
    return next(process for process in stand.processes if stand.leads(process))


def cannot_work(name: str, trouble: Callable[[Process], None]) -> Scenario:
    """The leader can do nothing any more, and its Lease could go on to be renewed: the standby must
    lead before a Lease's duration is over, and goes on with the work.
    """
    left: list[Process] = []

    def begin(stand: Stand) -> None:
        left[:] = [_leader(stand)]
        trouble(left[0])

    def judge(stand: Stand) -> None:
        if stand.leads(left[0]) or not any(map(stand.leads, stand.processes)):
            stand.broken.append("15 s after the leader could not work any more no standby leads")

    events = ((10.0, begin), (25.0, judge))
    return Scenario(f"the-leader-{name}", happens=events, standby=True)


def _full_disk(process: Process) -> None:
    process.intents.fails = "database or disk is full"


def _no_descriptors(process: Process) -> None:
    """New connections fail, while the Lease is renewed over one that is open."""
    process.enforcement.health.has_descriptors = lambda: False


def _hangs(process: Process) -> None:
    """A bug of ours: the decision task waits for what never comes."""
    task = process.enforcement.decision_task()
    assert task is not None

    async def forever(due_ns: int | None) -> list[Any]:
        await asyncio.Event().wait()
        return []

    task.gather = forever  # type: ignore[method-assign]


def _grow_old(stand: Stand) -> None:
    """The cluster has had many changes."""
    stand.server.store.version += 1_000_000


def _restore(stand: Stand) -> None:
    """etcd's data are restored from a backup that was made right before, behind the API server's
    back: all is there, in lower versions, and watches wait for versions that do not come.
    """
    server = stand.server
    server.live()
    restore_with_lower_versions(server.store)
    server.log.overlook()


def restored(at_s: float, *, lists_are_old: bool) -> Scenario:
    """A node is lost while all watches are silent for ever. It must be said within 15 s, and not
    only where a list shows it: those of the API server's cache are of the world before. A person
    restarts the API server, and lets the daemon go on.
    """

    def begin(stand: Stand) -> None:
        _restore(stand)
        for kind in KINDS if lists_are_old else ():
            stand.processes[0].watches.fall_behind(kind)

    def judge(stand: Stand) -> None:
        breakers = stand.processes[0].enforcement.guard.breakers.values()
        if not any("data were restored" in breaker.because for breaker in breakers):
            stand.broken.append("after 15 s it is not said that the data were restored")

    def restart(stand: Stand) -> None:
        watches = stand.processes[0].watches
        for kind in KINDS:
            watches.go_on(kind)
            watches.break_off(kind, SECOND_NS, relist=True)

    lists = "-and-lists" if lists_are_old else ""
    return Scenario(
        f"etcd-is-restored-behind-open-watches{lists}-at-{at_s}s",
        happens=((1, _grow_old), (at_s, begin), (at_s + 15, judge), (at_s + 20, restart)),
    )


SCENARIOS: tuple[Scenario, ...] = (
    *(restored(at_s, lists_are_old=old) for at_s in (9, 12, 18) for old in (False, True)),
    cannot_work("has-a-full-disk", _full_disk),
    cannot_work("has-no-descriptors", _no_descriptors),
    cannot_work("makes-no-turn", _hangs),
    *(stolen_behind(lie) for lie in ("login-page", "its-own-body", "success", "another-holder")),
    lying("lease-put", "another-time"),
    lying("lease-put", "another-uid"),
    lying("lease-get", "no-number", most=3),
    lying("lease-get", "deep-number", most=3),
    lying("lease-put", "no-number"),
    lying("lease-post", "login-page", 0, 5),
    lying("lease-post", "its-own-body", 0, 5),
    lying("node-status", "login-page"),
    lying("node-status", "login-page-after-it-was-done"),
    lying("node-status", "success"),
    lying("node-status", "another-name"),
    lying("node-taints", "login-page"),
    lying("node-taints", "login-page-after-it-was-done"),
    lying("node-taints", "another-uid"),
    lying("node-get", "another-name"),
    lying("node-get", "login-page"),
    lying("kubelet-lease-get", "login-page"),
    lying("kubelet-lease-get", "another-name"),
    lying("pod-status", "login-page"),
    lying("pod-status", "another-uid"),
    lying("pod-status", "its-own-body"),
    lying("pod-get", "another-kind", most=3),
    lying("pod-delete", "login-page", most=3),
    lying("pod-delete", "success", most=3),
    lying("pod-delete", "another-name"),
    lying("pod-delete", "login-page-after-it-was-done"),
    lying("pod-create", "login-page"),
    lying("pod-create", "login-page-after-it-was-done"),
    lying("pod-create", "its-own-body"),
    lying("pod-create", "its-own-body", 0, 30),
    lying("daemonset-status", "login-page"),
    lying("daemonset-status", "half-a-json"),
    lying("revision-create", "login-page"),
    lying("any-write", "a-list", 12, 16),
    lying("any-write", "nothing", 12, 16),
    *(late(late_s) for late_s in (1, 2)),
    *(stale_reads(end_s=end_s) for end_s in (46, 70)),
    *CLOCKS,
    Scenario("the-keeper-of-the-lease-ends", happens=((12, _end_the_keeper),)),
    lying("anything", "login-page", 12, 20),
    lying("anything", "another-kind", 12, 20),
)
