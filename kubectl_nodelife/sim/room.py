"""Where the virtual scheduler finds room in a cluster, asked pod by pod and without a play."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec.structs import replace

from kubectl_nodelife.engine.cache import Cache
from kubectl_nodelife.engine.profiles import Profile
from kubectl_nodelife.kube.node import Node
from kubectl_nodelife.kube.pod import Pod
from kubectl_nodelife.sim.api import Api
from kubectl_nodelife.sim.scheduler import Scheduler
from kubectl_nodelife.sim.timeline import Agenda
from kubectl_nodelife.workloads.placement import PlacementSimulator
from kubectl_nodelife.workloads.scoring import HighestScore


class Room:
    """The cluster of a cache, which is changed from then on."""

    def __init__(self, cache: Cache, now_ns: int, profile: Profile) -> None:
        """`now_ns`: since the epoch."""
        self._api = Api(None, now_ns, cache)
        self._api.profile = profile
        self._scheduler = Scheduler(self._api, Agenda(), HighestScore())
        self._scheduler.begin()

    @property
    def nodes(self) -> Mapping[str, Node]:
        """The nodes by name."""
        return self._api.store.nodes

    @property
    def placement(self) -> PlacementSimulator:
        """The counts behind the answers."""
        return self._scheduler.placement

    def place(self, pod: Pod) -> str | None:
        """Bind a new pod to the node that the scheduler would take; None where none fits."""
        name = self._scheduler.place(pod)
        if name is not None:
            self._api.put("Pod", replace(pod, spec=replace(pod.spec, node_name=name)))
        return name

    def take_away(self, pod: Pod) -> None:
        """The pod's object is gone."""
        self._api.drop("Pod", pod.key)

    def cordon(self, name: str, *, cordoned: bool = True) -> None:
        """The node takes no more pods; or, `cordoned` False, takes them again."""
        node = self.nodes[name]
        spec = replace(node.spec, unschedulable=cordoned)
        self._api.put("Node", replace(node, spec=spec))
