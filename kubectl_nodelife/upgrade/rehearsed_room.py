"""The room of a rehearsed run: what is free on the nodes in service, and what a claim takes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from kubectl_nodelife.kube.times import SECOND_NS
from kubectl_nodelife.upgrade.course import Course
from kubectl_nodelife.upgrade.drain_driver import DrainDriver

FREE_EVERY_NS: Final = 30 * SECOND_NS
"""How often the free cpu and memory are added up anew: it is a sum over all nodes."""


class RehearsedRoom:
    """`low_water`: percent of cpu and memory to keep free. `in_service`: the nodes that take pods.

    The least free share is noted in the course.
    """

    def __init__(
        self,
        drains: DrainDriver,
        low_water: float,
        in_service: Callable[[], Sequence[str]],
        course: Course,
    ) -> None:
        self._drains = drains
        self._low_water = low_water
        self._in_service = in_service
        self._course = course
        self._free: dict[str, tuple[int, int]] = {}
        self._noted_ns = -FREE_EVERY_NS

    def note(self) -> None:
        """Add up what is free, if that was not done just now."""
        now_ns, course = self._drains.timeline.now_ns, self._course
        if now_ns - self._noted_ns < FREE_EVERY_NS:
            return
        self._noted_ns = now_ns
        self._free = dict(self._drains.free(self._in_service()))
        for resource, (free, total) in self._free.items():
            share = free / total if total else 0.0
            course.free_share[resource] = min(share, course.free_share.get(resource, share))

    def shortage(self, name: str) -> str:
        """Why its pods find no room, or too little stays free without the node; "" where not."""
        self.note()
        for resource, (free, total) in self._without(name).items():
            if free * 100 < self._low_water * total:
                share = f"{100 * free / max(1, total):.0f} % of {resource}"
                return f"{share} would stay free, --low-water asks for {self._low_water:g} %"
        return self._drains.homeless(name)

    def take(self, name: str) -> None:
        """The node is claimed: what it takes with it is no longer free."""
        self._free = self._without(name)

    def _without(self, name: str) -> dict[str, tuple[int, int]]:
        left = dict(self._free)
        for resource, (free, total) in self._drains.cost(name).items():
            before = left.get(resource, (0, 0))
            left[resource] = (before[0] - free, before[1] - total)
        return left
