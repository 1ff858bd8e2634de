"""The name under which one user's daemon of one cluster is found.

A context's name alone says nothing: many kubeconfigs call theirs `default`. What counts is the
server's address, the authority that vouches for it, and the user. Secrets that rotate (tokens,
certificates) do not count, or each renewal would be another cluster. Which cluster it really is
only the server can say (`daemon/process.py`).
"""

from __future__ import annotations

import hashlib
import json
from typing import Any

from kubectl_nodelife.live.target import Target


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
