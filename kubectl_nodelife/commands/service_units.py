"""Texts that make the system run the daemon at each login: a systemd user unit, a launchd agent."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Sequence

from kubectl_nodelife.daemon.identity_cache import CachedIdentity
from kubectl_nodelife.daemon.spawning import installed_link, own_command

_KEPT = ("KUBECONFIG", "PATH", "NODELIFE_RUNTIME_DIR", "NODELIFE_STATE_DIR", "NODELIFE_CONFIG")
"""Variables that decide which cluster it is, and let credential plugins be found."""


def unit(manager: str | None, known: CachedIdentity, arguments: Sequence[str]) -> str:
    """The text for the service manager; None: the one of this system."""
    if manager is None:
        manager = "launchd" if sys.platform == "darwin" else "systemd"
    link = installed_link()  # an upgrade by krew removes the folder that it leads to now
    command = [*([link] if link else own_command()), "daemon", "run", *arguments]
    environment = {name: os.environ[name] for name in _KEPT if os.environ.get(name)}
    make = _launchd if manager == "launchd" else _systemd
    return make(known, command, environment)


def _systemd(known: CachedIdentity, command: list[str], environment: dict[str, str]) -> str:
    name = f"nodelife-{known.identity}.service"
    quoted = " ".join(_systemd_quoted(word) for word in command)
    variables = "".join(
        f"Environment={_systemd_quoted(f'{key}={value}')}\n" for key, value in environment.items()
    )
    return (
        f"# ~/.config/systemd/user/{name}\n"
        f"# then: systemctl --user daemon-reload && systemctl --user enable --now {name}\n"
        "[Unit]\n"
        f"Description=kubectl nodelife daemon for {known.context or known.server}\n"
        "After=network-online.target\n\n"
        "[Service]\n"
        "Type=simple\n"
        f"{variables}"
        f"ExecStart={quoted}\n"
        "ExecReload=/bin/kill -HUP $MAINPID\n"
        "Restart=on-failure\n"
        "RestartSec=10\n\n"
        "[Install]\n"
        "WantedBy=default.target\n"
    )


def _systemd_quoted(word: str) -> str:
    """As systemd reads it: its own specifiers and variables doubled, blanks in quotes."""
    word = word.replace("%", "%%").replace("$", "$$")
    if word == shlex.quote(word):
        return word
    escaped = word.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def _launchd(known: CachedIdentity, command: list[str], environment: dict[str, str]) -> str:
    import plistlib

    label = f"dev.nodelife.{known.identity}"
    agent = {
        "Label": label,
        "ProgramArguments": command,
        "EnvironmentVariables": environment,
        "RunAtLoad": True,
        "KeepAlive": {"SuccessfulExit": False},
        "ProcessType": "Background",
    }
    path = f"~/Library/LaunchAgents/{label}.plist"
    comment = f"<!-- {path}, then: launchctl load {path} -->\n"
    head, _, rest = plistlib.dumps(agent, sort_keys=False).decode().partition("\n")
    return f"{head}\n{comment}{rest}"
