"""The settings that the running controllers have, with the origin of each, and the config file.

A kube-controller-manager that runs as a static pod shows its flags in its mirror pod; so does the
API server. A managed control plane shows nothing: then the config file and the defaults of the
server's release count. --set wins over everything; if it contradicts what runs, a warning says so.

`~/.config/nodelife/config.yaml` says what cannot be read from a managed control plane:

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

import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Annotated, Any, Final

import msgspec
import yaml
from msgspec.structs import replace

from kubectl_nodelife.engine.cache import Cache
from kubectl_nodelife.engine.guard import CAP_NAMES
from kubectl_nodelife.engine.settings import (
    FLAGS,
    GATES,
    Profile,
    Settings,
    SettingsError,
    check_flag,
    followed_release,
    make_settings,
    parse_assignments,
)
from kubectl_nodelife.errors import BadInput, NodelifeError
from kubectl_nodelife.kube.documents import load_documents
from kubectl_nodelife.kube.kinds import kind_named
from kubectl_nodelife.kube.names import did_you_mean
from kubectl_nodelife.kube.node import kubelet_versions
from kubectl_nodelife.live.manager_role import role_warnings
from kubectl_nodelife.live.target import parse_size

if TYPE_CHECKING:
    from kubectl_nodelife.live.client import Client


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


EMPTY_CONFIG: Final = ClusterConfig()
SERVER_VERSION: Final = "the API server's version"


class Config(msgspec.Struct, frozen=True):
    """The file. `path` is where it was, or would be."""

    path: str = ""
    clusters: dict[str, ClusterConfig] = {}

    def section(self, server: str, context: str) -> ClusterConfig:
        """The section for the cluster; its server's URL counts before the context's name."""
        for name in (server, f"{server}/", context):
            if name and name in self.clusters:
                return self.clusters[name]
        return EMPTY_CONFIG


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


def _section(path: str, name: str, raw: Any) -> ClusterConfig:
    where = f"clusters.{name}"
    _check_keys(path, where, raw, _KEYS["clusters"])
    _check_keys(path, f"{where}.caps", raw.get("caps") or {}, _KEYS["caps"])
    try:
        section = msgspec.convert({"name": name, **raw}, ClusterConfig)
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


_CONTROL_PLANE: Final = ("kube-controller-manager", "kube-apiserver")
_NAMESPACE: Final = "kube-system"
UNREADABLE: Final = "it runs with --"
"""How a warning of a running flag begins whose value cannot be read."""


class RequestedSettings(msgspec.Struct, frozen=True):
    """The user's settings: --profile, --set FLAG=VALUE, and the config file."""

    profile: str = ""
    assignments: tuple[str, ...] = ()
    config: Config = Config()

    def check(self) -> None:
        """Raises BadInput for what no release has: no cluster need be read to say so."""
        followed_release([(self.profile, "--profile")], ("", ""), ())
        try:
            for name, value in parse_assignments(self.assignments).items():
                check_flag(name, value)
        except SettingsError as error:
            raise BadInput(str(error), on="--set") from None


_UNTOLD: Final = "what runs there, which does not say where it was read"


class DetectedSettings(msgspec.Struct, frozen=True):
    """The cluster's settings: its release, flags by name with the pod that shows them, and what is
    wrong with them there.
    """

    version: str = ""
    flags: dict[str, str] = {}
    origins: dict[str, str] = {}
    warnings: list[str] = []


class ResolvedSettings(msgspec.Struct, frozen=True):
    """The settings, where the profile comes from, and what had to be said on the way."""

    settings: Settings
    profile_origin: str
    warnings: list[str]


