"""What a user sees where credentials, kubeconfig, folders or settings are not what they were."""

import asyncio
import json
import os
from pathlib import Path
from typing import Any

import pytest

from tests.daemon.user import FLAGS, SET, User, user
from tests.loopback import sandbox, until


async def test_a_token_that_expires_is_renewed_from_the_kubeconfig() -> None:
    async with sandbox(flags=FLAGS) as served, user(served.kubeconfig) as one:
        config = json.loads(Path(served.kubeconfig).read_text())
        own = one.home / "config"
        own.write_text(json.dumps(config))
        one.environ["KUBECONFIG"] = str(own)
        await one.watching()
        pid = (await one.health())["pid"]
        served.server.faults.refuse_tokens = True
        served.server.go_down()  # the watches end; what comes next is refused
        served.server.down = False
        await one.warned("status", of=("nauthorized", "not being watched", "nothing is decided"))
        served.server.faults.refuse_tokens = False
        served.server._token = "another"
        config["users"][0]["user"]["token"] = "another"
        own.write_text(json.dumps(config))

        async def back() -> bool:
            health = await one.health()
            return not health["standsStill"] and health["pid"] == pid

        await one.until(back)


@pytest.mark.parametrize(
    "script, complaint",
    [
        pytest.param("echo secret >&2; exit 255", "failed with exit code 255", id="expired"),
        pytest.param("sleep 600", "no answer within 2 s", id="never-ends"),
    ],
)
async def test_an_expired_login_ends_no_daemon_and_is_mended_by_a_new_one(
    script: str, complaint: str
) -> None:
    """The plugin works, then fails, then works again, as after `aws sso login`."""
    async with sandbox(flags=FLAGS) as served, user(served.kubeconfig) as one:
        config = json.loads(Path(served.kubeconfig).read_text())
        answer = one.home / "login"
        logged_in = credential_script(config["users"][0]["user"]["token"])
        answer.write_text(logged_in)
        config["users"][0]["user"] = {"exec": plugin_of(answer)}
        own = one.home / "config"
        own.write_text(json.dumps(config))
        one.environ["KUBECONFIG"] = str(own)
        await one.begin("--request-timeout=2s", *SET)
        pid = (await one.health())["pid"]

        answer.write_text(script)
        served.server.faults.refuse_tokens = True
        served.server.go_down()  # the watches end; what comes next is refused
        served.server.down = False
        said = await one.warned("daemon", "status", of=("credential plugin sh", complaint))
        assert "not being watched" in said and "secret" not in said
        assert len([line for line in said.splitlines() if complaint in line]) == 1
        await answers_of_what_was_last_seen(one, complaint)
        served.server.faults.refuse_tokens = False
        answer.write_text(logged_in)

        async def back() -> bool:
            health = await one.health()
            return not health["standsStill"] and health["pid"] == pid

        await one.until(back)


async def answers_of_what_was_last_seen(one: User, complaint: str) -> None:
    """The daemon still answers, accuses nobody of a silence that it could not hear, and one line
    says why: also by the plugin's own words, where the command asks the cluster for something more.
    """
    status = await one.run("status")
    assert "of 4 nodes was in trouble when the cluster was last seen" in status.out, status
    assert "overdue" not in status.out
    for verb in (["status"], ["explain", "node", "a1"], ["changes"], ["daemonset", "-A"]):
        said = await one.run(*verb, "-v=1", "--request-timeout=2s")
        assert said.code == 0
        lines = [line for line in said.err.splitlines() if complaint in line]
        (blind,) = (line for line in lines if "Services and webhooks" not in line)
        assert "nothing is decided" in blind and "last seen" in blind, said


