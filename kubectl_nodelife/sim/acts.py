"""The acts of the simulated cluster itself, in the words of the records.

Most of it is told with the controllers' own actions (`DeletePod`, `AddTaints`, `SetNodeConditions`,
…) under the name `cluster`; here is what they have no word for.
"""

from __future__ import annotations

from collections.abc import Iterator

from kubectl_nodelife.engine.actions import Action, DeletePod, Detail, PodAction, RecordEvent
from kubectl_nodelife.kube.meta import KubeObject
from kubectl_nodelife.kube.pod import Pod
from kubectl_nodelife.sim.api import CLUSTER


class MakePod(PodAction, frozen=True, kw_only=True, gc=False):
    """A pod is made, by an owner in place of one that it lost or by hand; `node` is "" where it
    fits nowhere.
    """

    node: str
    owner: str
    revision: str = ""

    def records(self) -> Iterator[tuple[str, Detail]]:
        """CreatePod."""
        yield "CreatePod", {"node": self.node, "owner": self.owner, "revision": self.revision}


def deletion(
    pod: Pod, because: str, cause: Action | None, grace_period_seconds: int | None = None
) -> DeletePod:
    """The cluster deletes a pod; with a grace period of 0 its kubelet has stopped it."""
    meta = pod.metadata
    return DeletePod(
        controller=CLUSTER,
        because=because,
        cause=cause,
        namespace=meta.namespace,
        pod=meta.name,
        pod_uid=meta.uid,
        grace_period_seconds=grace_period_seconds,
    )


def told(
    obj: KubeObject | tuple[str, str, str],
    reason: str,
    because: str,
    *,
    cause: Action | None = None,
    warning: bool = False,
) -> RecordEvent:
    """A record for which the contract has no other word, as an Event on `obj`.

    `obj` is the object, or (kind, namespace, name).
    """
    if isinstance(obj, tuple):
        (kind, namespace, name), uid = obj, ""
    else:
        kind, (namespace, name), uid = type(obj).__name__, obj.key, obj.uid
    return RecordEvent(
        controller=CLUSTER,
        because=because,
        cause=cause,
        kind=kind,
        namespace=namespace,
        name=name,
        object_uid=uid,
        type="Warning" if warning else "Normal",
        reason=reason,
        message=because,
    )
