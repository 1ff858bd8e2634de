"""Credential plugins: the command of `users[].user.exec` that prints a token or a certificate.

Follows client-go/plugin/pkg/client/auth/exec/exec.go and kubectl's kuberc (pkg/config/v1beta1),
which may forbid plugins or list the allowed ones. The official Python client's runner is not used:
it passes no cluster on, lends the plugin our terminal, its caller takes a failure for "no
credential", and loading it costs each command 0.26 s. What a plugin prints to stderr is shown to
the person who asked, and never logged.

A failure is always an error here: a request that should have had a credential is never sent
without one.

`run_program` runs a program to its end, with a deadline and a bound on what it prints.
asyncio's own subprocesses are not used for this: a `create_subprocess_exec` that is cancelled while
it connects the pipes waits for ever, and with it the whole program (`BaseSubprocessTransport._wait`
is woken only once every pipe was connected and lost). Here the child is looked at every few
milliseconds, and cancelling ends it.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from typing import IO, Any, NamedTuple

import msgspec
import yaml

from kubectl_nodelife.errors import BadInput, Failed
from kubectl_nodelife.kube.meta import Time
from kubectl_nodelife.kube.times import parse_time
from kubectl_nodelife.live.kubeconfig import Cluster, ExecConfig

_CLUSTER_EXTENSION = "client.authentication.k8s.io/exec"
PLUGIN_SECONDS = 60.0
"""How long a plugin may take: a person may have to log in in a browser meanwhile."""

_STDERR_SHOWN = 400
_LOG_IN = "log in again, as for kubectl"


class Credential(msgspec.Struct, frozen=True):
    """The credentials of a plugin. `expires`: None where it did not say."""

    token: str = ""
    certificate: str = ""
    key: str = ""
    expires: Time | None = None


class PluginPolicy(msgspec.Struct, frozen=True):
    """kuberc's word on credential plugins: "" or AllowAll, DenyAll, Allowlist with its commands."""

    kind: str = ""
    allowed: tuple[str, ...] = ()


class CredentialPlugin:
    """One plugin of one user. `environ` is what it inherits; its stdin is never ours."""

    def __init__(
        self,
        config: ExecConfig,
        cluster: Cluster,
        environ: Mapping[str, str],
        policy: PluginPolicy,
        timeout_seconds: float = PLUGIN_SECONDS,
        show_stderr: bool = True,
    ) -> None:
        own = {variable.name: variable.value for variable in config.env}
        self.env = {**environ, **own}
        self._config = config
        self._cluster = cluster
        self._policy = policy
        self._timeout_seconds = timeout_seconds
        self._show_stderr = show_stderr

    async def run(self) -> Credential:
        """Run it once. Raises Failed with the plugin's own words, BadInput if kuberc forbids it."""
        config = self._config
        name = f"credential plugin {config.command}"
        if config.interactive_mode == "Always":
            raise Failed(
                "it needs a terminal (interactiveMode: Always)",
                on=name,
                remedy="log in with kubectl first, or use a plugin that does not ask",
            )
        check_policy(self._policy, config.command, self.env)
        self.env["KUBERNETES_EXEC_INFO"] = json.dumps(self._exec_info())
        try:
            ended = await run_program(
                [config.command, *config.args], self.env, seconds=self._timeout_seconds
            )
        except TimeoutError:  # an OSError, too
            what = f"no answer within {self._timeout_seconds:g} s"
            raise Failed(what, on=name, remedy=_LOG_IN) from None
        except OSError as error:
            hint = " ".join(config.install_hint.split()) or "install it or put it on PATH"
            raise Failed(f"cannot be run: {error.strerror}", on=name, remedy=hint) from None
        except TooMuchOutput:
            raise Failed("it prints more than any ExecCredential is long", on=name) from None
        if ended.code != 0:
            raise self._failed(ended, name)
        return read_credential(ended.stdout, config.api_version, name)

    def _failed(self, ended: Finished, name: str) -> Failed:
        if ended.code < 0:
            what = f"ended by {_signal_name(-ended.code)}"
        else:
            what = f"failed with exit code {ended.code}"
        if not self._show_stderr:
            return Failed(what, on=name, remedy="'kubectl get --raw /version' shows what it says")
        words = " ".join(ended.stderr.decode(errors="replace").split())[-_STDERR_SHOWN:]
        return Failed(f"{what}: {words}" if words else what, on=name, remedy=_LOG_IN)

    def _exec_info(self) -> dict[str, Any]:
        spec: dict[str, Any] = {"interactive": False}
        if self._config.provide_cluster_info:
            spec["cluster"] = _cluster_info(self._cluster)
        return {"apiVersion": self._config.api_version, "kind": "ExecCredential", "spec": spec}


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


