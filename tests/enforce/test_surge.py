"""A surge that begins before the last pods are available goes on by itself.

Upstream's delaying queue forgets the look at minReadySeconds + 1 s after a pod turned Ready where
the set waits for an earlier one (`insert` of client-go util/workqueue/delaying_queue.go); a real
v1.36.3 then stands until some other event. Ours is looked at both times.
"""

import msgspec

from kubectl_nodelife.kube.pod import Pod
from tests.enforce.simulation import Json, Run, agent, play, story

_NODES = 6


def surging(version: int) -> Json:
    """A DaemonSet whose pods are available after ten seconds."""
    made = agent(version)
    made["spec"] |= {
        "minReadySeconds": 10,
        "updateStrategy": {
            "type": "RollingUpdate",
            "rollingUpdate": {"maxUnavailable": 0, "maxSurge": 2},
        },
    }
    return made


def test_a_surge_that_begins_before_the_last_pods_are_available_ends() -> None:
    told = msgspec.json.decode(story(1))
    told["spec"] |= {
        "objects": [surging(1)],
        "events": [{"at": "8s", "apply": surging(2)}],
    }
    run = Run(1, told=msgspec.json.encode(told))
    assert play(run, 1).broken == []
    pods = [entry.obj for entry in run.server.store.collections["Pod"].entries.values()]
    images = [c.image for p in pods if isinstance(p, Pod) for c in p.spec.containers]
    assert images.count("registry.example/agent:2") == _NODES
    assert "registry.example/agent:1" not in images
