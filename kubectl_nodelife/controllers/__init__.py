"""The decisions: a folder for each controller, in one ordered list.

The order is that in which they see an event and are woken at one instant. Controllers are pure and
never import one another; what they share is in `kube`, `workloads` and `engine`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

from kubectl_nodelife.errors import BadInput

if TYPE_CHECKING:
    from kubectl_nodelife.engine.controller import Controller
    from kubectl_nodelife.engine.settings import Settings

# name -> (folder, class), in order; imported when asked for, since a verb seldom needs all
CONTROLLERS: Final[Mapping[str, tuple[str, str]]] = {
    "node-lifecycle": ("nodelifecycle", "NodeLifecycleController"),
    "pod-gc": ("podgc", "PodGCController"),
    "taint-eviction": ("tainteviction", "TaintEvictionController"),
    "daemonset": ("daemonset", "DaemonSetController"),
}

UPSTREAM_NAMES: Final[Mapping[str, frozenset[str]]] = {
    "node-lifecycle": frozenset({"node-lifecycle-controller", "nodelifecycle"}),
    "pod-gc": frozenset({"pod-garbage-collector-controller", "podgc"}),
    "taint-eviction": frozenset({"taint-eviction-controller"}),
    "daemonset": frozenset({"daemonset-controller", "daemonset"}),
}
"""What `--controllers` of a kube-controller-manager calls them: its names, and the older ones."""

IN_KUBELETS: Final = "pod-status"
"""Stands among the names of controllers and is part of the simulated kubelets: the world runs it
(`sim/status_manager`). A real cluster's kubelets do it themselves."""


def make_controllers(
    settings: Settings,
    names: Collection[str],
    *,
    pass_drift_ns: int = 0,
    workers_seed: int | None = None,
) -> list[Controller]:
    """The controllers of these names, in their order.

    `pass_drift_ns`: by how much each monitor pass and each run of pod-gc begins late. Without the
    taint manager (flag enable-taint-manager) there is no taint-eviction; with `workers_seed` its
    workers run apart, by chance that this number decides. Raises KeyError for an unknown name.
    """
    unknown = set(names) - CONTROLLERS.keys() - {IN_KUBELETS}
    if unknown:
        raise KeyError(min(unknown))
    made: list[Controller] = []
    for name, (folder, class_name) in CONTROLLERS.items():
        if name not in names or (name == "taint-eviction" and not settings.taint_manager):
            continue
        options: dict[str, Any] = {}
        if name == "taint-eviction" and workers_seed is not None:
            class_name, options["seed"] = "ParallelTaintEviction", workers_seed
        make: Callable[..., Controller] = getattr(import_module(f"{__name__}.{folder}"), class_name)
        if name in ("node-lifecycle", "pod-gc"):
            options["pass_drift_ns"] = pass_drift_ns
        made.append(make(settings, **options))
    return made


def controller_names(text: str, flag: str) -> tuple[str, ...]:
    """Our names of the controllers in a flag's value, where upstream's may stand as well. Raises
    BadInput.
    """
    names: list[str] = []
    for word in filter(None, text.split(",")):
        called = word.strip()
        name = next((n for n in CONTROLLERS if called == n or called in UPSTREAM_NAMES[n]), None)
        if name is None:
            raise BadInput(
                f"there is no controller {word!r} that can be enforced",
                on=flag,
                remedy="they are node-lifecycle, taint-eviction, pod-gc and daemonset",
            )
        if name not in names:
            names.append(name)
    return tuple(names)
