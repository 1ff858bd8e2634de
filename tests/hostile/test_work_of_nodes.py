"""What a node says of itself, in every field, as it reaches `--run` and `--job`.

The judge is the machine on which the command runs: nothing but the command has run there, each
variable holds one node's word as it is, and the leader lives on.
"""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from kubectl_nodelife.acts.upgrade.processes import NOT_STARTED, WorkKey, WorkRunner
from kubectl_nodelife.controllers.upgrade.marks import LABEL_RUN
from kubectl_nodelife.engine.actions import StartWork
from kubectl_nodelife.kube.meta import ObjectMeta, OwnerReference
from kubectl_nodelife.kube.node import NodeAddress, NodeSystemInfo
from kubectl_nodelife.kube.workload import Condition, Job, JobStatus
from tests.upgrade.stand import Stand
from tests.upgrade.test_vectors import JOB_WORK, job_name
from tests.upgrade.vector_cases import DRAINING, HELD, SETTLING, WORKING

PAYLOADS = {
    "substitution": "$(touch pwned)`touch pwned`",
    "end-of-a-word": "'; touch pwned; '",
    "end-of-a-line": "x\ntouch pwned\nNODE=evil",
    "option": "--kubeconfig=evil",
    "null-byte": "a\x00b",
    "escape-codes": "\x1b]0;evil\x07\x1b[2J",
    "longer-than-the-kernel-takes": "x" * (1 << 18),
    "right-to-left": "\u202egnp.exe",
    "loader": "LD_PRELOAD=./evil.so",
}
FIELDS = ("address", "provider", "zone", "pool", "uid", "info", "annotation")
COMMAND = 'printf "%s\\0" "$NODE" "$INTERNAL_IP" "$PROVIDER_ID" "$POOL" "$ZONE" "$NODE_UID"'


def says(field: str, text: str) -> Stand:
    """x, whose kubelet writes that text there, is about to be worked on."""
    s = Stand(nodes=["x"], maxUnavailable=5, poolLabel="pool")
    s.add_nodes("x", "y")
    node = s.node("x")
    meta, spec, status = node.metadata, node.spec, node.status
    if field == "address":
        status = replace(status, addresses=(NodeAddress(type="InternalIP", address=text),))
    elif field == "provider":
        spec = replace(spec, provider_id=text)
    elif field == "zone":
        meta = replace(meta, labels={**(meta.labels or {}), "topology.kubernetes.io/zone": text})
    elif field == "pool":
        meta = replace(meta, labels={**(meta.labels or {}), "pool": text})
    elif field == "uid":
        meta = replace(meta, uid=text)
    elif field == "info":
        status = replace(status, node_info=NodeSystemInfo(boot_id=text, kubelet_version=text))
    else:
        meta = replace(meta, annotations={text: text, "LD_PRELOAD": text, "PATH": text})
    s.put(replace(node, metadata=meta, spec=spec, status=status))
    s.mark("x", DRAINING)
    return s


@pytest.mark.parametrize("text", PAYLOADS.values(), ids=PAYLOADS)
@pytest.mark.parametrize("field", FIELDS)
async def test_no_field_of_a_node_makes_the_work_do_something_else(
    field: str, text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    s = says(field, text)
    found = [action for action in s.settle() if isinstance(action, StartWork)]
    assert len(found) == 1, "such a node is worked on, or fails, by itself"
    variables: dict[str, Any] = found[0].env
    assert set(variables).isdisjoint({"PATH", "LD_PRELOAD", "HOME", "SHELL", "IFS"})
    ended: list[int] = []

    runner = WorkRunner(
        COMMAND, str(tmp_path / "logs"), {"PATH": "/usr/bin:/bin"}, lambda _, c: ended.append(c)
    )
    runner.start(WorkKey("x", "u", 1), variables)
    while not ended:
        await asyncio.sleep(0.01)
    assert not list(tmp_path.rglob("pwned"))
    said = (tmp_path / "logs" / "x.log").read_bytes()
    if ended == [0]:
        words = said.decode(errors="surrogateescape").split("\0")
        assert words[0] == "x" and words[5] == variables["NODE_UID"]
        assert words[1:3] == [variables["INTERNAL_IP"], variables["PROVIDER_ID"]]
        assert words[1] != text, "an address that is none is not handed on"
    else:
        assert ended == [NOT_STARTED] and said.startswith(b"not started: ")


def with_job(*conditions: str, **meta: Any) -> Stand:
    """A Job of the name that the run will ask for is there already, and is over."""
    s = Stand(nodes=["x"], maxUnavailable=5, work=JOB_WORK)
    s.add_nodes("x", "y")
    s.mark("x", WORKING)
    found = tuple(Condition(type=c, status="True") for c in conditions)
    named = ObjectMeta(name=job_name(s), namespace="default", uid="u-job", **meta)
    s.put(Job(metadata=named, status=JobStatus(conditions=found)))
    return s


OWNER = OwnerReference("Node", "x", "uid-x", "v1")


@pytest.mark.parametrize("condition", ["Complete", "Failed"])
@pytest.mark.parametrize(
    "meta",
    [
        pytest.param({}, id="bare"),
        pytest.param({"labels": {LABEL_RUN: "r1"}}, id="by-its-label"),
        pytest.param({"owner_references": (OWNER,)}, id="by-its-owner"),
        pytest.param(
            {"labels": {LABEL_RUN: "r0"}, "owner_references": (OWNER,)}, id="of-another-run"
        ),
    ],
)
def test_a_job_that_somebody_else_made_is_no_work_that_was_done(
    condition: str, meta: dict[str, Any]
) -> None:
    """Its name can be guessed; the node would be proven, released and called upgraded."""
    s = with_job(condition, **meta)
    s.run(120)
    assert s.state("x") == HELD and SETTLING not in s.went_through("x")
    assert "was made by another client" in s.mark_of("x").reason
    s.run(60 * 60)
    if meta.get("labels") != {LABEL_RUN: "r1"}:
        left = s.cache.get("Job", ("default", job_name(s)))
        assert left is not None, "nor is it ours to delete"


def test_the_run_s_own_job_counts() -> None:
    s = with_job("Complete", labels={LABEL_RUN: "r1"}, owner_references=(OWNER,))
    s.settle()
    assert s.state("x") == SETTLING
