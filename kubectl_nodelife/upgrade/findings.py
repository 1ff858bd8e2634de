"""The plan of an upgrade as values; and the findings to show before it starts, as far as objects
of the cluster show it. Rights, the run's Lease and the clock are asked by `upgrade start` itself.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from kubectl_nodelife.controllers.daemonset.behaviour import behaviour_of
from kubectl_nodelife.controllers.daemonset.template import PodTemplate
from kubectl_nodelife.controllers.upgrade.claims import DrainVerdict
from kubectl_nodelife.controllers.upgrade.counts import ScopeBudget
from kubectl_nodelife.controllers.upgrade.marks import unproven
from kubectl_nodelife.controllers.upgrade.policy import UpgradePolicy, WorkMode
from kubectl_nodelife.drain.results import Remedy
from kubectl_nodelife.drain.snapshot import PlanSnapshot
from kubectl_nodelife.engine.settings import Settings
from kubectl_nodelife.errors import NodelifeError
from kubectl_nodelife.kube.admission import (
    MutatingWebhookConfiguration,
    ValidatingWebhookConfiguration,
)
from kubectl_nodelife.kube.meta import controller_of
from kubectl_nodelife.kube.names import first_names, subject
from kubectl_nodelife.kube.node import Lease, Node
from kubectl_nodelife.kube.pod import stays_on_its_node
from kubectl_nodelife.kube.taints import find_matching_untolerated_taint
from kubectl_nodelife.kube.times import MINUTE_NS
from kubectl_nodelife.kube.wellknown import NO_SCHEDULE
from kubectl_nodelife.kube.workload import DaemonSet
from kubectl_nodelife.sim.upgrade_course import PlayedNode, PlayedRun

CLAIM: Final = "claim"
SKIP: Final = "skip"
HOLD: Final = "hold"
UNHEALTHY: Final = "unhealthy"
TOO_FEW: Final = "too few"
UNDRAINABLE: Final = "undrainable"

REFUSED_BY: Final = "refused"
WARNING: Final = "warning"
NOT_EVALUATED: Final = "not evaluated"


class PreflightFinding(NamedTuple):
    """Something to be said before the start. `check`: what was looked at; `severity`: by
    `REFUSED_BY` the start is refused, else `WARNING` or `NOT_EVALUATED`.
    """

    check: str
    severity: str
    text: str


class UpgradeEstimate(NamedTuple):
    """Seconds of the run: at least, as played, at most; `cold`: before the first claim."""

    low: float
    expected: float
    high: float
    cold: float


@dataclass(slots=True)
class PlannedNode:
    """One selected node. `decision`: claim, skip (it is left out), hold (its turn never comes).
    `turn`: of those that are claimed. `remedies`, which it takes together, and `flags_needed`: of
    one that cannot be drained. `left_out`: for which of the reasons that are warned of, "" for
    none. `by_chance`: it is done in some of the plays and not in others.
    """

    node: Node
    pool: str
    zone: str
    decision: str
    reason: str
    verdict: DrainVerdict
    turn: PlayedNode | None = None
    remedies: list[Remedy] = field(default_factory=list)
    flags_needed: list[str] = field(default_factory=list)
    left_out: str = ""
    by_chance: bool = False

    @property
    def name(self) -> str:
        """metadata.name"""
        return self.node.name

    @property
    def would_fail(self) -> bool:
        """Whether it is claimed, and ends as Failed."""
        return self.turn is not None and bool(self.turn.failed)


@dataclass(slots=True)
class UpgradePlan:
    """The answer to "what will happen, how long does it take, how low does the cluster get?".
    `budgets`: the numbers of each scope as they are now. `refusals`: why no run would be started.
    `rights`: kubectl lines that ask whether one may do what a run does.
    """

    policy: UpgradePolicy
    nodes: list[PlannedNode]
    course: PlayedRun
    estimate: UpgradeEstimate | None
    budgets: list[ScopeBudget] = field(default_factory=list)
    refusals: list[str] = field(default_factory=list)
    findings: list[PreflightFinding] = field(default_factory=list)
    assumptions: list[str] = field(default_factory=list)
    not_evaluated: list[str] = field(default_factory=list)
    rights: list[str] = field(default_factory=list)

    @property
    def done(self) -> list[PlannedNode]:
        """The nodes that the run does."""
        return [node for node in self.nodes if node.decision == CLAIM]

    @property
    def undone(self) -> list[PlannedNode]:
        """The nodes that cannot be done, or by chance alone; not those that are there already, that
        a person holds, or that others work on."""
        return [
            node
            for node in self.nodes
            if node.decision == HOLD
            or node.by_chance
            or node.would_fail
            or (node.decision == SKIP and (node.left_out or node.turn is not None))
        ]

    @property
    def undrainable(self) -> list[PlannedNode]:
        """Those of the undone that are left out since their drain would not end."""
        return [node for node in self.undone if node.left_out == UNDRAINABLE]


_NAMED: Final = 5
_MINOR: Final = re.compile(r"v?1\.(\d+)")
_MINORS_BEHIND: Final = 3
_MANAGED_UPGRADE: Final = re.compile(
    r"\bgcloud\s+(?:beta\s+|alpha\s+)?container\s+(?:clusters|node-pools)\s+(?:upgrade|rollback)\b"
    r"|\baws\s+eks\s+update-nodegroup-version\b"
    r"|\beksctl\s+upgrade\s+nodegroup\b"
    r"|\baz\s+aks\s+(?:nodepool\s+)?upgrade\b"
)
"""Commands by which GKE, EKS and AKS upgrade a pool, draining its nodes themselves."""
_UPGRADERS: Final = (
    "kured",
    "system-upgrade-controller",
    "machine-config-daemon",
    "flatcar-linux-update-operator",
    "update-agent",
    "node-maintenance-operator",
    "gardener-node-agent",
)
LEASES: Final = ("kube-controller-manager", "kube-scheduler")
"""Whose Leases in kube-system show whether they run."""
_LABEL_OS: Final = "kubernetes.io/os"
_CAPI_MACHINE: Final = "cluster.x-k8s.io/machine"
_CAPI_SKIP: Final = "cluster.x-k8s.io/skip-remediation"
_READ_FOR: Final = {
    "Lease": "whether kubelets report, beyond what Ready says",
    "PodDisruptionBudget": "what budgets allow",
    "DaemonSet": "which daemon pods must be back on a node, and which tolerate the proof's taint",
    "PersistentVolumeClaim": "which pods can move with their volumes",
    "ValidatingWebhookConfiguration": "which webhooks are asked about evictions",
    "MutatingWebhookConfiguration": "which webhooks change evictions",
}
"""The facts that a plan cannot know where a kind was not read."""
_MANAGED: Final = {
    "cloud.google.com/gke-nodepool": "a GKE node pool",
    "eks.amazonaws.com/nodegroup": "an EKS managed node group",
    "kubernetes.azure.com/agentpool": "an AKS node pool",
}


def find(
    snapshot: PlanSnapshot, settings: Settings, policy: UpgradePolicy, nodes: Sequence[PlannedNode]
) -> list[PreflightFinding]:
    """All findings, the refusals first."""
    findings = [
        *version_skew(settings, policy),
        *_managed(policy),
        *_namespaces(snapshot, policy),
        *_canary_image(policy, nodes),
        *_target(policy),
        *_control_plane(snapshot),
        *_daemon_sets(snapshot, settings),
        *_tolerant_pods(snapshot, nodes),
        *_webhooks(snapshot),
        *_upgraders(snapshot),
        *_owners_of_machines(policy, nodes),
        *_settings(snapshot, settings, nodes),
        *_left_out(nodes),
        *_unread(snapshot),
    ]
    order = {REFUSED_BY: 0, WARNING: 1, NOT_EVALUATED: 2}
    return sorted(findings, key=lambda finding: order[finding.severity])


def version_skew(settings: Settings, policy: UpgradePolicy) -> Iterator[PreflightFinding]:
    """A kubelet is never newer than the API server, nor more than three minor releases older."""
    server = settings.profile.minor
    for target in policy.target:
        if target.kind != "nodeInfo" or target.key != "kubeletVersion":
            continue
        match, severity, text = _MINOR.match(target.value), REFUSED_BY, ""
        if match is None:
            severity, text = NOT_EVALUATED, f"{target.value} is no version 1.N"
        elif int(match[1]) > server:
            text = (
                f"kubelet {target.value} is newer than the API server (v1.{server}): `kubectl "
                f"nodelife upgrade preview v1.{match[1]}` says what upgrading that changes here"
            )
        elif server - int(match[1]) > _MINORS_BEHIND:
            older = "more than 3 minors older than the API server"
            text = f"kubelet {target.value} is {older} (v1.{server})"
        if text:
            yield PreflightFinding("version skew", severity, text)


def _managed(policy: UpgradePolicy) -> Iterator[PreflightFinding]:
    """A cloud's own upgrade of a pool drains by itself, as many nodes at once as it likes."""
    match = _MANAGED_UPGRADE.search(policy.work.command)
    if match is not None:
        words = " ".join(match[0].split())
        text = (
            f"the work begins a managed pool upgrade ({words}), which drains by itself and cannot "
            "be held back from here: run it by hand, and prove its nodes with `kubectl nodelife "
            "upgrade prove NODE`"
        )
        yield PreflightFinding("managed upgrade", REFUSED_BY, text)


