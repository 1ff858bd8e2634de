"""The page's script as TypeScript's compiler checks it, where that is on this machine."""

import shutil
import subprocess
from pathlib import Path

import pytest

from tests.release.users import TOOLS
from tests.ui.test_security import PAGE

TSC = TOOLS / "typescript-5.8.3/package/bin/tsc"
"""A program of others, used here alone."""

FLAGS = (
    *("--noEmit", "--allowJs", "--checkJs", "--strict", "false", "--module", "esnext"),
    *("--target", "es2023", "--lib", "es2023,dom,dom.iterable", "--pretty", "false"),
)
ENTRIES = ("main.js", "stream_worker.js")

needs_typescript = pytest.mark.skipif(
    not TSC.exists() or shutil.which("node") is None,
    reason="there is no node with TypeScript on this machine; .ci/release-tools brings it",
)


def said(folder: Path) -> str:
    command = ["node", str(TSC), *FLAGS, *ENTRIES]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True).stdout


@needs_typescript
def test_the_script_has_no_error_of_types(tmp_path: Path) -> None:
    assert said(PAGE) == ""
    wrong = shutil.copytree(PAGE, tmp_path / "page")
    text = (wrong / "main.js").read_text()
    (wrong / "main.js").write_text(text.replace("model.clock(", "model.clok("))
    assert "Property 'clok' does not exist on type 'Model'" in said(wrong)
