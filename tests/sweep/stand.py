"""A study of a cluster of three nodes in three zones, whose kubelets renew at 6, 16, 26, … s."""

from collections.abc import Callable, Iterable, Sequence

import pytest

from kubectl_nodelife.engine.cache import Cache
from kubectl_nodelife.engine.settings import make_settings
from kubectl_nodelife.errors import BadInput
from kubectl_nodelife.kube.load import decode
from kubectl_nodelife.kube.times import SECOND_NS
from kubectl_nodelife.sweep.failures import Model
from kubectl_nodelife.sweep.points import Base, Point, Terms, base_of_cluster
from kubectl_nodelife.sweep.runs import MEASURES, Plan, RunId, play_runs
from tests.what_if.stand import ALL_KINDS, NOW_NS, Document, node

THREE = ("a1", "b1", "c1")


def base(objects: Iterable[Document], nodes: Sequence[str] = THREE) -> Base:
    """The cluster as a study has it."""
    documents = [*(each for name in nodes for each in node(name)), *objects]
    cluster = Cache()
    cluster.fill([decode(d["kind"], d) for d in documents], NOW_NS)
    return base_of_cluster(cluster, make_settings("newest"), NOW_NS, ALL_KINDS)


def plan(of: Base, *failures: Model, hours: float = 1) -> Plan:
    """A plan that measures everything."""
    named = tuple((f"model-{i}", model) for i, model in enumerate(failures))
    terms = Terms(round(hours * 3600 * SECOND_NS))
    return Plan("test", of, named, terms, tuple(MEASURES))


def measure(of: Plan, point: Point | None = None, seed: int = 1) -> dict[str, float]:
    """The measures of one run."""
    (result,) = play_runs(of, [RunId(0, 0, point or {}, seed)])
    return result.measures


def refusal(attempt: Callable[[], object]) -> str:
    """The line by which something is refused."""
    with pytest.raises(BadInput) as found:
        attempt()
    return str(found.value)
