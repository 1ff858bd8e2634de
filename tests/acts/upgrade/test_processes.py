"""The operator's commands: environment, log, exit codes, process groups, the gate."""

import asyncio
import gc
import os
import time
from pathlib import Path

import pytest

from kubectl_nodelife.acts.upgrade import processes
from kubectl_nodelife.acts.upgrade.processes import GateCommand, WorkKey, WorkRunner

KEY = WorkKey("b7", "uid-7", 1)
ENVIRON = {"PATH": os.environ["PATH"]}


class Runner(WorkRunner):
    """The runner, and with which codes its tries have ended."""

    def __init__(self, command: str, folder: str, environ: dict[str, str]) -> None:
        self.codes: dict[WorkKey, int] = {}
        super().__init__(command, folder, environ, self.codes.__setitem__)


async def ended(runner: Runner, key: WorkKey = KEY) -> int:
    async with asyncio.timeout(15):
        while key not in runner.codes:
            await asyncio.sleep(0.02)
    return runner.codes.pop(key)


def run(command: str, tmp_path: Path) -> tuple[int, str]:
    async def main() -> tuple[int, str]:
        runner = Runner(command, str(tmp_path / "logs"), ENVIRON)
        runner.start(KEY, {"NODE": "b7", "TRY": "1"})
        code = await ended(runner)
        return code, Path(runner.log_path("b7")).read_text()

    return asyncio.run(main())


def test_a_try_knows_its_node_and_its_output_is_in_the_nodes_log(tmp_path: Path) -> None:
    code, log = run('echo "$NODE try $TRY"; echo trouble >&2; exit 75', tmp_path)
    assert (code, log) == (75, "b7 try 1\ntrouble\n")


def test_the_last_words_of_the_work_are_told_without_what_steers_a_terminal(tmp_path: Path) -> None:
    runner = Runner("", str(tmp_path), ENVIRON)
    assert runner.last_words("b7") == ""
    Path(runner.log_path("b7")).write_text("one\n\x1b[31mno such host\a\n\n")
    assert runner.last_words("b7") == "[31mno such host"


def test_nothing_is_on_its_stdin(tmp_path: Path) -> None:
    assert run("cat; echo end", tmp_path) == (0, "end\n")


def test_a_command_that_a_signal_ended_has_the_shells_code(tmp_path: Path) -> None:
    assert run("kill -KILL $$", tmp_path)[0] == 137


async def test_where_no_log_can_be_written_the_work_is_not_begun(tmp_path: Path) -> None:
    (tmp_path / "logs").write_text("a file")

    runner = Runner(f"touch {tmp_path}/done", str(tmp_path / "logs"), ENVIRON)
    runner.start(KEY, {})
    assert await ended(runner) == 127
    assert not (tmp_path / "done").exists()


async def test_stopping_ends_the_whole_group_and_kills_what_does_not_listen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(processes, "TERM_SECONDS", 0.3)
    command = f"trap '' TERM; (trap '' TERM; sleep 60) & echo $! > {tmp_path}/child; wait; sleep 60"

    runner = Runner(command, str(tmp_path / "logs"), ENVIRON)
    runner.start(KEY, {})
    async with asyncio.timeout(10):
        while not (tmp_path / "child").exists() or not (tmp_path / "child").read_text():
            await asyncio.sleep(0.02)
    runner.stop(KEY)
    assert await ended(runner) == 137
    child = int((tmp_path / "child").read_text())
    assert is_over(child)


def is_over(pid: int) -> bool:
    """True if the process has ended; nobody may have asked for its code yet."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].startswith("Z")
    except FileNotFoundError:
        return True


def test_what_runs_when_nobody_watches_any_more_goes_on(tmp_path: Path) -> None:
    async def main() -> None:
        runner = Runner(f"sleep 0.4; touch {tmp_path}/done", str(tmp_path / "logs"), ENVIRON)
        runner.start(KEY, {})
        await asyncio.sleep(0.1)
        runner.forget_all()

    asyncio.run(main())
    gc.collect()
    time.sleep(0.8)
    assert (tmp_path / "done").exists()


async def test_the_same_try_can_be_begun_again_after_75_and_no_two_at_once(tmp_path: Path) -> None:
    runner = Runner("echo x; sleep 0.2; exit 75", str(tmp_path / "logs"), ENVIRON)
    for _ in range(2):
        runner.start(KEY, {})
        runner.start(KEY, {})
        assert await ended(runner) == 75
    assert Path(runner.log_path("b7")).read_text() == "x\nx\n"


def test_a_nodes_name_cannot_lead_out_of_the_folder(tmp_path: Path) -> None:
    runner = Runner("true", str(tmp_path), ENVIRON)
    assert runner.log_path("../../etc/x") == f"{tmp_path}/.._.._etc_x.log"


@pytest.mark.parametrize(
    ("command", "limit_s", "because"),
    [("exit 3", 10, "exited with 3"), ("sleep 5", 0.2, "took longer than 0.2s"), ("true", 10, "")],
)
async def test_the_gates_command_is_run_and_limited(
    command: str, limit_s: float, because: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(processes, "GATE_LIMIT_SECONDS", limit_s)

    gate = GateCommand(command, ENVIRON)
    looking = asyncio.create_task(gate.run())
    async with asyncio.timeout(15):
        while not gate.runs:
            await asyncio.sleep(0.02)
    looking.cancel()
    assert gate.last == (f"--gate {command!r} {because}" if because else "")


def test_a_log_is_for_its_user_alone(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        run("echo secret", tmp_path)
    finally:
        os.umask(before)
    (log,) = (tmp_path / "logs").iterdir()
    assert log.stat().st_mode & 0o777 == 0o600
    assert (tmp_path / "logs").stat().st_mode & 0o777 == 0o700


async def test_what_a_node_says_of_itself_is_no_part_of_the_command(tmp_path: Path) -> None:
    runner = Runner('echo "$PROVIDER_ID"', str(tmp_path / "logs"), ENVIRON)
    runner.start(KEY, {"PROVIDER_ID": f'"; touch {tmp_path}/done; echo "$(id)'})
    code, log = await ended(runner), Path(runner.log_path("b7")).read_text()
    assert code == 0 and "$(id)" in log and not (tmp_path / "done").exists()


async def test_a_null_byte_in_what_a_node_says_fails_the_try_alone(tmp_path: Path) -> None:
    runner = Runner("true", str(tmp_path / "logs"), ENVIRON)
    runner.start(KEY, {"PROVIDER_ID": "a\0b"})
    assert await ended(runner) == 127


async def test_a_gate_that_hangs_is_shut_before_its_command_has_died(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(processes, "GATE_LIMIT_SECONDS", 0.2)

    gate = GateCommand("trap '' TERM; sleep 30", ENVIRON)
    looking, began = asyncio.create_task(gate.run()), time.monotonic()
    async with asyncio.timeout(15):
        while gate.last is None:
            await asyncio.sleep(0.02)
    took = time.monotonic() - began
    looking.cancel()
    await asyncio.gather(looking, return_exceptions=True)
    assert took < 8, "not after the ten seconds in which it may end"
