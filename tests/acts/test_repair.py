"""`repair` carried out on the sandbox: what is sent, and all that keeps it from being sent."""

import json
import sqlite3
from contextlib import AbstractAsyncContextManager
from pathlib import Path

from kubectl_nodelife.sandbox.tls import Sandbox
from tests.acts.program import Ended, nodelife
from tests.loopback import client, sandbox
from tests.objects import of_kind
from tests.pod_status.test_live import stuck_pod, well_node

STUCK = "/api/v1/namespaces/shop/pods/stuck"
KUBE_SYSTEM = of_kind("Namespace", "kube-system", uid="the-cluster")


def a_stuck_pod() -> AbstractAsyncContextManager[Sandbox]:
    return sandbox(generate=None, objects=[KUBE_SYSTEM, well_node(), stuck_pod()])


async def repair(served: Sandbox, *words: str) -> Ended:
    return await nodelife(served.kubeconfig, served.folder, "repair", "-n", "shop", *words)


async def ready(served: Sandbox) -> str:
    async with client(served) as reader:
        pod = json.loads(await reader.read(STUCK))
    conditions = {c["type"]: c["status"] for c in pod["status"]["conditions"]}
    return str(conditions["Ready"])


def rows(served: Sandbox) -> list[tuple[str, str, str]]:
    """(action, name, state) of each write in the journals of acts."""
    found = []
    for path in Path(served.folder).glob("state/*/acts-*.writes.db"):
        with sqlite3.connect(path) as db:
            found += db.execute("SELECT action, name, state FROM writes").fetchall()
    return [(json.loads(action)["type"], name, state) for action, name, state in found]


async def test_yes_mends_and_the_journal_has_it() -> None:
    async with a_stuck_pod() as served:
        ended = await repair(served, "--yes")
        assert ended.code == 0, ended.err
        assert "PATCH /api/v1/namespaces/shop/pods/stuck/status" in ended.out
        assert ended.out.endswith("pod/shop/stuck set ready\n")
        assert await ready(served) == "True"
        assert rows(served) == [("SetPodReady", "stuck", "applied")]
        told = await nodelife(served.kubeconfig, served.folder, "changes", "-o", "json")
        (change,) = json.loads(told.out)["items"]
        assert (change["action"], change["outcome"]) == ("SetPodReady", "applied")
        assert change["object"]["name"] == "stuck" and change["controller"] == "repair"
        words = ("changes", "pod", "stuck", "-n", "shop", "-o", "name")
        assert (await nodelife(served.kubeconfig, served.folder, *words)).out == "pod/shop/stuck\n"


async def test_without_a_terminal_nothing_is_sent_but_on_ones_word() -> None:
    async with a_stuck_pod() as served:
        ended = await repair(served)
        assert ended.code == 5 and "give --yes" in ended.err.splitlines()[-1]
        assert "PATCH" in ended.out, "the requests are shown all the same"
        for how in ("client", "server"):
            ended = await repair(served, f"--dry-run={how}")
            assert ended.code == 0, ended.err
        assert ended.out.endswith("pod/shop/stuck set ready (server dry run)\n")
        assert await ready(served) == "False"
        assert rows(served) == []


async def test_of_a_total_that_is_used_up_nothing_is_sent() -> None:
    async with a_stuck_pod() as served:
        ended = await repair(served, "--yes", "--max-writes=0")
        assert ended.code == 1 and "--max-writes 0 is used up" in ended.err
        assert await ready(served) == "False"


async def test_another_cluster_behind_the_address_is_refused() -> None:
    async with a_stuck_pod() as served:
        assert (await repair(served, "--dry-run=server")).code == 0
        (path,) = Path(served.folder).glob("state/*/acts-1.writes.db")
        with sqlite3.connect(path) as db:
            db.execute("UPDATE marks SET value = 'another'")
        ended = await repair(served, "--yes")
        assert ended.code == 5 and "another cluster is behind this address" in ended.err
        assert await ready(served) == "False"
