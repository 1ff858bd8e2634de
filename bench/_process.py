"""A bench in a process of its own, in this work tree or in another one."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bench import BenchFailed

ROOT = Path(__file__).resolve().parent.parent


def run_bench(arguments: Sequence[str], tree: Path = ROOT) -> dict[str, Any]:
    """The output of `python -m bench` with these arguments in the work tree. Raises BenchFailed
    with the end of its stderr.
    """
    ran = subprocess.run(
        [sys.executable, "-m", "bench", *arguments],
        cwd=tree, capture_output=True, text=True, check=False,
    )  # fmt: skip
    if ran.returncode:
        raise BenchFailed(f"{' '.join(arguments)}: {ran.stderr.strip()[-500:]}")
    printed: dict[str, Any] = json.loads(ran.stdout)
    return printed
