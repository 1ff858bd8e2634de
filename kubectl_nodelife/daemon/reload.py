"""Notices that the config or a kubeconfig file has changed, been replaced, appeared or gone.

watchdog tells at once where the system does; a look at the files every few seconds covers folders
that do not exist yet, network file systems, and systems that have run out of watches.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Awaitable, Callable, Iterable
from typing import Final

from watchdog.events import FileSystemEvent, FileSystemEventHandler
from watchdog.observers import Observer

LOOK_SECONDS: Final = 5.0

_SETTLE_SECONDS = 0.2  # editors write in several steps

Stamp = tuple[int, int, int, int] | None


class FileWatch(FileSystemEventHandler):
    """Calls `changed` once whenever one of the files is not what it was."""

    def __init__(self, files: Iterable[str], changed: Callable[[], Awaitable[None]]) -> None:
        self._files = [os.path.abspath(file) for file in files]
        self._changed = changed
        self._stamps = self._look()
        self._hint = asyncio.Event()
        self._loop: asyncio.AbstractEventLoop | None = None

    async def run(self) -> None:
        """Watch until cancelled."""
        self._loop = asyncio.get_running_loop()
        observer = Observer()
        with contextlib.suppress(OSError):  # no inotify watches left: looking must do
            for folder in {os.path.dirname(file) for file in self._files}:
                if os.path.isdir(folder):
                    observer.schedule(self, folder)
            observer.start()
        try:
            while True:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(LOOK_SECONDS):
                        await self._hint.wait()
                    await asyncio.sleep(_SETTLE_SECONDS)
                self._hint.clear()
                stamps = self._look()
                if stamps != self._stamps:
                    self._stamps = stamps
                    await self._changed()
        finally:
            observer.stop()

    def on_any_event(self, event: FileSystemEvent) -> None:
        """Called by watchdog's thread."""
        if self._loop is not None and event.event_type not in ("opened", "closed_no_write"):
            with contextlib.suppress(RuntimeError):  # the loop has ended
                self._loop.call_soon_threadsafe(self._hint.set)

    def _look(self) -> list[Stamp]:
        return [_stamp(file) for file in self._files]


def _stamp(path: str) -> Stamp:
    try:
        found = os.stat(path)
    except OSError:
        return None
    return (found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns)
