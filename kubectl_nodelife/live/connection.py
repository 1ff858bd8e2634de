"""The connection flags as a command was given them, and the form in which flags are declared.

Nothing heavy is imported here: a command that asks a running daemon needs no more of `live`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from kubectl_nodelife.errors import BadInput


class DeclaredFlag(NamedTuple):
    """A flag: its field of the tuple that holds the values, and whether --help shows it.

    `value` names the value in help texts; a switch has none.
    """

    field: str
    spellings: tuple[str, ...]
    help: str
    value: str = ""
    common: bool = True

    @property
    def name(self) -> str:
        """With its dashes."""
        return self.spellings[0]

    @property
    def choices(self) -> list[str]:
        """The texts allowed, where the value is such as `[silent|renews]`."""
        return self.value[1:-1].split("|") if self.value.startswith("[") else []


def flag_table(fields: Sequence[str], table: str) -> tuple[DeclaredFlag, ...]:
    """The flags of lines such as `--namespace -n=NAME  The namespace to look in.`, one for each of
    the fields in their order. An indented line goes on with the one before; those behind an empty
    line are not shown by each verb's --help.
    """
    shown, _, hidden = table.strip().partition("\n\n")
    flags = []
    for lines, common in ((shown, True), (hidden, False)):
        for line in lines.replace("\n    ", " ").splitlines():
            names, _, text = line.partition("  ")
            spelled, _, value = names.partition("=")
            spellings = tuple(spelled.split())
            flags.append((spellings, text.strip(), value, common))
    return tuple(DeclaredFlag(field, *flag) for field, flag in zip(fields, flags, strict=True))


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


def parse_timeout(text: str | None) -> int | None:
    """--request-timeout in ns: a Go duration, or a bare number of seconds; "0" and none: no limit.

    Raises BadInput. Follows `ParseTimeout`.
    """
    if not text or text == "0":
        return None
    from kubectl_nodelife.kube.times import parse_duration

    try:
        if text.isdecimal():
            return int(text) * 1_000_000_000
        timeout = parse_duration(text)
    except ValueError:
        timeout = -1
    if timeout < 0:
        raise BadInput(
            f'invalid timeout value "{text}"',
            on="--request-timeout",
            remedy="give a number with a unit, such as 1s, 2m or 3h",
        )
    return timeout or None
