"""Why a pod of a DaemonSet does not do its work, and which pods run another image than the revision
whose hash they carry: an old image under a new hash (kubernetes#111280), or a pod that was edited
by hand.

Images that admission rewrites differ in all pods of a revision alike, and are no pod's fault: these
count only where another revision of the set holds that very image.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from kubectl_nodelife.controllers.daemonset.history import hash_label
from kubectl_nodelife.kube.pod import TERMINAL_PHASES, Pod
from kubectl_nodelife.kube.wellknown import LABEL_CONTROLLER_REVISION_HASH
from kubectl_nodelife.outlook.daemonset.kubectl_rollout import template_of
from kubectl_nodelife.outlook.daemonset.view import SetView

NOT_SCHEDULED = "not scheduled"


class TroubleKind(enum.Enum):
    """What keeps the pod."""

    LEAVING = enum.auto()
    FINISHED = enum.auto()
    UNSCHEDULED = enum.auto()
    WAITING_CONTAINER = enum.auto()
    NODE_DOWN = enum.auto()
    UNREADY = enum.auto()


class PodTrouble(NamedTuple):
    """The kind, in words, and whether the pod's node is there and not Ready."""

    kind: TroubleKind
    words: str
    node_down: bool = False


def trouble_of(view: SetView, pod: Pod) -> PodTrouble | None:
    """Why the pod does not do its work; None if it does."""
    node = view.cache.nodes.get(pod.spec.node_name)
    node_down = node is not None and not node.is_ready
    if pod.metadata.deletion_timestamp is not None:
        words = "terminating, and its node is not Ready" if node_down else "terminating"
        return PodTrouble(TroubleKind.LEAVING, words, node_down)
    if pod.status.phase in TERMINAL_PHASES:
        return PodTrouble(TroubleKind.FINISHED, pod.status.reason or pod.status.phase, node_down)
    if not pod.spec.node_name:
        return PodTrouble(TroubleKind.UNSCHEDULED, _unscheduled(view, pod))
    if pod.ready():
        return None
    for status in pod.status.container_statuses or ():
        waiting = status.state.waiting
        if waiting is not None and waiting.reason:
            words = f"container {status.name} waits: {waiting.reason}"
            return PodTrouble(TroubleKind.WAITING_CONTAINER, words, node_down)
    if node_down:
        return PodTrouble(TroubleKind.NODE_DOWN, "its node is not Ready", node_down)
    return PodTrouble(TroubleKind.UNREADY, "not Ready")


def _unscheduled(view: SetView, pod: Pod) -> str:
    obstacle = view.pending(pod)
    if obstacle is not None:
        return f"{NOT_SCHEDULED}: {obstacle.because}"
    scheduled = pod.status.condition("PodScheduled")
    why = scheduled.message if scheduled is not None and scheduled.status == "False" else ""
    return f"{NOT_SCHEDULED}: {why}" if why else NOT_SCHEDULED


def other_images(view: SetView) -> Iterator[str]:
    """Sentences on such pods, one for each container and pair of images."""
    held = {hash_label(revision): _images(template_of(revision)) for revision in view.revisions}
    numbers = {hash_label(revision): revision.revision for revision in view.revisions}
    pods: dict[str, list[Pod]] = {}
    for pod in view.pods():
        label = (pod.metadata.labels or {}).get(LABEL_CONTROLLER_REVISION_HASH, "")
        if label in held and pod.metadata.deletion_timestamp is None:
            pods.setdefault(label, []).append(pod)
    for label, alike in pods.items():
        odd: dict[tuple[str, str], list[str]] = {}
        for pod in alike:
            for container in pod.spec.containers:
                image = container.image
                if image and held[label].get(container.name, image) != image:
                    odd.setdefault((container.name, image), []).append(pod.name)
        for (container_name, image), names in odd.items():
            elsewhere = any(images.get(container_name) == image for images in held.values())
            if elsewhere or len(names) < len(alike):
                runs = "1 pod runs" if len(names) == 1 else f"{len(names)} pods run"
                yield (
                    f"{runs} {image}, and revision {numbers[label]}, whose hash they carry, holds "
                    f"{held[label][container_name]}: {', '.join(sorted(names)[:3])}"
                )


def _images(template: Mapping[str, object]) -> dict[str, str]:
    spec = template.get("spec")
    containers = spec.get("containers") if isinstance(spec, dict) else None
    return {c["name"]: c["image"] for c in containers or () if isinstance(c, dict) and "image" in c}
