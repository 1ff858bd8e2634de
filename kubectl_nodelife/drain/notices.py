"""What a plan tells of evictions beside its verdicts: the admission webhooks that are asked before,
with what each selects, and what a drain passes by, which are EvictionRequests, their responders,
and gangs that it breaks.

`kubectl drain` and the eviction API look at none of these up to v1.38 (kubectl/pkg/drain,
pkg/registry/core/pod/storage/eviction.go). Who answers EvictionRequests follows
pkg/controller/evictionrequest of v1.38; v1.37 has the API alone, so that nothing acts on a request
there. The scheduler starts a replacement of a gang's pod once as many pods are bound, or can be at
once, as minCount says (pkg/scheduler/framework/plugins/gangscheduling).
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from msgspec.structs import replace

from kubectl_nodelife.drain.results import EvictionWebhook
from kubectl_nodelife.drain.snapshot import PlanSnapshot
from kubectl_nodelife.kube import lifecycle
from kubectl_nodelife.kube.admission import (
    MutatingWebhookConfiguration,
    ValidatingWebhookConfiguration,
    Webhook,
)
from kubectl_nodelife.kube.cel import CelError, Unknown
from kubectl_nodelife.kube.meta import KubeObject
from kubectl_nodelife.kube.names import counted, first_names
from kubectl_nodelife.kube.pod import TERMINAL_PHASES, Pod
from kubectl_nodelife.kube.selectors import format_selector
from kubectl_nodelife.kube.times import MINUTE_NS
from kubectl_nodelife.kube.wellknown import TRUE
from kubectl_nodelife.kube.workload import Condition
from kubectl_nodelife.workloads.admission import (
    Admission,
    AdmissionRequest,
    ObjectsRead,
    deletion_of,
    eviction_of,
)

WebhookConfiguration = ValidatingWebhookConfiguration | MutatingWebhookConfiguration

WEBHOOK_KINDS = (
    "ValidatingWebhookConfiguration",
    "MutatingWebhookConfiguration",
    "Namespace",
    "Service",
    "EndpointSlice",
)
"""The kinds that the answer about webhooks is made from."""

DEFAULT_TIMEOUT_SECONDS = 10

_MOST: Final = 3

HEARTBEAT_TIMEOUT_NS: Final = 20 * MINUTE_NS
"""`ResponderHeartbeatTimeout`: after so long without a heartbeat the next responder is asked."""

IMPERATIVE: Final = "imperative-eviction.k8s.io/evictor"
"""`EvictionResponderImperativeEviction`, asked last of all: it uses the eviction API."""

_ENDED: Final = ("TargetEvicted", "Failed")


class Responder(NamedTuple):
    """One responder of an Eviction: what its controller says of it, and what it says itself."""

    target: lifecycle.TargetResponder
    status: lifecycle.ResponderStatus

    @property
    def heartbeat_ns(self) -> int | None:
        """When it was last heard of, ns since the epoch: its start counts, too."""
        times = (self.status.heartbeat_time, self.status.start_time)
        return next((int(time) for time in times if time is not None), None)


def ended(conditions: Iterable[Condition]) -> Condition | None:
    """The condition by which a request or an Eviction is over, None where it goes on."""
    return next((c for c in conditions if c.type in _ENDED and c.status == TRUE), None)


def is_wanted(request: lifecycle.EvictionRequest) -> bool:
    """True if the request still asks for the pod's eviction."""
    return request.spec.intent == "Eviction" and ended(request.status.conditions) is None


def responders_of(eviction: lifecycle.Eviction) -> list[Responder]:
    """Its responders in the order in which they are asked: by priority, then by their domains'
    labels, the top one first (`selectNextResponder`)."""
    statuses = {status.name: status for status in eviction.status.responders}
    responders = [
        Responder(target, statuses.get(target.name, lifecycle.ResponderStatus()))
        for target in eviction.status.target_responders
    ]
    return sorted(responders, key=_order)


