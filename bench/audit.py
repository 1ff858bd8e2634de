"""One audit of a whole cluster: mostly healthy pods, one zone lost, a few pods in trouble.

Only the pass is measured, from decoded objects to sorted findings. A third of the pods have more
than one container or an init container, so that not only the quick path is measured.
"""

from __future__ import annotations

import gc
import random

from bench import Stopwatch
from kubectl_nodelife.engine.settings import make_settings
from kubectl_nodelife.kube.meta import ObjectMeta, OwnerReference, Time
from kubectl_nodelife.kube.node import Node, NodeCondition, NodeMeta, NodeStatus
from kubectl_nodelife.kube.pod import (
    Container,
    ContainerState,
    ContainerStateRunning,
    ContainerStateTerminated,
    ContainerStatus,
    Pod,
    PodCondition,
    PodSpec,
    PodStatus,
    Toleration,
)
from kubectl_nodelife.kube.times import SECOND_NS
from kubectl_nodelife.outlook.audit.audit_pods import AuditInput, audit

NODES = 5000
PODS = 150_000

NOW_NS = 1_780_000_000 * SECOND_NS
ZONES = 3


def run(nodes: int, pods: int, seed: int, stopwatch: Stopwatch) -> dict[str, object]:
    """Audit a cluster of which one zone of three is lost."""
    chance = random.Random(seed)
    seen = AuditInput(
        pods=[pod(i, f"node-{i % nodes}", i % nodes % ZONES == 0, chance) for i in range(pods)],
        nodes={f"node-{i}": node(f"node-{i}", i % ZONES == 0) for i in range(nodes)},
        renewals={f"node-{i}": renewed_ns(i % ZONES == 0) for i in range(nodes)},
    )
    settings = make_settings("v1.36")
    gc.collect()
    gc.freeze()  # as after reading a dump
    with stopwatch:
        found = audit(seen, settings, NOW_NS)
    return {
        "findings": len(found.findings),
        "classes": found.counts,
        "podsPerSecond": round(pods / stopwatch.wall_seconds) if stopwatch.wall_seconds else 0,
    }


def node(name: str, lost: bool) -> Node:
    """A node, lost five minutes ago or healthy."""
    ready = NodeCondition(
        type="Ready",
        status="Unknown" if lost else "True",
        reason="NodeStatusUnknown" if lost else "KubeletReady",
        last_transition_time=Time(NOW_NS - (300 if lost else 90_000) * SECOND_NS),
    )
    return Node(metadata=NodeMeta(name=name, uid=name), status=NodeStatus(conditions=(ready,)))


def renewed_ns(lost: bool) -> int:
    """When its lease was renewed."""
    return NOW_NS - (340 if lost else 4) * SECOND_NS


def pod(number: int, node_name: str, lost: bool, chance: random.Random) -> Pod:
    """A pod; not Ready on a lost node; elsewhere one pod in a hundred is in trouble."""
    containers = tuple(Container(name=f"c{i}") for i in range(chance.choice((1, 1, 2))))
    init = (Container(name="init"),) if chance.random() < 0.15 else ()
    trouble = not lost and chance.random() < 0.01
    owner = OwnerReference(
        kind="DaemonSet" if number % 10 == 0 else "ReplicaSet", name="owner", controller=True
    )
    ready = "False" if lost or trouble else "True"
    stamp = Time(NOW_NS - 280 * SECOND_NS)
    conditions = tuple(
        PodCondition(
            type=type_,
            status=ready if type_ == "Ready" else "True",
            last_transition_time=stamp,
        )
        for type_ in ("Initialized", "Ready", "ContainersReady", "PodScheduled")
    )
    return Pod(
        metadata=ObjectMeta(
            name=f"pod-{number}",
            namespace=f"ns-{number % 50}",
            uid=f"uid-{number}",
            resource_version=str(number),
            owner_references=(owner,),
        ),
        spec=PodSpec(
            node_name=node_name,
            containers=containers,
            init_containers=init,
            tolerations=(Toleration(operator="Exists"),) if number % 10 == 0 else (),
        ),
        status=PodStatus(
            phase="Running",
            conditions=conditions,
            container_statuses=tuple(running(c.name) for c in containers),
            init_container_statuses=tuple(ended(c.name) for c in init) or None,
        ),
    )


def running(name: str) -> ContainerStatus:
    """A container that runs and is ready."""
    state = ContainerState(running=ContainerStateRunning(started_at=Time(NOW_NS - 10**14)))
    return ContainerStatus(name=name, ready=True, started=True, state=state)


def ended(name: str) -> ContainerStatus:
    """An init container that has completed."""
    state = ContainerState(terminated=ContainerStateTerminated(finished_at=Time(NOW_NS - 10**14)))
    return ContainerStatus(name=name, ready=True, state=state)
