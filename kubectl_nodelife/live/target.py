"""Resolves kubeconfig files and connection flags to one cluster and one user, as kubectl does.

Follows client-go/tools/clientcmd/client_config.go (`DirectClientConfig`) and validation.go. Safer
than kubectl on purpose in three places, since this program acts for days: without a server it does
not fall back to localhost:8080, a user that a context names and no file defines is an error instead
of an anonymous visit, and so is a cluster.

`cluster_identity` is the name under which one user's daemon of one cluster is found. A context's
name alone says nothing: many kubeconfigs call theirs `default`. What counts is the server's
address, the authority that vouches for it, and the user. Secrets that rotate (tokens, certificates)
do not count, or each renewal would be another cluster. Which cluster it really is only the server
can say (`daemon/process.py`).
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

import msgspec
from msgspec.structs import replace

from kubectl_nodelife.errors import BadInput
from kubectl_nodelife.kube.quantity import value as quantity_value
from kubectl_nodelife.live.connection import Connection, parse_timeout
from kubectl_nodelife.live.kubeconfig import (
    Cluster,
    Context,
    KubeConfig,
    User,
    kubeconfig_files,
    load_kubeconfig,
)

MAX_RESPONSE_BYTES = 512 << 20

_ONLY_ANSWERS = "leave it out: it is for what a daemon answers, such as status and explain"
SERVICE_ACCOUNT = "/var/run/secrets/kubernetes.io/serviceaccount"


class Target(msgspec.Struct, frozen=True):
    """A cluster to talk to, complete: server, credentials, impersonation, namespace.

    `context` is "" where there is none. `request_timeout_ns` None: the default of each request.
    `files` are the kubeconfig files it came from. `max_response_bytes` counts one answer,
    decompressed: a page of a list has up to 500 objects. One event of a watch may have a sixteenth.
    """

    context: str
    namespace: str
    cluster_name: str
    user_name: str
    cluster: Cluster
    user: User
    request_timeout_ns: int | None = None
    files: tuple[str, ...] = ()
    max_response_bytes: int = MAX_RESPONSE_BYTES

    @property
    def server(self) -> str:
        """The API server's URL without a slash at its end."""
        return self.cluster.server.rstrip("/")


def find_target(overrides: Connection, environ: Mapping[str, str]) -> Target:
    """The cluster that kubectl would talk to with these flags in this environment.

    Reads the kubeconfig files; with none of use, inside a pod, the pod's service account.
    Raises BadInput.
    """
    if overrides.via:
        raise BadInput("this reads the cluster itself", on="--via", remedy=_ONLY_ANSWERS)
    if overrides.in_cluster:
        target = _in_cluster(overrides, environ)
        if target is None:
            raise BadInput("this is no pod with a service account's token", on="--in-cluster")
        return target
    files = kubeconfig_files(overrides.kubeconfig, environ)
    config = load_kubeconfig(files, must_exist=bool(overrides.kubeconfig))
    if not config.clusters and not overrides.server:
        target = _in_cluster(overrides, environ)
        if target is None:
            raise BadInput(
                "no cluster is configured there",
                on=os.pathsep.join(files),
                remedy="set KUBECONFIG or give --kubeconfig or --server",
            )
        return target
    return resolve(config, overrides)


def resolve(config: KubeConfig, overrides: Connection) -> Target:
    """One context of the config with the flags on top. Raises BadInput."""
    context_name = overrides.context or config.current_context
    context = config.contexts.get(context_name)
    if context is None:
        if context_name:
            contexts = ", ".join(sorted(config.contexts)) or "none"
            raise BadInput(f'context "{context_name}" does not exist', remedy=f"known: {contexts}")
        if config.contexts and not (overrides.cluster or overrides.server):
            contexts = ", ".join(sorted(config.contexts))
            raise BadInput(
                "no current-context is set", remedy=f"give --context with one of: {contexts}"
            )
        context = Context()
    cluster_name = overrides.cluster or context.cluster
    user_name = overrides.user or context.user
    user = _find(config.users, user_name, "user", "" if overrides.user else context_name)
    of_context = "" if overrides.cluster else context_name
    cluster = _find(config.clusters, cluster_name, "cluster", of_context)
    target = Target(
        context=context_name,
        namespace=overrides.namespace or context.namespace or "default",
        cluster_name=cluster_name,
        user_name=user_name,
        cluster=_override_cluster(cluster or Cluster(), overrides),
        user=_override_user(user or User(), overrides),
        request_timeout_ns=parse_timeout(overrides.request_timeout),
        files=config.files,
        max_response_bytes=parse_size(overrides.max_response_size),
    )
    _check(target)
    return target


