"""Somebody with an empty home and a short PATH, who runs what a release holds."""

import functools
import glob
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from release.platforms import PYTHONS

ROOT = Path(__file__).parents[2]
OLD = "0.0.9"
TOOLS = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache", "nodelife-tools")
"""What `.ci/release-tools` brings to a machine that lacks it."""
KUBECTL = shutil.which("kubectl")
needs_kubectl = pytest.mark.skipif(KUBECTL is None, reason="there is no kubectl on this machine")


def tool(name: str) -> str:
    """The path of a program, "" where there is none."""
    return shutil.which(name) or shutil.which(name, path=TOOLS / "bin") or ""


class User:
    """Runs programs with a home of their own; `bin` comes first on PATH."""

    def __init__(self, home: Path, python: str = "", path: str = "/usr/bin:/bin") -> None:
        self.home = home
        self.bin = home / "bin"
        self.bin.mkdir(parents=True)
        # a path below pytest's is too long for a socket: all would share one folder in /tmp
        self._runtime = tempfile.TemporaryDirectory(prefix="nl")
        if python:
            self.link(python, f"python{version_of(python)}")
        self.environ = {
            "HOME": str(home),
            "PATH": f"{self.bin}:{path}",
            "NODELIFE_RUNTIME_DIR": self._runtime.name,
            "LANG": "C.UTF-8",
        }

    def link(self, target: str | Path, name: str) -> Path:
        """Put a link to a program on PATH."""
        link = self.bin / name
        link.symlink_to(target)
        return link

    def script(self, name: str, text: str) -> Path:
        """Put a script on PATH."""
        path = self.bin / name
        path.write_text(f"#!/bin/sh\n{text}\n")
        path.chmod(0o755)
        return path

    def run(
        self, *words: str | Path, seconds: float = 120, **more: str
    ) -> subprocess.CompletedProcess[str]:
        """Run a program; `more` goes into its environment."""
        return subprocess.run(
            words,
            env={**self.environ, **more},
            cwd=self.home,
            capture_output=True,
            text=True,
            timeout=seconds,
            stdin=subprocess.DEVNULL,
        )

    def ok(self, *words: str | Path, seconds: float = 120, **more: str) -> str:
        """The output of a program that must succeed."""
        done = self.run(*words, seconds=seconds, **more)
        shown = " ".join(map(str, words))
        assert done.returncode == 0, f"{shown}: {done.returncode}: {done.stderr}{done.stdout}"
        return done.stdout


@functools.cache
def version_of(python: str) -> str:
    """major.minor of an interpreter; "" if it does not run."""
    done = subprocess.run(
        [python, "-I", "-S", "-c", "import sys; print('%d.%d' % sys.version_info[:2])"],
        capture_output=True,
        text=True,
    )
    return done.stdout.strip()


@functools.cache
def pythons() -> Mapping[str, str]:
    """Each CPython on this machine that is shipped for, by major.minor; pyenv's and `TOOLS` too."""
    base = getattr(sys, "_base_executable", sys.executable)
    named = [shutil.which(f"python{python}") or "" for python in PYTHONS]
    kept = sorted(glob.glob(os.path.expanduser("~/.pyenv/versions/*/bin/python3")))
    found: dict[str, str] = {}
    brought = [str(TOOLS / python / "bin/python3") for python in PYTHONS]
    for python in (base, *kept, *named, *filter(os.path.exists, brought)):
        version = version_of(python) if python else ""
        if version in PYTHONS:
            found.setdefault(version, python)
    return found


@contextmanager
def sandbox(
    user: User, program: Sequence[str | Path] = (sys.executable, "-m", "kubectl_nodelife")
) -> Iterator[str]:
    """A sandbox's kubeconfig, by default from the checkout: an upgrade must not end the cluster."""
    process = subprocess.Popen(
        [*program, "sandbox"],
        cwd=ROOT, env={**user.environ, "PATH": os.environ["PATH"]},
        stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        assert process.stdout is not None
        yield process.stdout.readline().partition("=")[2].strip()
    finally:
        process.terminate()
        process.wait(30)


def daemon_of(user: User) -> dict[str, Any]:
    """What `daemon status` says of the user's one daemon; {} while there is none."""
    shown = user.run("kubectl-nodelife", "daemon", "status", "-o", "json").stdout
    items = json.loads(shown)["items"] if shown else []
    return dict(items[0]) if items else {}