async def test_a_daemon_that_begins_before_the_login() -> None:
    async with sandbox(flags=FLAGS) as served, user(served.kubeconfig) as one:
        config = json.loads(Path(served.kubeconfig).read_text())
        answer = one.home / "login"
        answer.write_text("echo secret >&2; exit 1")
        logged_in = credential_script(config["users"][0]["user"]["token"])
        config["users"][0]["user"] = {"exec": plugin_of(answer)}
        own = one.home / "config"
        own.write_text(json.dumps(config))
        one.environ["KUBECONFIG"] = str(own)
        began = await one.run("daemon", "start")
        assert began.code == 0 and began.out.startswith("started, still reading")
        assert "credential plugin sh: failed with exit code 1" in began.err, began
        answer.write_text(logged_in)

        async def synced() -> bool:
            return bool((await one.health())["synced"])

        await one.until(synced)


def plugin_of(script: Path) -> dict[str, Any]:
    """A credential plugin that is this shell script, as it is at the time."""
    return {
        "apiVersion": "client.authentication.k8s.io/v1",
        "command": "sh",
        "args": [str(script)],
        "interactiveMode": "Never",
    }


def credential_script(token: str) -> str:
    """Prints the token as an ExecCredential that is old at once."""
    version = "client.authentication.k8s.io/v1"
    status = {"token": token, "expirationTimestamp": "2020-01-01T00:00:00Z"}
    document = {"kind": "ExecCredential", "apiVersion": version, "status": status}
    return f"echo '{json.dumps(document)}'"


def renamed(text: str) -> str:
    config = json.loads(text)
    config["current-context"] = config["contexts"][0]["name"] = "renamed"
    return json.dumps(config)


@pytest.mark.parametrize("how", ["removed", "renamed", "elsewhere"])
async def test_a_kubeconfig_that_changes_under_a_daemon(how: str) -> None:
    async with sandbox(flags=FLAGS) as served, user(served.kubeconfig) as one:
        own = one.home / "config"
        text = Path(served.kubeconfig).read_text()
        own.write_text(text)
        one.environ["KUBECONFIG"] = str(own)
        await one.watching()
        assert "first look" not in (await one.run("status")).err
        pid = (await one.health())["pid"]
        if how == "removed":
            own.unlink()
        elif how == "renamed":
            own.write_text(renamed(text))
        else:
            own.write_text(text.replace(served.url, "https://127.0.0.1:1"))
        kept = "the daemon goes on with what it said before"
        held = "context 'sandbox' leads to https://127.0.0.1:1 as "
        told = held if how == "elsewhere" else kept

        async def warned() -> bool:
            answer = await one.run("daemon", "status")
            return told in answer.out + answer.err

        if how == "renamed":
            await asyncio.sleep(2)  # the change is noticed at once, or never
            assert not await warned(), "it is the same cluster"
        else:
            await one.until(warned)
        assert (await one.health())["pid"] == pid, "it goes on"
        said = await one.run("status")
        if how == "removed":
            assert said.code == 2 and "no cluster is configured there" in said.err
        elif how == "renamed":
            assert said.code == 0 and "first look" not in said.err
        else:
            assert said.code == 3 and "https://127.0.0.1:1" in said.err
        own.write_text(text)

        async def well() -> bool:
            answer = await one.run("daemon", "status")
            return told not in answer.out + answer.err

        await one.until(well)
        assert "first look" not in (await one.run("status")).err


async def test_the_same_context_name_on_another_cluster_is_another_daemon() -> None:
    small = {"zones": 1, "nodesPerZone": 1, "podsPerNode": 1}
    async with (
        sandbox() as served,
        sandbox(generate=small) as other,
        user(served.kubeconfig) as one,
    ):
        await one.begin()
        assert len((await one.json("status"))["nodes"]) == 4
        one.environ["KUBECONFIG"] = other.kubeconfig
        status = await one.json("status")
        assert status["source"]["kind"] == "direct"
        assert len(status["nodes"]) == 1
        await one.ok("daemon", "start")

        async def answered() -> bool:
            said = await one.run("status", "-o", "json")
            status = json.loads(said.out or "{}")
            return bool(status) and (status["source"]["kind"], len(status["nodes"])) == (
                "daemon",
                1,
            )

        await one.until(answered)
        assert len((await one.json("daemon", "status"))["items"]) == 2


