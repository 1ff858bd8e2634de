"""A kubelet may write its own Node: what it says there changes no other node, and no person's."""

import pytest
from msgspec.structs import replace

from kubectl_nodelife.acts.upgrade.lease import check_start, foreign_marks
from kubectl_nodelife.controllers.upgrade import marks
from kubectl_nodelife.controllers.upgrade.document import RunDocument, RunPhase, Step, StepNode
from kubectl_nodelife.controllers.upgrade.leaving import leftovers
from kubectl_nodelife.controllers.upgrade.policy import policy_of_spec
from kubectl_nodelife.errors import BadInput
from kubectl_nodelife.kube.field_managers import UNSCHEDULABLE, FieldManager, FieldManagers
from kubectl_nodelife.kube.node import Lease, Node, NodeMeta
from tests.upgrade.stand import Stand
from tests.upgrade.stand_cluster import LEASE_KEY
from tests.upgrade.vector_cases import DONE, DRAINING, FAILED, HELD, SETTLING, SOAKING, WORKING


def annotate(s: Stand, name: str, text: str) -> None:
    """The kubelet writes its own Node."""
    node = s.node(name)
    s.put(replace(node, metadata=replace(node.metadata, annotations={marks.ANNOTATION: text})))


def cordoned_by(s: Stand, name: str, manager: str) -> Node:
    """The node as the API server shows it: with the one who put its cordon on."""
    node, entry = s.node(name), FieldManager(manager, "Update", 0, frozenset({UNSCHEDULABLE}))
    meta = node.metadata
    managed = NodeMeta(
        name=meta.name,
        uid=meta.uid,
        labels=meta.labels,
        annotations=meta.annotations,
        creation_timestamp=meta.creation_timestamp,
        resource_version=meta.resource_version,
        managed_fields=FieldManagers((entry,)),
    )
    made = replace(node, metadata=managed, spec=replace(node.spec, unschedulable=True))
    s.put(made)
    return made


@pytest.mark.parametrize("state", [DRAINING, SOAKING, DONE, FAILED, HELD])
@pytest.mark.parametrize("release", [False, True])
def test_clean_takes_no_persons_cordon_off_because_a_kubelet_calls_it_ours(
    state: str, release: bool
) -> None:
    s = Stand(nodes=["x"])
    s.add_nodes("x")
    s.mark("x", state, cordon=marks.CordonOwner.OURS)
    (left,) = leftovers([cordoned_by(s, "x", "kubectl-cordon")], release_failed=release)
    assert left.patch is not None and left.patch.unschedulable is None
    assert "the cordon stays: kubectl-cordon put it on" in left.because
    assert "kubectl uncordon x" not in left.by_hand
    (ours,) = leftovers([cordoned_by(s, "x", marks.FIELD_MANAGER)], release_failed=True)
    assert ours.patch is not None and ours.patch.unschedulable is False


def test_a_run_takes_no_persons_cordon_off_either() -> None:
    s = Stand(nodes=["x"], maxUnavailable=5)
    s.add_nodes("x", "y")
    s.mark("x", SETTLING, cordon=marks.CordonOwner.OURS)
    cordoned_by(s, "x", "kubectl-cordon")
    s.run(20 * 60)
    assert s.went_through("x") and s.node("x").spec.unschedulable


def test_an_earlier_mark_says_no_more_than_a_mark() -> None:
    s = Stand(nodes=["x"])
    s.add_nodes("x")
    earlier = marks.NodeMark(run="r0", state=FAILED, cordon=marks.CordonOwner.OURS)
    s.mark("x", SETTLING, earlier=earlier)
    mark = marks.mark_of(cordoned_by(s, "x", "kubectl-cordon"))
    assert mark is not None and mark.earlier is not None
    assert (
        mark.cordon is marks.CordonOwner.THEIRS and mark.earlier.cordon is marks.CordonOwner.THEIRS
    )


def test_marks_within_marks_without_end_cannot_be_read() -> None:
    text = '{"run":"r","state":"Done","earlier":' * 5000 + "null" + "}" * 5000
    with pytest.raises(marks.UnreadableMark):
        marks.decode_mark(text)


def in_work(*others: str) -> Stand:
    """A run with x in work, which a document names, and other nodes."""
    s = Stand(nodes=["x", *others], maxUnavailable=5, target=["bootID=changed"])
    s.add_nodes("x", *others)
    s.mark("x", WORKING)
    entry = StepNode(uid=s.node("x").uid)
    s.write(step=Step(pool="", k=9, window=0, nodes={"x": entry}))
    return s


def test_a_kubelet_that_calls_its_node_the_newcomer_of_another_takes_no_place() -> None:
    s = in_work("evil")
    s.mark("evil", SETTLING, for_="x")
    s.lead(2)
    s.run(60)
    assert "x" in s.document.step.nodes, "x is there, and its work goes on"
    assert "says that it takes the place of x" in s.controller.foreign["evil"]
    assert s.state("evil") == SETTLING and not s.went_through("evil")


def test_nor_does_one_that_was_there_before_the_other_went() -> None:
    s = in_work("evil")
    s.settle()
    s.mark("evil", SETTLING, for_="x")
    s.cache.set("Node", ("", "x"), None)
    s.lead(2)
    s.run(60 * 60)
    assert "x" in s.document.failed, "nobody came in its place, and that is told"
    assert "evil" in s.controller.foreign


def lease_of(s: Stand) -> Lease:
    lease = s.cache.get("Lease", LEASE_KEY)
    assert isinstance(lease, Lease)
    return lease


@pytest.mark.parametrize("text", ['{"run":"r9","state":"Working"}', "nonsense", "{" * 3000])
def test_a_mark_of_an_unknown_run_holds_its_node_and_no_other(text: str) -> None:
    s = Stand(nodes=["x", "evil"], maxUnavailable=5)
    s.add_nodes("x", "evil")
    annotate(s, "evil", text)
    s.write(phase=RunPhase.FINISHED)
    nodes = list(s.cache.nodes.values())
    assert check_start(lease_of(s), nodes, s.policy, s.now_ns) == "", "a new run begins"
    told = foreign_marks(nodes, s.document)
    assert told.startswith("1 node with marks of run ") and "evil; left alone" in told
    s.write(phase=RunPhase.RUNNING)
    s.run(30 * 60)
    assert s.claimed() == ["x"] and not s.went_through("evil")
    assert "evil" in s.skipped
    assert foreign_marks([s.node("x")], s.document) == ""


# What stands on the Lease


def test_a_document_of_other_types_is_refused_with_a_line() -> None:
    for spec in ({"drain": [1]}, {"work": "x"}, {"target": {"a": 1}}, {"canaryImage": 5}):
        with pytest.raises(BadInput):
            policy_of_spec(spec)
    assert RunDocument(run="r").spec == {}
