"""Futures that are played in several processes: Ctrl-C keeps those that are there."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from kubectl_nodelife.commands.answering.what_if import play_all
from kubectl_nodelife.report.live_line import _bar

ROOT = Path(__file__).parents[2]
SCRIPT = """
import json, os, sys, time
from kubectl_nodelife.commands.answering.what_if import play_all

def play(target):
    time.sleep(0.01)
    os.write(2, b"." if int(target) < 8 else b"!")
    return int(target) * 2

found, partial = play_all(play, [str(n) for n in range(100_000)], int(sys.argv[1]))
print(json.dumps([found, partial]))
"""


@pytest.mark.parametrize("jobs", [1, 2, 3])
def test_ctrl_c_keeps_what_was_played(jobs: int) -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", SCRIPT, str(jobs)],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )
    assert process.stdout is not None and process.stderr is not None
    told = b""
    while not told.endswith(b"!"):
        read = os.read(process.stderr.fileno(), 1)
        assert read, told.decode()  # it has ended
        told += read
    os.killpg(process.pid, signal.SIGINT)  # as a terminal does: to all of them
    out, err = process.communicate()
    assert set(err.decode()) <= set(".!"), err
    found, partial = json.loads(out)
    assert partial and process.returncode == 0
    assert 0 < len(found) < 100_000 and found == sorted(found)


@pytest.mark.parametrize("jobs", [1, 2, 5])
def test_without_it_all_are_there_in_order(jobs: int) -> None:
    targets = [str(number) for number in range(23)]
    assert play_all(lambda target: int(target) * 2, targets, jobs) == (
        [number * 2 for number in range(23)],
        False,
    )


@pytest.mark.parametrize(
    "done, seconds, line",
    [
        (1, 0.9, "playing: [###                           ]  10% (0s)"),
        (1, 2.0, "playing: [###                           ]  10% (2s, 18s left)"),
        (5, 90.0, "playing: [###############               ]  50% (90s, 90s left)"),
        (0, 9.0, "playing: [                              ]   0% (9s)"),
    ],
)
def test_after_a_second_the_time_that_is_left_is_told(done: int, seconds: float, line: str) -> None:
    assert _bar("playing", done, 10, seconds) == line