def _namespaces(snapshot: PlanSnapshot, policy: UpgradePolicy) -> Iterator[PreflightFinding]:
    """Canaries and Jobs are made in namespaces that exist. The canary itself meets every level of
    Pod Security; the user's own template may not.
    """
    own = policy.namespace
    wanted = {own: "for the canary pods"}
    manifest = policy.work.manifest or {}
    if job_namespace := str((manifest.get("metadata") or {}).get("namespace") or ""):
        wanted.setdefault(job_namespace, "for the Jobs")
    if not snapshot.was_read("Namespace"):
        text = f"whether namespace {own} exists was not read"
        yield PreflightFinding("namespace", NOT_EVALUATED, text)
        return
    for name, what in wanted.items():
        if name not in snapshot.namespaces:
            command = f"kubectl create {subject('namespace', name)}"
            text = f"namespace {name}, {what}, does not exist: {command}"
            yield PreflightFinding("namespace", REFUSED_BY, text)
    if own in snapshot.namespaces and policy.canary_template is not None:
        labels = snapshot.namespaces[own].metadata.labels or {}
        level = labels.get("pod-security.kubernetes.io/enforce", "")
        if level not in ("", "privileged"):
            text = (
                f"namespace {own} enforces Pod Security {level!r}; --canary-template must meet it"
            )
            yield PreflightFinding("namespace", WARNING, text)


