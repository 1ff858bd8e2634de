"""`--via`: asks the daemon of a pod through the API server, as `ask` would one on this machine.

An answer is taken from a daemon of the same cluster only, known by the UID of kube-system as both
sides read it: addresses say nothing, since a pod has another one for its API server than we have.

Which pods `--via` names follows kubectl's `AttachablePodForObject` (polymorphichelpers) for
Deployments: the pods that its selector takes. Others than kubectl takes are tried as well, one
after another.

`Tunnel` makes plain sockets of streams to a pod, so that the daemon's client knows of nothing else.
A thread runs the event loop of the connections; each `connect` is a WebSocket of its own and one
end of a pair of sockets, whose other end the loop carries to the pod and back. What goes wrong on
the way before anything came back is said to the client as a daemon says its errors.

`kubectl port-forward` does not take its place: it listens on a port of loopback, where every user
of this machine could ask with our rights as long as a command runs, and a `--token` would stand in
its arguments for all to read.
"""

from __future__ import annotations

import asyncio
import atexit
import concurrent.futures
import contextlib
import functools
import json
import os
import socket
import threading
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final, NamedTuple, TypeVar

import msgspec

from kubectl_nodelife.commands.flags import Connection
from kubectl_nodelife.daemon.client import ANSWER_SECONDS, OtherProtocol
from kubectl_nodelife.daemon.paths import CachedIdentity
from kubectl_nodelife.daemon.server import DEFAULT_PORT
from kubectl_nodelife.errors import BadInput, Failed, NodelifeError, Unreachable
from kubectl_nodelife.kube.codec import convert
from kubectl_nodelife.kube.meta import ApiStruct, KubeObject, LabelSelector
from kubectl_nodelife.kube.pod import PodStatus
from kubectl_nodelife.kube.selectors import format_selector
from kubectl_nodelife.kube.unreadable import InputError
from kubectl_nodelife.kube.workload import Deployment
from kubectl_nodelife.live.auth import PodPort, Session
from kubectl_nodelife.live.client import ApiError, Client, PortForward, forward
from kubectl_nodelife.live.requests import get_url, list_url, resource_of
from kubectl_nodelife.live.same_cluster import cluster_uid
from kubectl_nodelife.live.target import Target, find_target

_UID: Final = "uid of namespace kube-system"


T = TypeVar("T")
_CHUNK: Final = 1 << 16
_END_SECONDS: Final = 3.0
ObjectT = TypeVar("ObjectT")
PORT_NAME: Final = "answers"
REMEDY: Final = "kubectl nodelife rbac --mode via prints the role that is needed"
_DEPLOYMENTS: Final = ("deploy", "deployment", "deployments", "deployment.apps", "deployments.apps")
_PODS: Final = ("po", "pod", "pods")
_FORM: Final = "write deploy/NAME or pod/NAME, or NAMESPACE/deploy/NAME"


class ViaEndpoint(NamedTuple):
    """The daemon's endpoint in a pod, reached through the API server.

    `cluster_uid`: of the cluster that the kubeconfig means.
    """

    socket: Tunnel
    known: CachedIdentity
    cluster_uid: str

    def check(self, answer: dict[str, Any]) -> None:
        """Raises Failed for an answer about another cluster, or about one that is not known."""
        theirs = answer.get("clusterUid")
        if not theirs:
            raise Failed(
                f"the daemon there does not know its cluster's {_UID}",
                on=str(self.socket),
                remedy="its role must let it get that namespace",
            )
        if theirs != self.cluster_uid:
            raise Failed(
                f"the daemon there watches another cluster ({answer.get('server')})",
                on=str(self.socket),
                remedy="look at how it was started",
            )

    def replace(self, other: OtherProtocol, token: str | None) -> None:
        """Raises Failed: the daemon there cannot be started anew from here."""
        raise Failed(
            other.what, on=str(self.socket), remedy="use the same version here and in the image"
        )


