"""A soak of the enforcing daemon, on the real clock: churn, flapping, restores, clocks that jump.

    python -m tests.hostile.enforce_soak --seconds 3600 --seed 1

One daemon process enforces on a sandbox whose kubelets stop and come back, whose pods and nodes
come and go, whose `Date` jumps by up to an hour, and whose store is set back to a backup that is 40
seconds old while all watches stay open. A person looks every few seconds, and lets the daemon go on
where something needs their word. The server keeps an audit log on the true clock, which the
observer of `tests.enforce` judges; the daemon's journal is held to the rule that nothing follows
what was not applied. Where it is calm a node that is lost must be called so. The last line is one
JSON object with the counts.
"""

import argparse
import asyncio
import contextlib
import json
import random
import shutil
import sqlite3
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

from aiohttp import web
from aiohttp.typedefs import Handler

from kubectl_nodelife.sandbox.discovery import BY_KIND
from kubectl_nodelife.sandbox.store import StoredObject
from kubectl_nodelife.sandbox.tls import Sandbox
from tests.daemon.user import User, silence, user
from tests.enforce.audit import AuditLog, on_the_true_clock
from tests.enforce.observer import (
    AGENT,
    NO_EFFECT_ON_PODS,
    Rules,
    Span,
    broken_rules,
    count_of_ours,
)
from tests.hostile.sicknesses import restore_with_lower_versions
from tests.loopback import sandbox
from tests.objects import pod, toleration
from tests.real.journal_judge import followed_nothing

Json = dict[str, Any]

GRACE_S = 6
BACKUP_AGE_S = 40
UNKNOWN_FOR_S = 1.0
JUMPS_S = (-3600, -20, 3600, 45, -7)
MOST_CHURNED = 100
CALLED_LOST_WITHIN_S = 45.0
CONTROLLERS = "node-lifecycle,taint-eviction,pod-gc,daemonset"
FLAGS = {
    "node-monitor-grace-period": f"{GRACE_S}s",
    "node-monitor-period": "1s",
    "node-eviction-rate": "5",
}
ORDERS = (
    f"--enforce={CONTROLLERS}",
    f"--assume-stopped={CONTROLLERS}",
    "--begin=restart",
    "--caps=upstream",
    "--yes",
    *(f"--set={flag}={value}" for flag, value in FLAGS.items()),
)
CLUSTER = {
    "zones": 3,
    "nodesPerZone": 10,
    "podsPerNode": 4,
    "daemonSets": 1,
    "tolerationSeconds": 4,
}
KUBELET = {"leaseRenewInterval": "2s", "podStartDuration": "200ms", "podStopDuration": "500ms"}


class Audited:
    """Stands before the sandbox's server and notes each write in `log`, on the true clock."""

    def __init__(self) -> None:
        self.log: AuditLog | None = None

    @property
    def middleware(self) -> Any:
        """For the sandbox."""

        @web.middleware
        async def audited(request: web.Request, handler: Handler) -> web.StreamResponse:
            if request.method == "GET" or request.path.startswith("/apis/authorization"):
                return await handler(request)
            content = await request.read()
            assert self.log is not None
            self.log.note_changes()
            response = await handler(request)
            assert isinstance(response, web.Response)
            agent, body = request.headers.get("User-Agent", ""), response.body
            answer = json.loads(body) if isinstance(body, bytes) and body else {}
            self.log.note_request(
                request.method, request.path, agent, content, response.status, answer
            )
            return response

        return audited