def connection_warnings(target: Target) -> list[str]:
    """A warning, given once, about how we connect."""
    if target.server.startswith("http://"):
        return [f"{target.server} is not asked over TLS: no credentials are sent"]
    if target.cluster.insecure_skip_tls_verify:
        return [f"the certificate of {target.server} is not checked (insecure-skip-tls-verify)"]
    return []


def parse_size(text: str | None, given_by: str = "--max-response-size") -> int:
    """The longest answer in bytes, a quantity such as 512Mi. Raises BadInput."""
    if not text:
        return MAX_RESPONSE_BYTES
    try:
        size = quantity_value(text)
    except ValueError:
        size = 0
    if size <= 0:
        raise BadInput(
            f'invalid size "{text}"',
            on=given_by,
            remedy="give a number of bytes with a unit, such as 512Mi or 2Gi",
        )
    return size


def _find(entries: Mapping[str, object], name: str, kind: str, context: str) -> object:
    if not name:
        return None
    if name not in entries:
        whose = f' that context "{context}" names' if context else ""
        raise BadInput(f'{kind} "{name}"{whose} does not exist in the kubeconfig')
    return entries[name]


def _override_cluster(cluster: object, flags: Connection) -> Cluster:
    """Follows `getCluster`: a CA, or the word to skip checks, replaces both; --server drops the
    name to check.
    """
    assert isinstance(cluster, Cluster)
    if flags.insecure_skip_tls_verify or flags.certificate_authority:
        cluster = replace(
            cluster,
            insecure_skip_tls_verify=flags.insecure_skip_tls_verify,
            certificate_authority=_from_here(flags.certificate_authority),
            certificate_authority_data="",
        )
    if flags.tls_server_name or flags.server:
        cluster = replace(cluster, tls_server_name=flags.tls_server_name or "")
    return replace(
        cluster,
        server=flags.server or cluster.server,
        disable_compression=flags.disable_compression or cluster.disable_compression,
    )


def _override_user(user: object, flags: Connection) -> User:
    """Follows `getAuthInfo`: a certificate or key given replaces the file's in both forms."""
    assert isinstance(user, User)
    if flags.client_certificate:
        certificate = _from_here(flags.client_certificate)
        user = replace(user, client_certificate=certificate, client_certificate_data="")
    if flags.client_key:
        user = replace(user, client_key=_from_here(flags.client_key), client_key_data="")
    return replace(
        user,
        token=flags.token or user.token,
        token_file="" if flags.token else user.token_file,
        impersonate=flags.impersonate or user.impersonate,
        impersonate_uid=flags.impersonate_uid or user.impersonate_uid,
        impersonate_groups=flags.impersonate_groups or user.impersonate_groups,
        impersonate_user_extra=_extra(flags.impersonate_user_extra) or user.impersonate_user_extra,
    )


def _extra(pairs: tuple[str, ...]) -> dict[str, list[str]]:
    """key=value pairs as a map of lists. Raises BadInput."""
    extra: dict[str, list[str]] = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not equals:
            raise BadInput(f"{pair!r} is not KEY=VALUE", on="--as-user-extra")
        extra.setdefault(key, []).append(value)
    return extra


def _from_here(path: str | None) -> str:
    return os.path.abspath(path) if path else ""


