"""Loaded by the workers that are started on this machine, before they work. They ignore Ctrl-C,
which a terminal sends to them as well: the client handles it and ends them."""

from __future__ import annotations

import signal


def dask_setup(worker: object) -> None:
    """Called by Dask in the worker's process."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
