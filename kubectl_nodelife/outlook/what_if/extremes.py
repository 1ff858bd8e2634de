"""What an answer reads of the plays of a fast and of a slow cluster: what the ranges stand on.

It is little beside a play, and can be handed from one process to another.
"""

from __future__ import annotations

import msgspec

from kubectl_nodelife.engine.settings import Settings
from kubectl_nodelife.outlook.what_if.document import PlayExtreme
from kubectl_nodelife.outlook.what_if.node_futures import deletions_by_node
from kubectl_nodelife.outlook.what_if.play_reading import PlayReading
from kubectl_nodelife.outlook.what_if.played import Played, seconds, span_seconds
from kubectl_nodelife.outlook.what_if.service_levels import Outage, ServedObject


class Extreme(msgspec.Struct, frozen=True):
    """`outages`: of workloads and Services whose level changed; `evicted`: how many pods of each
    workload; `deleted`: how many pods of each node; `waited_ns`: as of `Played`.
    """

    start_ns: int
    outages: dict[ServedObject, Outage]
    evicted: dict[ServedObject, int]
    deleted: dict[str, int]
    waited_ns: int

    @classmethod
    def of(cls, played: Played, settings: Settings) -> Extreme:
        """Of that play, which ended under these settings."""
        reading = PlayReading(played, settings)
        return cls(
            played.start_ns,
            reading.outages,
            dict(reading.evicted),
            {node: len(found) for node, found in deletions_by_node(reading)[0].items()},
            played.waited_ns,
        )

    def of_workload(self, workload: ServedObject, unchanged: Outage) -> PlayExtreme:
        """How the workload fared. `unchanged`: the figures of one whose level does not change."""
        outage = self.outages.get(workload, unchanged)
        return PlayExtreme(
            lowest_serving=outage.lowest_serving,
            at_zero_seconds=span_seconds(outage.at_zero_ns),
            back_seconds=seconds(outage.back_ns, self.start_ns),
        )
