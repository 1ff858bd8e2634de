"""Explains what a taint would do to the pods of a node: who goes now, who later, who never."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from kubectl_nodelife.kube.duration import human_duration
from kubectl_nodelife.kube.enumeration import first_names
from kubectl_nodelife.kube.node import Taint
from kubectl_nodelife.kube.pod import Pod
from kubectl_nodelife.kube.taints import no_execute_taints
from kubectl_nodelife.kube.times import SECOND_NS
from kubectl_nodelife.kube.wellknown import (
    NO_EXECUTE,
    TAINT_NODE_NOT_READY,
    TAINT_NODE_OUT_OF_SERVICE,
    TAINT_NODE_UNREACHABLE,
)
from kubectl_nodelife.outlook.eviction_forecast import EvictionForecast, eviction_forecast
from kubectl_nodelife.outlook.explain import ExplainedQuestion
from kubectl_nodelife.outlook.node import NodeOutlook, Outlook

_MOST_NAMES = 8
_OWN = (TAINT_NODE_NOT_READY, TAINT_NODE_UNREACHABLE)


def taint_sections(
    outlook: Outlook, of_node: NodeOutlook, taint: Taint, *, pods_read: bool
) -> Iterator[ExplainedQuestion]:
    """The effect of `kubectl taint node NODE TAINT` on its pods; taints that the node has stay."""
    node = of_node.node
    question = f"What would the taint {taint} do to its pods?"
    if not pods_read:
        yield ExplainedQuestion(question, ["Not known: no pods were read."])
        return
    if taint.effect != NO_EXECUTE:
        kept = "keeps" if taint.effect == "NoSchedule" else "makes the scheduler prefer to keep"
        sentence = f"Nothing: {taint.effect} {kept} new pods away and puts none out."
        yield ExplainedQuestion(question, [sentence])
        return
    if not outlook.settings.taint_manager:
        sentence = "Nothing: enable-taint-manager=false, so no controller acts on NoExecute taints."
        yield ExplainedQuestion(question, [sentence])
        return
    operators = outlook.settings.gate("TaintTolerationComparisonOperators")
    taints = (*no_execute_taints(node.spec.taints), taint)
    by_time: dict[EvictionForecast, list[Pod]] = {}
    for pod in of_node.pods:
        if pod.metadata.deletion_timestamp is None:
            forecast = eviction_forecast(pod, taints, comparison_operators=operators)
            by_time.setdefault(forecast, []).append(pod)
    yield ExplainedQuestion(question, list(_fates(by_time)) or ["Nothing: no pod runs on it."])
    yield ExplainedQuestion("What else is there to know?", list(_notes(of_node, taint)))


def _fates(by_time: dict[EvictionForecast, list[Pod]]) -> Iterator[str]:
    """The soonest first, those that stay last."""

    def place(forecast: EvictionForecast) -> tuple[bool, int, str]:
        seconds = forecast.after_seconds
        return seconds is None, seconds or 0, forecast.because

    for forecast in sorted(by_time, key=place):
        pods, seconds = by_time[forecast], forecast.after_seconds
        when = "Never" if seconds is None else f"In {human_duration(seconds * SECOND_NS)}"
        when = "Now" if seconds == 0 else when
        yield f"{when}, {len(pods)}: {_names(pods)}: {forecast.because}."


def _notes(of_node: NodeOutlook, taint: Taint) -> Iterator[str]:
    name = of_node.node.name
    yield (
        "Budgets are ignored: the pods are deleted, not evicted through the Eviction API. A drain "
        "asks the budgets: see 'kubectl nodelife drain-plan'."
    )
    if of_node.timers:
        yield f"{len(of_node.timers)} of its pods are on their way out already, by another taint."
    if taint.key in _OWN and of_node.ready == "True":
        yield (
            "The node is Ready, so that the node lifecycle controller takes this taint off at its "
            "next pass, and the timers with it."
        )
    if taint.key == TAINT_NODE_OUT_OF_SERVICE:
        yield (
            "This taint says that the machine is off: pod-gc then deletes its Terminating pods by "
            "force, and volumes are detached. Set it on no machine that may run."
        )
    yield "The time of each pod is fixed when the taint is seen; only taking it off stops that."
    yield f"To do it: kubectl taint node {name} {taint}; to undo it: the same with - at its end."


def _names(pods: Sequence[Pod]) -> str:
    return first_names(sorted(f"{pod.namespace}/{pod.name}" for pod in pods), _MOST_NAMES)
