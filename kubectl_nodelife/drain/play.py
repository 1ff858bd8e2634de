"""One run of a plan: a world, and the kubectl processes in it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from kubectl_nodelife.drain.actors import PlannedPod
from kubectl_nodelife.drain.admission import Admission
from kubectl_nodelife.drain.scope import Scope
from kubectl_nodelife.drain.world import PlanWorld
from kubectl_nodelife.sim.kubectl.conversation import NodeRun
from kubectl_nodelife.sim.kubectl.drain import KubectlDrain
from kubectl_nodelife.sim.kubectl.options import DrainOptions
from kubectl_nodelife.sim.timing import Timing


class WaveInPlay(NamedTuple):
    """Nodes that are drained together; `start_ns` is None where the plan does not come to it."""

    nodes: tuple[str, ...]
    start_ns: int | None
    end_ns: int | None


@dataclass(slots=True)
class Play:
    """The events and results of one run.

    `runs`: each node's turn, for those that had one. `end_ns`: when the last command returned,
    None where one never does.
    """

    scope: Scope
    options: DrainOptions
    world: PlanWorld
    runs: dict[str, NodeRun[PlannedPod]] = field(default_factory=dict)
    waves: list[WaveInPlay] = field(default_factory=list)
    end_ns: int | None = None

    def end(self) -> None:
        """Free the nodes of the play once it is read off: nobody asks again where pods find room.

        The nodes of each play are many objects, and go at once instead of by the garbage collector.
        """
        self.world.landing.end()


def play_kubectl(
    scope: Scope,
    admission: Admission,
    options: DrainOptions,
    timing: Timing,
    cordoned: Sequence[str] = (),
    *,
    late_renew: bool = False,
) -> Play:
    """`kubectl drain NODE...`: one process, the nodes of the scope in their order.

    `cordoned`: nodes that the command names besides, where only a part of it is played.
    `late_renew`: kubelets that are late are slow, and not silent.
    """
    world = PlanWorld(scope, admission, timing, late_renew=late_renew)
    world.cordon(*(name for name in cordoned if name not in scope.pods))
    process = KubectlDrain(world, options, scope.nodes, timing.requests)
    process.start(0)
    world.clock.run(process.settled, process.answered)
    world.end()
    play = Play(scope, options, world, end_ns=process.ended_ns)
    play.runs = {run.name: run for run in process.runs}
    for name in scope.nodes:
        run = play.runs.get(name)
        play.waves.append(
            WaveInPlay((name,), run.start_ns if run else None, run.end_ns if run else None)
        )
    return play
