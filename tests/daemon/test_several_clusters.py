"""One question to several clusters, in whole processes: sandboxes, and some that do not answer."""

import contextlib
import json
import socket
import time
from collections.abc import AsyncIterator, Iterator, Mapping
from pathlib import Path

import pytest
import yaml

from kubectl_nodelife.commands.asking_clusters import ClusterAnswer, clusters_page
from kubectl_nodelife.commands.several_clusters import exit_code_of
from kubectl_nodelife.report.formats import render
from kubectl_nodelife.sandbox.tls import Sandbox
from tests.daemon.user import FLAGS, User, lines_of, silence, user
from tests.loopback import contexts_of, sandbox, until
from tests.raw_server import Request, raw_server

PATIENCE = "--cluster-timeout=90s"
"""For clusters that do answer: a busy machine takes long."""


def kubeconfig(
    path: Path, served: Mapping[str, Sandbox], servers: Mapping[str, str] | None = None
) -> str:
    """A file with a context for each sandbox and for each server without credentials, and one that
    leads nowhere."""
    made = contexts_of(served)
    for name, url in (servers or {}).items():
        made["clusters"].append({"name": name, "cluster": {"server": url}})
        made["contexts"].append({"name": name, "context": {"cluster": name}})
    made["contexts"].append({"name": "broken", "context": {"cluster": "nowhere"}})
    path.write_text(yaml.safe_dump(made))
    return str(path)


def cells(text: str, first: str) -> list[list[str]]:
    """The rows of a table whose first column is `first`, split at gaps."""
    return [line.split() for line in text.splitlines() if line.startswith(f"{first} ")]


