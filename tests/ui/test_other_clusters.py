"""The other clusters of the page's user: daemons on this machine, each asked on its own socket."""

import json
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import yaml

from kubectl_nodelife.commands.ask import resolve
from kubectl_nodelife.commands.flags import Connection
from kubectl_nodelife.commands.several_clusters import SeveralClusters, _clusters
from kubectl_nodelife.daemon.paths import socket_path
from kubectl_nodelife.daemon.ui.host import merged
from tests.daemon.test_several_clusters import kubeconfig
from tests.daemon.user import FLAGS, SET, silence, user
from tests.loopback import sandbox
from tests.ui.browser import needs_chromium
from tests.ui.test_drawing import shown
from tests.ui.test_security import served


def told(name: str, level: str, uid: str = "", **more: str) -> dict[str, str]:
    return {"context": name, "level": level, "sentence": f"{name}.", "clusterUid": uid, **more}


def test_each_cluster_is_told_once_and_trouble_first() -> None:
    page = "http://127.0.0.1:8001/"
    found = merged(
        [
            told("calm", "peace", "1"),
            told("mine-too", "gone", "own"),
            told("dark", "gone", "2"),
            told("dark-as-admin", "unknown", "2", url=page),
            told("silent", "unknown", server="https://other:6443"),
            told("odd", "<b>", "3", url="http://elsewhere:80/"),
        ],
        "own",
    )
    assert [(each["contexts"], each["level"]) for each in found] == [
        ("dark, dark-as-admin", "gone"),
        ("odd", "unknown"),
        ("silent", "unknown"),
        ("calm", "peace"),
    ]
    assert [each["url"] for each in found] == [page, "", "", ""], "pages of this machine alone"
    assert found[0]["sentence"] == "dark." and found[0]["context"] == "dark"


@pytest.mark.deep("daemons as processes")
async def test_daemons_of_the_same_user_are_asked_whatever_they_are_called(tmp_path: Path) -> None:
    """Two of one cluster, under other users, are one; those that only look on are told nothing."""
    async with (
        sandbox(flags=FLAGS) as a,
        sandbox(flags=FLAGS, generate={"zones": 1, "nodesPerZone": 3}) as b,
        user(kubeconfig(tmp_path / "config", {"here": a, "there": b, "again": b})) as one,
    ):
        for name in ("here", "there", "again"):
            await one.ok("daemon", "start", "--context", name, *SET)
        for name in ("a1", "a2", "a3"):
            silence(b, name)
        opened = (await one.ok("ui", "--no-open", "--print-url", "--context=there")).strip()
        beside = opened.partition("#")[0]
        for flags, status in (((), 200), (("--read-only-token",), 403)):
            words = ("ui", "--no-open", "--print-url", "--context=here", *flags)
            url, _, token = (await one.ok(*words)).strip().partition("#token=")
            async with aiohttp.ClientSession() as session:
                headers = {"X-Nodelife": "1", "Content-Type": "application/json"}
                body = json.dumps({"token": token})
                async with session.post(f"{url}session", data=body, headers=headers) as begun:
                    mine = {"X-Nodelife-Session": (await begun.json())["session"]}
                asked = f"{url}api/v1/clusters"
                async with session.get(asked, headers=mine) as answer:
                    assert answer.status == status
                    if status == 200:
                        (item,) = (await answer.json())["items"]
        assert sorted(item["contexts"].split(", ")) == ["again", "there"]
        assert item["url"] == beside and "3" in item["sentence"], item
        assert (
            item["server"]
            == yaml.safe_load(Path(b.kubeconfig).read_text())["clusters"][0]["cluster"]["server"]
        )


def test_of_the_names_of_a_cluster_that_is_asked_first_whose_daemon_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NODELIFE_RUNTIME_DIR", str(tmp_path))
    config = tmp_path / "config"
    contexts = [{"name": n, "context": {"cluster": "c", "user": n}} for n in ("a", "b")]
    made = {
        "clusters": [{"name": "c", "cluster": {"server": "https://127.0.0.1:6443"}}],
        "users": [{"name": n, "user": {"token": n}} for n in ("a", "b")],
    }
    config.write_text(yaml.safe_dump({**made, "contexts": contexts}))
    asked = Connection(kubeconfig=str(config))
    every = SeveralClusters(all_contexts=True)
    (before,) = _clusters(every, asked, by_namespace=False)
    identity = resolve(asked._replace(context="b")).identity
    Path(socket_path(str(tmp_path), identity)).touch()
    (after,) = _clusters(every, asked, by_namespace=False)
    assert (before.names, after.names) == (("a", "b"), ("b", "a"))


async def test_without_a_session_nothing_is_told_of_other_clusters() -> None:
    async with served() as one:
        assert (await one.ask("/api/v1/clusters")).status == 401 and one.asked == []


@needs_chromium
async def test_the_page_names_them_with_the_command_and_no_token() -> None:
    url = "http://127.0.0.1:65000/"
    other = {
        "contexts": "prod, prod-admin", "context": "prod", "server": "https://x", "level": "gone",
        "sentence": "Zone a is dark <b>now</b>.", "url": url,
    }  # fmt: skip
    asked: list[Any] = []

    async def clusters(query: Any) -> dict[str, Any]:
        asked.append(query)
        return {"items": [other]}

    async with shown(3, {"clusters": clusters}) as (window, _):
        await window.until("return document.querySelector('#clusters li') !== null")
        said = await window.text("#others")
        assert "prod, prod-admin Zone a is dark <b>now</b>." in said
        assert "kubectl nodelife ui --context prod" in said
        link = "const a = document.querySelector('#clusters a'); return [a.href, a.rel]"
        assert await window.run(link) == [url, "noopener noreferrer"]
