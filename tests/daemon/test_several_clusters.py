"""One question to several clusters, in whole processes: sandboxes, and some that do not answer."""

from __future__ import annotations

import json
import socket
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from kubectl_nodelife.commands.several_clusters import exit_code_of
from kubectl_nodelife.report.clusters import ClusterAnswer, ClustersPage
from kubectl_nodelife.report.formats import render
from kubectl_nodelife.sandbox.tls import Sandbox
from tests.daemon.user import FLAGS, User, user
from tests.loopback import play, sandbox

PATIENCE = "--cluster-timeout=90s"
SHORT_PATIENCE = "--cluster-timeout=12s"
"""For clusters that do answer: a busy machine takes long."""


def kubeconfig(
    path: Path, served: Mapping[str, Sandbox], servers: Mapping[str, str] | None = None
) -> str:
    """A file with a context for each sandbox and for each server without credentials, and one that
    leads nowhere."""
    made: dict[str, Any] = {"apiVersion": "v1", "kind": "Config"}
    made |= {"clusters": [], "users": [], "contexts": []}
    for name, each in served.items():
        theirs = yaml.safe_load(Path(each.kubeconfig).read_text())
        made["clusters"].append({"name": name, "cluster": theirs["clusters"][0]["cluster"]})
        made["users"].append({"name": name, "user": theirs["users"][0]["user"]})
        made["contexts"].append({"name": name, "context": {"cluster": name, "user": name}})
    for name, url in (servers or {}).items():
        made["clusters"].append({"name": name, "cluster": {"server": url}})
        made["contexts"].append({"name": name, "context": {"cluster": name}})
    made["contexts"].append({"name": "broken", "context": {"cluster": "nowhere"}})
    path.write_text(yaml.safe_dump(made))
    return str(path)


def cells(text: str, first: str) -> list[list[str]]:
    """The rows of a table whose first column is `first`, split at gaps."""
    return [line.split() for line in text.splitlines() if line.startswith(f"{first} ")]


def test_one_table_one_list_and_the_same_cluster_once(tmp_path: Path) -> None:
    async def test() -> None:
        async with (
            sandbox(flags=FLAGS) as a,
            sandbox(flags=FLAGS, generate={"zones": 1, "nodesPerZone": 1}) as b,
            user(kubeconfig(tmp_path / "config", {"prod-a": a, "prod-b": b, "test": a})) as one,
        ):
            both = ("--contexts", "prod-*", PATIENCE)
            told = await one.ok("status", *both)
            assert told.startswith(
                "CONTEXT   SOURCE   AGE   ANSWER\nprod-a    direct   0s    answered\n"
            )
            rows = {(words[0], words[1]) for words in cells(told, "prod-a") if len(words) > 5}
            assert {("prod-a", "a1"), ("prod-a", "b2"), ("prod-a", "r1/a")} <= rows
            assert told.count("UNKNOWN IN") == 1, "one table of nodes"
            assert [w[1] for w in cells(told, "prod-b")] == ["direct", "r1/a", "a1"]

            found = json.loads(await one.ok("status", *both, "-o", "json"))
            assert (found["kind"], found["unanswered"]) == ("List", [])
            assert [item["source"]["context"] for item in found["items"]] == ["prod-a", "prod-b"]
            assert [len(item["nodes"]) for item in found["items"]] == [4, 1]

            names = await one.ok("status", "--contexts=test,prod-b", PATIENCE, "-o", "name")
            assert names.splitlines()[-1] == "prod-b\tnode/a1"

            twice = await one.run("status", "--all-contexts", PATIENCE)
            assert twice.code == 0
            assert "prod-a, test   direct" in twice.out
            assert 'broken         <none>   <none>   cluster "nowhere"' in twice.out

    play(test)


def test_a_cluster_that_hangs_or_is_gone_holds_nobody_up(tmp_path: Path) -> None:
    async def test() -> None:
        with socket.create_server(("127.0.0.1", 0)) as silent, socket.socket() as unused:
            unused.bind(("127.0.0.1", 0))
            servers = {
                "hangs": f"http://127.0.0.1:{silent.getsockname()[1]}",
                "gone": f"http://127.0.0.1:{unused.getsockname()[1]}",
            }
            async with (
                sandbox(flags=FLAGS) as a,
                user(kubeconfig(tmp_path / "config", {"prod": a}, servers)) as one,
            ):
                told = await one.run(
                    "drain-plan",
                    "a1",
                    "--ignore-daemonsets",
                    "--force",
                    "--contexts=prod,hangs",
                    "--cluster-timeout=20s",
                )
                assert told.code == 0
                assert "hangs     <none>   <none>   no answer within 20s" in told.out
                assert "prod: This drain finishes" in told.out
                none = await one.run("budgets", "-A", "--contexts=gone,hangs", SHORT_PATIENCE)
                assert none.code == 3, "none can be reached"

    play(test)


async def refused(one: User, *words: str) -> str:
    told = await one.run(*words)
    assert (told.code, told.out) == (2, "")
    return told.err.removeprefix("error: ").rstrip("\n")


def test_flags_that_contradict_one_another_are_refused(tmp_path: Path) -> None:
    async def test() -> None:
        config = kubeconfig(tmp_path / "config", {}, {"prod": "http://127.0.0.1:1"})
        async with user(config) as one:
            assert await refused(one, "status", "--contexts=x*") == (
                '--contexts: no context "x*"; known: broken, prod'
            )
            both = "only one of the two can be meant; leave one away"
            for words, flags in (
                (("--contexts=prod", "--all-contexts"), "--contexts and --all-contexts"),
                (("--all-contexts", "--context=prod"), "--all-contexts and --context"),
                (("--contexts=prod", "-f", "dump.json"), "--contexts and -f"),
                (("--contexts=prod", "-w"), "--contexts and --watch"),
            ):
                assert await refused(one, "status", *words) == f"{flags}: {both}"
            for flag in ("--token", "--user", "--client-certificate", "--client-key"):
                told = await refused(one, "status", "--all-contexts", f"{flag}=x")
                assert told.startswith(f"--all-contexts and {flag}: every one of these clusters")
            assert (await refused(one, "drain-plan", "a", "--contexts=prod", "-o", "html")) == (
                "-o html: is for one cluster; use table, wide, markdown, json, yaml, name"
            )

    play(test)


@pytest.mark.parametrize(
    "codes, expected",
    [
        pytest.param([0, 3], 0, id="one-answers"),
        pytest.param([4, 0, 3], 4, id="one-says-no"),
        pytest.param([3, 3], 3, id="none-is-reached"),
        pytest.param([3, 1], 1, id="none-answers"),
        pytest.param([2, 2], 2, id="bad-input-everywhere"),
    ],
)
def test_exit_codes(codes: list[int], expected: int) -> None:
    assert exit_code_of(codes) == expected


def test_text_from_a_cluster_stays_in_its_cell() -> None:
    parts = {
        "source": {"kind": "daemon", "age": 3.0},
        "blocks": [
            {"columns": [["name", False, 0]], "rows": [["evil\x1b[2J"], [["\ufdd2", "lost"]]]},
            "first line\nsecond",
        ],
    }
    answers = [
        ClusterAnswer("a", 0, json.dumps(parts)),
        ClusterAnswer("b", 3, "", error="gone\x07"),
    ]
    text = render(ClustersPage(answers), "table")
    assert "\x1b" not in text and "\x07" not in text
    assert "a         evil^[[2J\n" in text
    assert "a:\n  first line\n  second\n" in text
