"""The cluster as it was shown at one moment, from which every answer about it is made.

A daemon, a direct look and a dump each make one, and an answer does not depend on which. What the
controllers think of it is worked out when it is first asked for.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, ClassVar, Final

from kubectl_nodelife.engine.cache import Cache
from kubectl_nodelife.engine.settings import Settings
from kubectl_nodelife.kube.meta import KubeObject
from kubectl_nodelife.kube.unreadable import Unreadable, unreadable_sentences
from kubectl_nodelife.outlook.node import Outlook, join_controllers

WARMING_UP: Final = "warming up: "
"""How the warning begins that no node is called lost before a grace period has been watched."""


@dataclass(eq=False)
class ClusterView:
    """One cluster at one moment.

    `now_ns` is the moment in ns since the epoch, `moment` says the same for readers and where it is
    from, `source` is the contract's. `warnings` must be said with any answer. `unread`: the kinds
    that were asked for and are not to be had, each with the server's words ("": not in the dump, or
    not read yet). `first_look`: the cluster is a live one, and was not watched before.
    `nodes_listed`: False where one Node was read by itself, so that others may exist. `running`: of
    controllers that run already; without one the outlook is made of `objects`, with `unreadable` in
    quarantine, which `warnings` name. `doubts`: node -> why its age is unknown.
    """

    mode: ClassVar[str] = "dry-run"

    settings: Settings
    now_ns: int
    source: dict[str, Any] = field(kw_only=True)
    moment: dict[str, str] = field(kw_only=True)
    warnings: list[str] = field(kw_only=True)
    unread: Mapping[str, str] = field(kw_only=True)
    objects: Sequence[KubeObject] = ()
    unreadable: Sequence[Unreadable] = ()
    running: Outlook | None = None
    first_look: bool = False
    profile_origin: str = ""
    doubts: Mapping[str, str] = field(default_factory=dict)
    nodes_listed: bool = True

    @property
    def watched(self) -> bool:
        """True if a daemon watches the cluster, which may yet read what is unread."""
        return self.running is not None

    @property
    def foretells(self) -> bool:
        """True if the present may be played by it: not in a daemon that is blind, or for which
        silence counts from an instant of its own. One that has just begun takes silence from the
        objects, as a first look does."""
        if self.source.get("standsStill"):
            return False
        return not self.source.get("cold") or bool(self.source.get("firstLook"))

    @property
    def head(self) -> dict[str, Any]:
        """What answers from the view have in common."""
        profile = self.settings.profile.name
        return {"source": self.source, "profile": profile, "moment": self.moment}

    def is_listed(self, kind: str, name: str) -> bool:
        """True if an object of that name, without a namespace, would have been read if there were
        one."""
        return kind not in self.unread and not self.cache.is_quarantined(kind, ("", name))

    @cached_property
    def cache(self) -> Cache:
        """The objects by kind and key, pods by node, heartbeats."""
        if self.running is not None:
            return self.running.cache
        cache = Cache()
        cache.fill(self.objects, self.now_ns, self.unreadable)
        return cache

    def with_more(
        self,
        more: Cache,
        unread: Mapping[str, str],
        unreadable: Sequence[Unreadable] = (),
    ) -> ClusterView:
        """The same with objects of other kinds beside those that it has, in a cache of its own. In
        a forked child: where the daemon goes on, what it watches would change in both.
        """
        other = copy(self)
        other.cache = self.cache.fork_in_child()
        other.cache.fill((), self.now_ns, unreadable)
        other.cache.take_in(more, self.now_ns)
        other.unread = {**self.unread, **unread}
        other.warnings = [*self.warnings, *unreadable_sentences(unreadable)]
        return other

    @cached_property
    def outlook(self) -> Outlook:
        """The controllers' next decisions, from controllers joined to this moment."""
        if self.running is not None:
            return self.running
        return join_controllers(
            self.cache,
            self.settings,
            self.now_ns,
            first_look=self.first_look,
            doubts=self.doubts,
        )[0]
