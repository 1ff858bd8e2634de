"""What a daemon says when an upgrade removes or replaces the program that it was started from."""

import asyncio
from pathlib import Path
from types import SimpleNamespace

import pytest

from kubectl_nodelife import __version__
from kubectl_nodelife.daemon import own_program
from kubectl_nodelife.daemon.flags import DaemonFlags, Options, Orders, from_anywhere
from kubectl_nodelife.daemon.own_program import (
    SETTLE_SECONDS,
    UPGRADE_SECONDS,
    HandOver,
    OwnProgram,
)
from kubectl_nodelife.errors import Failed
from kubectl_nodelife.live.connection import Connection


@pytest.fixture
def package(tmp_path: Path) -> Path:
    """A package like ours, of this version and commit."""
    (tmp_path / "__init__.py").write_text(f'"""Ours."""\n\n__version__ = "{__version__}"\n')
    (tmp_path / "build_info.py").write_text(f'COMMIT = "{own_program.COMMIT}"\n')
    return tmp_path


def test_nothing_is_said_of_the_program_that_runs(package: Path) -> None:
    program = OwnProgram({}, str(package))
    assert program.warnings() == []
    assert OwnProgram({}).warnings() == []
    assert program.seconds_gone() == 0


def test_another_version_in_its_place_is_told(package: Path) -> None:
    program = OwnProgram({}, str(package))
    replaced = package / "new"
    replaced.write_text('__version__ = "99.1.0"\n')
    replaced.rename(package / "__init__.py")
    assert program.warnings() == [
        f"this daemon is {__version__}, and version 99.1.0 is installed now; "
        "run: kubectl nodelife daemon restart"
    ]


def test_another_build_of_the_version_is_told(package: Path) -> None:
    (package / "build_info.py").write_text(f'COMMIT = "{"ab" * 20}"\n')
    (line,) = OwnProgram({}, str(package)).warnings()
    assert "another build of it (abababababab) is installed now" in line


def options(environ: dict[str, str], *arguments: str) -> Options:
    words = ("daemon", "run", "--context=prod", *arguments, "--yes")
    orders = Orders(("daemonset",)) if arguments else Orders()
    return Options(Connection(), environ, DaemonFlags(orders=orders), words)


class Upgrade:
    """A daemon whose program lies in krew's store, and krew, which installs and removes."""

    def __init__(self, package: Path, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.package = root / "store/nodelife/v1.0.0/nodelife/lib/kubectl_nodelife"
        self.package.parent.mkdir(parents=True)
        package.rename(self.package)
        self.link = root / "bin/kubectl-nodelife"
        self.link.parent.mkdir()
        self.now = 1000.0
        # The module's own clock alone: the event loop's timers go by the real one.
        monkeypatch.setattr(own_program, "time", SimpleNamespace(monotonic=lambda: self.now))
        self.program = OwnProgram({}, str(self.package))

    def install(self, text: str) -> None:
        self.link.write_text(f"#!/bin/sh\n{text}\n")
        self.link.chmod(0o755)

    def ends(self, departure: HandOver, seconds: float) -> str:
        """Why the daemon ends once its program is gone for so long."""
        self.program.warnings()
        (self.package / "__init__.py").unlink(missing_ok=True)
        self.now += seconds
        asyncio.run(departure.look(has_socket=True))
        return departure.because


@pytest.fixture
def upgrade(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Upgrade:
    package = tmp_path / "package"
    package.mkdir()
    (package / "__init__.py").write_text(f'__version__ = "{__version__}"\n')
    (package / "build_info.py").write_text(f'COMMIT = "{own_program.COMMIT}"\n')
    return Upgrade(package, tmp_path / "krew", monkeypatch)


ENFORCE = ("--enforce=daemonset", "--begin=restart", "--assume-stopped=daemonset")


def test_without_another_it_ends_only_when_it_was_gone_for_long(upgrade: Upgrade) -> None:
    departure = HandOver(upgrade.program, options({}))
    assert upgrade.ends(departure, UPGRADE_SECONDS) == ""
    (line,) = upgrade.program.warnings()
    assert "was removed, as an upgrade does, and it ends 10 minutes after that" in line
    assert upgrade.ends(departure, 1) == "its program was removed"
    departure.leave()  # dry-run: nothing is lost by it


def test_an_enforcing_daemon_without_another_says_what_to_do(upgrade: Upgrade) -> None:
    departure = HandOver(upgrade.program, options({}, *ENFORCE))
    assert upgrade.ends(departure, UPGRADE_SECONDS + 1)
    with pytest.raises(Failed) as failed:
        departure.leave()
    assert "its program was removed, and no other takes over: nothing is enforced any more" in str(
        failed.value
    )
    assert str(failed.value).endswith(
        "install it again, then run: kubectl nodelife daemon start --context=prod "
        "--enforce=daemonset --begin=join --assume-stopped=daemonset"
    )


def test_it_goes_on_while_the_other_does_not_run(upgrade: Upgrade) -> None:
    departure = HandOver(upgrade.program, options({}, *ENFORCE))
    upgrade.install('echo asked >>"$0.log"; exit 127')
    assert upgrade.ends(departure, SETTLE_SECONDS) == ""
    assert upgrade.ends(departure, 10) == ""
    assert (upgrade.link.parent / "kubectl-nodelife.log").read_text() == "asked\n"


def test_the_other_gets_the_same_orders_and_joins(
    upgrade: Upgrade, monkeypatch: pytest.MonkeyPatch
) -> None:
    became: list[tuple[str, list[str], dict[str, str]]] = []
    monkeypatch.setattr(own_program.os, "execve", lambda *words: became.append(words))
    upgrade.install("echo Client Version: v2.0.0")
    departure = HandOver(upgrade.program, options({"A": "1"}, *ENFORCE))
    assert upgrade.ends(departure, SETTLE_SECONDS - 1) == ""
    assert f"hands over to {upgrade.link} 10 seconds after that" in upgrade.program.warnings()[0]
    assert upgrade.ends(departure, 1) == "its program was removed"
    with pytest.raises(Failed):  # as execve has returned
        departure.leave()
    words = ["daemon", "run", "--context=prod", "--enforce=daemonset", "--begin=join"]
    words += ["--assume-stopped=daemonset", "--yes"]
    assert became == [(str(upgrade.link), [str(upgrade.link), *words], {"A": "1"})]


def test_a_program_that_is_back_is_not_gone(upgrade: Upgrade) -> None:
    init = (upgrade.package / "__init__.py").rename(upgrade.package / "away")
    upgrade.now += UPGRADE_SECONDS - 1
    assert upgrade.program.seconds_gone() == UPGRADE_SECONDS - 1
    init.rename(upgrade.package / "__init__.py")
    assert upgrade.program.seconds_gone() == 0
    assert upgrade.program.warnings() == []


def test_relative_paths_count_from_where_it_was_started() -> None:
    words = ("daemon", "run", "--kubeconfig=k/c")
    asked = Options(Connection(kubeconfig="k/c"), {}, arguments=words)
    assert from_anywhere(asked).arguments[2] == f"--kubeconfig={Path('k/c').absolute()}"
