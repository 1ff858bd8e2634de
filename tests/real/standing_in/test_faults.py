"""What an outside observer finds while a daemon enforces and its world goes wrong: nothing.

Writes are dropped, doubled, delayed and refused on their way; the process is killed, stopped and
doubled; its Lease is stolen; a person says stop. Each time the cluster ends as the real controllers
would leave it, and the observer, who reads the audit log alone, finds no rule broken.
"""

import json
import random
import signal
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from datetime import UTC, datetime

import pytest

from tests.enforce.fault_proxy import FaultProxy
from tests.enforce.observer import LEASE, Rules, Span, broken_rules, count_of_ours
from tests.real.control_plane import ControlPlane, control_plane
from tests.real.enforce_story import GRACE_S, SET, Story
from tests.real.enforcing import CONTROLLERS, Enforcer, enforcer, least_privilege
from tests.real.kubelets import Kubelets

ASSUMED = (f"--assume-stopped={','.join(CONTROLLERS)}", *SET)
RULES = Rules(grace_s=GRACE_S, noexecute_taints=10, deletions=100)
_LEASE_PATH = f"/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/{LEASE}"
_STOP_PATH = "/api/v1/namespaces/kube-system/configmaps"

FAULTS = ("drop", "lose-answer", "delay", "duplicate", "truncate", "409", "429", "500", "503")
EVERY = 3


@contextmanager
def cluster() -> Iterator[tuple[ControlPlane, Story]]:
    """A control plane without controllers, and the story's furniture on it."""
    with (
        control_plane(scheduler=True, audit_heartbeats=True) as plane,
        Kubelets(plane.api) as kubelets,
    ):
        story = Story(plane, kubelets)
        story.furnish()
        yield plane, story


def judge(plane: ControlPlane, rules: Rules = RULES) -> None:
    """The observer finds nothing in the writes of ours, of which there are some."""
    time.sleep(1)  # the audit log is written in batches
    audit = plane.audit()
    assert count_of_ours(audit), "nothing of ours was seen, so that nothing was judged"
    found = broken_rules(audit, rules)
    assert not found, "\n".join(found)


def play_with_fault(kind: str) -> int:
    """The whole story while a fault befalls the writes; how often it did."""
    with cluster() as (plane, story):
        authority = plane.folder / "certificates" / "apiserver.crt"
        with FaultProxy(plane.api.server, authority, plane.folder) as proxy:
            with enforcer(plane, *ASSUMED, server=proxy.url, ca=str(proxy.ca)) as daemon:
                proxy.faults.kind, proxy.faults.every = kind, EVERY
                story.wait_for_daemon_pods()
                story.lose_and_return("n0")
                story.roll()
                proxy.faults.every = 0
                assert daemon.stop() == 0
            judge(plane)
            return len(proxy.faults.done)


@pytest.fixture(scope="module")
def faulty_runs() -> Iterator[dict[str, Future[int]]]:
    """All faults, three at a time: they mostly wait."""
    with ThreadPoolExecutor(3) as pool:
        yield {kind: pool.submit(play_with_fault, kind) for kind in FAULTS}


@pytest.mark.parametrize("kind", FAULTS)
def test_writes_that_go_wrong(kind: str, faulty_runs: dict[str, Future[int]]) -> None:
    assert faulty_runs[kind].result() > 0, "the fault never happened"


def test_killed_again_and_again() -> None:
    chance = random.Random(7)
    with cluster() as (plane, story), enforcer(plane, *ASSUMED) as daemon:
        story.wait_for_daemon_pods()
        with ThreadPoolExecutor(1) as pool:
            roll = pool.submit(story.roll)
            for _ in range(5):
                time.sleep(chance.uniform(0.1, 3.0))
                daemon.kill()
                daemon.start()
            roll.result()
        story.lose_and_return("n1")
        assert daemon.stop() == 0
        judge(plane)


def test_stopped_for_longer_than_the_renew_deadline() -> None:
    with cluster() as (plane, story), enforcer(plane, *ASSUMED) as daemon:
        story.wait_for_daemon_pods()
        daemon.signal(signal.SIGSTOP)
        story.kubelets.stop("n2")
        time.sleep(18)
        daemon.signal(signal.SIGCONT)
        woke = time.time()
        story.kubelets.start("n2")
        time.sleep(5)
        story.lose_and_return("n3")
        assert daemon.stop() == 0
        cold = Span(woke, woke + GRACE_S - 1, "cold after the process stood still", harm_only=True)
        judge(plane, Rules(grace_s=GRACE_S, quiet=(cold,)))


