"""`--via` through a real API server, by somebody who has only what `rbac --mode via` prints.

The last hop is played: a kubelet that forwards ports and does nothing else.
"""

import asyncio

from tests.daemon.user import user
from tests.real.control_plane import ControlPlane, control_plane
from tests.real.in_cluster import (
    NAME,
    NAMESPACE,
    PlayedPod,
    apply,
    as_account,
    bind,
    played_kubelet,
    pod_template,
    printed,
    said,
)

ASKER = "asker"
VIA = ("--via", f"deploy/{NAME}", "-n", NAMESPACE)
POD = f"{NAME}-0"


def test_somebody_with_the_printed_role_asks_the_pod_and_can_do_nothing_else() -> None:
    with control_plane() as plane:
        asyncio.run(_asks(plane))


async def _asks(plane: ControlPlane) -> None:
    text = printed("--serve-answers", "--replicas", "1")
    apply(plane, text, "deployment.yaml")
    plane.kubectl("create", "serviceaccount", ASKER, "-n", NAMESPACE)
    pod, seen = PlayedPod(plane, POD, pod_template(text)), list[str]()
    async with (
        played_kubelet(plane, "n1", {POD: pod.answers}, seen),
        pod.runs() as (inside, _),
        user(str(as_account(plane, ASKER, ASKER))) as one,
    ):
        bind(plane, "n1", POD, pod_template(text))
        refused = await one.run("status", *VIA)
        assert refused.code == 1 and "kubectl nodelife rbac --mode via" in refused.err, refused
        grant(plane)
        assert await one.ok("status", *VIA, "-o", "name") == "node/n1\n"
        assert seen == [f"websocket /portForward/{NAMESPACE}/{POD}?port=9877"]
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
    apply(plane, said("rbac", "--mode", "via", "-n", NAMESPACE), "via.yaml")
    who = f"--serviceaccount={NAMESPACE}:{ASKER}"
    roles = ("rolebinding", "asks", "--role=nodelife-asker", who, "-n", NAMESPACE)
    plane.kubectl("create", *roles)
    plane.kubectl("create", "clusterrolebinding", "asks", "--clusterrole=nodelife-asker", who)