class _Pods:
    """Finds the pods once, and again where none of them can be reached any more."""

    def __init__(self, target: Target, connection: Connection) -> None:
        self._client = Client(Session(target, os.environ))
        self._via = parse_via(connection.via or "")
        self._namespace = self._via.namespace or target.namespace
        self._found: list[PodPort] = []

    async def uid(self) -> str:
        """Of the cluster that is asked. Raises Failed where it may not be read."""
        uid = await cluster_uid(self._client)
        if not uid:
            what = f"the {_UID} cannot be read: which cluster answers would be unknown"
            raise Failed(what, on=self._client.server, remedy=REMEDY)
        return uid

    async def close(self) -> None:
        """Close all connections."""
        await self._client.close()

    async def open(self) -> PortForward:
        """A stream to the first pod that can be reached. Raises NodelifeError."""
        was_found = bool(self._found)
        self._found = self._found or await find_pods(self._client, self._via, self._namespace)
        failure: NodelifeError | None = None
        for pod in list(self._found):
            try:
                return await forward(self._client, pod)
            except NodelifeError as error:
                failure = failure or _with_pod(error, pod)
                self._found.remove(pod)
        if was_found:
            return await self.open()
        assert failure is not None
        raise failure


def _with_pod(error: NodelifeError, pod: PodPort) -> NodelifeError:
    if getattr(error, "code", 0) == 403:
        error.remedy = REMEDY
    error.on = f"{pod}: {error.on}"
    return error


@functools.cache
def find(connection: Connection, resolve: Callable[[Connection], CachedIdentity]) -> ViaEndpoint:
    """The way to the daemon that `--via` names. `resolve`: which cluster flags mean. Raises
    NodelifeError."""
    direct = connection._replace(via=None)
    target = find_target(direct, os.environ)
    pods = _Pods(target, connection)
    tunnel = Tunnel(pods.open, pods.close, f"daemon via {connection.via}")
    uid = tunnel.run(pods.uid(), ANSWER_SECONDS)
    return ViaEndpoint(tunnel, resolve(direct), uid)


class Tunnel:
    """A port-forward to the daemon's pod for as long as this process runs.

    `open_stream`, and `close` at the end of the process, run on the loop.
    """

    def __init__(
        self,
        open_stream: Callable[[], Awaitable[PortForward]],
        close: Callable[[], Awaitable[None]],
        name: str,
    ) -> None:
        self._open = open_stream
        self._close = close
        self._name = name
        self._loop = asyncio.new_event_loop()
        threading.Thread(target=self._loop.run_forever, name=name, daemon=True).start()
        self._running: set[asyncio.Task[None]] = set()
        atexit.register(self._end)

    def __str__(self) -> str:
        return self._name

    def connect(self, seconds: float) -> socket.socket:
        """A connection to the daemon. Raises NodelifeError; Unreachable after so many seconds."""
        stream = self.run(self._open(), seconds)
        ours, theirs = socket.socketpair()
        ours.settimeout(seconds)
        theirs.setblocking(False)
        self._loop.call_soon_threadsafe(self._carry, theirs, stream)
        return ours

    def run(self, work: Awaitable[T], seconds: float) -> T:
        """The result of something that is done on the loop. Raises as it does, and Unreachable."""

        async def done() -> T:
            async with asyncio.timeout(seconds):
                return await work

        try:
            return _result(asyncio.run_coroutine_threadsafe(done(), self._loop))
        except TimeoutError:
            raise Unreachable("no answer in time", on=self._name) from None

    def _end(self) -> None:
        async def close() -> None:
            for task in self._running:
                task.cancel()
            await asyncio.gather(*self._running, return_exceptions=True)
            await self._close()

        with contextlib.suppress(NodelifeError):
            self.run(close(), _END_SECONDS)

    def _carry(self, end: socket.socket, stream: PortForward) -> None:
        task = self._loop.create_task(_carry(end, stream))
        self._running.add(task)
        task.add_done_callback(self._running.discard)


def _result(future: concurrent.futures.Future[T]) -> T:
    try:
        return future.result()
    except BaseException:
        future.cancel()
        raise


async def _carry(end: socket.socket, stream: PortForward) -> None:
    """Until the client is gone. A half-close of its side would end the answer: none is passed on.

    Its side is read to the end also after an answer, or a client that has not yet written its
    question would meet a broken pipe and never see what went wrong.
    """
    loop = asyncio.get_running_loop()
    back = asyncio.create_task(_back(end, stream))
    there = asyncio.create_task(_there(end, stream))
    try:
        await asyncio.wait([back, there], return_when=asyncio.FIRST_COMPLETED)
        if there.done() and there.exception() is None:
            return
        await asyncio.wait([back], timeout=_END_SECONDS)
        there.cancel()
        await asyncio.gather(there, return_exceptions=True)
        end.shutdown(socket.SHUT_WR)
        while await loop.sock_recv(end, _CHUNK):
            pass
    except OSError:
        pass  # the client is gone
    finally:
        for task in (back, there):
            task.cancel()
        await asyncio.gather(back, there, return_exceptions=True)
        end.close()
        await stream.close()


