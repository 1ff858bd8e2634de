"""A sandbox whose API server forwards ports of pods: one Deployment, whose pods are played."""

from collections.abc import Mapping, Sequence
from typing import Any

from aiohttp import web
from aiohttp.typedefs import Handler, Middleware

from tests.port_forwarding import carry

NAMESPACE = "nodelife"
NAME = "kubectl-nodelife"
LABELS = {"app.kubernetes.io/name": NAME}
VIA = ("--via", f"deploy/{NAME}", "-n", NAMESPACE)


def pod(name: str, *, port: int = 9877, ready: str = "True", phase: str = "Running") -> Any:
    """A pod of the Deployment, on some node."""
    ports = [{"name": "metrics", "containerPort": 9876}]
    ports += [{"name": "answers", "containerPort": port}] if port != 9877 else []
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": NAMESPACE, "labels": LABELS},
        "spec": {"nodeName": "a", "containers": [{"name": "daemon", "image": "i", "ports": ports}]},
        "status": {"phase": phase, "conditions": [{"type": "Ready", "status": ready}]},
    }


class Plays:
    """What the API server is asked, and what it answers. `ports`: of this machine, by pod;
    `uid`: of kube-system; `refuses`: a status and a body for what ends so.
    """

    def __init__(self, pods: Sequence[Any], ports: Mapping[str, int | None]) -> None:
        self.pods = list(pods)
        self.ports = dict(ports)
        self.seen: list[str] = []
        self.refuses: dict[str, tuple[int, Any, Mapping[str, str]]] = {}

    @property
    def between(self) -> Middleware:
        """Stands before the sandbox's server."""

        @web.middleware
        async def play(request: web.Request, handler: Handler) -> web.StreamResponse:
            path = request.path
            for end, (status, body, headers) in self.refuses.items():
                if path.endswith(end):
                    return web.json_response(body, status=status, headers=headers)
            if path == f"/apis/apps/v1/namespaces/{NAMESPACE}/deployments/{NAME}":
                self.seen.append(path)
                return web.json_response({"spec": {"selector": {"matchLabels": LABELS}}})
            if path == f"/api/v1/namespaces/{NAMESPACE}/pods":
                self.seen.append(request.path_qs)
                return web.json_response({"items": self.pods})
            if path.startswith(f"/api/v1/namespaces/{NAMESPACE}/pods/"):
                return await self._of_pod(request)
            return await handler(request)

        return play

    async def _of_pod(self, request: web.Request) -> web.StreamResponse:
        name, _, subresource = request.path.partition("/pods/")[2].partition("/")
        self.seen.append(request.path_qs)
        if not subresource:
            (found,) = (each for each in self.pods if each["metadata"]["name"] == name)
            return web.json_response(found)
        return await carry(request, int(request.query["ports"]), self.ports[name])
