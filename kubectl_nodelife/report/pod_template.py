"""A pod template as `kubectl rollout history --revision` and `kubectl describe` print it.

Follows `DescribePodTemplate` in staging/src/k8s.io/kubectl/pkg/describe/describe.go: two spaces a
level, a tab between a name and its value. Templates come as the API writes them. Left out on
purpose: the details of volume types other than those of `_VOLUMES`, whose fields are listed as they
stand, and the values that resource field references would have.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

import msgspec

from kubectl_nodelife.kube.meta import LabelSelector
from kubectl_nodelife.kube.selectors import format_selector

Json = Mapping[str, Any]

NONE: Final = "<none>"
_SKIPPED_ANNOTATION: Final = "kubectl.kubernetes.io/last-applied-configuration"
_LONGEST_ANNOTATION: Final = 140

# source -> (what kubectl calls it, field -> (its name there, what stands in for nothing))
_VOLUMES: Final[dict[str, tuple[str, dict[str, tuple[str, str]]]]] = {
    "hostPath": (
        "HostPath (bare host directory volume)",
        {"path": ("Path", ""), "type": ("HostPathType", NONE)},
    ),
    "emptyDir": (
        "EmptyDir (a temporary directory that shares a pod's lifetime)",
        {"medium": ("Medium", ""), "sizeLimit": ("SizeLimit", "<unset>")},
    ),
    "secret": (
        "Secret (a volume populated by a Secret)",
        {"secretName": ("SecretName", ""), "optional": ("Optional", "false")},
    ),
    "configMap": (
        "ConfigMap (a volume populated by a ConfigMap)",
        {"name": ("Name", ""), "optional": ("Optional", "false")},
    ),
    "persistentVolumeClaim": (
        "PersistentVolumeClaim (a reference to a PersistentVolumeClaim in the same namespace)",
        {"claimName": ("ClaimName", ""), "readOnly": ("ReadOnly", "false")},
    ),
}


def describe_pod_template(template: Json) -> str:
    """The text, without a newline at its end."""
    return "\n".join(_lines(template))


def _lines(template: Json) -> Iterator[str]:
    meta, spec = template.get("metadata") or {}, template.get("spec") or {}
    yield "Pod Template:"
    yield from _pairs("Labels", meta.get("labels"))
    if meta.get("annotations"):
        yield from _annotations(meta["annotations"])
    if spec.get("serviceAccountName"):
        yield f"  Service Account:\t{spec['serviceAccountName']}"
    if spec.get("initContainers"):
        yield from _containers("Init Containers", spec["initContainers"])
    yield from _containers("Containers", spec.get("containers") or ())
    yield from _volumes(spec.get("volumes") or ())
    if spec.get("topologySpreadConstraints"):
        yield from _topology_spread(spec["topologySpreadConstraints"])
    if spec.get("priorityClassName"):
        yield f"  Priority Class Name:\t{spec['priorityClassName']}"
    yield from _pairs("Node-Selectors", spec.get("nodeSelector"))
    yield from _column("Tolerations", [_toleration(t) for t in _by_key(spec.get("tolerations"))])


def _column(title: str, values: list[str]) -> Iterator[str]:
    """The title with the first value behind it and the others below."""
    first, *rest = values or [NONE]
    yield f"  {title}:\t{first}"
    for value in rest:
        yield f"\t{value}"


def _pairs(title: str, pairs: Json | None) -> Iterator[str]:
    yield from _column(title, [f"{key}={value}" for key, value in sorted((pairs or {}).items())])


def _annotations(annotations: Json) -> Iterator[str]:
    told: list[str] = []
    for key, value in sorted(annotations.items()):
        if key == _SKIPPED_ANNOTATION:
            continue
        text = str(value).removesuffix("\n")
        if len(text) + len(key) + 2 > _LONGEST_ANNOTATION or "\n" in text:
            told.append(f"{key}:")
            told += [f"  {_shortened(line)}" for line in text.split("\n")]
        else:
            told.append(f"{key}: {text}")
    yield from _column("Annotations", told)


def _shortened(line: str) -> str:
    most = _LONGEST_ANNOTATION - 2
    return line if len(line) <= most else line[:most] + "..."


def _containers(label: str, containers: Any) -> Iterator[str]:
    yield f"  {label}:" + ("" if containers else f" {NONE}")
    for container in containers:
        yield f"   {container.get('name', '')}:"
        yield f"    Image:\t{container.get('image', '')}"
        ports = container.get("ports") or ()
        yield _ports("Port", [(p.get("containerPort", 0), p) for p in ports])
        yield _ports("Host Port", [(p.get("hostPort", 0), p) for p in ports])
        for title, field in (("Command", "command"), ("Args", "args")):
            if container.get(field):
                yield f"    {title}:"
                for word in container[field]:
                    yield from (f"      {line}" for line in str(word).split("\n"))
        resources = container.get("resources") or {}
        for title, field in (("Limits", "limits"), ("Requests", "requests")):
            if resources.get(field):
                yield f"    {title}:"
                for name, amount in sorted(resources[field].items()):
                    yield f"      {name}:\t{amount}"
        for title in ("Liveness", "Readiness", "Startup"):
            probe = container.get(f"{title.lower()}Probe")
            if probe is not None:
                yield f"    {title}:\t{_probe(probe)}"
        yield from _environment(container)
        yield from _mounts(container)


def _ports(title: str, numbered: list[tuple[Any, Json]]) -> str:
    told = [
        f"{number}/{port.get('protocol', 'TCP')}" + (f" ({port['name']})" if "name" in port else "")
        for number, port in numbered
    ]
    return f"    {title}{'s' if len(told) > 1 else ''}:\t{', '.join(told) or NONE}"


def _probe(probe: Json) -> str:
    attributes = (
        f"delay={probe.get('initialDelaySeconds', 0)}s timeout={probe.get('timeoutSeconds', 1)}s"
        f" period={probe.get('periodSeconds', 10)}s #success={probe.get('successThreshold', 1)}"
        f" #failure={probe.get('failureThreshold', 3)}"
    )
    if "exec" in probe:
        return f"exec [{' '.join(probe['exec'].get('command') or ())}] {attributes}"
    if "httpGet" in probe:
        get = probe["httpGet"]
        scheme = str(get.get("scheme", "HTTP")).lower()
        path = get.get("path", "")
        return f"http-get {scheme}://{get.get('host', '')}:{get.get('port')}{path} {attributes}"
    if "tcpSocket" in probe:
        socket = probe["tcpSocket"]
        return f"tcp-socket {socket.get('host', '')}:{socket.get('port')} {attributes}"
    if "grpc" in probe:
        grpc = probe["grpc"]
        return f"grpc <pod>:{grpc.get('port')} {grpc.get('service', '')} {attributes}"
    return f"unknown {attributes}"


def _environment(container: Json) -> Iterator[str]:
    sources = container.get("envFrom") or ()
    if sources:
        yield "    Environment Variables from:"
        for source in sources:
            kind = "ConfigMap" if "configMapRef" in source else "Secret"
            reference = source.get("configMapRef") or source.get("secretRef") or {}
            with_prefix = f" with prefix '{source['prefix']}'" if source.get("prefix") else ""
            yield f"      {reference.get('name', '')}\t{kind}{with_prefix}\t{_optional(reference)}"
    variables = container.get("env") or ()
    yield "    Environment:" + ("" if variables else f"\t{NONE}")
    for variable in variables:
        first, *rest = _value(variable).split("\n")
        yield f"      {variable.get('name', '')}:\t{first}"
        yield from (f"      \t{line}" for line in rest)


def _value(variable: Json) -> str:
    source = variable.get("valueFrom")
    if source is None:
        return str(variable.get("value", ""))
    if "fieldRef" in source:
        field = source["fieldRef"]
        return f" ({field.get('apiVersion', 'v1')}:{field.get('fieldPath', '')})"
    if "resourceFieldRef" in source:
        return f" ({source['resourceFieldRef'].get('resource', '')})"
    secret = source.get("secretKeyRef")
    where = secret or source.get("configMapKeyRef") or {}
    of = "in secret" if secret else "of config map"
    key, name = where.get("key", ""), where.get("name", "")
    return f"<set to the key '{key}' {of} '{name}'>\t{_optional(where)}"


def _optional(reference: Json) -> str:
    return f"Optional: {str(bool(reference.get('optional'))).lower()}"


def _mounts(container: Json) -> Iterator[str]:
    mounts = container.get("volumeMounts") or ()
    yield "    Mounts:" + ("" if mounts else f"\t{NONE}")
    for mount in sorted(mounts, key=lambda m: str(m.get("mountPath", ""))):
        flags = "ro" if mount.get("readOnly") else "rw"
        if mount.get("subPath"):
            flags += f',path="{mount["subPath"]}"'
        yield f"      {mount.get('mountPath', '')} from {mount.get('name', '')} ({flags})"


def _volumes(volumes: Any) -> Iterator[str]:
    yield "  Volumes:" + ("" if volumes else f"\t{NONE}")
    for volume in volumes:
        yield f"   {volume.get('name', '')}:"
        source = next((key for key in volume if key != "name"), "")
        fields = volume.get(source) or {}
        if source not in _VOLUMES:
            yield f"    Type:\t{source[:1].upper() + source[1:] or '<unknown>'}"
            yield from (f"    {key}:\t{value}" for key, value in fields.items())
            continue
        kind, names = _VOLUMES[source]
        yield f"    Type:\t{kind}"
        for field, (name, nothing) in names.items():
            value = fields.get(field, nothing)
            yield f"    {name}:\t{str(value).lower() if isinstance(value, bool) else value}"


def _topology_spread(constraints: Any) -> Iterator[str]:
    told = []
    for constraint in sorted(constraints, key=lambda c: str(c.get("topologyKey", ""))):
        line = (
            f"{constraint.get('topologyKey', '')}:{constraint.get('whenUnsatisfiable', '')}"
            f" when max skew {constraint.get('maxSkew', 0)} is exceeded"
        )
        if constraint.get("labelSelector") is not None:
            selector = msgspec.convert(constraint["labelSelector"], LabelSelector)
            line += f" for selector {format_selector(selector)}"
        told.append(line)
    yield from _column("Topology Spread Constraints", told)


def _by_key(tolerations: Any) -> list[Json]:
    return sorted(tolerations or (), key=lambda toleration: str(toleration.get("key", "")))


def _toleration(toleration: Json) -> str:
    text = str(toleration.get("key", ""))
    if toleration.get("value"):
        text += f"={toleration['value']}"
    if toleration.get("effect"):
        text += f":{toleration['effect']}"
    if toleration.get("operator") == "Exists" and not toleration.get("value"):
        text += " op=Exists" if text else "op=Exists"
    if toleration.get("tolerationSeconds") is not None:
        text += f" for {toleration['tolerationSeconds']}s"
    return text
