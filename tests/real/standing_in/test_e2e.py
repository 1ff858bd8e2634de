"""Kubernetes' own end-to-end tests pass with our daemon in place of the controllers.

All specs of v1.37.2 that pass with the real controllers: DaemonSets, ControllerRevisions, NoExecute
taints and the pod garbage collector. They run on three stands side by side, each with an API
server, nodes and a daemon of its own, since they are serial and mostly wait.
"""

import os
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor

import pytest

from tests.real.e2e_stand import GC_THRESHOLD, Outcome, e2e_assets, stand
from tests.real.enforcing import CONTROLLERS

_ASKED = os.environ.get("NODELIFE_REAL") == "required"
pytestmark = pytest.mark.skipif(
    e2e_assets() is None and not _ASKED,
    reason="no e2e.test and kwok beside the control plane: .ci/kube-e2e builds them",
)

_DAEMON_FLAGS = (
    f"--assume-stopped={','.join(CONTROLLERS)}",
    "--caps=upstream",
    "--begin=restart",
    "--set",
    f"terminated-pod-gc-threshold={GC_THRESHOLD}",
)
_SIDE_BY_SIDE = 3

_SET = "[sig-apps] Daemon set should "
_SINGLE = "[sig-node] NoExecuteTaintManager Single Pod "
_MULTIPLE = "[sig-node] NoExecuteTaintManager Multiple Pods "

GROUPS: dict[str, tuple[str, ...]] = {
    "several pods, garbage": (
        _MULTIPLE + "only evicts pods without tolerations from tainted nodes",
        _MULTIPLE + "evicts pods with minTolerationSeconds",
        "[sig-node] Pod garbage collector [Feature:PodGarbageCollector] should handle the creation"
        " of 1000 pods",
    ),
    "tolerations that end": (
        _SINGLE + "eventually evict pod with finite tolerations from tainted nodes",
        _SINGLE + "removing taint cancels eviction",
    ),
    "one pod": (
        _SINGLE + "evicts pods from tainted nodes",
        _SINGLE + "doesn't evict pod with tolerations from tainted nodes",
        _SINGLE + "pods evicted from tainted nodes have pod disruption condition",
    ),
    "daemon sets": (
        _SET + "run and stop simple daemon",
        _SET + "run and stop complex daemon",
        _SET + "run and stop complex daemon with node affinity",
        _SET + "retry creating failed daemon pods",
        _SET + "not update pod when spec was updated and update strategy is OnDelete",
        _SET + "update pod when spec was updated and update strategy is RollingUpdate",
        _SET + "rollback without unnecessary restarts",
        _SET + "surge pods onto nodes when spec was updated and update strategy is RollingUpdate",
        _SET + "list and delete a collection of DaemonSets",
        _SET + "verify changes to a daemon set status",
        "[sig-apps] ControllerRevision should manage the lifecycle of a ControllerRevision",
    ),
}
GROUP_OF = {spec: group for group, specs in GROUPS.items() for spec in specs}


@pytest.fixture(scope="module")
def runs() -> Iterator[dict[str, Future[list[Outcome]]]]:
    """All groups, the longest first, some at a time."""
    with ThreadPoolExecutor(_SIDE_BY_SIDE) as pool:
        yield {group: pool.submit(_run, specs) for group, specs in GROUPS.items()}


def _run(specs: tuple[str, ...]) -> list[Outcome]:
    with stand() as made:
        made.begin(*_DAEMON_FLAGS)
        outcomes = made.run_specs("|".join(_quoted(spec) for spec in specs))
        daemon = made.daemon.log() if made.daemon is not None else ""
    failed = [o for o in outcomes if o.state != "passed"]
    if failed:
        print(daemon)
    return outcomes


def _quoted(text: str) -> str:
    """The text as a regular expression of Go's; labels stand apart from the texts since v1.37."""
    for character in "\\.+*?()|[]{}^$":
        text = text.replace(character, "\\" + character)
    return text


@pytest.mark.parametrize("spec", GROUP_OF)
def test_spec_passes(spec: str, runs: dict[str, Future[list[Outcome]]]) -> None:
    outcomes = runs[GROUP_OF[spec]].result()
    of_suite = [o for o in outcomes if o.name not in GROUP_OF]
    assert not of_suite, of_suite
    (outcome,) = [o for o in outcomes if o.name == spec] or pytest.fail(f"not run; {outcomes}")
    assert outcome.state == "passed", outcome.message
