"""kubeconfig files, found and merged as kubectl finds and merges them.

Follows client-go/tools/clientcmd (loader.go, merge.go) and api/v1 (conversion.go, defaults.go),
read at v1.36. The official Python client's own loader is not used for this: of several files it
takes the last `current-context` where kubectl takes the first, which is another cluster, and it
stumbles over empty files. `live/target.py` goes on from here: which cluster, as whom.

Left out on purpose: the migration of `~/.kube/.kubeconfig`, and writing of any kind. The files are
the user's.
"""

from __future__ import annotations

import base64
import binascii
import functools
import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec
import yaml

from kubectl_nodelife.errors import BadInput
from kubectl_nodelife.kube.documents import load_documents

_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class _Stanza(msgspec.Struct, frozen=True, rename="kebab", omit_defaults=True):
    """A part of a kubeconfig. Unknown fields are dropped, as by kubectl."""


class Cluster(_Stanza, frozen=True):
    """`clusters[].cluster`: where the API server is, and how to know that it is the right one."""

    server: str = ""
    tls_server_name: str = ""
    insecure_skip_tls_verify: bool = False
    certificate_authority: str = ""
    certificate_authority_data: str = ""
    proxy_url: str = ""
    disable_compression: bool = False
    extensions: tuple[dict[str, Any], ...] = ()


class EnvVar(msgspec.Struct, frozen=True, omit_defaults=True):
    """`exec.env[]`."""

    name: str = ""
    value: str = ""


