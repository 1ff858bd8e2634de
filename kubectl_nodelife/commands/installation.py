"""How this program came here: by krew, as an archive, a wheel, or a checkout; from which commit."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

from kubectl_nodelife.build_info import COMMIT

PACKAGE = Path(__file__).parents[1]


class Installation(NamedTuple):
    """`by`: krew, archive, pipx, uv, pip or checkout. `commit` is empty where nobody knows it."""

    by: str
    folder: str
    commit: str


def installation() -> Installation:
    """What can be told from where the package lies."""
    folder = PACKAGE.parent
    if (folder.parent / "kubectl-nodelife").is_file() and folder.name == "lib":
        home = folder.parent
        by = "krew" if "store" in home.parts and home.parts[-3:-2] == ("nodelife",) else "archive"
        return Installation(by, str(home), COMMIT)
    if (folder / ".git").exists():
        return Installation("checkout", str(folder), COMMIT or _git_head(folder))
    where = Path(sys.prefix).parts
    by = "pipx" if "pipx" in where else "uv" if {"uv", "tools"} <= set(where) else "pip"
    return Installation(by, sys.prefix, COMMIT)


def _git_head(folder: Path) -> str:
    try:
        done = subprocess.run(
            ["git", "-C", os.fspath(folder), "rev-parse", "HEAD"],
            capture_output=True,
            text=True,
            timeout=5,
        )
    except (OSError, subprocess.SubprocessError):
        return ""
    return done.stdout.strip()
