"""Two replicas of the printed Deployment enforce on a real control plane, by one Lease.

Both watch and answer; one writes. Who wrote is told by the token: the audit log has the id of each
(`authentication.kubernetes.io/credential-id`), and each replica has one of its own.
"""

import asyncio
import base64
import json
import signal
import time
from datetime import datetime
from pathlib import Path
from typing import Any

import aiohttp

from kubectl_nodelife.daemon.client import PROTOCOL
from tests.daemon.user import User
from tests.real.control_plane import ControlPlane, control_plane
from tests.real.enforcing import CONTROLLERS
from tests.real.in_cluster import NAME, NAMESPACE, PlayedPod, apply, pod_template, printed
from tests.real.test_enforce import DAEMON_SET, SETS, pods

LEASE = f"/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases/kubectl-nodelife-enforce"
LEASE_S = 15.0
WAIT_S = 90.0
_CREDENTIAL = "authentication.kubernetes.io/credential-id"
_KINDS = ("pods", "nodes", "daemonsets", "controllerrevisions")
NAMES = ",".join(CONTROLLERS)


def token_id(kubeconfig: Path) -> str:
    """The id of the token, as the audit log names it."""
    token = json.loads(kubeconfig.read_text())["users"][0]["user"]["token"]
    payload = token.split(".")[1]
    claims = json.loads(base64.urlsafe_b64decode(payload + "=" * (-len(payload) % 4)))
    return f"JTI={claims['jti']}"


def writes(plane: ControlPlane) -> list[tuple[float, str]]:
    """When and by whose token something was written to what controllers write, oldest first."""
    found = []
    for entry in plane.audit():
        who = (entry["user"].get("extra") or {}).get(_CREDENTIAL)
        if who and entry["objectRef"]["resource"] in _KINDS:
            at = datetime.fromisoformat(entry["requestReceivedTimestamp"]).timestamp()
            found.append((at, who[0]))
    return found


def renewed(plane: ControlPlane) -> float:
    """When the Lease was renewed last."""
    text = plane.api.get(LEASE)["spec"]["renewTime"]
    return datetime.fromisoformat(text).timestamp()


async def until(question: Any, seconds: float = WAIT_S) -> None:
    deadline = time.monotonic() + seconds
    while not question():
        assert time.monotonic() < deadline, "it did not come true in time"
        await asyncio.sleep(0.2)


async def enforcement(one: User) -> dict[str, Any]:
    """What a replica says of its enforcing."""
    found: dict[str, Any] = (await one.health())["enforcement"]
    return found


async def answers(session: aiohttp.ClientSession, pod: PlayedPod) -> str:
    """What the replica's answer port says to `status -o name`."""
    url = f"http://127.0.0.1:{pod.answers}/v1/status?output=name"
    headers = {"Host": "nodelife", "X-Nodelife-Protocol": str(PROTOCOL)}
    async with session.get(url, headers=headers) as answer:
        text: str = (await answer.json())["text"]
        return text


def test_one_writes_and_the_other_takes_over() -> None:
    with control_plane() as plane:
        words = ("--serve-answers", f"--enforce={NAMES}", f"--assume-stopped={NAMES}")
        text = printed(*words)
        assert "Warning" not in apply(plane, text, "deployment.yaml")
        first, second = (PlayedPod(plane, f"{NAME}-{i}", pod_template(text)) for i in range(2))
        asyncio.run(_hand_over(plane, first, second))


async def _hand_over(plane: ControlPlane, first: PlayedPod, second: PlayedPod) -> None:
    ids = {token_id(pod.kubeconfig): pod.name for pod in (first, second)}
    assert len(ids) == 2

    def made(name: str) -> list[tuple[float, str]]:
        return [(at, ids[who]) for at, who in writes(plane) if ids.get(who) == name]

    plane.api.create("/api/v1/nodes", {"metadata": {"name": "n1"}})
    plane.api.create(SETS, DAEMON_SET)
    async with first.runs() as (one, leader):
        await until(lambda: len(pods(plane.api)) == 1)
        assert (await enforcement(one))["enforcing"]
        async with second.runs() as (other, standby), aiohttp.ClientSession() as session:
            waiting = await enforcement(other)
            assert not waiting["enforcing"] and "the Lease is not held" in waiting["because"]
            said = await other.run("daemon", "status")
            assert said.code == 0 and "standing by" in said.out and "warning" not in said.err, said
            for pod, held in ((first, 1), (second, 0)):
                text = await pod.get(session, "metrics")
                assert f"nodelife_lease_held {held}.0" in text
                assert await answers(session, pod) == "node/n1\n", "both serve"
            assert made(second.name) == [] and made(first.name)

            leader.send_signal(signal.SIGSTOP)  # it hangs, and comes back later
            last = renewed(plane)
            plane.api.create("/api/v1/nodes", {"metadata": {"name": "n2"}})
            await until(lambda: len(pods(plane.api)) == 2)
            began = made(second.name)[0][0]
            assert began >= last + LEASE_S, "not before the Lease was over"
            print(f"took over {began - last:.1f}s after the last renewal")
            leader.send_signal(signal.SIGCONT)
            before = len(made(first.name))
            plane.api.create("/api/v1/nodes", {"metadata": {"name": "n3"}})
            await until(lambda: len(pods(plane.api)) == 3)
            await asyncio.sleep(3)
            assert len(made(first.name)) == before, "the one that hung writes nothing any more"

            standby.kill()
            await standby.wait()
            last = renewed(plane)
            plane.api.create("/api/v1/nodes", {"metadata": {"name": "n4"}})
            await until(lambda: len(pods(plane.api)) == 4)
            again = made(first.name)[before][0]
            assert again >= last + LEASE_S
            print(f"took over {again - last:.1f}s after the last renewal")
    _never_two(plane, ids)


def _never_two(plane: ControlPlane, ids: dict[str, str]) -> None:
    """The writers take turns: first, second, first."""
    order = [ids[who] for _, who in writes(plane) if who in ids]
    turns = [name for i, name in enumerate(order) if i == 0 or order[i - 1] != name]
    assert turns == [f"{NAME}-0", f"{NAME}-1", f"{NAME}-0"]