def _check(target: Target) -> None:
    """Follows `validateClusterInfo` and `validateAuthInfo`. Raises BadInput."""
    cluster, user = target.cluster, target.user
    on_cluster = f'cluster "{target.cluster_name}"' if target.cluster_name else "kubeconfig"
    on_user = f'user "{target.user_name}"' if target.user_name else "kubeconfig"
    if not cluster.server:
        raise BadInput("it has no server", on=on_cluster, remedy="give --server")
    try:
        _ = urlsplit(cluster.server).port
    except ValueError as error:
        raise BadInput(f"its server is no URL: {error}", on=on_cluster) from None
    if cluster.certificate_authority and cluster.certificate_authority_data:
        raise BadInput(
            "certificate-authority-data and certificate-authority are both set", on=on_cluster
        )
    if cluster.insecure_skip_tls_verify and (
        cluster.certificate_authority or cluster.certificate_authority_data
    ):
        raise BadInput(
            "a certificate authority together with insecure-skip-tls-verify is not allowed",
            on=on_cluster,
            remedy="take one of the two away",
        )
    if user.client_certificate and user.client_certificate_data:
        raise BadInput("client-certificate-data and client-certificate are both set", on=on_user)
    if user.client_key and user.client_key_data:
        raise BadInput("client-key-data and client-key are both set", on=on_user)
    has_key = user.client_key or user.client_key_data
    if (user.client_certificate or user.client_certificate_data) and not has_key:
        raise BadInput("a client certificate without client-key or client-key-data", on=on_user)
    if user.token and (user.username or user.password):
        raise BadInput("both a token and a password; only one is allowed", on=on_user)
    groups = user.impersonate_uid or user.impersonate_groups or user.impersonate_user_extra
    if groups and not user.impersonate:
        raise BadInput("--as-uid, --as-group and --as-user-extra need --as", on=on_user)
    for path in (cluster.certificate_authority, user.client_certificate, user.client_key):
        if path and not os.access(path, os.R_OK):
            raise BadInput("this file is named in the kubeconfig and cannot be read", on=path)
    _check_plugin(user, on_user)


def _check_plugin(user: User, on_user: str) -> None:
    plugin = user.exec
    if plugin is None:
        return
    if user.auth_provider is not None:
        raise BadInput("both auth-provider and exec; only one is allowed", on=on_user)
    for field, value in (
        ("command", plugin.command),
        ("apiVersion", plugin.api_version),
        ("interactiveMode", plugin.interactive_mode),
    ):
        if not value:
            raise BadInput(f"{field} of its exec plugin is missing", on=on_user)
    if plugin.interactive_mode not in ("Never", "IfAvailable", "Always"):
        raise BadInput(f"interactiveMode {plugin.interactive_mode!r} is unknown", on=on_user)


def _in_cluster(flags: Connection, environ: Mapping[str, str]) -> Target | None:
    """The service account of the pod that we run in, or None. Follows `InClusterConfig`."""
    host, port = environ.get("KUBERNETES_SERVICE_HOST"), environ.get("KUBERNETES_SERVICE_PORT")
    token_file = f"{SERVICE_ACCOUNT}/token"
    if not host or not port or not os.path.exists(token_file):
        return None
    host = f"[{host}]" if ":" in host else host
    namespace = flags.namespace or _first_line(f"{SERVICE_ACCOUNT}/namespace") or "default"
    cluster = Cluster(
        server=f"https://{host}:{port}", certificate_authority=f"{SERVICE_ACCOUNT}/ca.crt"
    )
    return Target(
        context="",
        namespace=namespace,
        cluster_name="",
        user_name="",
        cluster=_override_cluster(cluster, flags),
        user=_override_user(User(token_file=token_file), flags),
        request_timeout_ns=parse_timeout(flags.request_timeout),
        max_response_bytes=parse_size(flags.max_response_size),
    )


def _first_line(path: str) -> str:
    try:
        with open(path, encoding="utf-8") as file:
            return file.readline().strip()
    except OSError:
        return ""


def cluster_identity(target: Target) -> str:
    """20 hex digits: a hash of server, CA, user and impersonation as resolved."""
    cluster = target.cluster
    parts = {
        "server": target.server,
        "tlsServerName": cluster.tls_server_name,
        "insecure": cluster.insecure_skip_tls_verify,
        "proxy": cluster.proxy_url,
        "authority": _authority(target),
        **user_parts(target),
    }
    text = json.dumps(parts, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:20]


def user_parts(target: Target) -> dict[str, Any]:
    """As whom we come, without secrets."""
    user = target.user
    plugin, provider = user.exec, user.auth_provider
    return {
        "user": target.user_name,
        "username": user.username,
        "exec": [plugin.command, *plugin.args] if plugin else [],
        "provider": provider.name if provider else "",
        "as": user.impersonate,
        "asUid": user.impersonate_uid,
        "asGroups": sorted(user.impersonate_groups),
        "asExtra": {
            key: sorted(user.impersonate_user_extra[key]) for key in user.impersonate_user_extra
        },
    }


def _authority(target: Target) -> str:
    """The CA itself, be it inline or in a file, so that moving a file changes nothing."""
    if target.cluster.certificate_authority_data:
        return "".join(target.cluster.certificate_authority_data.split())
    path = target.cluster.certificate_authority
    if not path:
        return ""
    import base64

    with open(path, "rb") as file:
        return base64.b64encode(file.read()).decode()