def _order(responder: Responder) -> tuple[int, list[str], str]:
    domain, _, key = responder.target.name.partition("/")
    return -responder.target.priority, domain.split(".")[::-1], key


Key = tuple[str, str, str]


class EvictionRequests:
    """The requests and Evictions of a cluster, by the pods that they name."""

    def __init__(self, snapshot: PlanSnapshot) -> None:
        self._requests: dict[Key, list[lifecycle.EvictionRequest]] = defaultdict(list)
        self._evictions: dict[Key, list[lifecycle.Eviction]] = defaultdict(list)
        for request in snapshot.all_of(lifecycle.EvictionRequest):
            self._requests[_key(request.namespace, request.spec.target)].append(request)
        for eviction in snapshot.all_of(lifecycle.Eviction):
            self._evictions[_key(eviction.namespace, eviction.spec.target)].append(eviction)

    def requests(self, pod: Pod) -> list[lifecycle.EvictionRequest]:
        """Those that name this pod, with its uid."""
        return self._requests.get((*pod.key, pod.uid), [])

    def going(self, pod: Pod) -> list[lifecycle.Eviction]:
        """The Evictions that were made of them and are not over."""
        evictions = self._evictions.get((*pod.key, pod.uid), [])
        return [one for one in evictions if ended(one.status.conditions) is None]

    def active(self, pod: Pod) -> Responder | None:
        """The responder that is at work on it."""
        responders = (responder for one in self.going(pod) for responder in responders_of(one))
        return next((r for r in responders if r.target.state == "Active"), None)


def eviction_webhooks(admission: Admission, pods: Sequence[Pod]) -> Iterator[EvictionWebhook]:
    """The webhooks that are asked about the eviction of one of these pods."""
    for configuration, webhook in admission.webhooks:
        asked = [pod for pod in pods if _is_asked(admission, webhook, eviction_of(pod))]
        if asked:
            yield EvictionWebhook(
                configuration,
                webhook.name,
                _selects(webhook),
                webhook.failure_policy or "Fail",
                webhook.timeout_seconds or DEFAULT_TIMEOUT_SECONDS,
                admission.unreachable(webhook) or "",
                [f"{pod.namespace}/{pod.name}" for pod in asked],
            )


def ignoring(objects: ObjectsRead, pod: Pod) -> Iterator[tuple[WebhookConfiguration, list[int]]]:
    """Configurations of webhooks that are asked about the eviction or the deletion of the pod, with
    `failurePolicy: Ignore` for these; the places of those that had another, at least one.
    """
    admission, requests = Admission(objects), (eviction_of(pod), deletion_of(pod))
    for kind in WEBHOOK_KINDS[:2]:
        for each in objects.all(kind):
            assert isinstance(each, (ValidatingWebhookConfiguration, MutatingWebhookConfiguration))
            webhooks = list(each.webhooks)
            failing = [
                place
                for place, webhook in enumerate(webhooks)
                if webhook.failure_policy != "Ignore"
                and any(_is_asked(admission, webhook, request) for request in requests)
            ]
            for place in failing:
                webhooks[place] = replace(webhooks[place], failure_policy="Ignore")
            if failing:
                yield replace(each, webhooks=tuple(webhooks)), failing


def _is_asked(admission: Admission, webhook: Webhook, request: AdmissionRequest) -> bool:
    """A match condition that cannot be evaluated from what was read counts as one that holds."""
    try:
        return admission.is_asked(webhook, request)
    except (CelError, Unknown):
        return True


def _selects(webhook: Webhook) -> str:
    """Its selectors in kubectl's syntax. An Eviction has no labels of its own."""
    clauses = []
    for what, selector in (
        ("namespaces", webhook.namespace_selector),
        ("objects", webhook.object_selector),
    ):
        if selector is not None and format_selector(selector):
            clauses.append(f"{what} with {format_selector(selector)}")
    clauses += [f"where {condition.expression}" for condition in webhook.match_conditions]
    return ", ".join(clauses) or "every eviction"


