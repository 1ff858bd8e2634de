"""Where a server-side dry run has to be said: a mistake here would be a write."""

from kubectl_nodelife.engine.calls import Request
from kubectl_nodelife.engine.calls.call import (
    Delete,
    Evict,
    Patch,
    as_dry_run,
    request_of_call,
)


def dry(call: Patch | Delete | Evict) -> Request:
    return as_dry_run(request_of_call(call))


def test_of_a_patch_in_the_query() -> None:
    cordon = Patch("Node", ("", "n1"), {"spec": {"unschedulable": True}})
    assert dry(cordon).path == "/api/v1/nodes/n1?dryRun=All"


def test_of_a_deletion_in_the_body_which_hides_the_query() -> None:
    delete = Delete("Pod", ("d", "p"), {"uid": "u"})
    assert dry(delete).body == {**request_of_call(delete).body, "dryRun": ["All"]}


def test_of_an_eviction_in_both_which_must_agree() -> None:
    evict = dry(Evict(("d", "p"), {"uid": "u"}))
    assert evict.path.endswith("/eviction?dryRun=All")
    assert evict.body["deleteOptions"] == {"preconditions": {"uid": "u"}, "dryRun": ["All"]}
