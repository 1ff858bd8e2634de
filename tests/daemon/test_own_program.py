"""What a daemon says when an upgrade removes or replaces the program that it was started from."""

from __future__ import annotations

from pathlib import Path

import pytest

from kubectl_nodelife import __version__
from kubectl_nodelife.daemon import own_program
from kubectl_nodelife.daemon.own_program import UPGRADE_SECONDS, OwnProgram


@pytest.fixture
def package(tmp_path: Path) -> Path:
    """A package like ours, of this version and commit."""
    (tmp_path / "__init__.py").write_text(f'"""Ours."""\n\n__version__ = "{__version__}"\n')
    (tmp_path / "build_info.py").write_text(f'COMMIT = "{own_program.COMMIT}"\n')
    return tmp_path


def test_nothing_is_said_of_the_program_that_runs(package: Path) -> None:
    program = OwnProgram(str(package))
    assert program.warnings() == []
    assert OwnProgram().warnings() == []
    assert program.seconds_left() > UPGRADE_SECONDS - 5


def test_another_version_in_its_place_is_told(package: Path) -> None:
    program = OwnProgram(str(package))
    replaced = package / "new"
    replaced.write_text('__version__ = "99.1.0"\n')
    replaced.rename(package / "__init__.py")
    assert program.warnings() == [
        f"this daemon is {__version__}, and version 99.1.0 is installed now; "
        "run: kubectl nodelife daemon restart"
    ]


def test_another_build_of_the_version_is_told(package: Path) -> None:
    (package / "build_info.py").write_text(f'COMMIT = "{"ab" * 20}"\n')
    (line,) = OwnProgram(str(package)).warnings()
    assert "another build of it (abababababab) is installed now" in line


def test_it_ends_only_when_it_was_gone_for_long(
    package: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [1000.0]
    monkeypatch.setattr(own_program.time, "monotonic", lambda: now[0])
    program = OwnProgram(str(package))
    init = (package / "__init__.py").rename(package / "away")
    now[0] += UPGRADE_SECONDS - 1
    assert program.seconds_left() == pytest.approx(1)
    (line,) = program.warnings()
    assert "was removed, as an upgrade does, and it ends 10 minutes after that" in line
    init.rename(package / "__init__.py")
    assert program.seconds_left() == UPGRADE_SECONDS
    assert program.warnings() == []
    (package / "__init__.py").unlink()
    now[0] += UPGRADE_SECONDS + 1
    assert program.seconds_left() < 0