async def test_one_table_one_list_and_the_same_cluster_once(tmp_path: Path) -> None:
    async with (
        sandbox(flags=FLAGS) as a,
        sandbox(flags=FLAGS, generate={"zones": 1, "nodesPerZone": 1}) as b,
        user(kubeconfig(tmp_path / "config", {"prod-a": a, "prod-b": b, "test": a})) as one,
    ):
        both = ("--contexts", "prod-*", PATIENCE)
        told = await one.ok("status", *both, "--all")
        assert told.startswith(
            "None of 2 answering clusters has nodes in trouble\n\n"
            "CONTEXT   SOURCE   AGE\nprod-a    direct   0s\n"
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

        twice = await one.run("status", "--all-contexts", PATIENCE, "--all")
        assert twice.code == 0
        assert "prod-a, test   direct" in twice.out
        assert 'No answer:\n  cluster "nowhere" that context' in twice.out
        brief = await one.ok("status", "--all-contexts", PATIENCE)
        assert "2 clusters are well: prod-a = test, prod-b\n" in brief
        assert "direct" not in brief and "a1" not in brief, "those that are well are but named"


@contextlib.asynccontextmanager
async def bad_servers(dead: int = 3) -> AsyncIterator[dict[str, str]]:
    """Servers by name: some on which nothing listens, one that accepts and never answers, and one
    to which nobody is known."""

    async def refuse(request: Request) -> bool:
        await request.status(401, "Unauthorized")
        return True

    async with raw_server() as refusing, contextlib.AsyncExitStack() as open_sockets:
        refusing.sickness = refuse
        silent = open_sockets.enter_context(socket.create_server(("127.0.0.1", 0)))
        ports = {"hangs": silent.getsockname()[1]}
        for number in range(dead):
            unused = open_sockets.enter_context(socket.socket())
            unused.bind(("127.0.0.1", 0))
            ports[f"dead{number}"] = unused.getsockname()[1]
        urls = {name: f"http://127.0.0.1:{port}" for name, port in ports.items()}
        yield {**urls, "expired": refusing.url}


def with_login(path: str, context: str, cluster: str, *command: str) -> None:
    """One more context of that cluster, with a credential plugin."""
    config = yaml.safe_load(Path(path).read_text())
    plugin = {"apiVersion": "client.authentication.k8s.io/v1", "interactiveMode": "Never"}
    plugin |= {"command": command[0], "args": list(command[1:])}
    config["users"].append({"name": context, "user": {"exec": plugin}})
    config["contexts"].append({"name": context, "context": {"cluster": cluster, "user": context}})
    Path(path).write_text(yaml.safe_dump(config))


async def lost_node(served: Sandbox, name: str) -> None:
    """Silence the kubelet, and wait until the controller manager of the sandbox finds that."""
    silence(served, name)
    nodes = served.cluster.api.served.collections["Node"].entries

    def found() -> bool:
        conditions = nodes[("", name)].document()["status"]["conditions"]
        return "Unknown" in {each["status"] for each in conditions}

    await until(found)


async def test_those_that_hang_are_gone_or_want_a_login_hold_nobody_up(tmp_path: Path) -> None:
    async with (
        sandbox(flags=FLAGS, controllers=("node-lifecycle",)) as a,
        sandbox(flags=FLAGS, generate={"zones": 1, "nodesPerZone": 1}) as b,
        bad_servers() as servers,
    ):
        config = kubeconfig(tmp_path / "config", {"prod": a, "test": b}, servers)
        with_login(config, "sleepy", "elsewhere", "/bin/sleep", "3001")
        document = yaml.safe_load(Path(config).read_text())
        tls = servers["hangs"].replace("http:", "https:")
        document["clusters"].append({"name": "elsewhere", "cluster": {"server": tls}})
        Path(config).write_text(yaml.safe_dump(document))
        async with user(config) as one:
            await lost_node(a, "a1")
            began = time.monotonic()
            told = await one.run(
                "status", "--all-contexts", "--trouble", "--cluster-timeout=20s", "--exit-code"
            )
            assert 20 <= time.monotonic() - began < 40
            assert told.code == 4
            assert told.out.startswith(
                "1 of 2 answering clusters has nodes in trouble: prod (1); 7 did not answer\n"
            )
            assert "test" not in told.out, "it is well"
            rows = [words[1] for words in cells(told.out, "prod") if len(words) > 8]
            assert [name for name in rows if not name.startswith("r1/")] == ["a1"]
            end = told.out[told.out.index("No answer:") :].splitlines()
            refused = "  the API server cannot be reached: Connection refused (3): dead0, dead1"
            assert end[1].startswith(refused)
            assert end[2].startswith("  no answer within 20s (2): hangs, sleepy; give them")
            assert {line.split(": ")[0].strip() for line in end[3:]} == {
                'cluster "nowhere" that context "broken" names does not exist in the '
                "kubeconfig (1)",
                "Unauthorized (1)",
            }
            assert not [p for p in processes() if p == b"/bin/sleep\x003001\x00"]


def processes() -> Iterator[bytes]:
    for each in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            yield each.read_bytes()


async def test_a_dead_server_is_tried_once_and_other_credentials_where_some_are_refused(
    tmp_path: Path,
) -> None:
    asked: list[str] = []
    async with sandbox(flags=FLAGS, record=asked) as a, bad_servers(dead=1) as servers:
        config = kubeconfig(tmp_path / "config", {"prod": a}, servers)
        note = tmp_path / "asked"
        tried = f"echo >> {note}; exit 1"
        with_login(config, "a-login", "prod", "/bin/sh", "-c", tried)
        with_login(config, "dead-too", "dead0", "/bin/sh", "-c", tried)
        async with user(config) as one:
            for verb in (
                ("status", "--all"),
                ("audit", "-A"),
                ("drain-plan", "a1", "--ignore-daemonsets", "--force"),
                ("what-if", "lose", "node", "a1"),
            ):
                asked.clear()
                words = "--contexts=a-login,dead0,dead-too,prod", PATIENCE
                told = await one.run(*verb, *words)
                assert told.code == 0, told
                assert "answering cluster" in told.out.splitlines()[0]
                assert "a-login, prod   direct" in told.out
                assert "Connection refused (1): dead0 = dead-too" in told.out
                assert asked.count("GET /api/v1/nodes") <= 2, "read once: twice by pages"
            assert note.read_text().count("\n") == 4, "one for each verb"
            none = await one.run("budgets", "-A", "--contexts=dead0", PATIENCE)
            assert (none.code, none.out.splitlines()[0]) == (3, "None of 1 cluster answered")


async def test_a_watch_of_several_clusters(tmp_path: Path) -> None:
    async with (
        sandbox(flags=FLAGS, controllers=("node-lifecycle",)) as a,
        sandbox(flags=FLAGS, generate={"zones": 1, "nodesPerZone": 1}) as b,
        user(kubeconfig(tmp_path / "config", {"prod": a, "test": b})) as one,
    ):
        await one.ok("daemon", "start", "--context=prod", "--set=node-monitor-grace-period=3s")
        words = ("status", "--all-contexts", "-w")
        going = await one.start(*words)
        try:
            await lines_of(going.stdout, "prod\tb2 ")
            await lost_node(a, "a1")
            await lines_of(going.stdout, "Unknown")
        finally:
            going.kill()
        assert going.stderr is not None
        assert b"test: --watch: watching is the daemon's work" in await going.stderr.read()
        one.environ["NODELIFE_WIDTH"] = "120"
        drawn = await one.start(*words)
        try:
            told = await lines_of(drawn.stdout, "No answer:")
            told += await lines_of(drawn.stdout, "No answer:")
        finally:
            drawn.kill()
        first = "1 of 1 answering cluster has nodes in trouble: prod (1); 2 did not answer"
        assert told.count(first) == 2, "drawn anew"


async def refused(one: User, *words: str) -> str:
    told = await one.run(*words)
    assert (told.code, told.out) == (2, "")
    return told.err.removeprefix("error: ").rstrip("\n")


async def test_flags_that_contradict_one_another_are_refused(tmp_path: Path) -> None:
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
        ):
            assert await refused(one, "status", *words) == f"{flags}: {both}"
        for flag in ("--token", "--user", "--client-certificate", "--client-key"):
            told = await refused(one, "status", "--all-contexts", f"{flag}=x")
            assert told.startswith(f"--all-contexts and {flag}: every one of these clusters")
        assert (await refused(one, "drain-plan", "a", "--contexts=prod", "-o", "html")) == (
            "-o html: is for one cluster; use table, wide, markdown, json, yaml, name"
        )


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
    text = render(clusters_page(answers), "table")
    assert "\x1b" not in text and "\x07" not in text
    assert "a         evil^[[2J\n" in text
    assert "a:\n  first line\n  second\n" in text
