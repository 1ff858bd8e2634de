"""`kubectl nodelife completion`: makes TAB complete verbs, flags and names.

kubectl completes a plugin's words by a program `kubectl_complete-nodelife` on PATH. krew links one
program for each plugin, so that `install` has to put it there; a wheel brings it along.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import click

from kubectl_nodelife.errors import BadInput, Failed
from kubectl_nodelife.report import terminal

PROGRAM = "kubectl-nodelife"
SHIM = "kubectl_complete-nodelife"

_MARK = "completion install`"


@click.group()
def completion() -> None:
    """Make TAB complete `kubectl nodelife`: verbs, flags, nodes, pods, namespaces and contexts.

    `install` is all that is needed where kubectl's own completion is set up (kubectl 1.26 or
    newer). The other commands print scripts that complete `kubectl-nodelife` typed as one word.
    """


@completion.command()
def install() -> None:
    """Put kubectl_complete-nodelife beside kubectl-nodelife, where kubectl looks for it.

    \b
    Example:
      kubectl nodelife completion install
    """
    path = _folder() / SHIM
    there = shutil.which(SHIM)
    if there is not None and Path(there) != path:
        terminal.write(f"{there} is there already\n")
        return
    if path.exists() and not _is_ours(path):
        raise Failed("is not a script of ours", on=str(path), remedy="move it away")
    try:
        path.write_text(_script("shim"))
        path.chmod(0o755)
    except OSError as error:
        raise Failed(
            f"cannot be written: {error.strerror}",
            on=str(path),
            remedy=f"put this elsewhere on PATH: kubectl nodelife completion shim > {SHIM}",
        ) from None
    terminal.write(f"{path} installed\n")


@completion.command()
def uninstall() -> None:
    """Remove what `install` has put there.

    \b
    Example:
      kubectl nodelife completion uninstall
    """
    there = shutil.which(SHIM)
    if there is None:
        terminal.write("there is none\n")
        return
    if not _is_ours(Path(there)):
        raise Failed("was not made by 'completion install'", on=there)
    try:
        os.unlink(there)
    except OSError as error:
        raise Failed(f"cannot be removed: {error.strerror}", on=there) from None
    terminal.write(f"{there} removed\n")


def _printer(shell: str, example: str) -> click.Command:
    def show() -> None:
        terminal.write(_script(shell))

    title = "Print the script that `install` installs." if shell == "shim" else (
        f"Print a script that completes kubectl-nodelife in {shell}."
    )  # fmt: skip
    words = f"kubectl nodelife completion {shell}"
    return click.command(
        shell, help=f"{title}\n\n\b\nExample:\n  {words}{example}", hidden=shell == "shim"
    )(show)


for _shell, _example in {
    "bash": " > ~/.local/share/bash-completion/completions/kubectl-nodelife",
    "zsh": " > ~/.zfunc/_kubectl-nodelife",
    "fish": " > ~/.config/fish/completions/kubectl-nodelife.fish",
    "powershell": " | Out-String | Invoke-Expression",
    "shim": f" > ~/.local/bin/{SHIM}",
}.items():
    completion.add_command(_printer(_shell, _example))


def _folder() -> Path:
    """Where kubectl found this program."""
    found = shutil.which(PROGRAM)
    if found is None:
        raise BadInput(
            f"{PROGRAM} is not on PATH",
            on="completion install",
            remedy="put a link to it there; kubectl finds it no other way either",
        )
    return Path(os.path.abspath(found)).parent


def _is_ours(path: Path) -> bool:
    try:
        return _MARK in path.read_text(errors="replace")
    except OSError:
        return False


def _script(name: str) -> str:
    return Path(__file__).with_name("completing").joinpath("shells", name).read_text()