class _CredentialStatus(msgspec.Struct, rename="camel"):
    token: str | None = None
    client_certificate_data: str | None = None
    client_key_data: str | None = None
    expiration_timestamp: str | None = None


class _ExecCredential(msgspec.Struct, rename="camel"):
    kind: str = ""
    api_version: str = ""
    status: _CredentialStatus | None = None


def read_credential(stdout: bytes, api_version: str, name: str) -> Credential:
    """The ExecCredential that a plugin printed. Raises Failed. Follows `refreshCredsLocked`."""
    try:
        printed = msgspec.json.decode(stdout, type=_ExecCredential)
        status = printed.status
        expires = status and status.expiration_timestamp
        until = parse_time(expires) if expires else None
    except (msgspec.MsgspecError, ValueError):
        raise Failed("what it printed is not an ExecCredential", on=name) from None
    if printed.kind != "ExecCredential" or printed.api_version != api_version:
        what = f"{printed.kind or 'no kind'} of {printed.api_version or 'no version'}"
        raise Failed(f"it printed {what}, not ExecCredential of {api_version}", on=name)
    if status is None or not (status.token or status.client_certificate_data):
        raise Failed("it gave neither a token nor a certificate", on=name)
    if bool(status.client_certificate_data) != bool(status.client_key_data):
        raise Failed("it gave a certificate without its key, or a key alone", on=name)
    return Credential(
        token=status.token or "",
        certificate=status.client_certificate_data or "",
        key=status.client_key_data or "",
        expires=until,
    )


def _cluster_info(cluster: Cluster) -> dict[str, Any]:
    """`spec.cluster`, with the CA's content in it. Follows `ConfigToExecCluster`."""
    info: dict[str, Any] = msgspec.to_builtins(cluster)
    info.pop("extensions", None)
    path = info.pop("certificate-authority", "")
    if path:
        import base64

        with open(path, "rb") as file:
            info["certificate-authority-data"] = base64.b64encode(file.read()).decode()
    for extension in cluster.extensions:
        if extension.get("name") == _CLUSTER_EXTENSION:
            info["config"] = extension.get("extension")
    return info


def load_policy(environ: Mapping[str, str]) -> PluginPolicy:
    """kuberc's policy on plugins. No file, or KUBERC=off: everything is allowed.

    Raises BadInput for a file that says something about plugins that cannot be understood: a
    guard that is misspelt must not fall open.
    """
    path = environ.get("KUBERC", "")
    if path == "off":
        return PluginPolicy()
    home = environ.get("HOME") or os.path.expanduser("~")
    path = path or os.path.join(home, ".kube", "kuberc")
    try:
        with open(path, "rb") as file:
            document = yaml.safe_load(file)
    except FileNotFoundError:
        return PluginPolicy()
    except (OSError, yaml.YAMLError) as error:
        raise BadInput(f"cannot read it: {' '.join(str(error).split())}", on=path) from None
    if document is None:
        return PluginPolicy()
    if not isinstance(document, dict):
        raise BadInput("it is not a mapping", on=path)
    kind = document.get("credentialPluginPolicy") or ""
    entries = document.get("credentialPluginAllowlist")
    if kind not in ("", "AllowAll", "DenyAll", "Allowlist"):
        raise BadInput(f"credentialPluginPolicy {kind!r} is unknown", on=path)
    if (kind == "Allowlist") != bool(entries):
        raise BadInput("credentialPluginAllowlist goes with the policy Allowlist", on=path)
    allowed = [e.get("command") or e.get("name") for e in entries or () if isinstance(e, dict)]
    if len(allowed) != len(entries or ()) or not all(isinstance(a, str) for a in allowed):
        raise BadInput("each entry of credentialPluginAllowlist names a command", on=path)
    return PluginPolicy(kind, tuple(str(a) for a in allowed))


