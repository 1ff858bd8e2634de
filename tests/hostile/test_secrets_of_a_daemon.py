"""A daemon that watches a cluster full of planted secrets tells none: not in the answers that
come through its socket, and not in any file that it writes.
"""

import asyncio
import json
from pathlib import Path

from tests.daemon.user import User, user
from tests.hostile.openapi import SECRET, found_in
from tests.hostile.secretive import cluster
from tests.raw_server import raw_server

PATIENCE_S = 90.0
FLAGS = ("node-monitor-period=500ms", "node-monitor-grace-period=3s", "node-eviction-rate=10")
ANSWERS = (
    ("status", "-o", "json"),
    ("status", "-o", "wide"),
    ("daemon", "status", "-o", "json"),
    ("changes", "-o", "json", "--since=1h"),
    ("diverge", "-o", "json"),
    ("replay", "--since=1h", "-o", "json"),
    ("replay", "--since=1h", "-o", "html"),
    ("explain", "node", "a", "-o", "json"),
    ("what-if", "lose", "node", "a", "-o", "json"),
    ("explain", "pod", "alone", "-o", "json"),
    ("daemonset", "agent", "-o", "json"),
    ("budgets", "-o", "json"),
    ("audit", "-o", "json"),
    ("drain-plan", "a", "--force", "--ignore-daemonsets", "--delete-emptydir-data", "-o", "json"),
)


async def until_pods_go(one: User) -> None:
    """All but one node are silent: their pods are evicted, and daemon pods would be made."""
    async with asyncio.timeout(PATIENCE_S):
        while True:
            items = (await one.json("changes", "--since=1h"))["items"]
            if {"SetNodeCondition", "MarkPodNotReady"} <= {item["action"] for item in items}:
                return
            await asyncio.sleep(0.5)


def written_by(home: Path) -> dict[str, str]:
    """Every file below the home but the kubeconfig, as text."""
    files = (path for path in home.rglob("*") if path.is_file() and path.name != "kubeconfig")
    return {str(path): path.read_bytes().decode("latin-1") for path in files}


async def test_no_answer_and_no_file_of_a_daemon_tells_them(tmp_path: Path) -> None:
    objects = cluster()
    assert len(found_in(json.dumps(objects))) > 600
    async with raw_server(objects) as server, user(server.kubeconfig(tmp_path)) as one:
        started = await one.run("daemon", "start", *(f"--set={flag}" for flag in FLAGS))
        assert started.code == 0, started
        await until_pods_go(one)
        for arguments in ANSWERS:
            said = await one.run(*arguments)
            assert said.code in (0, 4), (arguments, said)
            assert said.out, arguments
            assert found_in(said.out + said.err) == set(), arguments
        files = written_by(one.home)
        assert any(name.endswith("journal.db") for name in files)
        assert any(name.endswith("daemon.log") for name in files)
        telling = {name: found_in(text) for name, text in files.items() if SECRET in text}
        assert telling == {}
        assert server.writes == []
