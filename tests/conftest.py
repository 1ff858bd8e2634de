"""`pytest --update-golden` writes the narrations in tests/scenarios anew.

Commit a changed narration only when you can say why it changed. SIGINT means what it means on a
terminal, also for tests in the background of a script, which inherit that it is ignored. After each
test Python's garbage collector is as it was before it.
"""

from __future__ import annotations

import gc
import signal
from collections.abc import Iterator

import pytest

THRESHOLDS = gc.get_threshold()


def pytest_addoption(parser: pytest.Parser) -> None:
    """The switch that rewrites the narrations."""
    parser.addoption("--update-golden", action="store_true", help="write the narrations anew")
    parser.addoption("--seeds", type=int, default=20, help="seeds of the simulations")


def pytest_configure(config: pytest.Config) -> None:
    """Programs that tests start inherit what a signal means."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(autouse=True)
def _garbage_is_collected() -> Iterator[None]:
    """A daemon or a command that runs within a test sets the garbage collector for a process of its
    own: the tests after it would never give back what refers to itself, gigabytes in all."""
    yield
    gc.unfreeze()
    gc.set_threshold(*THRESHOLDS)
    gc.enable()
