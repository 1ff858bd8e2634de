"""A sandbox cluster with a dead zone: what it answers live, and what its snapshot answers."""

import asyncio
import contextlib
import json
import re
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kubectl_nodelife.cli import main
from tests.loopback import GENERATE, client, sandbox

Capture = pytest.CaptureFixture[str]

# Short, but long enough for a busy machine: nobody but zone b falls silent.
FLAGS = {"node-monitor-period": "200ms", "node-monitor-grace-period": "8s"}
SETTINGS = tuple(f"--set={name}={value}" for name, value in FLAGS.items())
DEAD = {"at": "1s", "kubelet": {"selector": "topology.kubernetes.io/zone=b", "heartbeats": "stop"}}
FORCE = ("--ignore-daemonsets", "--delete-emptydir-data", "--force")
QUESTIONS = (
    ("status", *SETTINGS),
    ("audit", "-A", *SETTINGS),
    ("budgets", "-A"),
    ("daemonset", "-A", *SETTINGS),
    ("drain-plan", "a1", *FORCE),
    ("explain", "node", "b1", *SETTINGS),
)
NUMBER = re.compile(r"\d[\d.:smh]*")


def without_time(value: Any) -> Any:
    """The document less what goes on with time or tells where it is from."""
    gone = ("moment", "source", "warnings", "because", "origin", "profileOrigin", "evidence")
    if isinstance(value, dict):
        return {
            k: without_time(v)
            for k, v in value.items()
            if k not in gone and not k.endswith(("Seconds", "Age", "age", "since", "inSeconds"))
        }
    if isinstance(value, list):
        return [without_time(inner) for inner in value]
    return NUMBER.sub("#", value) if isinstance(value, str) else value


async def serve(kubeconfig: list[str], dead: threading.Event, over: threading.Event) -> None:
    """A cluster whose zone b falls silent; `dead` is set when all its nodes have both taints."""
    half_dead = sandbox(
        controllers=("node-lifecycle",),  # nothing is evicted between two looks
        flags={**FLAGS, "node-eviction-rate": "10"},
        events=[DEAD],
        generate={**GENERATE, "podsPerNode": 2},
    )
    async with half_dead as served, client(served) as reader:
        kubeconfig.append(served.kubeconfig)
        while not over.is_set():
            items = json.loads(await reader.read("/api/v1/nodes"))["items"]
            if [len(n["spec"].get("taints", ())) for n in items].count(2) == 2:
                dead.set()
            await asyncio.sleep(0.2)


@contextlib.contextmanager
def half_dead_cluster() -> Iterator[str]:
    """Yields its kubeconfig, in a thread of its own so that commands run here."""
    kubeconfig: list[str] = []
    dead, over = threading.Event(), threading.Event()
    thread = threading.Thread(target=lambda: asyncio.run(serve(kubeconfig, dead, over)))
    thread.start()
    try:
        ends = time.monotonic() + 120
        while not dead.wait(0.5):
            assert thread.is_alive() and time.monotonic() < ends, "the zone did not die"
        yield kubeconfig[0]
    finally:
        over.set()
        thread.join(60)


def said(capsys: Capture, *words: str) -> Any:
    """The document of a verb."""
    assert main([*words, "-o", "json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_the_snapshot_of_a_half_dead_cluster_answers_as_the_cluster(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("NODELIFE_RUNTIME_DIR", str(tmp_path / "run"))
    monkeypatch.chdir(tmp_path)
    with half_dead_cluster() as kubeconfig:
        monkeypatch.setenv("KUBECONFIG", kubeconfig)
        assert main(["snapshot", "save", "s.json.gz"]) == 0
        capsys.readouterr()
        live = {words[0]: without_time(said(capsys, *words)) for words in QUESTIONS}
    kept = {w[0]: without_time(said(capsys, *w, "-f", "s.json.gz")) for w in QUESTIONS}
    assert {n["ready"] for n in live["status"]["nodes"]} == {"True", "Unknown"}
    assert not {q: (live[q], kept[q]) for q in live if live[q] != kept[q]}
