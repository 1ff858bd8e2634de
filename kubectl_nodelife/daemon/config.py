"""`~/.config/nodelife/config.yaml`: what cannot be read from a managed control plane.

    apiVersion: nodelife.dev/v1alpha1
    kind: Config
    clusters:
      https://10.0.0.1:6443:        # an API server's URL, or a context's name
        profile: v1.33
        settings:
          node-monitor-grace-period: 40s
        caps: {taints-per-minute: 5}      # of enforce mode, as `--cap` names them
        maxWrites: 500                    # as --max-writes
        maxResponseSize: 1Gi              # as --max-response-size, of a daemon

No file is as good as an empty one. An unknown key is an error: a typo must not pass for a setting.
"""

from __future__ import annotations

from typing import Annotated, Any, Final

import msgspec
import yaml

from kubectl_nodelife.engine.guard import CAP_NAMES
from kubectl_nodelife.errors import BadInput
from kubectl_nodelife.kube.names import did_you_mean
from kubectl_nodelife.kube.yaml_stream import load_documents
from kubectl_nodelife.live.target import parse_size

_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)

_KEYS = {
    "": ("apiVersion", "kind", "clusters"),
    "clusters": ("profile", "settings", "caps", "maxWrites", "maxResponseSize"),
    "caps": tuple(CAP_NAMES),
}
_Count = Annotated[int, msgspec.Meta(ge=0)]


class ClusterConfig(msgspec.Struct, frozen=True, rename="camel"):
    """The file's section for one cluster. `name` is its key in the file."""

    name: str = ""
    profile: str = ""
    settings: dict[str, str | int | float | bool] = {}
    caps: dict[str, _Count] = {}
    max_writes: _Count | None = None
    max_response_size: str = ""


NOTHING_SAID: Final = ClusterConfig()


class Config(msgspec.Struct, frozen=True):
    """The file. `path` is where it was, or would be."""

    path: str = ""
    clusters: dict[str, ClusterConfig] = {}

    def section(self, server: str, context: str) -> ClusterConfig:
        """The section for the cluster; its server's URL counts before the context's name."""
        for name in (server, f"{server}/", context):
            if name and name in self.clusters:
                return self.clusters[name]
        return NOTHING_SAID


def load_config(path: str) -> Config:
    """Read the file. Raises BadInput with the place in the document."""
    try:
        with open(path, "rb") as file:
            document = next(load_documents(file.read(), _LOADER), None)
    except (FileNotFoundError, NotADirectoryError):
        return Config(path)
    except OSError as error:
        raise BadInput(f"cannot be read: {error.strerror}", on=path) from None
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        line = f" in line {mark.line + 1}" if mark is not None else ""
        what = getattr(error, "problem", None) or "cannot be read"
        raise BadInput(f"is not YAML{line}: {what}", on=path) from None
    if document is None:
        return Config(path)
    _check_keys(path, "", document, _KEYS[""])
    clusters = document.get("clusters") or {}
    if not isinstance(clusters, dict):
        raise BadInput("must be a map of clusters", on=f"{path}: clusters")
    sections = {}
    for name, section in clusters.items():
        sections[str(name)] = _section(path, str(name), section or {})
    return Config(path, sections)


def _section(path: str, name: str, said: Any) -> ClusterConfig:
    where = f"clusters.{name}"
    _check_keys(path, where, said, _KEYS["clusters"])
    _check_keys(path, f"{where}.caps", said.get("caps") or {}, _KEYS["caps"])
    try:
        section = msgspec.convert({"name": name, **said}, ClusterConfig)
    except msgspec.ValidationError as error:
        raise BadInput(str(error), on=f"{path}: {where}") from None
    parse_size(section.max_response_size, f"{path}: {where}.maxResponseSize")
    return section


def _check_keys(path: str, where: str, found: Any, known: tuple[str, ...]) -> None:
    on = f"{path}: {where}" if where else path
    if not isinstance(found, dict):
        raise BadInput("must be a map", on=on)
    for key in found:
        if key not in known:
            meant = did_you_mean(str(key), known)
            raise BadInput(f"unknown key {key!r}", on=on, remedy=meant)