async def test_a_home_that_cannot_be_written() -> None:
    async with sandbox() as served, user(served.kubeconfig) as one:
        home = one.home / "home"
        home.touch()  # nothing can be made below it, not even by root
        one.environ["HOME"] = str(home)
        began = await one.begin()
        assert "changes are kept in memory" in began.err
        said = await one.run("status")
        assert said.code == 0 and "changes are kept in memory" in said.err
        assert "began: version" in await one.ok("daemon", "logs")


async def test_a_runtime_folder_that_others_may_enter_is_refused() -> None:
    async with sandbox() as served, user(served.kubeconfig) as one:
        folder = one.home / "r"
        folder.mkdir(mode=0o755)
        folder.chmod(0o755)
        for args in (["status"], ["daemon", "start"]):
            said = await one.run(*args)
            assert said.code == 1
            assert f"run: chmod 700 {folder}" in said.err


async def test_a_cluster_that_cannot_be_reached_at_the_start() -> None:
    async with sandbox() as served, user(served.kubeconfig) as one:
        await served.hang_up()
        began = await one.run("daemon", "start")
        assert began.code == 0 and began.out.startswith("started, still reading")
        assert "the API server cannot be reached" in began.err
        await served.listen()

        async def synced() -> bool:
            return bool((await one.health())["synced"])

        await one.until(synced)


async def test_what_a_wrong_setting_says_at_the_start() -> None:
    async with sandbox() as served, user(served.kubeconfig) as one:
        wrong = await one.run("daemon", "start", "--set", "node-eviction-rte=1")
        assert wrong.code != 0
        assert "unknown flag node-eviction-rte" in wrong.err
        assert (await one.run("daemon", "status")).code == 3


async def test_the_config_is_read_again_without_losing_a_timer() -> None:
    async with sandbox(flags=FLAGS) as served, user(served.kubeconfig) as one:
        await one.watching()
        folder = one.home / ".config" / "nodelife"
        folder.mkdir(parents=True)
        config = folder / "config.yaml"
        config.write_text("clusters: {sandbox: {settings: {node-eviction-rate: 0.7}}}")
        await one.ok("status")

        async def taken() -> bool:
            settings = (await one.json("status"))["settings"]
            return bool(settings["unhealthy-zone-threshold"]["value"] == "0.4")

        config.write_text("clusters: {sandbox: {settings: {unhealthy-zone-threshold: 0.4}}}")
        await one.until(taken)
        settings = (await one.json("status"))["settings"]
        assert settings["unhealthy-zone-threshold"]["origin"].endswith(
            "config.yaml, clusters.sandbox"
        )
        assert settings["node-eviction-rate"]["origin"] == "--set"
        config.write_text("clusters: {sandbox: {settings: {unhealthy-zone-treshold: 0.4}}}")
        wrong = await one.warned("status", of="unknown flag unhealthy-zone-treshold")
        assert "did you mean unhealthy-zone-threshold" in wrong
        health = await one.health()
        assert health["settings"]["unhealthy-zone-threshold"]["value"] == "0.4"
        assert not health["cold"], "nothing was begun anew"


async def test_a_socket_that_is_taken_away_ends_the_daemon() -> None:
    async with sandbox() as served, user(served.kubeconfig) as one:
        await one.ok("daemon", "start")
        health = await one.health()
        os.unlink(health["socket"])
        await until(lambda: not _alive(health["pid"]))
        log = await one.ok("daemon", "logs")
        assert "ends: its socket was removed" in log
        await one.ok("daemon", "start")


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    with open(f"/proc/{pid}/stat") as file:
        return file.read().rpartition(")")[2].split()[0] != "Z"
