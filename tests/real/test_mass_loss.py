"""80 of 400 nodes lost at once on a real control plane: each of their 800 pods is marked."""

import time

from bench._lost_nodes import API_SERVER, AUDIT_POLICY, Fleet
from tests.real.control_plane import control_plane
from tests.real.enforcing import CONTROLLERS, enforcer

_NODES, _LOST, _PODS = 400, 80, 10
_GRACE_S, _PATIENCE_S = 20, 120
_FLAGS = (
    f"--assume-stopped={','.join(CONTROLLERS)}",
    "--begin=restart",
    "--caps=upstream",
    "--set=node-monitor-period=1s",
    f"--set=node-monitor-grace-period={_GRACE_S}s",
    "--set=kube-api-qps=1000",
    "--set=kube-api-burst=2000",
)


def test_each_pod_of_eighty_lost_nodes_is_marked() -> None:
    with control_plane(api_server=API_SERVER, policy=AUDIT_POLICY) as plane:
        fleet = Fleet(plane, _NODES)
        lost = fleet.names[:_LOST]
        fleet.furnish((f"{node}-{i}", node) for node in lost for i in range(_PODS))
        with fleet, enforcer(plane, *_FLAGS):
            fleet.silence(lost)
            gives_up = time.monotonic() + _GRACE_S + _PATIENCE_S
            ready = {"not looked yet"}
            while ready and time.monotonic() < gives_up:
                time.sleep(2)
                ready = {
                    pod["metadata"]["name"]
                    for pod in plane.api.get("/api/v1/namespaces/default/pods")["items"]
                    for condition in pod["status"]["conditions"]
                    if condition["type"] == "Ready" and condition["status"] == "True"
                }
    assert not ready, f"{len(ready)} of {_LOST * _PODS} pods are Ready on nodes that are lost"
