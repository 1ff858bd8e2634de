"""List and watch against a served cluster that can be made to fail."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from kubectl_nodelife.kube.kinds import kind_named
from kubectl_nodelife.live.auth import Session
from kubectl_nodelife.live.client import Client
from kubectl_nodelife.live.kubeconfig import User
from kubectl_nodelife.live.news import ABSENT, FAILING, REFUSED, WATCHING, KindPhase
from kubectl_nodelife.live.requests import Resource, WatchPacing
from kubectl_nodelife.live.source import ListWatchSource
from kubectl_nodelife.sandbox.tls import Sandbox
from tests import source_reader
from tests.faulty_server import Failure
from tests.loopback import client, edited, play, sandbox, target_of, until
from tests.source_reader import Seen

FAST = WatchPacing(
    first_backoff_s=0.02,
    last_backoff_s=0.1,
    refused_s=0.1,
    silence_s=1.0,
    first_byte_s=5.0,
    watch_s=30,
)


def agrees(seen: Seen, served: Sandbox) -> bool:
    """True if every kind is known exactly as it is served, versions included."""
    return all(
        seen.versions(kind)
        == {
            key: str(entry.version)
            for key, entry in served.cluster.api.served.collections[kind].entries.items()
        }
        for kind in seen.objects
    )


@contextlib.asynccontextmanager
async def following(
    served: Sandbox, *kinds: str, pace: WatchPacing = FAST, watch_list: bool = True
) -> AsyncIterator[Seen]:
    async with client(served) as ours:
        how = {"watch_list": watch_list}
        async with source_reader.following(ours, kinds, pace, **how) as seen:
            yield seen


def watching(seen: Seen, *kinds: str) -> Callable[[], bool]:
    return lambda: all(seen.source.states[kind].phase == WATCHING for kind in kinds)


def change(served: Sandbox, name: str = "a1", **labels: str) -> None:
    """A label is put on a node, as if by a client."""
    with edited(served, "Node", name) as node:
        node["metadata"].setdefault("labels", {}).update(labels)


@pytest.mark.parametrize("how", ["watch-list", "pages", "server-without-watch-list"])
async def test_list_and_watch_show_what_there_is(how: str) -> None:
    async with sandbox() as served:
        served.server.faults.watch_list = how != "server-without-watch-list"
        pace = WatchPacing(**{**_fields(FAST), "page_size": 3})
        wanted = ("Node", "Pod", "Lease")
        async with following(served, *wanted, pace=pace, watch_list=how != "pages") as seen:
            await until(watching(seen, "Node", "Pod", "Lease"))
            await until(lambda: len(seen.objects) == 3 and agrees(seen, served))
            assert len(seen.objects["Node"]) == 4
            change(served, mark="yes")
            await until(lambda: agrees(seen, served))
            node = seen.objects["Node"][("", "a1")]
            assert (node.metadata.labels or {})["mark"] == "yes"
            assert sorted(seen.listed) == ["Lease", "Node", "Pod"]
            lists = served.server.requests.get("list", 0)
            assert lists == 0 if how == "watch-list" else lists >= 2 + 6 + 1


@pytest.mark.parametrize("watch_list", [True, False])
async def test_objects_with_nulls_where_none_belong_are_read(watch_list: bool) -> None:
    async with sandbox() as served:
        change(served, odd=None)  # type: ignore[arg-type]
        async with following(served, "Node", watch_list=watch_list) as seen:
            await until(lambda: "Node" in seen.objects and agrees(seen, served))
            assert "odd" not in (seen.objects["Node"][("", "a1")].metadata.labels or {})


async def test_cut_and_torn_watches_go_on_where_they_were() -> None:
    async with sandbox() as served, following(served, "Node") as seen:
        await until(watching(seen, "Node"))
        for torn in (False, True):
            served.server.faults.torn = torn
            served.server.faults.cut_watches = 1
            change(served, torn=str(torn))
            await until(lambda: served.server.faults.cut_watches == 0)
            change(served, again=str(torn))
            await until(lambda: agrees(seen, served))
        assert seen.listed == ["Node"], "a cut watch needs no new list"


async def test_an_expired_version_means_a_new_list_in_which_the_lost_are_missing() -> None:
    async with sandbox() as served, following(served, "Node") as seen:
        await until(watching(seen, "Node"))
        served.server.faults.expire_watches.add("nodes")
        served.server.faults.cut_watches = 1
        served.cluster.api.drop("Node", ("", "b2"))
        await until(lambda: seen.listed == ["Node", "Node"])
        await until(lambda: agrees(seen, served))
        assert ("", "b2") not in seen.objects["Node"]


async def test_a_version_too_old_in_the_middle_of_a_watch() -> None:
    async with sandbox() as served, following(served, "Node") as seen:
        await until(watching(seen, "Node"))
        collection = served.cluster.api.served.collections["Node"]
        served.server.faults.cut_watches = 1
        change(served, a="1")
        change(served, b="1")
        collection.compact(0)
        await until(lambda: len(seen.listed) == 2)
        await until(lambda: agrees(seen, served))


async def test_a_hung_watch_is_noticed_and_opened_anew() -> None:
    async with sandbox() as served:
        pace = WatchPacing(**{**_fields(FAST), "silence_s": 0.4})
        async with following(served, "Node", pace=pace) as seen:
            await until(watching(seen, "Node"))
            served.server.faults.hang_watches.add("nodes")
            change(served, hidden="yes")
            watches = served.server.requests["watch"]
            await until(lambda: served.server.requests["watch"] > watches)
            served.server.faults.hang_watches.clear()
            await until(lambda: agrees(seen, served))
            assert seen.listed == ["Node"]


async def test_the_gap_of_a_hung_watch_begins_with_its_last_sign_of_life() -> None:
    async with sandbox() as served:
        pace = WatchPacing(**{**_fields(FAST), "silence_s": 0.4})
        async with following(served, "Node", pace=pace) as seen:
            await until(watching(seen, "Node"))
            served.server.faults.hang_watches.add("nodes")
            await until(lambda: any(phase.gap_ns for phase in seen.phases))
            assert max(phase.gap_ns for phase in seen.phases) >= 0.4e9


@pytest.mark.parametrize("stuck_in", ["watch", "connecting", "list", "pause"])
def test_a_new_list_interrupts_whatever_waits(stuck_in: str) -> None:
    """Each of these would otherwise wait for longer than the test lasts."""

    async def test() -> None:
        patient = {"first_backoff_s": 300.0, "last_backoff_s": 300.0, "silence_s": 300.0}
        pace = WatchPacing(**{**_fields(FAST), **patient})
        async with sandbox() as served:
            faults = served.server.faults
            how = stuck_in != "list"
            async with following(served, "Node", pace=pace, watch_list=how) as seen:
                await until(watching(seen, "Node"))
                state = seen.source.states["Node"]
                if stuck_in == "pause":
                    faults.failures.append(Failure(500, times=1, resources=("nodes",)))
                    seen.source.relist(["Node"])
                    await until(lambda: state.retry_at_ns)
                elif stuck_in != "watch":
                    faults.latency_s = 300.0
                    seen.source.relist(["Node"])
                    await until(lambda: state.phase != WATCHING)
                    await asyncio.sleep(0.2)
                    faults.latency_s = 0.0
                seen.source.relist(["Node"])
                await until(watching(seen, "Node"))
                await until(lambda: len(seen.listed) == 2 and agrees(seen, served))

    play(test, seconds=30.0)


async def test_a_refused_kind_is_declared_and_taken_up_once_it_is_allowed() -> None:
    async with sandbox() as served:
        served.server.faults.forbid.add("pods")
        async with following(served, "Node", "Pod") as seen:
            await until(lambda: seen.source.states["Pod"].phase == REFUSED)
            await until(watching(seen, "Node"))
            assert "pods is forbidden" in seen.source.states["Pod"].error
            await until(lambda: KindPhase("Pod", REFUSED) in seen.phases)
            served.server.faults.forbid.clear()
            await until(watching(seen, "Node", "Pod"))
            await until(lambda: agrees(seen, served))


async def test_a_kind_that_is_not_served_is_absent() -> None:
    async with sandbox() as served:
        served.server.faults.failures.append(
            Failure(404, times=100, resources=("poddisruptionbudgets",))
        )
        async with following(served, "PodDisruptionBudget") as seen:
            state = seen.source.states["PodDisruptionBudget"]
            await until(lambda: state.phase == ABSENT)


@pytest.mark.parametrize("code", [429, 503])
async def test_retry_after_is_obeyed(code: int) -> None:
    async with sandbox() as served:
        failure = Failure(code, times=1, retry_after_s=1, resources=("nodes",))
        served.server.faults.failures.append(failure)
        async with following(served, "Node") as seen:
            began = asyncio.get_running_loop().time()
            await until(watching(seen, "Node"))
            assert asyncio.get_running_loop().time() - began >= 1
            assert seen.source.states["Node"].phase == WATCHING
            assert KindPhase("Node", FAILING) in seen.phases  # status says why nothing comes


async def test_errors_without_advice_are_tried_again_after_a_pause() -> None:
    async with sandbox() as served:
        served.server.faults.failures.append(Failure(500, times=3, resources=("nodes",)))
        async with following(served, "Node") as seen:
            await until(lambda: seen.source.states["Node"].phase == FAILING)
            assert "injected" in seen.source.states["Node"].error
            await until(watching(seen, "Node"))
            assert seen.source.states["Node"].error == ""


async def test_a_server_that_goes_and_comes_back_is_a_gap_of_that_length() -> None:
    async with sandbox() as served, following(served, "Node") as seen:
        await until(watching(seen, "Node"))
        await served.hang_up()
        await until(lambda: seen.source.states["Node"].phase == FAILING)
        assert "cannot be reached" in seen.source.states["Node"].error or (
            "broke" in seen.source.states["Node"].error
        )
        change(served, meanwhile="yes")
        await asyncio.sleep(0.5)
        await served.listen()
        await until(lambda: agrees(seen, served))
        gaps = [phase.gap_ns for phase in seen.phases if phase.phase == WATCHING]
        assert max(gaps) >= 500_000_000
        assert seen.listed == ["Node"]


async def test_a_connection_lost_while_events_are_gathered_is_opened_anew() -> None:
    pace = WatchPacing(**{**_fields(FAST), "gather_s": 0.5})
    async with sandbox() as served, following(served, "Node", pace=pace) as seen:
        await until(watching(seen, "Node"))
        change(served, first="yes")
        await until(lambda: agrees(seen, served))  # the follower has told, and gathers now
        change(served, second="yes")
        await served.hang_up()
        await served.listen()
        await until(lambda: agrees(seen, served))


async def test_credentials_that_are_renewed_end_no_watch(tmp_path: Path) -> None:
    async with sandbox() as served:
        target = target_of(served)
        (tmp_path / "token").write_text(target.user.token)
        target = msgspec.structs.replace(target, user=User(token_file=str(tmp_path / "token")))
        ours = Client(Session(target, {}))
        source = ListWatchSource(ours, [Resource(kind_named("Node"))], FAST)
        seen = Seen(source)
        tasks = [asyncio.create_task(source.run()), asyncio.create_task(seen.read())]
        await until(watching(seen, "Node"))
        assert ours.session.renew(1)
        await ours.read("/version")
        change(served, later="yes")
        await until(lambda: agrees(seen, served))
        assert served.server.requests["watch"] == 1
        for task in tasks:
            task.cancel()
        await ours.close()


async def test_a_refused_token_is_an_error_that_says_so() -> None:
    async with sandbox() as served:
        served.server.faults.refuse_tokens = True
        async with following(served, "Node") as seen:
            await until(lambda: seen.source.states["Node"].phase == FAILING)
            assert "(401)" in seen.source.states["Node"].error


async def test_a_reader_that_is_slow_loses_nothing() -> None:
    async with sandbox() as served, client(served) as ours:
        source = ListWatchSource(ours, [Resource(kind_named("Node"))], FAST, queue_length=1)
        run = asyncio.create_task(source.run())
        for number in range(300):
            change(served, number=str(number))
            if number % 50 == 0:
                await asyncio.sleep(0.01)
        seen = Seen(source)
        await asyncio.sleep(0.2)
        read = asyncio.create_task(seen.read())
        await until(lambda: "Node" in seen.objects and agrees(seen, served))
        for task in (run, read):
            task.cancel()


async def test_nothing_but_get_is_ever_sent() -> None:
    async with sandbox() as served:
        served.server.faults.fail_writes = True
        async with following(served, "Node", "Pod", "Lease") as seen:
            await until(watching(seen, "Node", "Pod", "Lease"))
        assert served.server.faults.writes_seen == []
        assert set(served.server.requests) <= {"get", "list", "watch"}


def _fields(pace: WatchPacing) -> dict[str, Any]:
    return {name: getattr(pace, name) for name in pace.__struct_fields__}
