"""`bin/demo`, and the environment that its first run makes."""

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
DEMO = ROOT / "bin/demo"
STORIES = {p.name for p in (ROOT / "bin/stories").iterdir() if p.suffix not in (".yaml", ".json")}
WIDEST = 120
MOST_LINES = 60

STUB = """#!/bin/sh
# A Python that only notes what it is asked, and makes environments of itself.
venv="{folder}/.venv"
echo "$@" >>"{folder}/asked"
case "$*" in
*"-m venv"*) mkdir -p "$venv/bin" "$venv/lib" && cp "$0" "$venv/bin/python" ;;
*sysconfig*) echo "$venv/lib" ;;
esac
"""


def run(folder: Path, *words: str | Path, **environ: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        words,
        env={"PATH": os.environ["PATH"], "HOME": str(folder), "TMPDIR": str(folder), **environ},
        capture_output=True,
        text=True,
        timeout=500,
    )


@pytest.mark.parametrize("flag", ["--help", "--list", "--nonsense", "no-such-story"])
def test_the_stories_are_listed(tmp_path: Path, flag: str) -> None:
    done = run(tmp_path, DEMO, flag)
    assert done.returncode == (0 if flag in ("--help", "--list") else 2)
    told = done.stdout + done.stderr
    assert set(re.findall(r"^  ([a-z-]+) {2,}\S", told, re.MULTILINE)) == STORIES


@pytest.mark.parametrize("story", sorted(STORIES - {"tour", "upgrade", "page"}))
def test_what_is_piped_fits_sixty_lines_of_120_columns(tmp_path: Path, story: str) -> None:
    done = run(tmp_path, DEMO, story)
    assert done.returncode == 0, done.stderr
    assert "error:" not in done.stderr
    wide = [line for line in done.stdout.splitlines() if len(line) > WIDEST]
    assert [line for line in wide if not line.startswith(("$ ", "kubectl ", "echo "))] == []
    assert len((done.stdout + done.stderr).splitlines()) <= MOST_LINES


def test_the_story_that_is_told_first_fits_sixty_lines(tmp_path: Path) -> None:
    """The zone is dark, what comes next is said, it comes, and all is well again: what is shown
    waits for what the story tells, so that a slow machine tells it in as many lines."""
    done = run(tmp_path, DEMO)
    assert done.returncode == 0, done.stdout + done.stderr
    assert len((done.stdout + done.stderr).splitlines()) <= MOST_LINES
    assert "2 of 4 nodes are in trouble" in done.stdout and "FullDisruption" in done.stdout
    assert "if none reports" not in done.stdout, "what has come is no longer foretold"
    assert re.search(r"^agrees: .* \d+ writes came when due", done.stdout, re.MULTILINE)
    assert done.stderr.endswith("No node is in trouble.\n")


@pytest.mark.skipif(shutil.which("kubectl") is None, reason="that story reboots nodes with kubectl")
def test_the_story_of_an_upgrade_comes_to_its_end(tmp_path: Path) -> None:
    done = run(tmp_path, DEMO, "--story", "upgrade")
    assert done.returncode == 0, done.stdout + done.stderr
    assert len((done.stdout + done.stderr).splitlines()) <= MOST_LINES
    assert "the run: now Finished: 3 done" in done.stdout
    assert "UPGRADE-STATE" in done.stdout
    kubeconfig = re.search(r"^export KUBECONFIG=(\S+)$", done.stdout, re.MULTILINE)
    assert kubeconfig is not None
    assert not Path(kubeconfig[1]).exists(), "the sandbox takes it away when it ends"


@pytest.mark.skipif(shutil.which("chromium") is None, reason="there is no chromium here")
def test_the_story_of_the_page_ends_with_a_picture(tmp_path: Path) -> None:
    done = run(tmp_path, DEMO, "page")
    assert done.returncode == 0, done.stdout + done.stderr
    assert len((done.stdout + done.stderr).splitlines()) <= MOST_LINES
    picture = tmp_path / "nodelife-page.png"
    assert str(picture) in done.stdout and "FullDisruption" in done.stdout
    assert picture.read_bytes().startswith(b"\x89PNG")
    assert "closed http://127.0.0.1:" in done.stderr + done.stdout


def test_the_first_run_installs_what_the_program_needs_and_no_more(tmp_path: Path) -> None:
    for name in ("bin", "release/lock"):
        shutil.copytree(ROOT / name, tmp_path / name)
    shutil.copy(ROOT / "setup.cfg", tmp_path)
    stub = tmp_path / "python-stub"
    stub.write_text(STUB.format(folder=tmp_path))
    stub.chmod(0o755)
    done = run(tmp_path, tmp_path / "bin/kubectl-nodelife", "--help", NODELIFE_PYTHON=str(stub))
    assert done.returncode == 0, done.stderr
    asked = (tmp_path / "asked").read_text().splitlines()
    (install,) = (line for line in asked if "pip install" in line)
    assert "release/lock/" in install and "development" not in install
    assert asked[-1] == "-P -m kubectl_nodelife --help"
    run(tmp_path, tmp_path / "bin/kubectl-nodelife", "--help", NODELIFE_PYTHON=str(stub))
    assert sum("pip install" in line for line in (tmp_path / "asked").read_text().splitlines()) == 1


def test_bytecode_has_a_folder_where_none_may_be_written_beside_the_sources(tmp_path: Path) -> None:
    done = run(tmp_path, ROOT / "bin/kubectl-nodelife", "version", PYTHONDONTWRITEBYTECODE="1")
    assert done.returncode == 0, done.stderr
    kept = list((tmp_path / ".cache/nodelife/bytecode").rglob("kubectl_nodelife/*.pyc"))
    assert kept, "compiling everything anew takes seconds a call"
