"""A leader dies between a run's end and its last mark: the next one clears away what is left."""

import pytest

from kubectl_nodelife.acts.upgrade.lease import check_start
from kubectl_nodelife.controllers.upgrade.document import RunPhase
from kubectl_nodelife.controllers.upgrade.marks import NodeState, outdated
from kubectl_nodelife.controllers.upgrade.policy import policy_digest, shown_policy
from kubectl_nodelife.engine.events import Outcome
from kubectl_nodelife.errors import Refused
from kubectl_nodelife.kube.meta import ObjectMeta
from kubectl_nodelife.kube.node import Lease
from kubectl_nodelife.kube.times import SECOND_NS
from kubectl_nodelife.kube.workload import Job
from tests.upgrade.stand import Stand
from tests.upgrade.stand_cluster import LEASE_KEY, RUN
from tests.upgrade.vector_cases import DONE, FAILED, HELD


def ended(phase: RunPhase, *states: NodeState) -> Stand:
    """A run that has ended, with a node in each of the states."""
    s = Stand()
    s.add_nodes("y", *(f"x{i}" for i in range(len(states))))
    for number, state in enumerate(states):
        s.mark(f"x{number}", state)
    s.write(phase=phase, policy=policy_digest(s.policy), spec=shown_policy(s.policy))
    return s


def goes_on(s: Stand, policy: Stand | None = None) -> str:
    """The run that `start` would go on with."""
    lease = s.cache.get("Lease", LEASE_KEY)
    assert isinstance(lease, Lease)
    return check_start(lease, s.cache.nodes.values(), (policy or s).policy, s.now_ns)


def test_the_same_order_goes_on_with_a_finished_run_whose_marks_are_still_there() -> None:
    assert goes_on(ended(RunPhase.FINISHED, DONE, FAILED)) == RUN
    s = ended(RunPhase.FINISHED)
    s.edit("y", spec={"taints": (outdated(RUN),)})
    assert goes_on(s) == RUN


def test_a_run_that_is_cleared_away_is_followed_by_a_new_one() -> None:
    assert goes_on(ended(RunPhase.FINISHED)) == ""
    assert goes_on(ended(RunPhase.FINISHED, FAILED, HELD)) == ""
    assert goes_on(ended(RunPhase.ABORTED, FAILED, HELD)) == ""


def test_a_forged_mark_does_not_bind_start_to_a_run_that_is_over() -> None:
    s = ended(RunPhase.FINISHED)
    s.mark("y", DONE, epoch=999)
    assert goes_on(s) == ""


def test_another_order_and_one_after_an_abort_are_sent_to_clean() -> None:
    with pytest.raises(Refused, match="r1 is Finished, and its marks are still on 1 nodes: x0"):
        goes_on(ended(RunPhase.FINISHED, DONE), Stand(maxParallel=3))
    with pytest.raises(Refused, match="r1 is Aborted") as refused:
        goes_on(ended(RunPhase.ABORTED, DONE))
    assert "upgrade clean" in (refused.value.remedy or "")


def test_another_order_is_told_which_run_is_led_by_whom_since_when_and_what_differs() -> None:
    s = ended(RunPhase.RUNNING, DONE)
    s.now_ns += 180 * SECOND_NS
    with pytest.raises(Refused) as refused:
        goes_on(s, Stand(retries=3))
    said = str(refused.value)
    assert said.startswith("run r1 (Running, begun 3m ago) has another order: retries is 1 there")
    assert "; no process leads it" in said


def test_marks_go_last_so_that_they_tell_of_what_is_left() -> None:
    s = ended(RunPhase.FINISHED, DONE)
    s.put(Job(metadata=ObjectMeta(name="j", namespace="n", labels={"nodelife.dev/run": RUN})))
    s.refuse["DeleteJob"] = (0, "no answer")
    assert [action.word for action in s.step()] == ["DeleteJob"] and s.state("x0") == DONE
    s.refuse.clear()
    s.settle()
    assert s.state("x0") == "" and s.controller.is_over


def test_a_run_is_cleared_away_only_once_the_answers_are_there() -> None:
    s = ended(RunPhase.FINISHED, DONE)
    (patch,) = [a for a in s.controller.make_pass(s.cache, s.now_ns) if a.word == "MarkNode"]
    s.controller.make_pass(s.cache, s.now_ns)
    assert not s.controller.is_over, "the PATCH is under way, and may fail"
    s.controller.outcome(Outcome(patch, 500), s.cache, s.now_ns)
    s.run(61)
    assert s.state("x0") == "" and s.controller.is_over


def test_a_deletion_that_is_refused_keeps_no_node_marked() -> None:
    s = ended(RunPhase.FINISHED, DONE)
    s.put(Job(metadata=ObjectMeta(name="j", namespace="n", labels={"nodelife.dev/run": RUN})))
    s.refuse["DeleteJob"] = (403, "forbidden")
    found = [action.word for action in (*s.step(), *s.step())]
    assert "MarkNode" in found and s.state("x0") == "" and not s.controller.is_over