def _warning(check: str, text: str, names: Iterable[str]) -> list[PreflightFinding]:
    """A warning with the first of these names in the text's `{}`; nothing where there is none."""
    shown = first_names(list(names), _NAMED)
    return [PreflightFinding(check, WARNING, text.format(shown))] if shown else []


def _canary_image(policy: UpgradePolicy, nodes: Sequence[PlannedNode]) -> list[PreflightFinding]:
    labels = {node.name: node.node.metadata.labels or {} for node in nodes}
    windows = [name for name, of in labels.items() if of.get(_LABEL_OS) == "windows"]
    text = "Windows nodes need a --canary-template of their own: {}"
    return _warning("canary image", text, windows if policy.canary_template is None else ())


def _target(policy: UpgradePolicy) -> Iterator[PreflightFinding]:
    if not policy.target and policy.work.mode is not WorkMode.NOTHING:
        text = (
            "no --target: whether the work had an effect is not checked, and after a leader's death"
            " it is unknown whether it ran"
        )
        yield PreflightFinding("target", WARNING, text)


def _control_plane(snapshot: PlanSnapshot) -> Iterator[PreflightFinding]:
    """Proofs P2 and P3 need both; their Leases show whether they run."""
    for name in LEASES:
        lease = snapshot.find("Lease", "kube-system", name)
        if not isinstance(lease, Lease) or lease.spec.renew_time is None:
            text = f"whether {name} runs: its Lease in kube-system was not read"
            yield PreflightFinding(name, NOT_EVALUATED, text)
        elif snapshot.now_ns - lease.spec.renew_time > MINUTE_NS:
            text = f"{name} has not renewed its Lease for over a minute; no node is proven without"
            yield PreflightFinding(name, WARNING, text)


def _daemon_sets(snapshot: PlanSnapshot, settings: Settings) -> list[PreflightFinding]:
    rules = behaviour_of((1, settings.profile.minor), settings.gates)
    taint, names = (unproven("run"),), []
    for daemon_set in snapshot.all_of(DaemonSet):
        try:
            tolerations = PodTemplate(daemon_set, rules).trial_tolerations
        except NodelifeError:
            continue
        if find_matching_untolerated_taint(taint, tolerations, (NO_SCHEDULE,)) is not None:
            names.append(f"{daemon_set.namespace}/{daemon_set.name}")
    text = (
        "these DaemonSets do not tolerate nodelife.dev/unproven; their pods stay, and count as"
        " misscheduled for the minutes of a proof: {}"
    )
    return _warning("DaemonSets", text, sorted(names))


