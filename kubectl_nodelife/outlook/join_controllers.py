"""Starts copies of the running controllers from what they wrote to the cluster (join)."""

from __future__ import annotations

from kubectl_nodelife.controllers.nodelifecycle import NodeLifecycleController
from kubectl_nodelife.controllers.tainteviction import TaintEvictionController
from kubectl_nodelife.engine.actions import Action
from kubectl_nodelife.engine.cache import Cache
from kubectl_nodelife.engine.controller import Controller
from kubectl_nodelife.engine.engine import Engine
from kubectl_nodelife.engine.settings import Settings
from kubectl_nodelife.outlook.node import Outlook


def join_controllers(
    cache: Cache, settings: Settings, now_ns: int, *, first_look: bool = False
) -> tuple[Outlook, list[Action]]:
    """The outlook at `now_ns`, and what the controllers would already have done by then.

    `first_look`: the cluster is a live one, and nobody has watched it before.
    """
    lifecycle = NodeLifecycleController(settings)
    runs_eviction = settings.flags.get("enable-taint-manager", "true") == "true"
    eviction = TaintEvictionController(settings) if runs_eviction else None
    controllers: list[Controller] = [lifecycle, *([eviction] if eviction is not None else [])]
    engine = Engine(controllers, cache, join=True)
    overdue = list(engine.step(now_ns, ()))
    outlook = Outlook(cache, settings, lifecycle, eviction, now_ns, first_look=first_look)
    return outlook, overdue
