"""Deletion, eviction and what follows from them: grace, finalizers, budgets, dependents.

Follows apiserver/pkg/registry/rest/delete.go and pkg/registry/core/pod/storage/eviction.go; the
rules themselves are in `kube/deletion.py` and `workloads/budgets.py`. Dependents are deleted in
the background under every propagation policy but Orphan.
"""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec.structs import replace

from kubectl_nodelife.kube.codec import encode
from kubectl_nodelife.kube.deletion import delete_pod, marked_deleting
from kubectl_nodelife.kube.kinds import group_of
from kubectl_nodelife.kube.meta import Time
from kubectl_nodelife.kube.pod import Pod, PodCondition, with_condition
from kubectl_nodelife.kube.selectors import matches
from kubectl_nodelife.kube.times import format_time
from kubectl_nodelife.kube.wellknown import EVICTION_BY_EVICTION_API
from kubectl_nodelife.kube.workload import PodDisruptionBudget
from kubectl_nodelife.sandbox.discovery import BY_KIND, RESOURCES
from kubectl_nodelife.sandbox.served import ServedApi, merge_back
from kubectl_nodelife.sandbox.status import StatusError, bad_request, unmet
from kubectl_nodelife.sandbox.store import Key, StoredObject
from kubectl_nodelife.sandbox.writing import Document, RequestApplier, WriteTarget
from kubectl_nodelife.workloads.budgets import EvictionRefused, as_answered, decide_eviction

_REASONS = {429: "TooManyRequests", 403: "Forbidden"}
_DEPENDENTS = ("ReplicaSet", "ControllerRevision", "Job", "EndpointSlice", "Lease", "Event")


class DeleteOptions(msgspec.Struct, frozen=True):
    """`metav1.DeleteOptions`, from the body or the query."""

    grace_period_seconds: int | None = None
    uid: str = ""
    resource_version: str = ""
    propagation_policy: str = ""
    dry_run: bool = False


def read_options(body: Any, query: Any) -> DeleteOptions:
    """The options of a DELETE, from its body and its query. Raises StatusError."""
    body = body if isinstance(body, dict) else {}
    preconditions = body.get("preconditions") or {}
    grace = body.get("gracePeriodSeconds", query.get("gracePeriodSeconds"))
    try:
        seconds = None if grace is None else int(grace)
    except (TypeError, ValueError):
        raise bad_request(f"gracePeriodSeconds {grace!r} is not a number") from None
    orphan = body.get("orphanDependents")
    policy = body.get("propagationPolicy") or query.get("propagationPolicy") or ""
    return DeleteOptions(
        grace_period_seconds=seconds,
        uid=preconditions.get("uid") or "",
        resource_version=preconditions.get("resourceVersion") or "",
        propagation_policy="Orphan" if orphan else policy,
        dry_run="All" in (body.get("dryRun") or ()) or query.get("dryRun") == "All",
    )