def test_a_second_enforcer_is_refused() -> None:
    with cluster() as (plane, story), enforcer(plane, *ASSUMED):
        story.wait_for_daemon_pods()
        second = Enforcer(least_privilege(plane), plane.folder / "second", *ASSUMED)
        second.start(wait=False)
        assert second.process is not None
        assert second.process.wait(60) == 5
        assert "lease" in second.log().lower()
        assert LEASE in second.log()
        judge(plane)


def test_a_stolen_lease_ends_the_writing() -> None:
    with cluster() as (plane, story), enforcer(plane, *ASSUMED) as daemon:
        story.wait_for_daemon_pods()
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        spec = {"holderIdentity": "thief", "leaseDurationSeconds": 60, "renewTime": now}
        plane.api.merge(_LEASE_PATH, {"spec": spec})
        stolen = time.time()
        time.sleep(3)
        story.kubelets.stop("n4")
        time.sleep(15)
        status = daemon.run("daemon", "status", "-o", "wide")
        assert status.returncode == 1
        assert "thief" in status.stdout + status.stderr
        judge(plane, Rules(grace_s=GRACE_S, quiet=(Span(stolen + 2.5, time.time(), "stolen"),)))


def test_a_person_says_stop_and_go_on() -> None:
    with cluster() as (plane, story), enforcer(plane, *ASSUMED) as daemon:
        story.wait_for_daemon_pods()
        assert daemon.run("daemon", "pause").returncode == 0
        paused = time.time()
        story.kubelets.stop("n5")
        time.sleep(GRACE_S + 4)
        resumed = time.time()
        assert daemon.run("daemon", "resume").returncode == 0
        story.lose_and_return("n5")
        judge(plane, Rules(grace_s=GRACE_S, quiet=(Span(paused, resumed, "paused"),)))


def test_the_kill_switch_stops_every_writer() -> None:
    with cluster() as (plane, story), enforcer(plane, *ASSUMED):
        story.wait_for_daemon_pods()
        plane.api.create(_STOP_PATH, {"metadata": {"name": "nodelife-stop"}})
        stopped = time.time() + 5
        story.kubelets.stop("n0")
        time.sleep(GRACE_S + 8)
        released = time.time()
        plane.api.delete(f"{_STOP_PATH}/nodelife-stop")
        story.lose_and_return("n0")
        judge(plane, Rules(grace_s=GRACE_S, quiet=(Span(stopped, released, "stopped"),)))


def test_an_api_server_that_restarts_is_waited_for() -> None:
    with cluster() as (plane, story), enforcer(plane, *ASSUMED) as daemon:
        story.wait_for_daemon_pods()
        plane.restart("kube-apiserver")
        story.lose_and_return("n1")
        story.roll()
        assert daemon.stop() == 0
        judge(plane)


def test_a_manager_that_appears_opens_the_breaker() -> None:
    with cluster() as (plane, story), enforcer(plane, *SET) as daemon:
        story.wait_for_daemon_pods()
        plane.start_controller_manager()
        appeared = time.time() + 25
        deadline = time.monotonic() + 40
        while daemon.run("daemon", "status").returncode != 1:
            assert time.monotonic() < deadline, "the breaker stays closed beside a manager"
            time.sleep(1)
        story.roll()  # the real controller does it
        judge(plane, Rules(grace_s=GRACE_S, quiet=(Span(appeared, time.time(), "a manager runs"),)))


def test_the_journal_tells_every_write() -> None:
    with cluster() as (plane, story), enforcer(plane, *ASSUMED) as daemon:
        story.wait_for_daemon_pods()
        story.lose_and_return("n2")
        listed = daemon.run("changes", "-o", "json", "--since=1h")
        assert listed.returncode == 0, listed.stderr
        changes = json.loads(listed.stdout)["items"]
        assert any(change["outcome"] == "applied" for change in changes)
        for failed in (change for change in changes if change["outcome"] == "failed"):
            # Only the label of a node that its kubelet is just registering: it meets a conflict,
            # and is set again where the registration took it away.
            assert failed["action"] == "SetNodeLabel"
            node = plane.api.get(f"/api/v1/nodes/{failed['object']['name']}")
            detail = failed["detail"]
            assert node["metadata"]["labels"][detail["key"]] == detail["value"]
        assert daemon.stop() == 0
        judge(plane)
