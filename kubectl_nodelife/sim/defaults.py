"""The fields that the API server itself writes into an object that is created or updated.

Follows the strategies of pkg/registry/apps/daemonset and pkg/registry/core/pod and the defaults of
pkg/apis/apps/v1, as far as a decision here reads them: generations, how a DaemonSet is updated, and
that a new pod is Pending. Of the admission plugins
there is DefaultTolerationSeconds, for pods; nodes stay exactly as written.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar, cast

import msgspec
from msgspec.structs import replace

from kubectl_nodelife.kube.meta import KubeObject
from kubectl_nodelife.kube.pod import Pod, Toleration
from kubectl_nodelife.kube.selectors import matches
from kubectl_nodelife.kube.taints import default_tolerations
from kubectl_nodelife.kube.wellknown import (
    NO_EXECUTE,
    TAINT_NODE_NOT_READY,
    TAINT_NODE_UNREACHABLE,
)
from kubectl_nodelife.kube.workload import (
    DaemonSet,
    ReplicaSet,
    ReplicationController,
    StatefulSet,
)
from kubectl_nodelife.workloads.daemonset_defaults import (
    default_daemon_set_spec,
    default_pod_template,
)

TEMPLATE_GENERATION = "deprecated.daemonset.template.generation"

Object = TypeVar("Object", bound=KubeObject)


class DefaultTolerationSeconds(msgspec.Struct, frozen=True):
    """The admission plugin of that name, with the values of kube-apiserver's two flags in seconds.

    Follows plugin/pkg/admission/defaulttolerationseconds: a pod that is created or updated, its
    status aside, and says nothing of the two taints, tolerates them for so long.
    """

    not_ready_seconds: int = 300
    unreachable_seconds: int = 300

    def admit(self, pod: Pod) -> Pod:
        """The pod with what it lacks; the same pod where it lacks nothing."""
        given = pod.spec.tolerations
        tolerations = default_tolerations(
            given,
            not_ready_seconds=self.not_ready_seconds,
            unreachable_seconds=self.unreachable_seconds,
        )
        if len(tolerations) == len(given):
            return pod
        return replace(pod, spec=replace(pod.spec, tolerations=tolerations))

    def unstamped(self, pod: Pod, template: Mapping[str, Any]) -> Pod:
        """The pod without what the plugin has given it; the same pod where that is nothing.

        `template`: its owner's, which says what was asked for; where it was not read, exactly the
        plugin's seconds are taken for its work.
        """
        given = pod.spec.tolerations
        asked = _asked_for(template)
        kept = tuple(t for t in given if not self._is_stamp(t, asked))
        if len(kept) == len(given):
            return pod
        return replace(pod, spec=replace(pod.spec, tolerations=kept))

    def _is_stamp(self, toleration: Toleration, asked: frozenset[str] | None) -> bool:
        if asked is not None and toleration.key in asked:
            return False
        seconds = {
            TAINT_NODE_NOT_READY: self.not_ready_seconds,
            TAINT_NODE_UNREACHABLE: self.unreachable_seconds,
        }.get(toleration.key)
        return (
            seconds is not None
            and (asked is not None or toleration.toleration_seconds == seconds)
            and toleration.toleration_seconds is not None
            and toleration.operator == "Exists"
            and toleration.effect == NO_EXECUTE
        )


def template_of(owner: KubeObject | None) -> Mapping[str, Any]:
    """The template that the owner makes its pods from; empty where that was not read."""
    if isinstance(owner, (ReplicaSet, StatefulSet, ReplicationController, DaemonSet)):
        return owner.spec.template
    return {}


def _asked_for(template: Mapping[str, Any]) -> frozenset[str] | None:
    """The keys of the tolerations that a template asks for; None where there is no template."""
    spec = template.get("spec")
    if not isinstance(spec, dict):
        return None
    tolerations = spec.get("tolerations") or ()
    return frozenset(t.get("key", "") for t in tolerations if isinstance(t, dict))


def as_created(obj: Object) -> Object:
    """The object as a POST leaves it; one that has a generation already was created before."""
    if isinstance(obj, Pod) and not obj.status.phase:
        return cast(Object, replace(obj, status=replace(obj.status, phase="Pending")))
    if not isinstance(obj, DaemonSet):
        return obj
    obj = cast(Object, replace(obj, spec=default_daemon_set_spec(obj.spec)))
    if obj.metadata.generation:
        return obj
    annotations = {TEMPLATE_GENERATION: "1", **(obj.metadata.annotations or {})}
    return replace(obj, metadata=replace(obj.metadata, generation=1, annotations=annotations))


def as_updated(old: KubeObject, new: KubeObject) -> KubeObject:
    """The object as a PATCH leaves it: a changed spec or template is a new generation. A template
    of a cluster that was read has the defaults of every pod spec, one of a scenario may lack them.
    """
    if not isinstance(old, DaemonSet) or not isinstance(new, DaemonSet):
        return new
    new = replace(new, spec=default_daemon_set_spec(new.spec))
    meta = replace(new.metadata, generation=old.metadata.generation)
    stored, was = (default_pod_template(obj.spec.template) for obj in (new, old))
    if stored != was or replace(new.spec, template=old.spec.template) != old.spec:
        meta = replace(meta, generation=meta.generation + 1)
    if stored != was:
        number = int((old.metadata.annotations or {}).get(TEMPLATE_GENERATION, "0") or 0)
        annotations = {**(meta.annotations or {}), TEMPLATE_GENERATION: str(number + 1)}
        meta = replace(meta, annotations=annotations)
    return replace(new, metadata=meta)


def refusal(obj: KubeObject) -> str:
    """Why the API server would not take the object, "" if it would.

    Only what would make a controller go in circles, and what no daemon pod may have. Follows
    `ValidateDaemonSetSpec`.
    """
    if not isinstance(obj, DaemonSet):
        return ""
    meta = obj.spec.template.get("metadata")
    labels = meta.get("labels") if isinstance(meta, dict) else None
    if not isinstance(labels, dict) or not matches(obj.spec.selector, labels):
        return "spec.selector does not match the labels of spec.template"
    spec = obj.spec.template.get("spec")
    policy = spec.get("restartPolicy") if isinstance(spec, dict) else None
    if policy not in (None, "", "Always"):
        return (
            f'spec.template.spec.restartPolicy: Unsupported value: "{policy}":'
            ' supported values: "Always"'
        )
    return ""
