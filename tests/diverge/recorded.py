"""An recorder at a lab: the journal's batches are handed to it, and nobody answers it."""

from typing import Any

from msgspec.structs import replace

from kubectl_nodelife.daemon.changes import ChangeFilter
from kubectl_nodelife.daemon.divergence_recorder import DivergenceRecorder
from kubectl_nodelife.kube.node import Node, NodeSpec, Taint
from kubectl_nodelife.outlook.diverge.observations import ObservedWrite
from tests.daemon.lab import SECOND, Lab, node


class RecordedLab:
    """The recorder, and what it has noted."""

    def __init__(self, lab: Lab) -> None:
        self._lab = lab
        self.recorder = DivergenceRecorder(lab.sources)

    async def answer(self, **query: str) -> dict[str, Any]:
        """The document, after all that the journal has told."""
        self.recorder.take(await self._lab.journal.select(ChangeFilter()))
        made = await self.recorder.answer({key: [value] for key, value in query.items()})
        document: dict[str, Any] = made["document"]
        return document

    async def after(self, seconds: float, *renewing: str) -> None:
        """Time goes by, and the recorder looks each second."""
        for _ in range(round(seconds)):
            await self._lab.after(1, *renewing)
            self.recorder.note_watching(self._lab.now)

    async def until_planned(self, action: str, *renewing: str) -> None:
        """Time goes by until our copy has just decided that."""
        for _ in range(120):
            if any(word == action for word, _, _ in await self._lab.told(outcome="would")):
                return
            await self.after(1, *renewing)
        raise AssertionError(f"{action} was never planned")

    def observed(self, what: str = "") -> list[ObservedWrite]:
        """What was seen."""
        seen = self.recorder.record(self._lab.now, self._lab.now - 3600 * SECOND).observed
        return [s for s in seen if not what or s.what == what]


def recorded_lab(lab: Lab) -> RecordedLab:
    """Call it before the lab begins."""
    return RecordedLab(lab)


def unknown(name: str = "n1", **more: Any) -> Node:
    """A node as a controller that calls it lost leaves it."""
    lost = node(name, "Unknown", reason="NodeStatusUnknown", **more)
    ready = lost.status.conditions[0]
    others = ("MemoryPressure", "DiskPressure", "PIDPressure")
    conditions = (ready, *(replace(ready, type=type_) for type_ in others))
    return replace(lost, status=replace(lost.status, conditions=conditions))


def with_taints(of: Node, *taints: Taint) -> Node:
    """The node with these taints only."""
    return replace(of, spec=NodeSpec(taints=taints))
