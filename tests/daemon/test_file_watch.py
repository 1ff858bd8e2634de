"""Files that are watched: at once by the system's word, and by looking where it gives none."""

import asyncio
import contextlib
import os
import shutil
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from kubectl_nodelife.daemon import run
from kubectl_nodelife.daemon.run import FileWatch

NEVER = 10_000.0


class Changes:
    """Counts what a watch tells, and waits for the next."""

    def __init__(self) -> None:
        self.count = 0
        self._told = asyncio.Event()

    async def changed(self) -> None:
        self.count += 1
        self._told.set()

    async def after(self, act: Callable[[], object]) -> None:
        """Do it, and wait until it is told."""
        self._told.clear()
        act()
        async with asyncio.timeout(10):
            await self._told.wait()


@contextlib.asynccontextmanager
async def watching(*files: Path) -> AsyncIterator[Changes]:
    changes = Changes()
    watch = FileWatch(map(str, files), changes.changed)
    task = asyncio.create_task(watch.run())
    await asyncio.sleep(0.3)
    try:
        yield changes
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def replace(path: Path, text: str) -> None:
    """As careful editors do."""
    draft = path.with_suffix(".draft")
    draft.write_text(text)
    os.replace(draft, path)


async def test_watchdog_tells_of_each_change_without_a_look(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run, "LOOK_SECONDS", NEVER)
    folder = tmp_path / "of"
    folder.mkdir()
    config, kubeconfig = folder / "config.yaml", tmp_path / "kubeconfig"
    kubeconfig.write_text("a")

    async with watching(config, kubeconfig) as changes:
        await changes.after(lambda: config.write_text("one"))
        await changes.after(lambda: replace(config, "two, longer"))
        await changes.after(lambda: kubeconfig.write_text("changed"))
        await changes.after(config.unlink)
        told = changes.count
        (folder / "another").write_text("of no interest")
        await asyncio.sleep(0.6)
        assert changes.count == told


async def test_a_folder_that_is_not_there_is_looked_for_and_then_watched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run, "LOOK_SECONDS", 0.2)
    folder = tmp_path / "later"
    config = folder / "config.yaml"

    def appear() -> None:
        folder.mkdir()
        config.write_text("one")

    async with watching(config) as changes:
        for _ in range(2):
            await changes.after(appear)
            await asyncio.sleep(0.6)
            monkeypatch.setattr(run, "LOOK_SECONDS", NEVER)
            await changes.after(lambda: config.write_text("two, longer"))
            monkeypatch.setattr(run, "LOOK_SECONDS", 0.2)
            await changes.after(lambda: shutil.rmtree(folder))


async def test_a_link_is_looked_at_for_its_end_lies_in_a_folder_that_is_not_watched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run, "LOOK_SECONDS", 0.2)
    (tmp_path / "store").mkdir()
    end, link = tmp_path / "store" / "config", tmp_path / "config"
    end.write_text("one")
    link.symlink_to(end)

    async with watching(link) as changes:
        await changes.after(lambda: end.write_text("two, longer"))


@pytest.mark.parametrize("failing", [True, False])
async def test_where_the_system_has_no_watches_left_or_others_write_it_looks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failing: bool
) -> None:
    monkeypatch.setattr(run, "LOOK_SECONDS", 0.2)
    config = tmp_path / "config.yaml"

    class NoWatches:
        def unschedule_all(self) -> None: ...

        def stop(self) -> None: ...

        def is_alive(self) -> bool:
            return True

        def schedule(self, handler: object, folder: str) -> None:
            if failing:
                raise OSError(28, "inotify watch limit reached")

    monkeypatch.setattr(run, "Observer", NoWatches)
    monkeypatch.setattr(run, "_is_shared", lambda folder: True)

    async with watching(config) as changes:
        await changes.after(lambda: config.write_text("one"))
