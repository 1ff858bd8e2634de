"""Vectors of kubectl drain's DeleteOrEvictPods, on the conversation without an API server."""

from typing import Any

from kubectl_nodelife.acts.node_drain import SeenPod
from kubectl_nodelife.engine.settings import parse_profile
from kubectl_nodelife.kube.meta import ObjectMeta
from kubectl_nodelife.kube.pod import Pod
from kubectl_nodelife.kube.times import SECOND_NS
from kubectl_nodelife.sim.kubectl.conversation import NodeRun
from kubectl_nodelife.sim.kubectl.options import DrainOptions
from kubectl_nodelife.workloads.owners import OwnerLookup
from tests.conformance.checks import only

Case = dict[str, Any]


class NoOwners(OwnerLookup):
    """Nobody owns these pods."""

    def find(self, kind: str, namespace: str, name: str) -> None:
        return None

    def was_read(self, kind: str) -> bool:
        return True


def delete_or_evict(case: Case) -> None:
    """Each request is answered at once; one of a dry run leaves the pod where it is."""
    given, expect = case["given"], case["expect"]
    assert [step["op"] for step in case["steps"]] == ["deleteOrEvict"]
    only(given, {"pods", "disableEviction", "dryRun", "gracePeriod", "timeout"}, "fact")
    options = DrainOptions(
        force=True,
        disable_eviction=given["disableEviction"],
        grace_period_seconds=given.get("gracePeriod", -1),
        timeout_ns=int(given.get("timeout", 0) * SECOND_NS),
    ).of_release(parse_profile(case["profile"]))
    run: NodeRun[SeenPod] = NodeRun("n", options, dry_run=given.get("dryRun") == "server")
    keys = [name.split("/") for name in given["pods"]]
    metas = [ObjectMeta(namespace=space, name=name, uid=name) for space, name in keys]
    run.listed([SeenPod(Pod(metadata=meta)) for meta in metas], NoOwners(), 0)
    for target in run.targets:
        target.actor.gone = not run.dry_run
        answer = run.deleted if options.disable_eviction else run.evicted
        answer(target, 200, "", 0)
        run.seen(target, 0)
    have = {
        "error": "\n".join(run.errors()) or None,
        "waits": run.waits,
        "podsStillThere": sum(not target.actor.gone for target in run.targets),
    }
    assert {key: have[key] for key in expect} == {key: expect[key] for key in expect}


TOPICS = {"kubectl_drain": delete_or_evict}
