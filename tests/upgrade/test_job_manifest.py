"""The Job of `--job FILE`, bound to one node."""

import copy
from typing import Any

import pytest

from kubectl_nodelife.controllers.upgrade.manifests import (
    VARIABLES,
    UnsafeVariable,
    WorkVariables,
    check_job_manifest,
    job_manifest,
)
from kubectl_nodelife.errors import BadInput

VALUES = {name: name.lower() for name in VARIABLES} | {"NODE": "b7", "NODE_UID": "u7", "RUN": "r1"}
TOLD = WorkVariables(VALUES, {})
MANIFEST: dict[str, Any] = {
    "apiVersion": "batch/v1",
    "kind": "Job",
    "metadata": {"generateName": "upgrade-", "labels": {"team": "infra"}},
    "spec": {
        "backoffLimit": 0,
        "template": {
            "spec": {
                "restartPolicy": "Never",
                "containers": [
                    {"name": "work", "image": "tool", "args": ["--node=$(NODE)", "$(HOME)", "$x"]}
                ],
            }
        },
    },
}


def made(manifest: dict[str, Any] = MANIFEST) -> dict[str, Any]:
    return job_manifest(manifest, "nodelife", "nodelife-r1-abcd-1", TOLD, 1800)


def test_variables_are_put_in_and_others_left_for_kubernetes() -> None:
    args = made()["spec"]["template"]["spec"]["containers"][0]["args"]
    assert args == ["--node=b7", "$(HOME)", "$x"]


def test_it_runs_on_the_node_alone_while_that_is_cordoned_or_silent() -> None:
    pod = made()["spec"]["template"]["spec"]
    terms = pod["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    field = {"key": "metadata.name", "operator": "In", "values": ["b7"]}
    assert terms == {"nodeSelectorTerms": [{"matchFields": [field]}]}
    tolerated = {(t["key"], t["effect"], t.get("tolerationSeconds")) for t in pod["tolerations"]}
    assert tolerated == {
        ("node.kubernetes.io/unschedulable", "NoSchedule", None),
        ("nodelife.dev/unproven", "NoSchedule", None),
        ("node.kubernetes.io/not-ready", "NoExecute", None),
        ("node.kubernetes.io/unreachable", "NoExecute", None),
    }


def test_each_alternative_of_the_users_affinity_is_bound() -> None:
    manifest = copy.deepcopy(MANIFEST)
    blue = {"key": "pool", "operator": "In", "values": ["blue"]}
    required = "requiredDuringSchedulingIgnoredDuringExecution"
    manifest["spec"]["template"]["spec"]["affinity"] = {
        "nodeAffinity": {
            required: {"nodeSelectorTerms": [{"matchExpressions": [blue]}, {"matchFields": []}]}
        }
    }
    pod = made(manifest)["spec"]["template"]["spec"]
    terms = pod["affinity"]["nodeAffinity"][required]["nodeSelectorTerms"]
    assert terms[0]["matchExpressions"] == [blue]
    assert [term["matchFields"][-1]["values"] for term in terms] == [["b7"], ["b7"]]


def test_name_owner_labels_and_deadline_are_ours_and_the_rest_is_the_users() -> None:
    job = made()
    meta, spec = job["metadata"], job["spec"]
    assert meta["name"] == "nodelife-r1-abcd-1" and "generateName" not in meta
    assert meta["namespace"] == "nodelife"
    assert meta["labels"] == {"team": "infra", "nodelife.dev/run": "r1"}
    assert spec["template"]["metadata"]["labels"] == {"nodelife.dev/run": "r1"}
    assert (meta["ownerReferences"][0]["kind"], meta["ownerReferences"][0]["uid"]) == ("Node", "u7")
    assert (spec["podReplacementPolicy"], spec["activeDeadlineSeconds"]) == ("Failed", 1800)
    assert spec["backoffLimit"] == 0


def test_a_deadline_and_a_namespace_of_the_users_stay() -> None:
    manifest = copy.deepcopy(MANIFEST)
    manifest["metadata"]["namespace"] = "infra"
    manifest["spec"]["activeDeadlineSeconds"] = 60
    job = made(manifest)
    assert job["metadata"]["namespace"] == "infra"
    assert job["spec"]["activeDeadlineSeconds"] == 60


def test_the_manifest_as_given_is_not_changed() -> None:
    before = copy.deepcopy(MANIFEST)
    made()
    assert before == MANIFEST


@pytest.mark.parametrize(
    ("manifest", "because"),
    [
        ([], "no Job"),
        ({"apiVersion": "v1", "kind": "Pod"}, "no Job"),
        ({"apiVersion": "batch/v1", "kind": "Job", "spec": {}}, "no containers"),
    ],
)
def test_what_is_no_job_is_refused_with_its_file(manifest: Any, because: str) -> None:
    with pytest.raises(BadInput, match=because) as caught:
        check_job_manifest(manifest, "upgrade-job.yaml")
    assert "upgrade-job.yaml" in str(caught.value)


@pytest.mark.parametrize("value", ["aws:///eu-1a/i-0abc", "kind://docker/kind/w", "[fd00::1]", ""])
def test_what_nodes_say_of_themselves_is_put_in(value: str) -> None:
    job = with_provider(value)
    assert job["spec"]["template"]["spec"]["containers"][0]["args"] == [f"reset {value}"]


@pytest.mark.parametrize("value", ["x; reboot", "$(id)", "`id`", "a b", "a\nb", "'", "a\0b"])
def test_what_a_shell_might_obey_is_not(value: str) -> None:
    with pytest.raises(UnsafeVariable, match="PROVIDER_ID"):
        with_provider(value)
    assert job_manifest(MANIFEST, "nodelife", "n", telling(value), 1), (
        "where it is not asked for it does not matter"
    )


def test_a_variable_that_is_withheld_is_not_put_in_empty() -> None:
    told = WorkVariables({**VALUES, "INTERNAL_IP": ""}, {"INTERNAL_IP": "two nodes report it"})
    manifest = copy.deepcopy(MANIFEST)
    manifest["spec"]["template"]["spec"]["containers"][0]["args"] = ["ssh $(INTERNAL_IP)"]
    with pytest.raises(UnsafeVariable, match=r"INTERNAL_IP.*not given: two nodes report it"):
        job_manifest(manifest, "nodelife", "n", told, 1)


def telling(provider_id: str) -> WorkVariables:
    return WorkVariables({**VALUES, "PROVIDER_ID": provider_id}, {})


def with_provider(value: str) -> dict[str, Any]:
    manifest = copy.deepcopy(MANIFEST)
    manifest["spec"]["template"]["spec"]["containers"][0]["args"] = ["reset $(PROVIDER_ID)"]
    return job_manifest(manifest, "nodelife", "n", telling(value), 1)
