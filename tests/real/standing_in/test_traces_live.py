"""The recorded scenarios of `tests/traces`, played live with our daemon in the controllers' place.

Each has an API server and played kubelets of its own; those of older releases follow that profile
on the newest server, as they were recorded. The daemon's writes, from the audit log, are held
against the real controllers' by the rule of the traces, with two seconds for the phase of the
passes. As in the recordings t=0 is the first pass of the node monitor: kubelets renew 0.3 s after a
pass, so that nodes which are lost together are seen together. NODELIFE_TRACES=all plays those too
that CI leaves out, NODELIFE_TRACES=WORD those whose name has that word; NODELIFE_KEEP names a
folder in which what was played is kept.
"""

import contextlib
import json
import os
import re
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import pytest
import yaml

from tests.real.audited import Json, writes
from tests.real.control_plane import ControlPlane
from tests.real.enforcing import enforcer, least_privilege
from tests.real.recording import record
from tests.traces.compare import Outcome, compare
from tests.traces.conftest import OWN_TRACES

AT_A_TIME = 6
PUNCTUAL_S = 0.6
"""A renewal that is later than that may miss the pass of a second that would have seen it."""
PLAYS = 4
SLACK_S = 2.0
FIRST_PASS_S = 60.0
MONITORS = ("node-controller", "node-lifecycle-controller")

IN_CI = (
    "node-deleted-pods-collected",
    "daemonset-rolling-update",
    "partial-disruption-small-zone",
    "v1.16-classic-eviction",
    "daemonset-follows-nodes",
    "full-disruption-one-zone",
    "v1.33-daemonset-on-lost-node",
    "v1.16-taint-based",
    "taint-exchanged-while-pods-wait",
    "kubelet-reports-not-ready",
    "recovers-before-toleration-ends",
    "user-taints-noexecute",
    "first-matching-toleration-counts",
    "pressure-and-cordon-taints",
)
"""What shows something of its own, the longest first."""

LATER = {
    "all-zones-dark-then-back": 11.0,
}
"""Traces that differ on purpose -> by how many seconds harm may be later than recorded, never
sooner. Where all nodes are silent nothing is seen, as where we are cut off: a watch that said
nothing for 15 s is opened anew, and for one grace period nothing harmful is done.
"""

_NAMES = sorted(path.parent.name for path in OWN_TRACES.glob("*/timeline.json"))
_ALL = [name for name in _NAMES if not name.endswith("stale-leases")]
"""Without those in which a proxy holds back the watch of a controller manager."""
_ASKED = os.environ.get("NODELIFE_TRACES", "")
_RATES = ("--set=kube-api-qps=1000", "--set=kube-api-burst=2000")
_AT_ANOTHER_TIME = re.compile(r"recorded at ([\d.]+), simulated at ([\d.]+): ")


def chosen() -> list[str]:
    """The names of the traces to play."""
    if not _ASKED:
        return list(IN_CI)
    return [name for name in _ALL if _ASKED == "all" or _ASKED in name]


@contextlib.contextmanager
def our_controllers(plane: ControlPlane, spec: Json) -> Iterator[float]:
    """The daemon with the scenario's profile and flags; when its node monitor first passed."""
    names = ",".join(spec["controllers"])
    flags = [f"--set={name}={value}" for name, value in spec["flags"].items()]
    words = (f"--enforce={names}", f"--assume-stopped={names}", "--begin=restart")
    flags += [f"--profile={spec['profile']}", "--caps=upstream", *_RATES]
    (account,) = plane.folder.glob("least-*/kubeconfig")
    with enforcer(plane, *words, *flags, kubeconfig=account) as daemon:
        yield first_pass(plane)
        assert daemon.stop() == 0


def first_pass(plane: ControlPlane) -> float:
    """When our node monitor first passed, in seconds since the epoch: it says of each node that it
    is registered. On a busy machine that is most of a second after the daemon began to enforce.
    """
    deadline = time.monotonic() + FIRST_PASS_S
    while time.monotonic() < deadline:
        at = [w.at for w in writes(plane.audit()) if w.who in MONITORS and w.accepted]
        if at:
            return min(at)
        time.sleep(0.02)
    raise AssertionError(f"the node monitor did not pass in {FIRST_PASS_S:.0f}s")


def play(folder: Path) -> Outcome:
    """Play the scenario, and compare. One that was not played on time is played again."""
    recorded = json.loads((folder / "timeline.json").read_bytes())
    for _ in range(PLAYS):
        scenario = yaml.safe_load((folder / "scenario.yaml").read_bytes())
        played = record(scenario, our_controllers, least_privilege)
        if keep := os.environ.get("NODELIFE_KEEP"):
            (Path(keep) / f"{folder.name}.json").write_text(json.dumps(played))
        if played["latestSeconds"] < PUNCTUAL_S:
            return compare(recorded, played, SLACK_S)
    raise AssertionError(f"this machine is too busy: {played['latestSeconds']:.1f}s late")


def is_on_purpose(name: str, difference: str) -> bool:
    """True if the write is only later, by no more than the trace may be."""
    times = _AT_ANOTHER_TIME.match(difference)
    return times is not None and 0 < float(times[2]) - float(times[1]) <= LATER.get(name, 0)


@pytest.fixture(scope="module")
def outcomes(request: pytest.FixtureRequest) -> Iterator[dict[str, Future[Outcome]]]:
    """Those that this run asks for, being played."""
    asked = [
        item.callspec.params["name"]
        for item in request.session.items
        if isinstance(item, pytest.Function) and item.module is request.module
    ]
    with ThreadPoolExecutor(AT_A_TIME) as pool:
        yield {name: pool.submit(play, OWN_TRACES / name) for name in asked}


@pytest.mark.parametrize("name", chosen())
def test_the_daemon_does_what_the_real_controllers_did(
    name: str, outcomes: dict[str, Future[Outcome]]
) -> None:
    outcome = outcomes[name].result()
    assert outcome.matched > 0
    differences = [d for d in outcome.differences if not is_on_purpose(name, d)]
    assert not differences, "\n".join(["", *differences])
