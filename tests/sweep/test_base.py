"""A cluster as it is sent to workers: the same one, and nothing that a snapshot would not keep."""

import pickle
import zlib

from kubectl_nodelife.engine.settings import make_settings
from kubectl_nodelife.sim.generate import Generate
from kubectl_nodelife.sweep.points import base_of_recipe, zones_of
from tests.sweep.stand import THREE, base
from tests.what_if.stand import workload

SECRET = "hunter2-in-the-clear"


def test_nothing_secret_is_sent() -> None:
    owner, pod = workload("web", ["a1"])
    pod["spec"]["containers"][0]["env"] = [{"name": "PASSWORD", "value": SECRET}]
    pod["metadata"]["annotations"] = {"note": SECRET}
    owner["spec"]["template"]["spec"]["containers"][0]["args"] = [SECRET]
    found = base([owner, pod])
    sent = pickle.dumps(found) + zlib.decompress(found.objects)
    assert SECRET.encode() not in sent
    assert b"web" in sent


def test_what_is_sent_is_the_cluster() -> None:
    found = base(workload("web", ["a1", "b1"])).cluster()
    assert sorted(found.nodes) == sorted(THREE)
    assert len(found.pods) == 2 and len(found.all("Lease")) == 3


def test_a_digest_tells_clusters_apart() -> None:
    one, same, other = (base(workload("web", nodes)) for nodes in (["a1"], ["a1"], ["b1"]))
    assert one.digest == same.digest != other.digest


def test_a_recipe_is_made_by_each_worker() -> None:
    recipe = Generate(zones=3, nodes_per_zone=4, pods_per_node=5, daemon_sets=1, replicas=6)
    found = base_of_recipe(recipe, make_settings("newest"))
    cluster = found.cluster()
    assert (len(cluster.nodes), len(cluster.pods), len(cluster.all("Lease"))) == (12, 60, 12)
    owners = filter(None, (cluster.get("ReplicaSet", key) for key in cluster.objects["ReplicaSet"]))
    assert {len(cluster.pods_of(owner.uid)) for owner in owners} == {6}
    two = found.cluster(zones_of(recipe, 2))
    assert sorted({name[0] for name in two.nodes}) == ["a", "b"] and len(two.nodes) == 12