def _tolerant_pods(snapshot: PlanSnapshot, nodes: Sequence[PlannedNode]) -> list[PreflightFinding]:
    names = [
        f"{pod.namespace}/{pod.name}"
        for planned in nodes
        for pod in snapshot.cache.pods_on(planned.name)
        if any(
            not t.key and t.operator == "Exists" and t.effect in ("", NO_SCHEDULE)
            for t in pod.spec.tolerations
        )
        and not stays_on_its_node(pod)
    ]
    text = "nothing keeps these off a node, they tolerate everything: {}"
    return _warning("tolerations", text, sorted(names))


def _webhooks(snapshot: PlanSnapshot) -> list[PreflightFinding]:
    configurations: list[MutatingWebhookConfiguration | ValidatingWebhookConfiguration] = []
    configurations += snapshot.all_of(MutatingWebhookConfiguration)
    configurations += snapshot.all_of(ValidatingWebhookConfiguration)
    names = {
        configuration.name
        for configuration in configurations
        for webhook in configuration.webhooks
        for rule in webhook.rules
        if {"pods/eviction", "pods/*", "*/*"}.intersection(rule.resources)
    }
    return _warning("webhooks", "these are asked about each eviction: {}", sorted(names))


def _upgraders(snapshot: PlanSnapshot) -> Iterator[PreflightFinding]:
    owners = ((controller_of(pod.metadata), pod.name) for pod in snapshot.pods)
    names = {owner.name if owner is not None else name for owner, name in owners}
    if found := sorted(word for word in _UPGRADERS if any(n.startswith(word) for n in names)):
        text = f"another upgrader runs here and may take nodes out too: {', '.join(found)}"
        yield PreflightFinding("other upgraders", WARNING, text)


def _settings(
    snapshot: PlanSnapshot, settings: Settings, nodes: Sequence[PlannedNode]
) -> Iterator[PreflightFinding]:
    """A node whose Lease is older than the grace period counts as unavailable."""
    longest_ns = max((snapshot.renewal_ns(node.name) or 0 for node in nodes), default=0)
    for text in settings.doubts(longest_ns):
        yield PreflightFinding("settings", WARNING, text)


def _left_out(nodes: Sequence[PlannedNode]) -> Iterator[PreflightFinding]:
    for why, check, text in (
        (UNHEALTHY, "unhealthy nodes", "not healthy now, left out and counted as unavailable: {}"),
        (TOO_FEW, "control plane", "{} would be skipped: of fewer than 3 none goes"),
        (UNDRAINABLE, "drains", "{} cannot be drained as things are, and would be skipped"),
    ):
        named = [n.name for n in nodes if n.left_out == why and n.decision != CLAIM]
        yield from _warning(check, text, named)


def _owners_of_machines(
    policy: UpgradePolicy, nodes: Sequence[PlannedNode]
) -> Iterator[PreflightFinding]:
    """What else may take the machine of a node that is not Ready, or drains by itself."""
    claimed = [node for node in nodes if node.decision == CLAIM]
    names = [n.name for n in claimed if _CAPI_MACHINE in (n.node.metadata.annotations or {})]
    text = (
        "Cluster API owns the machines of {}: a MachineHealthCheck may replace one that reboots;"
        f" annotate its Machine with {_CAPI_SKIP}"
    )
    yield from _warning("owners of machines", text, names)
    if policy.work.mode not in (WorkMode.WAIT, WorkMode.REPLACE):
        return
    keys = {key for node in claimed for key in node.node.metadata.labels or {}}
    if managed := sorted(_MANAGED[key] for key in keys & _MANAGED.keys()):
        text = (
            f"nodes of {', '.join(managed)}: an upgrade that the provider begins drains by itself,"
            " and nothing holds it; prove what it made with `kubectl nodelife upgrade prove NODE`"
        )
        yield PreflightFinding("owners of machines", WARNING, text)


def _unread(snapshot: PlanSnapshot) -> Iterator[PreflightFinding]:
    for kind, what in _READ_FOR.items():
        if not snapshot.was_read(kind):
            yield PreflightFinding("unread", NOT_EVALUATED, f"{what}: no {kind} was read")