async def _there(end: socket.socket, stream: PortForward) -> None:
    loop = asyncio.get_running_loop()
    while content := await loop.sock_recv(end, _CHUNK):
        await stream.send(content)


async def _back(end: socket.socket, stream: PortForward) -> None:
    loop = asyncio.get_running_loop()
    began = False
    try:
        while content := await stream.receive():
            began = True
            await loop.sock_sendall(end, content)
        error: NodelifeError | None = None if began else Failed("no answer came", on="daemon")
    except NodelifeError as failed:
        failed.remedy = failed.remedy or "its daemon must run with --serve-answers"
        error = failed
    if error is not None and not began:
        await loop.sock_sendall(end, _as_answer(error))


def _as_answer(error: NodelifeError) -> bytes:
    body = json.dumps({"error": error.document()}).encode()
    return b"HTTP/1.0 502 Bad Gateway\r\nContent-Type: application/json\r\n\r\n" + body


class ViaName(NamedTuple):
    """The value of `--via`. `namespace`: "" for that of -n."""

    namespace: str
    is_deployment: bool
    name: str


class _Port(ApiStruct, frozen=True):
    name: str = ""
    container_port: int = 0


class _Container(ApiStruct, frozen=True):
    ports: tuple[_Port, ...] = ()


class _PodSpec(ApiStruct, frozen=True):
    node_name: str = ""
    containers: tuple[_Container, ...] = ()


class _Pod(KubeObject, frozen=True, kw_only=True):
    spec: _PodSpec
    status: PodStatus


class _PodList(ApiStruct, frozen=True):
    items: tuple[_Pod, ...]


def parse_via(text: str) -> ViaName:
    """The flag's value. Raises BadInput."""
    words = text.split("/")
    namespace = words.pop(0) if len(words) == 3 else ""
    kind, name = words if len(words) == 2 else ("pod", words[0])
    kind = kind.lower()
    if not name or len(words) > 2 or (text.count("/") == 2 and not namespace):
        raise BadInput(f"{text!r} names nothing", on="--via", remedy=_FORM)
    if kind not in (*_DEPLOYMENTS, *_PODS):
        raise BadInput(f"{kind!r} is neither a Deployment nor a pod", on="--via", remedy=_FORM)
    return ViaName(namespace, kind in _DEPLOYMENTS, name)


async def find_pods(client: Client, via: ViaName, namespace: str) -> list[PodPort]:
    """The pods that run, ready ones first, with the port of their daemon's answers.

    Raises ApiError, Unreachable, Failed where there is none.
    """
    pods = resource_of("Pod", namespace)
    if not via.is_deployment:
        return _ports(namespace, [await _read(client, get_url(pods, via.name), _Pod)])
    url = get_url(resource_of("Deployment", namespace), via.name)
    selector = (await _read(client, url, Deployment)).spec.selector or LabelSelector()
    url = list_url(pods._replace(labels=format_selector(selector)), limit=0)
    pod_ports = _ports(namespace, (await _read(client, url, _PodList)).items)
    if not pod_ports:
        raise Failed(
            "it has no pod that runs",
            on=f"deployment {namespace}/{via.name}",
            remedy=f"see: kubectl -n {namespace} get pods",
        )
    return pod_ports


def _ports(namespace: str, pods: Sequence[_Pod]) -> list[PodPort]:
    """Ready pods first, then by name. A pod that does not run yet, or any more, is left out."""
    running = [pod for pod in pods if pod.spec.node_name and pod.status.phase == "Running"]
    running.sort(key=lambda pod: (not _is_ready(pod), pod.metadata.name))
    return [PodPort(namespace, pod.metadata.name, _port(pod)) for pod in running]


def _is_ready(pod: _Pod) -> bool:
    ready = any(c.type == "Ready" and c.status == "True" for c in pod.status.conditions)
    return ready and pod.metadata.deletion_timestamp is None


def _port(pod: _Pod) -> int:
    ports = [port for container in pod.spec.containers for port in container.ports]
    return next((p.container_port for p in ports if p.name == PORT_NAME), DEFAULT_PORT)


async def _read(client: Client, url: str, type_: type[ObjectT]) -> ObjectT:
    try:
        return convert(msgspec.json.decode(await client.read(url, retry=False)), type_, "", "")
    except (msgspec.MsgspecError, InputError) as error:
        raise Failed(f"what it sends is no object: {error}", on=client.server) from None
    except ApiError as error:
        if error.code == 403:
            error.remedy = REMEDY
        raise
