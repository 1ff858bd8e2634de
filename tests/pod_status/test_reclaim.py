"""What can hold a Terminating pod's object, and what `explain pod` says of it."""

from pathlib import Path

import pytest

from kubectl_nodelife import cli
from kubectl_nodelife.kube.codec import encode
from kubectl_nodelife.kube.times import format_time
from kubectl_nodelife.kubelet.reclaim import RESOURCES, ReclaimTerms, what_can_hold, what_holds
from tests.objects import write_list
from tests.pod_status.kubelet import rules_of
from tests.pod_status.objects import NOW_NS, ago, node, pod

STOPPED = pod(status__containerStatuses=[{"name": "c", "state": {"terminated": {}}}]).status


@pytest.mark.parametrize(
    "profile, terms, holds",
    [
        ("v1.16", ReclaimTerms(), [*RESOURCES]),
        (
            "v1.16",
            ReclaimTerms(keep_terminated_pod_volumes=True),
            ["containers", "runtime", "cgroup"],
        ),
        ("v1.16", ReclaimTerms(cgroups_per_qos=False), ["containers", "runtime", "volumes"]),
        ("v1.27", ReclaimTerms(), ["containers", "volumes", "cgroup"]),
        ("v1.27", ReclaimTerms(True), ["containers", "volumes", "cgroup"]),
    ],
)
def test_what_is_left_holds_as_in_its_release(
    profile: str, terms: ReclaimTerms, holds: list[str]
) -> None:
    assert what_holds(RESOURCES, STOPPED, terms, rules_of(profile)) == holds
    assert what_holds((), STOPPED, terms, rules_of(profile)) == []


def test_a_container_that_is_believed_to_run_holds_the_pod() -> None:
    for profile in ("v1.16", "v1.36"):
        assert what_holds((), pod().status, ReclaimTerms(), rules_of(profile)) == ["containers"]


def test_what_the_api_tells_of_each() -> None:
    told = dict(what_can_hold(pod(spec__volumes=[{"name": "data"}]), rules_of("v1.16")))
    assert told["running containers"] == "c reported running"
    assert told["volumes"].startswith("it has data; the API does not show")
    assert list(told) == ["running containers", "stopped containers", "volumes", "the cgroup"]
    assert "stopped containers" not in dict(what_can_hold(pod(), rules_of("v1.36")))


def test_explain_pod_names_what_can_hold_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    going = pod(metadata__deletionTimestamp=ago(120), metadata__deletionGracePeriodSeconds=30)
    items = [encode(going), encode(node())]
    path = write_list(tmp_path / "dump.json", items)
    words = ["explain", "pod", "shop/web", "-f", path, "--now", format_time(NOW_NS)]
    assert cli.main([*words, "--profile", "v1.16"]) == 0
    shown = capsys.readouterr().out
    assert "Running containers can hold it: c reported running." in shown
    assert "The cgroup can hold it: the API does not show whether it is removed." in shown
