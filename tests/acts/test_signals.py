"""What a program that writes does with SIGINT, by how it was started."""

import signal
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PROGRAM = """
import asyncio, sys
from kubectl_nodelife.commands.writing import run_interruptible

async def work():
    print("works", flush=True)
    try:
        await asyncio.sleep(60)
    finally:
        print("cleans up", flush=True)

try:
    run_interruptible(work)
except KeyboardInterrupt:
    print("interrupted", flush=True)
"""


@pytest.mark.parametrize(
    "shell, sent, said",
    [
        pytest.param("exec", [signal.SIGINT], "", id="on-a-terminal"),
        pytest.param("exec", [signal.SIGTERM], "", id="terminated"),
        pytest.param(
            "trap '' INT; exec",
            [signal.SIGINT, signal.SIGTERM],
            "Ctrl-C (SIGINT) is ignored, as it was when this was started; end it with: kill ",
            id="in-the-background-of-a-script",
        ),
    ],
)
def test_interrupted(shell: str, sent: list[signal.Signals], said: str) -> None:
    process = subprocess.Popen(
        ["sh", "-c", f'{shell} "$0" -c "$1"', sys.executable, PROGRAM],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "works\n"
    for number in sent:
        process.send_signal(number)
        if number != sent[-1]:
            with pytest.raises(subprocess.TimeoutExpired):
                process.wait(1)  # it goes on
    out, err = process.communicate(timeout=60)
    assert out.splitlines() == ["cleans up", "interrupted"]
    assert err.startswith(said) and (said or not err)
    assert not said or str(process.pid) in err


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_sandbox_takes_its_kubeconfig_with_it(number: signal.Signals) -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "kubectl_nodelife", "sandbox"],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    kubeconfig = Path(process.stdout.readline().partition("=")[2].strip())
    assert kubeconfig.is_file()
    process.send_signal(number)
    _, err = process.communicate(timeout=60)
    assert not kubeconfig.parent.exists()
    assert f"serves until Ctrl-C or SIGTERM; {kubeconfig} is taken away then" in err