async def detect_settings(
    client: Client, cache: Cache, *, manager_role: bool = False
) -> DetectedSettings:
    """Ask the server for its release, and for the control plane's pods that the cache shows.

    What cannot be read is left out: then the next best origin counts. `manager_role`: ask too
    whether the controller manager may do what it must before it calls a node lost.
    """
    from kubectl_nodelife.live.requests import Resource, get_url

    version = ""
    try:
        served = msgspec.json.decode(await client.read("/version"))
        version = str(served.get("gitVersion", ""))
    except (NodelifeError, msgspec.MsgspecError, AttributeError):
        pass
    flags: dict[str, str] = {}
    origins: dict[str, str] = {}
    pods = Resource(kind_named("Pod"), _NAMESPACE)
    for component, name in control_plane_pods(cache):
        try:
            pod = msgspec.json.decode(await client.read(get_url(pods, name)))
            shown = dict(flags_of(pod, component))
        except (NodelifeError, msgspec.MsgspecError, AttributeError, TypeError):
            continue
        for flag, value in shown.items():
            if FLAGS[flag].origin == component and flag not in flags:
                flags[flag], origins[flag] = value, f"{component} (pod {name})"
    warnings = await role_warnings(client, version) if manager_role else []
    return DetectedSettings(version, flags, origins, warnings)


def control_plane_pods(cache: Cache) -> Iterator[tuple[str, str]]:
    """(component, pod's name) of the control plane's pods, in order of their names."""
    for _, name in sorted(key for key in cache.pods if key[0] == _NAMESPACE):
        for component in _CONTROL_PLANE:
            if name.startswith(f"{component}-"):
                yield component, name


def flags_of(pod: Mapping[str, Any], component: str) -> Iterator[tuple[str, str]]:
    """The flags that concern us on the command line of a raw pod's container."""
    words = words_of(pod, component)
    for number, word in enumerate(words):
        if not word.startswith("-"):
            continue
        name, equals, value = word.lstrip("-").partition("=")
        if name not in FLAGS:
            continue
        if not equals:
            after = words[number + 1] if number + 1 < len(words) else "-"
            value = after if FLAGS[name].type != "bool" and after[:1] != "-" else "true"
        yield name, value


def words_of(pod: Mapping[str, Any], component: str) -> list[str]:
    """The command line of a raw pod's container, a shell's taken apart."""
    flags: list[str] = []
    for container in pod["spec"]["containers"]:
        if container.get("name") not in (component, None) and len(pod["spec"]["containers"]) > 1:
            continue
        words = [*(container.get("command") or ()), *(container.get("args") or ())]
        flags += _split(words)
    return flags


def resolve_settings(
    requested: RequestedSettings, running: DetectedSettings, cache: Cache, server: str, context: str
) -> ResolvedSettings:
    """The effective settings. Raises BadInput, naming the flag and the file or option."""
    section = requested.config.section(server, context)
    in_file = f"{requested.config.path}, clusters.{section.name}"
    asked = (requested.profile, "--profile"), (section.profile, in_file)
    served, kubelets = (running.version, SERVER_VERSION), kubelet_versions(cache.all("Node"))
    followed = followed_release(asked, served, kubelets)
    profile = followed.profile
    warnings = [*followed.warnings, *running.warnings]
    if not (requested.profile or section.profile or followed.origin.startswith(SERVER_VERSION)):
        warnings.insert(0, f"{SERVER_VERSION} is not known")
    flags: dict[str, object] = {}
    origins: dict[str, str] = {}
    given = parse_assignments(requested.assignments)
    shown = _known(running.flags, profile)
    for name, why in unreadable(shown, profile):
        warnings.append(f"{UNREADABLE}{name}={shown.pop(name)}, which is left out ({why})")
    for layer, origin in ((shown, running.origins), (section.settings, in_file), (given, "--set")):
        for name, value in layer.items():
            running_value = running.flags.get(name)
            if origin is not running.origins and running_value not in (None, str(value)):
                if origin != "--set":
                    continue
                warnings.append(f"--set {name}={value}, but it runs with {running_value}")
            flags[name] = value
            origins[name] = origin if isinstance(origin, str) else origin.get(name, _UNTOLD)
    try:
        settings = make_settings(profile, flags, origins=origins)
    except SettingsError as error:
        raise BadInput(str(error), on=_whose(str(error), origins)) from None
    return ResolvedSettings(settings, followed.origin, warnings)


