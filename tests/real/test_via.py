"""`--via` through a real API server, by somebody who has only what `rbac --mode via` prints.

The last hop is played: a kubelet that forwards ports and does nothing else.
"""

import asyncio

from tests.daemon.user import user
from tests.real import in_cluster
from tests.real.control_plane import ControlPlane, control_plane

ASKER = "asker"
VIA = ("--via", f"deploy/{in_cluster.NAME}", "-n", in_cluster.NAMESPACE)
POD = f"{in_cluster.NAME}-0"


def test_somebody_with_the_printed_role_asks_the_pod_and_can_do_nothing_else() -> None:
    with control_plane() as plane:
        asyncio.run(_asks(plane))


async def _asks(plane: ControlPlane) -> None:
    text = in_cluster.printed("--serve-answers", "--replicas", "1")
    in_cluster.apply(plane, text, "deployment.yaml")
    plane.kubectl("create", "serviceaccount", ASKER, "-n", in_cluster.NAMESPACE)
    pod, seen = in_cluster.PlayedPod(plane, POD, in_cluster.pod_template(text)), list[str]()
    async with (
        in_cluster.played_kubelet(plane, "n1", {POD: pod.answers}, seen),
        pod.runs() as (inside, _),
        user(str(in_cluster.as_account(plane, ASKER, ASKER))) as one,
    ):
        in_cluster.bind(plane, "n1", POD, in_cluster.pod_template(text))
        refused = await one.run("status", *VIA)
        assert refused.code == 1 and "kubectl nodelife rbac --mode via" in refused.err, refused
        grant(plane)
        assert await one.ok("status", *VIA, "-o", "name") == "node/n1\n"
        assert seen == [f"websocket /portForward/{in_cluster.NAMESPACE}/{POD}?port=9877"]
        assert await one.ok("explain", "node", "n1", *VIA)
        assert (await one.json("daemon", "status", *VIA))["items"][0]["answers"].endswith(
            f":{pod.answers}"
        )
        ordered = await one.run("ui", "--no-open", *VIA)
        assert ordered.code == 5 and "is an order" in ordered.err, "refused by the port"
        direct = await one.run("status")
        assert direct.code == 1 and "forbidden" in direct.err, "it may read nothing itself"
        said_inside = await inside.health()
        assert said_inside["running"] and not [w for w in said_inside["warnings"] if "forbid" in w]


def grant(plane: ControlPlane) -> None:
    """Bind the printed roles to the asker."""
    in_cluster.apply(
        plane, in_cluster.said("rbac", "--mode", "via", "-n", in_cluster.NAMESPACE), "via.yaml"
    )
    who = f"--serviceaccount={in_cluster.NAMESPACE}:{ASKER}"
    roles = ("rolebinding", "asks", "--role=nodelife-asker", who, "-n", in_cluster.NAMESPACE)
    plane.kubectl("create", *roles)
    plane.kubectl("create", "clusterrolebinding", "asks", "--clusterrole=nodelife-asker", who)