class Cluster:
    """What happens to the cluster. `counts`: how often what happened."""

    def __init__(self, served: Sandbox, log: AuditLog, seed: int) -> None:
        self.served = served
        self.log = log
        self.dice = random.Random(seed)
        self.counts: Counter[str] = Counter()
        nodes = self._all("Node")
        self.names = sorted(entry.obj.name for entry in nodes.values())
        self.spare, self.short_lived = self.names[0], self.names[1]
        self._backups: list[tuple[float, dict[str, dict[Any, StoredObject]]]] = []
        self._churned: list[str] = []

    def _all(self, kind: str) -> dict[Any, StoredObject]:
        return self.served.cluster.api.served.collections[kind].entries

    def silence(self, name: str, how: str) -> None:
        """Stop or start a kubelet, if its node is there."""
        if ("", name) in self._all("Node"):
            silence(self.served, name, how)
            self.served.cluster.wake()

    def ready(self, name: str) -> str:
        """The node's condition, "" where it has none."""
        entry = self._all("Node").get(("", name))
        conditions = entry.document()["status"].get("conditions", []) if entry is not None else []
        return next((str(c["status"]) for c in conditions if c["type"] == "Ready"), "")

    async def flap(self) -> None:
        """Kubelets stop for about the grace period; some for long."""
        others = [name for name in self.names if name not in (self.spare, self.short_lived)]
        while True:
            names = self.dice.sample(others, self.dice.randint(1, 3))
            away_s = GRACE_S + self.dice.choice((-1.0, 0.5, 1.0, 2.0, 3.0, 20.0))
            for name in names:
                self.silence(name, "stop")
            await asyncio.sleep(away_s)
            for name in names:
                self.silence(name, "start")
            self.counts["flaps"] += len(names)
            await asyncio.sleep(self.dice.uniform(0, 4))

    async def churn(self) -> None:
        """Pods come and go; a node goes each minute and comes back; a set gets another image."""
        api, turn = self.served.cluster.api, 0
        while True:
            await asyncio.sleep(0.5)
            turn += 1
            name = f"churn-{turn}"
            api.write(BY_KIND["Pod"], _pod(name, self.dice.choice((None, 2, 5))))
            self._churned.append(name)
            if len(self._churned) > MOST_CHURNED:
                api.remove(BY_KIND["Pod"], ("default", self._churned.pop(0)))
            self.counts["pods"] += 1
            if turn % 120 == 60:
                self._node_goes()
            if turn % 90 == 0:
                self._new_image(turn)
            self.served.cluster.wake()

    def _node_goes(self) -> None:
        """It is deleted, and a machine of its name registers a moment later."""
        entry = self._all("Node").get(("", self.short_lived))
        if entry is None:
            return
        document = entry.document()
        self.served.cluster.api.remove(BY_KIND["Node"], ("", self.short_lived))
        for field in ("uid", "resourceVersion"):
            del document["metadata"][field]
        document["metadata"]["uid"] = f"node-{time.time_ns()}"
        asyncio.get_running_loop().call_later(
            3.0, self.served.cluster.api.write, BY_KIND["Node"], document
        )
        self.counts["nodes"] += 1

    def _new_image(self, turn: int) -> None:
        for entry in list(self._all("DaemonSet").values()):
            document = entry.document()
            document["spec"]["template"]["spec"]["containers"][0]["image"] = f"agent:{turn}"
            meta = document["metadata"]
            meta["generation"] = meta.get("generation", 1) + 1
            self.served.cluster.api.write(BY_KIND["DaemonSet"], document)
            self.counts["images"] += 1

    # What happens to the API server

    async def jump(self) -> None:
        """The API server's clock jumps, four times in two minutes."""
        faults: Any = self.served.server.faults
        for seconds in self.dice.sample(JUMPS_S, 3):
            faults.clock_skew_s = seconds
            self.counts["clock jumps"] += 1
            await asyncio.sleep(self.dice.uniform(3, 20))
        faults.clock_skew_s = 0
        self.counts["clock jumps"] += 1

    async def note(self) -> None:
        """What the cluster's own parts change is in the audit log within 20 ms."""
        while True:
            self.log.note_changes()
            await asyncio.sleep(0.02)

    async def back_up(self) -> None:
        """Keep what Nodes and Leases were."""
        while True:
            kept = {kind: dict(self._all(kind)) for kind in ("Node", "Lease")}
            self._backups = [*self._backups[-30:], (time.monotonic(), kept)]
            await asyncio.sleep(2)

    def restore(self) -> None:
        """etcd's data are those of a backup, behind the API server's back: Nodes and Leases as they
        were, all in lower versions, and watches that wait for versions which do not come. What
        arrives within a second is judged by what was before: until it gets an answer of the
        restored data, the daemon cannot know of the restore.
        """
        api, store = self.served.cluster.api, self.served.cluster.api.served
        self.log.note_changes()
        old = time.monotonic() - BACKUP_AGE_S
        _, kept = min(self._backups, key=lambda backup: abs(backup[0] - old))
        for kind in ("Node", "Lease"):
            for key, entry in kept[kind].items():
                now = store.get(kind, key)
                if now is not None and now.obj.uid == entry.obj.uid:
                    api.write(BY_KIND[kind], entry.document())
        restore_with_lower_versions(store)
        self.log.overlook()
        asyncio.get_running_loop().call_later(UNKNOWN_FOR_S, self.log.note_all, "Node")
        self.served.cluster.wake()
        self.counts["restores"] += 1