class ExecConfig(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """`users[].user.exec`: a command that prints a credential."""

    command: str = ""
    args: tuple[str, ...] = ()
    env: tuple[EnvVar, ...] = ()
    api_version: str = ""
    install_hint: str = ""
    provide_cluster_info: bool = False
    interactive_mode: str = ""


class AuthProvider(msgspec.Struct, frozen=True, omit_defaults=True):
    """`users[].user.auth-provider`."""

    name: str = ""
    config: dict[str, str] = {}


class User(_Stanza, frozen=True):
    """`users[].user`: who we are to the API server."""

    client_certificate: str = ""
    client_certificate_data: str = ""
    client_key: str = ""
    client_key_data: str = ""
    token: str = ""
    token_file: str = msgspec.field(default="", name="tokenFile")
    impersonate: str = msgspec.field(default="", name="as")
    impersonate_uid: str = msgspec.field(default="", name="as-uid")
    impersonate_groups: tuple[str, ...] = msgspec.field(default=(), name="as-groups")
    impersonate_user_extra: dict[str, list[str]] = msgspec.field(
        default_factory=dict, name="as-user-extra"
    )
    username: str = ""
    password: str = ""
    auth_provider: AuthProvider | None = None
    exec: ExecConfig | None = None
    extensions: tuple[dict[str, Any], ...] = ()


class Context(_Stanza, frozen=True):
    """`contexts[].context`: a cluster, a user and a namespace, by name."""

    cluster: str = ""
    user: str = ""
    namespace: str = ""
    extensions: tuple[dict[str, Any], ...] = ()


class KubeConfig(msgspec.Struct, frozen=True):
    """The merged files. `files`: those that were read, in order; all paths inside are absolute."""

    clusters: dict[str, Cluster] = {}
    users: dict[str, User] = {}
    contexts: dict[str, Context] = {}
    current_context: str = ""
    files: tuple[str, ...] = ()


def kubeconfig_files(flag: str | None, environ: Mapping[str, str]) -> tuple[str, ...]:
    """The files that kubectl would read, in order, whether or not they exist.

    `flag` is --kubeconfig. Follows `NewDefaultClientConfigLoadingRules`.
    """
    if flag:
        return (flag,)
    listed = environ.get("KUBECONFIG", "")
    if listed:
        return tuple(dict.fromkeys(path for path in listed.split(os.pathsep) if path))
    return (os.path.join(environ.get("HOME") or os.path.expanduser("~"), ".kube", "config"),)


def load_kubeconfig(files: Sequence[str], *, must_exist: bool = False) -> KubeConfig:
    """Read and merge the files. Missing ones are skipped unless they `must_exist` (--kubeconfig).

    Of a name defined twice the first file's whole entry counts; so does the first current-context.
    Raises BadInput, which names the file. Follows `ClientConfigLoadingRules.Load`.
    """
    merged = KubeConfig()
    for path in files:
        config = _read(path, must_exist)
        if config is None:
            continue
        merged = KubeConfig(
            clusters=config.clusters | merged.clusters,
            users=config.users | merged.users,
            contexts=config.contexts | merged.contexts,
            current_context=merged.current_context or config.current_context,
            files=merged.files + config.files,
        )
    return merged


def _read(path: str, must_exist: bool) -> KubeConfig | None:
    """One file; None if it may be missing and is."""
    try:
        with open(path, "rb") as file:
            text = file.read()
    except FileNotFoundError:
        if must_exist:
            raise BadInput("there is no such kubeconfig", on=path) from None
        return None
    except OSError as error:
        raise BadInput(f"cannot read this kubeconfig: {error.strerror}", on=path) from None
    return _parsed(text, path, "" if os.path.isabs(path) else os.getcwd())


@functools.lru_cache(maxsize=8)
def _parsed(text: bytes, path: str, cwd: str) -> KubeConfig:
    """The file's content, once: verbs that ask many clusters read it for each. Raises BadInput."""
    try:
        document = next(load_documents(text, _LOADER), None)
    except yaml.YAMLError as error:
        what = " ".join(str(error).split())
        raise BadInput(f"this kubeconfig is not YAML: {what}", on=path) from None
    if document is None:
        return KubeConfig(files=(path,))
    folder = os.path.dirname(os.path.join(cwd, path))
    try:
        return _convert(document, folder, path)
    except (msgspec.ValidationError, ValueError) as error:
        raise BadInput(f"this kubeconfig is malformed: {error}", on=path) from None


def _convert(document: Any, folder: str, path: str) -> KubeConfig:
    if not isinstance(document, dict):
        raise ValueError("it is not a mapping")
    for field, expected in (("kind", "Config"), ("apiVersion", "v1")):
        if document.get(field) not in (None, "", expected):
            raise ValueError(f"{field} is {document[field]!r}, not {expected}")
    current = document.get("current-context") or ""
    if not isinstance(current, str):
        raise ValueError(f"current-context {current!r} is not a text; put it in quotes")
    return KubeConfig(
        clusters={n: _at(folder, c) for n, c in _entries(document, "cluster", Cluster)},
        users={n: _user_at(folder, u) for n, u in _entries(document, "user", User)},
        contexts=dict(_entries(document, "context", Context)),
        current_context=current,
        files=(path,),
    )


def _entries(document: dict[str, Any], field: str, type_: Any) -> Iterable[tuple[str, Any]]:
    """(name, stanza) of each member of the list `field`s. Raises ValueError."""
    seen = set()
    entries = document.get(field + "s") or ()
    if not isinstance(entries, (list, tuple)):
        raise ValueError(f"{field}s is not a list")
    for number, entry in enumerate(entries):
        if not isinstance(entry, dict):
            raise ValueError(f"{field}s[{number}] is not a mapping")
        name = entry.get("name") or ""
        if not isinstance(name, str):
            raise ValueError(f"the name {name!r} in {field}s is not a text; put it in quotes")
        if name in seen:
            raise ValueError(f"{field}s holds the name {name!r} twice")
        seen.add(name)
        try:
            yield name, msgspec.convert(_without_nulls(entry.get(field) or {}), type_)
        except msgspec.ValidationError as error:
            raise ValueError(f"{field} {name!r}: {error}") from None


def _without_nulls(value: Any) -> Any:
    """A null counts as absent, as in Go."""
    if isinstance(value, dict):
        return {k: _without_nulls(v) for k, v in value.items() if v is not None}
    if isinstance(value, list):
        return [_without_nulls(v) for v in value if v is not None]
    return value


def _at(folder: str, cluster: Cluster) -> Cluster:
    """The cluster with its path made absolute against the file's folder, its data checked."""
    _check_base64("certificate-authority-data", cluster.certificate_authority_data)
    authority = _absolute(folder, cluster.certificate_authority)
    return msgspec.structs.replace(cluster, certificate_authority=authority)


def _user_at(folder: str, user: User) -> User:
    """The user with its paths made absolute; a plugin's command only if it is a path at all."""
    _check_base64("client-certificate-data", user.client_certificate_data)
    _check_base64("client-key-data", user.client_key_data)
    plugin = user.exec
    if plugin is not None:
        command = plugin.command
        if os.sep in command:
            command = _absolute(folder, command)
        mode = plugin.interactive_mode
        if not mode and plugin.api_version.endswith(("/v1beta1", "/v1alpha1")):
            mode = "IfAvailable"
        plugin = msgspec.structs.replace(plugin, command=command, interactive_mode=mode)
    return msgspec.structs.replace(
        user,
        client_certificate=_absolute(folder, user.client_certificate),
        client_key=_absolute(folder, user.client_key),
        token_file=_absolute(folder, user.token_file),
        exec=plugin,
    )


def _absolute(folder: str, path: str) -> str:
    return (
        os.path.normpath(os.path.join(folder, path)) if path and not os.path.isabs(path) else path
    )


def _check_base64(field: str, text: str) -> None:
    try:
        base64.b64decode(text.replace("\n", "").replace("\r", ""), validate=True)
    except binascii.Error:
        raise ValueError(f"{field} is not base64") from None
