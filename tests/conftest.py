"""What every test runs under: which tests are deep, how many seeds are played, what is put back.

`pytest` without a path, -k, -m or --last-failed is the short run: it leaves out what is marked
`deep` (tests/deep.py lists it, with the reasons) and plays a few seeds of each simulation. Whoever
names something gets all of it, and `--deep` is all there is.

`pytest --update-golden` writes the narrations in tests/scenarios anew. Commit a changed narration
only when you can say why it changed. SIGINT means what it means on a terminal, also for tests in
the background of a script, which inherit that it is ignored. After each test Python's garbage
collector is as it was before it, and no flags of a command lead to a cluster any more.
"""

import asyncio
import gc
import inspect
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kubectl_nodelife.report import terminal
from tests.deep import place, why_deep

THRESHOLDS = gc.get_threshold()
SEEDS_OF_THE_SHORT_RUN = 3
SEEDS = 10
BATCH = 10
"""Seeds that one test plays: a failure names its seed, and processes share the batches."""
MOST_SECONDS = 300.0
"""How long a coroutine test may take: one that hangs is ended. Busy machines take long."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """The switches of our own."""
    parser.addoption("--deep", action="store_true", help="run what is marked deep, too")
    parser.addoption("--update-golden", action="store_true", help="write the narrations anew")
    parser.addoption(
        "--seeds",
        type=int,
        help=f"seeds of the simulations ({SEEDS}; {SEEDS_OF_THE_SHORT_RUN} in the short run)",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Settle the options, and what a signal means to the programs that tests start. A process of
    pytest-xdist reads the command line anew, and gets what was settled beside it."""
    chosen = config.option
    settled = getattr(config, "workerinput", None)
    if settled is not None:
        chosen.deep = settled["deep"]
    else:
        config.pluginmanager.register(_HandsOn())
        named = config.args_source is pytest.Config.ArgsSource.ARGS
        asked = (chosen.deep, named, chosen.keyword, chosen.markexpr, chosen.lf)
        chosen.deep = any(asked)
    if chosen.seeds is None:
        chosen.seeds = SEEDS if chosen.deep else SEEDS_OF_THE_SHORT_RUN
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


class _HandsOn:
    """Hands what was settled on to each process of pytest-xdist."""

    @pytest.hookimpl(optionalhook=True)
    def pytest_configure_node(self, node: Any) -> None:
        """A process is about to be started."""
        node.workerinput["deep"] = node.config.option.deep


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """The short run does not even read a file or folder that is deep as a whole."""
    if config.option.deep:
        return None
    return bool(why_deep(collection_path.relative_to(config.rootpath).as_posix())) or None


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark what is deep; the short run leaves it out. Where processes share the tests, what takes
    longest is taken first (bin/test keeps pytest-xdist from ordering the files by another rule)."""
    deep, short = [], []
    for item in items:
        reason = why_deep(item.nodeid)
        if reason:
            item.add_marker(pytest.mark.deep(reason))
        (deep if reason or item.get_closest_marker("deep") else short).append(item)
    if deep and not config.option.deep:
        config.hook.pytest_deselected(items=deep)
        items[:] = short
    elif hasattr(config, "workerinput"):
        items[:] = sorted(deep, key=lambda item: place(item.nodeid)) + short


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    """Nobody takes the short run for all."""
    if not config.option.deep:
        terminalreporter.line(
            "the short run; what starts daemons and programs (tests/deep.py) needs a path or --deep"
        )


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """A test of a simulation takes `seeds`, a range of them; it runs once for each batch."""
    if "seeds" in metafunc.fixturenames:
        most = metafunc.config.option.seeds
        batches = [range(first, min(first + BATCH, most)) for first in range(0, most, BATCH)]
        metafunc.parametrize("seeds", batches, ids=[f"{b.start}-{b.stop - 1}" for b in batches])


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """A test that is a coroutine function runs in an event loop of its own."""
    test = pyfuncitem.obj
    if not inspect.iscoroutinefunction(test):
        return None
    given = {name: pyfuncitem.funcargs[name] for name in inspect.signature(test).parameters}

    async def limited() -> None:
        async with asyncio.timeout(MOST_SECONDS):
            await test(**given)

    asyncio.run(limited())
    return True


@pytest.fixture(autouse=True)
def _what_a_command_sets_is_put_back() -> Iterator[None]:
    """A daemon or a command that runs within a test sets the garbage collector for a process of its
    own: the tests after it would never give back what refers to itself, gigabytes in all. And the
    flags that led to its cluster would stand in commands that later tests print."""
    yield
    terminal.choose_leading_flags(None)
    gc.unfreeze()
    gc.set_threshold(*THRESHOLDS)
    gc.enable()
