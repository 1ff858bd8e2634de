"""The Deployment on a real API server: its objects are accepted, and its rights are enough.

There is no kubelet that could run the pod: its part is played by a process with exactly the token
of its ServiceAccount, and with the arguments of its container.
"""

import asyncio

import aiohttp

from tests.daemon.user import User
from tests.real.control_plane import control_plane
from tests.real.in_cluster import NAME, PlayedPod, apply, pod_template, printed


def test_the_server_takes_it_and_its_rights_are_enough() -> None:
    with control_plane() as plane:
        text = printed()
        said = apply(plane, text, "deployment.yaml")
        assert len(said.splitlines()) == 8 and "Warning" not in said
        path = str(plane.folder / "deployment.yaml")
        again = plane.kubectl("apply", "--dry-run=server", "-f", path)
        assert all("unchanged" in line or "configured" in line for line in again.splitlines())
        can = ("auth", "can-i", "--as=system:serviceaccount:nodelife:kubectl-nodelife")
        for verb, what in (("delete", "pods"), ("patch", "nodes"), ("get", "secrets")):
            assert "no" in plane.kubectl(*can, verb, what, check=False)
        asyncio.run(_watches(PlayedPod(plane, NAME, pod_template(text))))


async def _watches(pod: PlayedPod) -> None:
    async with pod.runs() as (one, _), aiohttp.ClientSession() as session:
        await asyncio.sleep(3)  # budgets are read, and the manager's Lease
        text = await pod.get(session, "metrics")
        assert 'nodelife_watch_up{kind="ControllerRevision"} 1.0' in text
        assert "nodelife_budget_blocked_nodes 0.0" in text
        assert 'nodelife_requests_total{code="4xx"}' not in text
        await _check_no_warning(one)


async def _check_no_warning(one: User) -> None:
    warnings = (await one.health())["warnings"]
    assert not [word for word in warnings if "may not" in word or "forbidden" in word]
