"""Makes a page's block that is a session in a shell anew: what follows `$ ` is typed once more.

What `$ cat FILE` shows is written to that file first. A program that goes on (`&`) and prints
`export KUBECONFIG=...` is waited for, and that line is typed as it was printed.
"""

import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

from release.screens import ROOT

SESSION: Final = re.compile(
    r"^<!-- screen of \S+, a shell -->\n```\n(.*?)^```$", re.MULTILINE | re.DOTALL
)
_FILE: Final = re.compile(r"^\$ cat (\S+)\n((?:[^$].*\n)+)", re.MULTILINE)
_SCRIPT: Final = """
set -m
typed() { printf '$ %s\\n' "$1"; }
behind() { typed "$1 &"; eval "$1 >said 2>&1 &"; until [ -s said ]; do sleep 0.2; done; cat said; }
exported() { said=$(cat said); typed "$said"; eval "$said"; }
run() { typed "$1"; eval "$1" 2>&1; }
"""


def again(session: str) -> str:
    """The session as it goes now. Needs kubectl on PATH."""
    with tempfile.TemporaryDirectory(prefix="nl-") as name:
        home = Path(name)
        for file, text in _FILE.findall(session):
            (home / file).write_text(text)
        (home / "bin").mkdir()
        program = home / "bin/kubectl-nodelife"
        program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m kubectl_nodelife "$@"\n')
        program.chmod(0o755)
        lines = [line.removeprefix("$ ") for line in session.splitlines() if line.startswith("$ ")]
        script = _SCRIPT + "".join(f"{_call(line)}\n" for line in lines)
        environ = {"HOME": name, "PATH": f"{name}/bin:{os.environ['PATH']}", "LANG": "C.UTF-8"}
        environ |= {"PYTHONPATH": str(ROOT), "NODELIFE_RUNTIME_DIR": f"{name}/run"}
        (home / "run").mkdir(mode=0o700)
        done = subprocess.run(
            ["bash", "-c", script],
            env=environ, cwd=name, stdout=subprocess.PIPE, text=True, timeout=180,
        )  # fmt: skip
        return "\n".join(line.rstrip() for line in done.stdout.splitlines()) + "\n"


def _call(line: str) -> str:
    if line.startswith("export KUBECONFIG="):
        return "exported"
    quoted = "'" + line.removesuffix(" &").replace("'", "'\\''") + "'"
    return f"{'behind' if line.endswith(' &') else 'run'} {quoted}"


def put_sessions(page: str, date: str) -> str:
    """The page with its sessions as they go now."""
    return SESSION.sub(
        lambda found: f"<!-- screen of {date}, a shell -->\n```\n{again(found[1])}```", page
    )