class Person:
    """Looks at the daemon, and lets it go on ten seconds after it asked for that."""

    def __init__(self, someone: User) -> None:
        self.user = someone
        self.reasons: Counter[str] = Counter()
        self.held: list[Span] = []
        self.memory: list[tuple[float, int]] = []
        self.pids: set[int] = set()
        self.restored_seen = asyncio.Event()

    async def look(self) -> None:
        """For ever."""
        began = time.monotonic()
        while True:
            health = await self.user.health()
            assert health["running"], health
            if "enforcement" in health:
                self.pids.add(health["pid"])
                self.memory.append((time.monotonic() - began, health["residentBytes"]))
                if reasons := health["enforcement"]["breakers"]:
                    await self._let_it_go_on(reasons)
            await asyncio.sleep(3)

    async def _let_it_go_on(self, reasons: list[str]) -> None:
        self.reasons.update(_kind_of(reason) for reason in reasons)
        restored = any("data were restored" in reason for reason in reasons)
        since = time.time()
        if restored:
            self.restored_seen.set()
        await asyncio.sleep(10)
        if restored:
            self.held.append(Span(since, time.time(), "the data were restored, and nobody resumed"))
        await self.user.run("daemon", "resume")

    def mebibytes(self) -> list[int]:
        """The daemon's memory after each ten minutes."""
        minutes = range(10, int(self.memory[-1][0] / 60) + 1, 10)
        return [
            min(self.memory, key=lambda look: abs(look[0] - minute * 60))[1] >> 20
            for minute in minutes
        ]


