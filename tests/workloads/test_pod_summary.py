"""What is kept of all pods: the same as by a walk through them, whatever came, went or changed."""

import random
from collections import deque
from collections.abc import Iterable
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from kubectl_nodelife.daemon.cluster_view import keep_summary
from kubectl_nodelife.engine.cache import Cache
from kubectl_nodelife.engine.events import Gone, Put
from kubectl_nodelife.kube.load import decode
from kubectl_nodelife.kube.meta import LabelSelector
from kubectl_nodelife.kube.pod import Pod
from kubectl_nodelife.kube.selectors import matches
from kubectl_nodelife.sim.api import made_uid
from kubectl_nodelife.workloads.pod_classes import LabelledPods, PodSummary, summary_of

KEY = ("d", "p0")


def pod(chance: random.Random, number: int) -> Pod:
    term = {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"a": "b"}}}
    spec: dict[str, Any] = {
        "nodeName": chance.choice(["", "n1", "n2", "n3"]),
        "containers": [{"name": "c", "resources": {"requests": {"cpu": f"{chance.randrange(3)}"}}}],
    }
    if chance.random() < 0.3:
        terms = [term]
        spec["affinity"] = {
            "podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}
        }
    uid = chance.choice(["", made_uid(number), "0f3c2a11-7a7a-4111-9111-123456789abc"])
    meta = {"name": f"p{number}", "namespace": "d", "uid": uid}
    found = decode("Pod", {"metadata": meta, "spec": spec, "status": {"phase": "Running"}})
    assert isinstance(found, Pod)
    return found


def walked(pods: Iterable[Pod]) -> PodSummary:
    cache = Cache()
    cache.fill(pods, 0)
    summary = PodSummary(cache.nodes_with_pods(), (p for p in pods if not p.spec.node_name))
    deque(summary.catch_up(cache.pods_on), maxlen=0)
    return summary


def as_values(summary: PodSummary) -> tuple[object, ...]:
    rooms = {
        node: sorted((repr(room.requests), count) for room, count in of_node.items())
        for node, of_node in summary.rooms().items()
    }
    return rooms, set(summary.keep_off), set(summary.made), set(summary.nameless)


SELECTORS = [
    {},
    {"matchLabels": {"app": "a"}},
    {"matchLabels": {"app": "b", "tier": "x"}},
    {"matchLabels": {"pod-template-hash": "1"}},
    {"matchExpressions": [{"key": "tier", "operator": "In", "values": ["x"]}]},
    {"matchExpressions": [{"key": "tier", "operator": "DoesNotExist"}]},
]


def labelled(chance: random.Random, number: int) -> Pod:
    labels = {
        key: chance.choice(values)
        for key, values in (("app", "ab"), ("tier", "xy"), ("pod-template-hash", "12"))
        if chance.random() < 0.6
    }
    owner = chance.choice([None, "", "u1", "u2"])
    meta: dict[str, Any] = {"name": f"p{number}", "namespace": chance.choice("de"), "uid": "u"}
    meta["labels"] = labels or None
    if owner is not None:
        reference = {"kind": "ReplicaSet", "name": "rs", "uid": owner, "controller": True}
        meta["ownerReferences"] = [reference]
    made = decode("Pod", {"metadata": meta, "spec": {"nodeName": chance.choice(["", "n"])}})
    assert isinstance(made, Pod)
    return made


@pytest.mark.parametrize("kept", [True, False])
@pytest.mark.parametrize("seed", range(10))
def test_pods_are_found_by_their_labels(seed: int, kept: bool) -> None:
    """Whatever came, went, and got other labels or another owner."""
    chance, cache = random.Random(seed), Cache()
    if kept:
        cache.keep(PodSummary((), ()))
    for _ in range(100):
        pod = labelled(chance, chance.randrange(12))
        if chance.random() < 0.3:
            cache.apply(Gone("Pod", pod.key), 0)
        else:
            cache.apply(Put("Pod", pod), 0)
        if chance.random() < 0.05:
            cache = cache.copy()
        if chance.random() < 0.2:
            found = LabelledPods(cache.fork())
            for text in SELECTORS:
                selector = msgspec.convert(text, LabelSelector)
                wanted = [
                    p.key
                    for p in cache.pods.values()
                    if p.namespace == "d" and matches(selector, p.metadata.labels)
                ]
                assert sorted(p.key for p in found.matching("d", selector)) == sorted(wanted)
            assert not list(found.matching("d", None))


def test_owners_that_are_gone_are_let_go(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kubectl_nodelife.workloads.pod_classes._MOST_TEMPLATES", 10)
    chance, cache = random.Random(1), Cache()
    for number in range(100):
        deque(keep_summary(cache), maxlen=0)
        summary = summary_of(cache)
        assert summary is not None and summary.labels.filed <= 40
        cache.apply(Put("Pod", labelled(chance, number)), 0)
        cache.apply(Gone("Pod", ("d", f"p{number - 3}")), 0)
        cache.apply(Gone("Pod", ("e", f"p{number - 3}")), 0)


@pytest.mark.parametrize("seed", range(20))
def test_what_is_kept_is_as_walked(seed: int) -> None:
    chance, cache = random.Random(seed), Cache()
    cache.keep(PodSummary((), ()))
    for _ in range(150):
        key, how = ("d", f"p{chance.randrange(9)}"), chance.random()
        old = cache.pods.get(key)
        if how < 0.2:
            cache.apply(Gone("Pod", key), 0)
        elif how < 0.5 and old is not None:
            phase = chance.choice(["Running", "Failed", "Succeeded"])
            cache.apply(Put("Pod", replace(old, status=replace(old.status, phase=phase))), 0)
        elif how < 0.6:
            cache.fill([pod(chance, 9 + chance.randrange(3))], 0)
        else:
            cache.apply(Put("Pod", pod(chance, int(key[1][1:]))), 0)
        if chance.random() < 0.1:
            cache = cache.copy()
        if chance.random() < 0.5:  # else what changed is counted later
            summary, fork = summary_of(cache), cache.fork()
            assert summary is not None
            assert as_values(summary) == as_values(walked(list(cache.pods.values())))
            kept = summary_of(fork)
            assert kept is not None and as_values(kept) == as_values(summary)
            cache.apply(Gone("Pod", KEY), 0)
            assert as_values(kept) == as_values(walked(list(fork.pods.values())))
            fork.apply(Put("Pod", pod(chance, 0)), 0)
            assert summary_of(fork) is None  # in a play nobody asks again


def test_templates_that_are_gone_are_let_go(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kubectl_nodelife.workloads.pod_classes._MOST_TEMPLATES", 10)
    chance, cache = random.Random(1), Cache()
    cache.keep(PodSummary((), ()))
    for _ in range(100):
        cache.apply(Put("Pod", pod(chance, chance.randrange(3))), 0)
        summary = summary_of(cache)
        assert summary is not None and summary._classes.templates() <= 14
        assert as_values(summary) == as_values(walked(list(cache.pods.values())))