class FollowedSettings:
    """The settings that a daemon goes by: those of the running control plane, the user's, and the
    config's, whenever one of these is looked at again.

    `warnings`: what is wrong with them. `on_section` receives what the config says of the cluster,
    each time it was read; `in_force`: the settings to keep where the user's word is wrong, None for
    those without it.
    """

    def __init__(self, client: Client, requested: RequestedSettings) -> None:
        self.warnings: list[str] = []
        self.on_section: Callable[[ClusterConfig], None] = lambda section: None
        self.in_force: Callable[[], Settings | None] = lambda: None
        self._client = client
        self._requested = requested
        self._running = DetectedSettings()
        self._shown: frozenset[tuple[str, str]] = frozenset()

    def has_other_pods(self, cache: Cache) -> bool:
        """True if other pods of the control plane are there than when they were asked."""
        return _pods_shown(cache) != self._shown

    async def read(self, cache: Cache) -> Settings:
        """Ask the control plane that the cache shows, and decide."""
        self._shown = _pods_shown(cache)
        self._running = await detect_settings(self._client, cache, manager_role=True)
        return self.decide(cache)

    def decide(self, cache: Cache) -> Settings:
        """From all that is known, with the config as it is now."""
        from kubectl_nodelife.daemon.logs import log  # who only looks logs nothing

        target, warnings, requested = self._client.session.target, [], self._requested
        of_cluster = self._running, cache, target.server, target.context
        try:
            config = load_config(requested.config.path)
            decided = resolve_settings(replace(requested, config=config), *of_cluster)
            self.on_section(config.section(target.server, target.context))
        except BadInput as error:
            warnings.append(f"{error}: left out")
            decided = resolve_settings(RequestedSettings(), *of_cluster)
            if in_force := self.in_force():
                decided = replace(decided, settings=in_force)
        self.warnings = [*warnings, *decided.warnings]
        log.info("follows %s (%s)", decided.settings.profile.name, decided.profile_origin)
        return decided.settings


def _pods_shown(cache: Cache) -> frozenset[tuple[str, str]]:
    """Names and uids of the control plane's pods."""
    pods = [(name, cache.pod(_NAMESPACE, name)) for _, name in control_plane_pods(cache)]
    return frozenset((name, pod.uid if pod is not None else "") for name, pod in pods)


def unreadable(flags: Mapping[str, str], profile: Profile | str) -> list[tuple[str, str]]:
    """The flags whose values make no sense, such as `$(VARIABLE)`, each with what is wrong."""
    faults = []
    for name, value in flags.items():
        try:
            make_settings(profile, {name: value})
        except SettingsError as error:
            faults.append((name, str(error)))
    return faults


def _known(flags: Mapping[str, str], profile: Profile) -> dict[str, str]:
    """Flags and gates that the profile has: a running one may have more than we look at."""
    kept = {
        name: text
        for name, text in flags.items()
        if name in FLAGS and profile.minor < FLAGS[name].until
    }
    gates = [
        part
        for part in kept.get("feature-gates", "").split(",")
        if (gate := GATES.get(part.partition("=")[0].strip())) is not None
        and gate.default(profile.minor) is not None
        and profile.minor < gate.locked
    ]
    if "feature-gates" in kept:
        kept["feature-gates"] = ",".join(gates)
    return kept


def _split(words: Iterable[str]) -> Iterator[str]:
    """The words, with a shell's command line taken apart."""
    for word in words:
        if " " in word.strip() and "--" in word:
            try:
                yield from shlex.split(word)
                continue
            except ValueError:
                pass
        yield word


def _whose(text: str, origins: Mapping[str, str]) -> str:
    """The origin of the flag that an error names."""
    for name, origin in origins.items():
        if f"flag {name}" in text:
            return origin
    return ""