def check_policy(policy: PluginPolicy, command: str, environ: Mapping[str, str]) -> None:
    """Raises BadInput where kuberc does not allow the command."""
    if policy.kind in ("", "AllowAll"):
        return
    if policy.kind == "Allowlist":
        program = shutil.which(command, path=environ.get("PATH"))
        for entry in policy.allowed:
            entry_found = shutil.which(entry, path=environ.get("PATH"))
            if command == entry or (program and program == entry_found):
                return
    raise BadInput(
        f"credential plugin {command} is not allowed by kuberc (policy {policy.kind})",
        remedy="change credentialPluginPolicy or its allow-list if it should be",
    )


_LOOK_SECONDS = 0.01
_LAST_WORDS_SECONDS = 0.5
_READ_BYTES = 1 << 16


class Finished(NamedTuple):
    """How a program ended: its exit code (negative: the signal that ended it), and what it printed.

    Of stderr the last 64 KiB are kept.
    """

    code: int
    stdout: bytes
    stderr: bytes


class TooMuchOutput(Exception):
    """A program printed more than was allowed, and was ended for it."""


async def run_program(
    words: Sequence[str], environ: Mapping[str, str], *, seconds: float, most_bytes: int = 1 << 20
) -> Finished:
    """Run it without a standard input, and wait for its end.

    Raises OSError where it cannot be started, TimeoutError after `seconds`, TooMuchOutput where
    stdout has more than `most_bytes`. It has ended when this returns or raises; what it has started
    itself may go on, and is not waited for.
    """
    process = subprocess.Popen(
        words,
        env=environ,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        bufsize=0,
    )
    assert process.stdout is not None and process.stderr is not None
    try:
        async with asyncio.timeout(seconds):
            return await _read_to_end(process, process.stdout, process.stderr, most_bytes)
    finally:
        process.stdout.close()
        process.stderr.close()
        if process.poll() is None:
            process.kill()
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(_LAST_WORDS_SECONDS)


async def _read_to_end(
    process: subprocess.Popen[bytes], stdout: IO[bytes], stderr: IO[bytes], most_bytes: int
) -> Finished:
    os.set_blocking(stdout.fileno(), False)
    os.set_blocking(stderr.fileno(), False)
    printed, complaints = bytearray(), bytearray()
    ended_at: float | None = None
    while True:
        code = process.poll()
        open_pipes = [_read(stdout, printed), _read(stderr, complaints)]
        if len(printed) > most_bytes:
            raise TooMuchOutput
        del complaints[:-_READ_BYTES]
        if code is not None:
            ended_at = ended_at or time.monotonic()
            # A child of its own may hold the pipes open for as long as it likes.
            if not any(open_pipes) or time.monotonic() > ended_at + _LAST_WORDS_SECONDS:
                return Finished(code, bytes(printed), bytes(complaints))
        await asyncio.sleep(_LOOK_SECONDS)


def _read(pipe: IO[bytes], into: bytearray) -> bool:
    """Take what is there now. Whether more may come."""
    try:
        part = os.read(pipe.fileno(), _READ_BYTES)
    except BlockingIOError:
        return True
    into += part
    return bool(part)
