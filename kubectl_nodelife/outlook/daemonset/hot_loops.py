"""DaemonSets whose pods are made and deleted over and over on a node with a NoExecute taint.

The DaemonSet controller takes a toleration of a NoExecute taint for one, whatever its seconds
(`nodeShouldRunDaemonPod`); taint-eviction deletes a pod at once whose toleration has 0 of them.
With maxSurge a pod that is being deleted holds nothing up (docs/upstream/surge-hot-loop.md), so
that both go on as fast as their clients may write; without it each pod waits for the end of the one
before.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from kubectl_nodelife.controllers.daemonset.behaviour import behaviour_of
from kubectl_nodelife.controllers.daemonset.rolling_update import allows_surge
from kubectl_nodelife.controllers.daemonset.template import PodTemplate
from kubectl_nodelife.controllers.tainteviction.eviction_terms import tolerated_stay
from kubectl_nodelife.engine.pace import pace_of
from kubectl_nodelife.engine.settings import Settings
from kubectl_nodelife.kube.errors import InputError
from kubectl_nodelife.kube.node import Taint
from kubectl_nodelife.kube.taints import no_execute_taints
from kubectl_nodelife.kube.wellknown import NO_EXECUTE
from kubectl_nodelife.kube.workload import DaemonSet
from kubectl_nodelife.outlook.daemonset.view import SetView
from kubectl_nodelife.outlook.eviction_forecast import LOST

_ANY: Final = Taint(key="any-other-key", effect=NO_EXECUTE)


def hot_loops_now(view: SetView, settings: Settings) -> Iterator[str]:
    """A sentence for each node on which the set's pod goes in a circle now."""
    for name, verdict, _ in view.nodes():
        node = view.cache.nodes.get(name)
        if node is None or verdict is None or not verdict.should_run:
            continue
        for taint in _ended_at_once(view.tracked.template, no_execute_taints(node.spec.taints)):
            often = _how_often(view.daemon_set, settings)
            yield (
                f"its pod on {name} is made by daemonset and deleted by taint-eviction over and"
                f" over, {often}, until {taint} is off: {_WHY}"
            )


def hot_loops_beforehand(sets: Iterable[DaemonSet], settings: Settings) -> Iterator[str]:
    """A sentence for each set of which that would be so on a node with some NoExecute taint."""
    rules = behaviour_of((1, settings.profile.minor), settings.gates)
    for daemon_set in sorted(sets, key=lambda each: each.key):
        try:
            taints = [*_ended_at_once(PodTemplate(daemon_set, rules), (*LOST, _ANY))]
        except InputError:
            continue
        if taints:
            keys = [f"any other key:{NO_EXECUTE}" if t is _ANY else str(t) for t in taints]
            yield (
                f"daemonset/{daemon_set.namespace}/{daemon_set.name}: on a node with"
                f" {' or '.join(keys)}, and no NoSchedule taint that keeps its pod away, daemonset"
                f" makes and taint-eviction deletes its pod over and over,"
                f" {_how_often(daemon_set, settings)}: {_WHY}; leave tolerationSeconds out of it"
            )


_WHY: Final = "the first toleration that matches ends at once (tolerationSeconds 0)"


def _ended_at_once(template: PodTemplate, taints: Sequence[Taint]) -> Iterator[Taint]:
    """The taints that the template tolerates for no time at all."""
    for taint in taints:
        stay = tolerated_stay(template.trial_tolerations, (taint,), comparison_operators=False)
        if stay.toleration is not None and stay.seconds == 0:
            yield taint


def _how_often(daemon_set: DaemonSet, settings: Settings) -> str:
    rules = behaviour_of((1, settings.profile.minor), settings.gates)
    if not (rules.surge and allows_surge(daemon_set)):
        return "each time the one before is gone"
    pace = pace_of(settings)
    if pace is None:
        return "without a pause (its maxSurge counts no pod that is being deleted)"
    return (
        f"about {pace.evictions_a_second:g} times a second at {pace.qps:g} requests a second (its"
        " maxSurge counts no pod that is being deleted)"
    )
