"""Which pods `--via` names, best first, and on which port their daemon answers.

Follows kubectl's `AttachablePodForObject` (polymorphichelpers) for Deployments: the pods that its
selector takes. Others than kubectl takes are tried as well, one after another.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple, TypeVar
from urllib.parse import quote, urlencode

import msgspec

from kubectl_nodelife.daemon.answer_port import DEFAULT_PORT
from kubectl_nodelife.errors import BadInput, Failed
from kubectl_nodelife.kube.meta import LabelSelector
from kubectl_nodelife.kube.selectors import format_selector
from kubectl_nodelife.live.client import ApiError, Client
from kubectl_nodelife.live.requests import PodPort

T = TypeVar("T")

PORT_NAME: Final = "answers"
REMEDY: Final = "kubectl nodelife rbac --mode via prints the role that is needed"

_DEPLOYMENTS: Final = ("deploy", "deployment", "deployments", "deployment.apps", "deployments.apps")
_PODS: Final = ("po", "pod", "pods")
_FORM: Final = "write deploy/NAME or pod/NAME, or NAMESPACE/deploy/NAME"


class ViaName(NamedTuple):
    """What `--via` says. `namespace`: "" for that of -n."""

    namespace: str
    is_deployment: bool
    name: str


class _PodMetadata(msgspec.Struct, rename="camel"):
    name: str = ""
    deletion_timestamp: str | None = None


class _Port(msgspec.Struct, rename="camel"):
    name: str = ""
    container_port: int = 0


class _Container(msgspec.Struct):
    ports: list[_Port] | None = None


class _PodSpec(msgspec.Struct, rename="camel"):
    containers: list[_Container]
    node_name: str = ""


class _Condition(msgspec.Struct):
    type: str
    status: str


class _PodStatus(msgspec.Struct):
    phase: str = ""
    conditions: list[_Condition] | None = None


class _Pod(msgspec.Struct):
    metadata: _PodMetadata
    spec: _PodSpec
    status: _PodStatus


class _PodList(msgspec.Struct):
    items: list[_Pod]


class _DeploymentSpec(msgspec.Struct):
    selector: LabelSelector


class _Deployment(msgspec.Struct):
    spec: _DeploymentSpec


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
    inside = quote(namespace, safe="")
    pods = f"/api/v1/namespaces/{inside}/pods"
    if not via.is_deployment:
        return _ports(namespace, [await _read(client, f"{pods}/{quote(via.name, safe='')}", _Pod)])
    path = f"/apis/apps/v1/namespaces/{inside}/deployments/{quote(via.name, safe='')}"
    selector = (await _read(client, path, _Deployment)).spec.selector
    query = urlencode({"labelSelector": format_selector(selector)})
    found = _ports(namespace, (await _read(client, f"{pods}?{query}", _PodList)).items)
    if not found:
        raise Failed(
            "it has no pod that runs",
            on=f"deployment {namespace}/{via.name}",
            remedy=f"see: kubectl -n {namespace} get pods",
        )
    return found


def _ports(namespace: str, pods: Sequence[_Pod]) -> list[PodPort]:
    """Ready pods first, then by name. A pod that does not run yet, or any more, is left out."""
    running = [pod for pod in pods if pod.spec.node_name and pod.status.phase == "Running"]
    running.sort(key=lambda pod: (not _is_ready(pod), pod.metadata.name))
    return [PodPort(namespace, pod.metadata.name, _port(pod)) for pod in running]


def _is_ready(pod: _Pod) -> bool:
    ready = any(c.type == "Ready" and c.status == "True" for c in pod.status.conditions or ())
    return ready and pod.metadata.deletion_timestamp is None


def _port(pod: _Pod) -> int:
    ports = [port for container in pod.spec.containers for port in container.ports or ()]
    return next((p.container_port for p in ports if p.name == PORT_NAME), DEFAULT_PORT)


async def _read(client: Client, url: str, type_: type[T]) -> T:
    try:
        return msgspec.json.decode(await client.read(url, retry=False), type=type_)
    except msgspec.MsgspecError as error:
        raise Failed(f"what it sends is no object: {error}", on=client.server) from None
    except ApiError as error:
        if error.code == 403:
            error.remedy = REMEDY
        raise