def passed_by(snapshot: PlanSnapshot, moved: Mapping[str, Sequence[Pod]]) -> Iterator[str]:
    """The warnings. `moved`: the pods that leave each node."""
    everywhere = [pod for pods in moved.values() for pod in pods]
    yield from _gangs(snapshot, moved.values())
    yield from _requested(snapshot, everywhere)
    names = [f"{pod.namespace}/{pod.name}" for pod in everywhere if pod.spec.eviction_responders]
    if names:
        yield (
            f"{first_names(names, _MOST)}: the evictionResponders are passed over, since a drain "
            "makes no EvictionRequest"
        )


def _gangs(snapshot: PlanSnapshot, moved: Iterable[Sequence[Pod]]) -> Iterator[str]:
    """PodGroups that lose pods: for certain below minCount where one node takes so many of them."""
    lost: Counter[tuple[str, str]] = Counter()
    at_once: Counter[tuple[str, str]] = Counter()
    for pods in moved:
        of_node = Counter(_gang_of(pod) for pod in pods if pod.spec.scheduling_group)
        lost += of_node
        at_once |= of_node
    if not lost:
        return
    bound = Counter(_gang_of(pod) for pod in snapshot.pods if _is_bound(pod))
    sizes = Counter(_gang_of(pod) for pod in snapshot.pods if pod.spec.scheduling_group)
    for (namespace, name), count in sorted(lost.items()):
        group = snapshot.find("PodGroup", namespace, name)
        least = 0 if group is None else _min_count(group)
        stay = bound[namespace, name] - count
        if group is not None and stay >= least:
            continue
        loses = f"PodGroup {namespace}/{name} loses {count} of its"
        if group is None or bound[namespace, name] - at_once[namespace, name] >= least:
            few = "its minCount" if group is None else f"its minCount of {least}"
            yield (
                f"{loses} {counted(sizes[namespace, name], 'pod')}: where fewer than {few} stay, "
                "replacements wait for one another, and none starts"
            )
        else:
            yield (
                f"{loses} {counted(bound[namespace, name], 'bound pod')} and falls to {stay}, "
                f"below its minCount of {least}: replacements wait for one another, and none "
                f"starts before {least} are bound or can be at once"
            )


def _min_count(group: KubeObject) -> int:
    """How many a gang needs; 0 where its pods are placed one by one."""
    gang = group.spec.scheduling_policy.gang if isinstance(group, lifecycle.PodGroup) else None
    return gang.min_count if gang is not None else 0


def _is_bound(pod: Pod) -> bool:
    ends = pod.status.phase in TERMINAL_PHASES or pod.metadata.deletion_timestamp is not None
    return bool(pod.spec.scheduling_group and pod.spec.node_name) and not ends


def _gang_of(pod: Pod) -> tuple[str, str]:
    group = pod.spec.scheduling_group
    return pod.namespace, group.pod_group_name if group else ""


def _requested(snapshot: PlanSnapshot, moved: Iterable[Pod]) -> Iterator[str]:
    """Pods of which somebody else asks the eviction already."""
    requests, told = EvictionRequests(snapshot), []
    for pod in moved:
        asked = [r.spec.requester for r in requests.requests(pod) if is_wanted(r)]
        if not asked:
            continue
        active = requests.active(pod)
        by = f", {active.target.name} is at work" if active is not None else ""
        told.append(f"{pod.namespace}/{pod.name} (for {first_names(asked, _MOST)}{by})")
    if told:
        yield (
            f"the eviction of {counted(len(told), 'pod')} is under way by EvictionRequests: "
            f"{first_names(told, _MOST)}; a drain waits for no responder"
        )


def _key(namespace: str, target: lifecycle.EvictionTarget) -> Key:
    pod = target.pod or lifecycle.TargetPod()
    return namespace, pod.name, pod.uid
