"""The connection flags as a command was given them.

Nothing heavy is imported here: a command that asks a running daemon needs no more of `live`.
"""

from __future__ import annotations

from typing import NamedTuple


class Connection(NamedTuple):
    """The connection flags as given; None, empty or False where a flag was not.

    `via`: the daemon in the cluster that is asked. `in_cluster`: `daemon run` takes its pod's
    service account.
    """

    kubeconfig: str | None = None
    context: str | None = None
    namespace: str | None = None
    impersonate: str | None = None
    impersonate_groups: tuple[str, ...] = ()
    request_timeout: str | None = None
    cluster: str | None = None
    user: str | None = None
    server: str | None = None
    token: str | None = None
    impersonate_uid: str | None = None
    impersonate_user_extra: tuple[str, ...] = ()
    tls_server_name: str | None = None
    insecure_skip_tls_verify: bool = False
    certificate_authority: str | None = None
    client_certificate: str | None = None
    client_key: str | None = None
    cache_dir: str | None = None
    disable_compression: bool = False
    max_response_size: str | None = None
    via: str | None = None
    in_cluster: bool = False

    def overridden_by(self, nearer: Connection) -> Connection:
        """These flags with those of `nearer` on top; repeatable flags add up."""
        merged = self._asdict()
        for field, theirs in nearer._asdict().items():
            mine = merged[field]
            merged[field] = mine + theirs if isinstance(mine, tuple) else theirs or mine
        return Connection(**merged)

    def for_kubectl(self) -> dict[str, str | None]:
        """The options that printed kubectl lines repeat, by flag without dashes; None: not given.

        No token and no certificate is among it.
        """
        return {"kubeconfig": self.kubeconfig, "context": self.context, "as": self.impersonate}
