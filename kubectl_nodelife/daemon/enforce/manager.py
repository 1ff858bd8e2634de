"""A kube-controller-manager: whether one runs, which controllers it runs, and with which flags.

It is seen by its Lease, which changes while it runs; the Lease's own stamps are another clock's and
say nothing. Where it is a static pod, its mirror pod shows its command line. No Lease proves
nothing: a manager may run without leader election, or outside the cluster.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator
from typing import Any, Final

from kubectl_nodelife.controllers import UPSTREAM_NAMES
from kubectl_nodelife.daemon.settings import flags_of, unreadable, words_of
from kubectl_nodelife.engine.calls import Answer, Get, Request
from kubectl_nodelife.engine.calls.call import NOT_FOUND, TOO_MANY_REQUESTS
from kubectl_nodelife.engine.guard import Breaker, Guard
from kubectl_nodelife.engine.settings import FLAGS, NEWEST, parse_assignments, parse_profile
from kubectl_nodelife.live.writer import Writer

MANAGER_LEASE: Final = ("kube-system", "kube-controller-manager")
LOOK_SECONDS: Final = 10.0
REFUSED_LOOKS: Final = 3
_READ_SECONDS: Final = 5.0
_MANAGER: Final = "kube-controller-manager"
_COMPONENTS: Final = (_MANAGER, "kube-apiserver")
_OURS: Final = (
    *("node-monitor-", "node-startup-", "node-eviction-", "secondary-node-", "unhealthy-zone-"),
    *("large-cluster-", "pod-eviction-", "terminated-pod-", "taint-", "concurrent-daemonset-"),
)
"""How the names of flags begin that change what our controllers decide."""
_PODS: Final = "/api/v1/namespaces/kube-system/pods"
_WITHIN_NODE_LIFECYCLE: Final = "SeparateTaintEvictionController=false"

Json = dict[str, Any]


async def manager_lease(writer: Writer) -> Answer:
    """The Lease of a kube-controller-manager."""
    return await writer.call(Get("Lease", MANAGER_LEASE), timeout_s=_READ_SECONDS)


def lease_spec(answer: Answer) -> Json:
    """The spec of the Lease, {} for none."""
    return dict((answer.raw or {}).get("spec") or {})


async def control_plane_pods(writer: Writer) -> list[Json]:
    """Running pods of managers and API servers, as read; none where they cannot be seen."""
    request = Request("GET", _PODS, "", {})
    answer = await writer.send(request, "PodList", timeout_s=_READ_SECONDS)
    items = (answer.raw or {}).get("items") or () if answer.ok else ()
    return [pod for pod in items if _component(pod) and _runs(pod)]


def running_controllers(pods: Iterable[Json], holder: str) -> frozenset[str] | None:
    """Which of our controllers any visible manager runs; None where the Lease's holder is none of
    them, so that nothing is known.
    """
    managers = [pod for pod in pods if _component(pod) == _MANAGER]
    host = holder.partition("_")[0]
    if not any(host and pod["spec"].get("nodeName") == host for pod in managers):
        return None
    lines = [words_of(pod, _MANAGER) for pod in managers]
    return frozenset(name for words in lines for name in UPSTREAM_NAMES if _is_on(name, words))


def contradictions(pods: Iterable[Json], assignments: Collection[str]) -> Iterator[str]:
    """Where --set says another thing than the control plane runs with, one sentence each."""
    given = parse_assignments(assignments)
    for pod in pods:
        component = _component(pod)
        for flag, value in flags_of(pod, component):
            if FLAGS[flag].origin == component and given.get(flag, value) != value:
                yield f"--set {flag}={given[flag]}, but it runs with {value}"


def unknown_flags(pods: Iterable[Json]) -> Iterator[str]:
    """Flags of a visible manager that sound as if they changed what our controllers decide, and
    that no release known here has, or whose value cannot be read; one sentence each.
    """
    minor = parse_profile(NEWEST).minor
    for pod in pods:
        shown = {f: v for f, v in flags_of(pod, _component(pod)) if FLAGS[f].type != "gates"}
        present = {f: v for f, v in shown.items() if minor < FLAGS[f].until}
        for flag, why in unreadable(present, NEWEST):
            if FLAGS[flag].origin == _component(pod):
                yield f"it runs with --{flag}={shown[flag]}: {why}"
        if _component(pod) != _MANAGER:
            continue
        for word in words_of(pod, _MANAGER):
            name = word.lstrip("-").partition("=")[0]
            if word.startswith("--") and name.startswith(_OURS) and name not in FLAGS:
                yield f"it runs with --{name}, which no release known here has"


async def unproven(
    writer: Writer, controllers: Collection[str], assume_stopped: Collection[str], holder: str
) -> list[str]:
    """The controllers of which neither the user's word nor the manager's flags say that the manager
    does not run them.
    """
    to_prove = set(controllers) - set(assume_stopped)
    runs = running_controllers(await control_plane_pods(writer), holder) if to_prove else None
    return sorted(to_prove if runs is None else to_prove & runs)


async def watch_manager(
    writer: Writer,
    unproven_with: Callable[[str], Awaitable[Collection[str]]],
    guard: Guard,
    now_ns: Callable[[], int],
) -> None:
    """Open the breaker when a manager appears, or its Lease changes holder, until cancelled.

    `unproven_with` is asked which controllers that holder of the Lease may run beside us. So it is
    where reading it is refused three times in a row; a server that is down, or a page of another
    server, says nothing of managers.
    """
    last_spec: Json | None = None
    cleared, refused = "", 0
    while True:
        answer = await manager_lease(writer)
        if answer.ok or answer.code == NOT_FOUND:
            spec = lease_spec(answer)
            holder = str(spec.get("holderIdentity") or "")
            if last_spec is not None and spec != last_spec and holder != cleared:
                if running := await unproven_with(holder):
                    because = f"a kube-controller-manager runs ({holder}), maybe with "
                    guard.open(Breaker("manager", because + ", ".join(running), now_ns()))
                else:
                    cleared = holder
            last_spec, refused = spec, 0
        elif 400 <= answer.code < 500 and answer.code != TOO_MANY_REQUESTS:
            refused += 1
            if refused == REFUSED_LOOKS and (running := await unproven_with("")):
                because = f"whether one runs cannot be seen ({answer.message}), maybe with "
                guard.open(Breaker("manager", because + ", ".join(running), now_ns()))
        await asyncio.sleep(LOOK_SECONDS)


def _component(pod: Json) -> str:
    name = str(pod["metadata"]["name"])
    return next((c for c in _COMPONENTS if name.startswith(f"{c}-")), "")


def _runs(pod: Json) -> bool:
    return (pod.get("status") or {}).get("phase") == "Running"


def _is_on(name: str, words: list[str]) -> bool:
    """True if a manager with this command line runs the controller. Follows `IsControllerEnabled`.

    Taint eviction was a part of node lifecycle until v1.29, and is one without its feature gate.
    """
    values = list(_values(words, "controllers")) or ["*"]
    if any("$(" in value for value in values):
        return True
    on = _is_listed(UPSTREAM_NAMES[name], values)
    if name == "taint-eviction" and _is_listed(UPSTREAM_NAMES["node-lifecycle"], values):
        within = any(_WITHIN_NODE_LIFECYCLE in v for v in _values(words, "feature-gates"))
        return on or within or "-taint-eviction-controller" not in values
    return on


def _is_listed(names: frozenset[str], values: list[str]) -> bool:
    for value in values:
        if value.removeprefix("-") in names:
            return not value.startswith("-")
    return "*" in values


def _values(words: list[str], flag: str) -> Iterator[str]:
    """The parts of all values of a flag that may be given several times."""
    for number, word in enumerate(words):
        name, equals, value = word.lstrip("-").partition("=")
        if word.startswith("-") and name == flag:
            text = value if equals else "".join(words[number + 1 : number + 2])
            yield from (part.strip() for part in text.split(","))