class Soak:
    """One run; `broken`: what does not hold."""

    def __init__(self, seconds: float, seed: int, keep: str = "") -> None:
        """`keep`: a folder for the audit log and what the daemon leaves; "" keeps nothing."""
        self.seconds, self.seed, self.keep = seconds, seed, keep
        self.broken: list[str] = []
        self.called_lost: list[float] = []

    async def run(self) -> Json:
        """The counts."""
        audited = Audited()
        async with (
            sandbox(
                generate=CLUSTER, kubelet=KUBELET, bookmark_s=5.0, between=audited.middleware
            ) as served,
            user(served.kubeconfig) as someone,
        ):
            store = served.cluster.api.served
            store.version += 1_000_000  # the cluster has had many changes
            log = audited.log = AuditLog(store, time.time_ns)
            log.note_changes()
            cluster, person = Cluster(served, log, self.seed), Person(someone)
            await someone.begin(*ORDERS)
            background = (cluster.note, cluster.flap, cluster.churn, cluster.back_up, person.look)
            async with going(*background) as tasks:
                await self._rounds(cluster, person, tasks)
            log.note_changes()
            await someone.run("daemon", "stop", "--all")
            return self._told(cluster, person, log, someone.home)

    async def _rounds(
        self, cluster: Cluster, person: Person, tasks: list[asyncio.Task[None]]
    ) -> None:
        """Until the time is over: a jump of the clock, a restore, and a node that is lost."""
        ends = time.monotonic() + self.seconds
        while True:
            await asyncio.sleep(min(60.0, self.seconds / 8))
            await cluster.jump()
            await self._restore(cluster, person)
            await self._lose_a_node(cluster)
            for task in tasks:
                if task.done():
                    task.result()
            if time.monotonic() > ends:
                return

    async def _restore(self, cluster: Cluster, person: Person) -> None:
        person.restored_seen.clear()
        cluster.restore()
        try:
            async with asyncio.timeout(CALLED_LOST_WITHIN_S):
                await person.restored_seen.wait()
        except TimeoutError:
            self.broken.append("it was not said in time that the data were restored")
        await asyncio.sleep(15)

    async def _lose_a_node(self, cluster: Cluster) -> None:
        """The spare node is lost, and must be called so."""
        cluster.silence(cluster.spare, "stop")
        began = time.monotonic()
        while cluster.ready(cluster.spare) != "Unknown":
            await asyncio.sleep(0.2)
            if time.monotonic() - began > CALLED_LOST_WITHIN_S:
                self.broken.append("a lost node was not called so in time")
                break
        else:
            self.called_lost.append(round(time.monotonic() - began, 1))
        cluster.silence(cluster.spare, "start")

    def _told(self, cluster: Cluster, person: Person, log: AuditLog, home: Path) -> Json:
        entries = on_the_true_clock(log.entries)
        if self.keep:
            shutil.copytree(home, self.keep, ignore=shutil.ignore_patterns("*.sock"))
            Path(self.keep, "audit.json").write_text("\n".join(map(json.dumps, entries)))
        rules = Rules(grace_s=GRACE_S, delay_s=1.0, quiet=tuple(person.held))
        self.broken += broken_rules(entries, rules)
        self.broken += followed_nothing(home)
        ours = Counter(
            (entry["verb"], entry["objectRef"]["resource"])
            for entry in entries
            if entry["userAgent"].startswith(AGENT)
        )
        if len(person.pids) != 1:
            self.broken.append(f"not one process: {person.pids}")
        return {
            "seconds": self.seconds,
            "seed": self.seed,
            "happened": dict(cluster.counts),
            "judged": sum(n for (_, what), n in ours.items() if what not in NO_EFFECT_ON_PODS),
            "applied": count_of_ours(entries),
            "outcomes": _outcomes(home),
            "writes": {" ".join(key): number for key, number in ours.items()},
            "breakers": dict(person.reasons),
            "calledLostAfterSeconds": self.called_lost,
            "MiBAfterEach10Minutes": person.mebibytes(),
            "MiBAtTheEnd": person.memory[-1][1] >> 20,
            "mostMiB": max(resident for _, resident in person.memory) >> 20,
            "violations": len(self.broken),
            "first": self.broken[:10],
        }


def _outcomes(home: Path) -> Json:
    """How many writes came to what, by the daemon's own journal."""
    outcomes: Counter[str] = Counter()
    for path in home.rglob("journal.db"):
        with contextlib.closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as journal:
            query = "SELECT outcome, count(*) FROM changes WHERE mode = 'enforce' AND patch != ''"
            outcomes.update(dict(journal.execute(f"{query} GROUP BY outcome")))
    return dict(outcomes)


def _kind_of(reason: str) -> str:
    """The reason of a breaker without its numbers and names."""
    return " ".join(word for word in reason.split() if word.isalpha())[:60]


def _pod(name: str, seconds: int | None) -> Json:
    """A pod of nobody, that tolerates a lost node for so long; None: not at all."""
    everything = [toleration(seconds=seconds)] if seconds else []
    uid = f"{name}-{time.time_ns()}"
    return pod(name, "", phase="Pending", uid=uid, tolerations=everything)


@contextlib.asynccontextmanager
async def going(*parts: Callable[[], Any]) -> AsyncIterator[list[asyncio.Task[None]]]:
    """These go on until the end."""
    tasks = [asyncio.create_task(part()) for part in parts]
    try:
        yield tasks
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def main() -> int:
    """Run it; 0 where everything held."""
    parser = argparse.ArgumentParser(prog="python -m tests.hostile.enforce_soak")
    parser.add_argument("--seconds", type=float, default=3600)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--keep", default="", help="a new folder for the audit log and the journal")
    given = parser.parse_args()
    told = asyncio.run(Soak(given.seconds, given.seed, given.keep).run())
    print(json.dumps(told))
    return 1 if told["violations"] else 0


if __name__ == "__main__":
    sys.exit(main())
