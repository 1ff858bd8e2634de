"""A question to the daemon is answered from the news that it has by then: as by a look that begins
with these objects, whatever the cache has kept up since, byte for byte.
"""

import random
from collections import deque
from itertools import islice

import pytest
from msgspec.structs import replace

from kubectl_nodelife.commands.answering import as_sent, drain_plan, what_if
from kubectl_nodelife.commands.drain import DrainFlags
from kubectl_nodelife.controllers import CONTROLLERS, make_controllers
from kubectl_nodelife.daemon.cluster_view import ShownCache, keep_summary
from kubectl_nodelife.daemon.controller_host import ClusterHost
from kubectl_nodelife.engine.cache import Cache
from kubectl_nodelife.engine.engine import Engine
from kubectl_nodelife.engine.events import Gone, Put
from kubectl_nodelife.engine.overlay import Overlay
from kubectl_nodelife.engine.settings import make_settings
from kubectl_nodelife.kube.kinds import kind_of
from kubectl_nodelife.kube.load import decode
from kubectl_nodelife.kube.meta import KubeObject, MicroTime, Time
from kubectl_nodelife.kube.node import Lease, Taint
from kubectl_nodelife.kube.pod import Pod
from kubectl_nodelife.kube.times import SECOND_NS
from kubectl_nodelife.outlook.node import join_controllers
from kubectl_nodelife.outlook.view import ClusterView
from tests.what_if.stand import NOW_NS, node
from tests.what_if.test_proofs import small

WATCHED = ("Node", "Lease", "Pod", "DaemonSet", "ControllerRevision")
FLAGS = DrainFlags(force=True, ignore_daemonsets=True, delete_emptydir_data=True)


def _view(cache: Cache, now_ns: int, host: ClusterHost | None) -> ClusterView:
    """As the daemon makes it of its engine's cache."""
    shown, settings = ShownCache(cache, Overlay(cache)), make_settings("newest")
    shown.known_to = host.settled_controllers() if host is not None else ()
    return ClusterView(
        *(settings, now_ns),
        source={"kind": "daemon"},
        moment={"time": "2026-01-01T00:00:00.000000Z", "origin": "the API server's clock"},
        warnings=[],
        unread={},
        running=join_controllers(shown, settings, now_ns)[0],
    )


def _answers(
    cache: Cache,
    more: list[KubeObject],
    node_name: str,
    now_ns: int,
    host: ClusterHost | None = None,
) -> list[str]:
    """Of both questions, each with what is listed for it."""
    lost: dict[str, list[str]] = {"word": ["lose", "node", node_name], "output": ["json"]}
    plan = {"node": [node_name], **as_sent(FLAGS._asdict()), "output": ["json"]}
    texts = []
    for answer, query in ((what_if.answer, lost), (drain_plan.answer, plan)):
        listed = Cache()
        listed.fill(more, now_ns)
        view = _view(cache, now_ns, host).with_more(listed, {})
        texts.append(answer(view, query)["text"])
    return texts


def _event(chance: random.Random, cache: Cache, now_ns: int) -> Put | Gone:
    """Something happens: to a pod mostly, else a node is tainted or renews its Lease."""
    pods, how = list(cache.pods.values()), chance.random()
    if how < 0.2:
        name = chance.choice(sorted(cache.nodes))
        old = cache.nodes[name]
        taints = chance.choice([(), (Taint("k", "v", "NoSchedule"),)])
        return Put("Node", replace(old, spec=replace(old.spec, taints=taints)))
    lease = chance.choice(list(cache.all("Lease")))
    if how < 0.4 and isinstance(lease, Lease):
        renewed = MicroTime(now_ns)
        return Put("Lease", replace(lease, spec=replace(lease.spec, renew_time=renewed)))
    pod = chance.choice(pods)
    if how < 0.55:
        return Gone("Pod", pod.key)
    if how < 0.7:
        meta = replace(pod.metadata, deletion_timestamp=Time(now_ns + 30 * SECOND_NS))
        meta = replace(meta, deletion_grace_period_seconds=30)
        return Put("Pod", replace(pod, metadata=meta))
    if how < 0.85:
        conditions = tuple(
            replace(c, status=chance.choice(["True", "False"])) if c.type == "Ready" else c
            for c in pod.status.conditions
        )
        return Put("Pod", replace(pod, status=replace(pod.status, conditions=conditions)))
    return Put("Pod", _another(pod, now_ns))


def _another(pod: Pod, now_ns: int) -> Pod:
    """A new pod of the same owner, without a node yet."""
    name = f"{pod.name}x"
    meta = replace(pod.metadata, name=name, uid=f"pod-{name}", creation_timestamp=Time(now_ns))
    return Pod(meta, replace(pod.spec, node_name=""), replace(pod.status, phase="Pending"))


def _host(cache: Cache, now_ns: int) -> ClusterHost:
    """The daemon's controllers over the cache; what they decide is not carried out."""
    host = ClusterHost()
    controllers = make_controllers(make_settings("newest"), CONTROLLERS)
    host.cache, host.engine = cache, Engine(controllers, cache, join=True)
    deque(host.engine.step(now_ns, ()), maxlen=0)
    assert len(host.settled_controllers()) == len(CONTROLLERS)
    return host


@pytest.mark.parametrize("seed", range(12))
def test_events_between_question_and_answer_count(seed: int) -> None:
    chance = random.Random(seed)
    nodes, documents = small(seed)
    objects = [decode(d["kind"], d) for name in nodes for d in node(name)]
    objects += [decode(d["kind"], d) for d in documents]
    watched = [obj for obj in objects if kind_of(obj) in WATCHED]
    listed = [obj for obj in objects if kind_of(obj) not in WATCHED]
    kept, now_ns = Cache(), NOW_NS
    kept.fill(watched, now_ns)
    deque(keep_summary(kept), maxlen=0)
    leases = [Put("Lease", obj) for obj in kept.all("Lease")]
    host = _host(kept, now_ns)
    first = _answers(kept, listed, nodes[0], now_ns, host)
    for _ in range(3):
        for _ in range(4):
            now_ns += SECOND_NS // 2
            event = _event(chance, kept, now_ns)
            assert host.engine is not None
            deque(host.engine.step(now_ns, [event]), maxlen=0)
            leases += [event] if isinstance(event, Put) and event.kind == "Lease" else []
        anew = Cache()
        for put in leases:
            anew.apply(put, now_ns)
        anew.fill([*kept.nodes.values(), *kept.pods.values()], now_ns)
        anew.fill([o for kind in WATCHED[3:] for o in kept.all(kind)], now_ns)
        some = islice(keep_summary(kept), chance.randrange(3))  # the child counts the rest
        deque(some, maxlen=0)
        assert kept.pod_index is not None and anew.pod_index is None
        answers = _answers(kept, listed, nodes[0], now_ns, host)
        assert answers == _answers(anew, listed, nodes[0], now_ns)
        assert answers != first


def test_controllers_that_have_not_heard_of_all_yet_know_nothing() -> None:
    """A step takes all events in before it tells the controllers, and pauses meanwhile."""
    nodes, documents = small(0)
    cache = Cache()
    cache.fill([decode(d["kind"], d) for name in nodes for d in node(name)], NOW_NS)
    cache.fill([decode(d["kind"], d) for d in documents], NOW_NS)
    host = _host(cache, NOW_NS)
    assert host.engine is not None
    gone = [Gone("Pod", key) for key in cache.pods]
    steps = host.engine.turns(NOW_NS + SECOND_NS, gone)
    next(steps)
    assert not host.settled_controllers()
    deque(steps, maxlen=0)
    assert host.settled_controllers()