class Deleter:
    """Deletes and evicts."""

    def __init__(self, api: ServedApi, writer: RequestApplier) -> None:
        self._api = api
        self._writer = writer
        self._orphaned: set[str] = set()

    def delete(self, target: WriteTarget, options: DeleteOptions) -> Document:
        """DELETE: the object as it is then, or a Status where it is gone at once."""
        entry = self._writer.find(target)
        self._check(target, entry, options)
        if options.dry_run:
            return entry.document()
        if options.propagation_policy == "Orphan":
            self._orphaned.add(entry.obj.uid)
        if isinstance(entry.obj, Pod):
            return self._delete_pod(target, entry, entry.obj, options)
        if target.resource.name == "Namespace":
            self._empty(target.name)
        if entry.obj.metadata.finalizers:
            return self._mark(target, entry)
        self._remove(target.resource.name, entry.obj.key)
        return _success(target, entry)

    def evict(self, target: WriteTarget, body: Document, query: Any) -> Document:
        """POST pods/NAME/eviction. Raises StatusError where a budget or the API refuses it."""
        name = (body.get("metadata") or {}).get("name")
        if name and name != target.name:
            raise bad_request("name in URL does not match name in Eviction object")
        options = read_options(body.get("deleteOptions"), query)
        entry = self._writer.find(target)
        self._check(target, entry, options)
        pod = entry.obj
        assert isinstance(pod, Pod)
        decision = decide_eviction(
            pod, self._budgets_of(pod), self._api.now_ns, dry_run=options.dry_run
        )
        if isinstance(decision, EvictionRefused):
            names_budget = self._api.profile.has("refusals_name_budget")
            raise status_of(as_answered(decision, names_budget=names_budget), pod)
        if options.dry_run:
            return {"kind": "Status", "apiVersion": "v1", "status": "Success", "code": 201}
        if decision.budget is not None and decision.status is not None:
            budget = replace(decision.budget, status=decision.status)
            self._api.put("PodDisruptionBudget", budget)
        condition = PodCondition(
            type="DisruptionTarget",
            status="True",
            reason=EVICTION_BY_EVICTION_API,
            message="Eviction API: evicting",
            last_transition_time=Time(self._api.now_ns),
        )
        self._api.put("Pod", with_condition(pod, condition))
        marked = self._writer.find(target)
        assert isinstance(marked.obj, Pod)
        deleted = self._delete_pod(target, marked, marked.obj, options)
        answer = {"kind": "Status", "apiVersion": "v1", "status": "Success", "code": 201}
        if self._api.profile.has("eviction_tells_version"):
            answer["metadata"] = {"resourceVersion": deleted["metadata"]["resourceVersion"]}
        return answer

    def collect(self, uid: str) -> None:
        """Delete what belongs to an object that is gone, unless it was to be orphaned."""
        if not uid or uid in self._orphaned:
            return
        for pod in list(self._api.store.pods_of(uid)):
            target = WriteTarget(BY_KIND["Pod"], pod.namespace, pod.name)
            self.delete(target, DeleteOptions())
        for kind in _DEPENDENTS:
            entries = self._api.served.collections[kind].entries
            for key, entry in list(entries.items()):
                owners = entry.obj.metadata.owner_references
                if any(owner.uid == uid for owner in owners):
                    self._remove(kind, key)
                    self.collect(entry.obj.uid)

    def _delete_pod(
        self, target: WriteTarget, entry: StoredObject, pod: Pod, options: DeleteOptions
    ) -> Document:
        marked = delete_pod(pod, self._api.now_ns, options.grace_period_seconds)
        if marked is None:
            self._remove("Pod", pod.key)
            return entry.document()
        if marked is pod:
            return entry.document()
        document = merge_back(entry.document(), encode(pod), encode(marked))
        if marked.metadata.deletion_grace_period_seconds == 0:
            document["metadata"]["deletionGracePeriodSeconds"] = 0
        return self._api.write(target.resource, document).document()

    def _mark(self, target: WriteTarget, entry: StoredObject) -> Document:
        """The object terminates until its finalizers are gone."""
        present = entry.obj.metadata
        marked = marked_deleting(present, self._api.now_ns)
        document = entry.document()
        if marked is present or marked.deletion_timestamp is None:
            return document
        document["metadata"]["deletionTimestamp"] = format_time(marked.deletion_timestamp)
        document["metadata"]["deletionGracePeriodSeconds"] = 0
        if marked.generation:
            document["metadata"]["generation"] = marked.generation
        return self._api.write(target.resource, document).document()

    def _remove(self, kind: str, key: Key) -> None:
        entry = self._api.remove(BY_KIND[kind], key)
        if entry is not None:
            self.collect(entry.obj.uid)

    def _empty(self, namespace: str) -> None:
        """Delete all that a namespace holds."""
        for resource in RESOURCES:
            if not resource.namespaced:
                continue
            keys, _ = self._api.served.collections[resource.name].page(None, 0, namespace)
            for key in list(keys):
                options = DeleteOptions(grace_period_seconds=0)
                if self._api.served.get(resource.name, key) is not None:
                    self.delete(WriteTarget(resource, *key), options)

    def _check(self, target: WriteTarget, entry: StoredObject, options: DeleteOptions) -> None:
        """The preconditions. Raises StatusError 409."""
        meta = entry.obj.metadata
        for name, wanted, present in (
            ("UID", options.uid, meta.uid),
            ("ResourceVersion", options.resource_version, meta.resource_version),
        ):
            if wanted and wanted != present:
                raise unmet(target.resource, target.name, name, wanted, present)

    def _budgets_of(self, pod: Pod) -> list[PodDisruptionBudget]:
        return [
            budget
            for budget in self._api.store.all("PodDisruptionBudget")
            if isinstance(budget, PodDisruptionBudget)
            and budget.namespace == pod.namespace
            and matches(budget.spec.selector, pod.metadata.labels)
        ]


def status_of(refused: EvictionRefused, pod: Pod) -> StatusError:
    """The Status that refuses the pod's eviction."""
    details: dict[str, Any] = {"name": pod.name, "kind": "pods"}
    if refused.cause:
        details["causes"] = [{"reason": "DisruptionBudget", "message": refused.cause}]
    return StatusError(
        refused.code,
        _REASONS.get(refused.code, ""),
        refused.message,
        details=details,
        retry_after_s=refused.retry_after_seconds,
    )


def _success(target: WriteTarget, entry: StoredObject) -> Document:
    resource = target.resource
    details = {"name": target.name, "kind": resource.plural, "uid": entry.obj.uid}
    if group := group_of(resource.api_version):
        details["group"] = group
    return {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Success",
        "details": details,
    }
