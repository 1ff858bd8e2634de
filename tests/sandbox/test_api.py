"""The sandbox as an API server, asked over HTTP by hand."""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import pytest

from kubectl_nodelife.sandbox.cluster import REBOOT
from kubectl_nodelife.sandbox.tls import Sandbox
from tests.loopback import sandbox, until

POD = {
    "metadata": {"name": "p", "namespace": "default", "labels": {"app": "web"}},
    "spec": {"containers": [{"name": "c", "image": "i", "env": [{"name": "E", "value": "v"}]}]},
}


def pod_with(**metadata: Any) -> dict[str, Any]:
    """`POD` with other metadata."""
    plain: dict[str, Any] = dict(POD)
    return {**plain, "metadata": {**plain["metadata"], **metadata}}


PODS = "/api/v1/namespaces/default/pods"


class Api:
    """Requests with the token of a sandbox; the server's certificate is taken on trust."""

    def __init__(self, served: Sandbox, session: aiohttp.ClientSession) -> None:
        self.served = served
        self.session = session

    async def __call__(
        self, method: str, path: str, body: Any = None, kind: str = "json", **headers: str
    ) -> tuple[int, Any]:
        """(status code, decoded body)"""
        all_headers = {
            "Authorization": f"Bearer {self.served.token}",
            "Content-Type": f"application/{kind}",
            **headers,
        }
        data = None if body is None else json.dumps(body)
        async with self.session.request(
            method, self.served.url + path, data=data, headers=all_headers, ssl=False
        ) as response:
            return response.status, json.loads(await response.text())

    async def watch(self, path: str) -> AsyncIterator[dict[str, Any]]:
        """The events of a watch."""
        headers = {"Authorization": f"Bearer {self.served.token}"}
        async with self.session.get(self.served.url + path, headers=headers, ssl=False) as response:
            assert response.status == 200, await response.text()
            async for line in response.content:
                yield json.loads(line)


@contextlib.asynccontextmanager
async def api(**options: Any) -> AsyncIterator[Api]:
    options.setdefault("generate", None)
    async with sandbox(**options) as served, aiohttp.ClientSession() as session:
        yield Api(served, session)


async def test_no_token_no_answer() -> None:
    async with api() as call:
        code, status = await call("GET", "/api/v1/nodes", Authorization="Bearer wrong")
        assert (code, status["reason"]) == (401, "Unauthorized")
        assert (await call("GET", "/readyz"))[0] == 200


async def test_create_read_and_the_ways_to_refuse() -> None:
    async with api() as call:
        code, made = await call("POST", PODS, POD)
        assert code == 201
        assert made["spec"]["containers"] == POD["spec"]["containers"]  # type: ignore[index]
        assert made["status"]["phase"] == "Pending"
        tolerated = {t["key"]: t["tolerationSeconds"] for t in made["spec"]["tolerations"]}
        assert tolerated == {
            "node.kubernetes.io/not-ready": 300,
            "node.kubernetes.io/unreachable": 300,
        }
        assert (await call("POST", PODS, POD))[1]["reason"] == "AlreadyExists"
        assert (await call("GET", f"{PODS}/p"))[1] == made
        code, status = await call("GET", f"{PODS}/q")
        assert (code, status["message"]) == (404, 'pods "q" not found')
        assert (await call("POST", PODS, {"metadata": {}}))[0] == 422
        assert (await call("POST", PODS, {"kind": "Node", "metadata": {}}))[0] == 400
        assert (await call("GET", "/api/v1/nonsense"))[0] == 404
        assert (await call("POST", f"{PODS}/p", POD))[0] == 405
        code, named = await call("POST", PODS, {"metadata": {"generateName": "x-"}})
        assert named["metadata"]["name"].startswith("x-")


async def test_conflicts_and_preconditions() -> None:
    async with api() as call:
        _, made = await call("POST", PODS, POD)
        made["metadata"]["labels"]["a"] = "b"
        code, updated = await call("PUT", f"{PODS}/p", made)
        assert (code, updated["metadata"]["labels"]["a"]) == (200, "b")
        code, status = await call("PUT", f"{PODS}/p", made)
        assert (code, status["reason"]) == (409, "Conflict")
        stale = {"metadata": {"resourceVersion": made["metadata"]["resourceVersion"]}}
        patch = "merge-patch+json"
        assert (await call("PATCH", f"{PODS}/p", stale, patch))[0] == 409
        other = {"metadata": {"uid": "another"}}
        assert (await call("PATCH", f"{PODS}/p", other, patch))[0] == 409
        options = {"preconditions": {"uid": "another"}}
        assert (await call("DELETE", f"{PODS}/p", options))[0] == 409
        same = {"metadata": {"labels": {"a": "b"}}}
        _, unchanged = await call("PATCH", f"{PODS}/p", same, patch)
        assert unchanged == updated, "a patch that changes nothing makes no version"


async def test_status_is_written_apart_from_the_rest() -> None:
    async with api() as call:
        await call("POST", PODS, POD)
        both = {"status": {"phase": "Running"}, "metadata": {"labels": {"x": "y"}}}
        _, main = await call("PATCH", f"{PODS}/p", both, "merge-patch+json")
        assert main["status"]["phase"] == "Pending"
        assert main["metadata"]["labels"]["x"] == "y"
        other = {"status": {"phase": "Running"}, "metadata": {"labels": {"x": "z"}}}
        _, after = await call("PATCH", f"{PODS}/p/status", other, "merge-patch+json")
        assert after["status"]["phase"] == "Running"
        assert after["metadata"]["labels"]["x"] == "y"


async def test_dry_run_changes_nothing() -> None:
    async with api() as call:
        assert (await call("POST", f"{PODS}?dryRun=All", POD))[0] == 201
        assert (await call("GET", f"{PODS}/p"))[0] == 404
        _, made = await call("POST", PODS, POD)
        patch = {"metadata": {"labels": {"x": "y"}}}
        path = f"{PODS}/p?dryRun=All"
        _, would = await call("PATCH", path, patch, "merge-patch+json")
        assert would["metadata"]["labels"]["x"] == "y"
        await call("DELETE", path)
        assert (await call("GET", f"{PODS}/p"))[1] == made


async def test_lists_page_and_select() -> None:
    async with api() as call:
        for number in range(5):
            name = {"name": f"p{number}", "namespace": "default"}
            name["labels"] = {"odd": str(number % 2)}  # type: ignore[assignment]
            await call("POST", PODS, {**POD, "metadata": name})
        _, first = await call("GET", f"{PODS}?limit=2")
        assert [i["metadata"]["name"] for i in first["items"]] == ["p0", "p1"]
        assert first["metadata"]["remainingItemCount"] == 3
        more = first["metadata"]["continue"]
        _, second = await call("GET", f"{PODS}?limit=9&continue={more}")
        assert [i["metadata"]["name"] for i in second["items"]] == ["p2", "p3", "p4"]
        assert second["metadata"] == {"resourceVersion": first["metadata"]["resourceVersion"]}
        _, odd = await call("GET", f"{PODS}?labelSelector=odd%3D1")
        assert [i["metadata"]["name"] for i in odd["items"]] == ["p1", "p3"]
        _, one = await call("GET", "/api/v1/pods?fieldSelector=metadata.name%3Dp4")
        assert [i["metadata"]["name"] for i in one["items"]] == ["p4"]
        assert (await call("GET", f"{PODS}?fieldSelector=a%3Db"))[0] == 400
        assert (await call("GET", f"{PODS}?continue=rubbish"))[0] == 400
        assert (await call("GET", "/api/v1/namespaces/other/pods"))[1]["items"] == []


async def test_a_watch_replays_and_follows() -> None:
    async with api() as call:
        await call("POST", PODS, POD)
        _, seen = await call("GET", PODS)
        version = seen["metadata"]["resourceVersion"]
        label = {"metadata": {"labels": {"x": "y"}}}
        await call("PATCH", f"{PODS}/p", label, "merge-patch+json")
        watch = call.watch(f"{PODS}?watch=true&resourceVersion={version}")
        event = await anext(watch)
        assert (event["type"], event["object"]["metadata"]["labels"]["x"]) == ("MODIFIED", "y")
        await call("DELETE", f"{PODS}/p", {"gracePeriodSeconds": 0})
        event = await anext(watch)
        assert event["type"] == "DELETED"
        assert int(event["object"]["metadata"]["resourceVersion"]) > int(version)


async def test_a_selector_turns_changes_into_comings_and_goings() -> None:
    async with api() as call:
        await call("POST", PODS, POD)
        watch = call.watch("/api/v1/pods?watch=true&labelSelector=app%3Dweb")
        assert (await anext(watch))["type"] == "ADDED"
        for label in ("other", "web"):
            patch = {"metadata": {"labels": {"app": label}}}
            await call("PATCH", f"{PODS}/p", patch, "merge-patch+json")
        assert (await anext(watch))["type"] == "DELETED"
        assert (await anext(watch))["type"] == "ADDED"


async def test_initial_events_and_bookmarks() -> None:
    async with api(bookmark_s=0.1) as call:
        await call("POST", PODS, POD)
        query = "watch=true&sendInitialEvents=true&allowWatchBookmarks=true"
        watch = call.watch(f"{PODS}?{query}&resourceVersionMatch=NotOlderThan")
        assert (await anext(watch))["type"] == "ADDED"
        ended = await anext(watch)
        assert ended["type"] == "BOOKMARK"
        assert ended["object"]["metadata"]["annotations"] == {"k8s.io/initial-events-end": "true"}
        later = await anext(watch)
        assert later["type"] == "BOOKMARK"
        assert "annotations" not in later["object"]["metadata"]
        assert (await call("GET", f"{PODS}?{query}"))[0] == 422
        call.served.server.faults.watch_list = False
        path = f"{PODS}?{query}&resourceVersionMatch=NotOlderThan"
        assert (await call("GET", path))[0] == 422


async def test_versions_that_the_log_has_forgotten_are_gone() -> None:
    async with api() as call:
        await call("POST", PODS, POD)
        call.served.cluster.api.served.collections["Pod"].compact(0)
        code, status = await call("GET", f"{PODS}?watch=true&resourceVersion=1")
        assert (code, status["reason"]) == (410, "Expired")
        code, _ = await call("GET", f"{PODS}?watch=true&resourceVersion=99999999")
        assert code == 504


async def test_finalizers_hold_an_object_until_they_are_gone() -> None:
    async with api() as call:
        pod = pod_with(finalizers=["a/b"])
        await call("POST", PODS, pod)
        _, marked = await call("DELETE", f"{PODS}/p", {"gracePeriodSeconds": 0})
        assert marked["metadata"]["deletionGracePeriodSeconds"] == 0
        patch = {"metadata": {"finalizers": None}}
        await call("PATCH", f"{PODS}/p", patch, "merge-patch+json")
        assert (await call("GET", f"{PODS}/p"))[0] == 404


async def test_what_a_deleted_object_owned_goes_with_it() -> None:
    async with api(generate={"zones": 1, "nodesPerZone": 2, "podsPerNode": 6}) as call:
        _, sets = await call("GET", "/apis/apps/v1/replicasets")
        owner = sets["items"][0]["metadata"]
        cluster = call.served.cluster
        assert cluster.api.store.pods_of(owner["uid"])
        namespace, name = owner["namespace"], owner["name"]
        await call("DELETE", f"/apis/apps/v1/namespaces/{namespace}/replicasets/{name}")
        await until(lambda: not cluster.api.store.pods_of(owner["uid"]))


async def test_a_graceful_delete_waits_for_the_kubelet() -> None:
    async with api(generate={"zones": 1, "nodesPerZone": 1, "podsPerNode": 3}) as call:
        _, pods = await call("GET", "/api/v1/pods")
        meta = pods["items"][0]["metadata"]
        path = f"/api/v1/namespaces/{meta['namespace']}/pods/{meta['name']}"
        _, going = await call("DELETE", path)
        assert going["metadata"]["deletionTimestamp"]
        assert (await call("GET", path))[0] == 200
        while True:
            code, present = await call("GET", path)
            if code == 404 or present["metadata"]["uid"] != meta["uid"]:
                break
            await asyncio.sleep(0.05)


BUDGET = {
    "metadata": {"name": "b", "namespace": "default"},
    "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "web"}}},
}


async def running_pods(call: Api, *names: str) -> None:
    """Pods with the label of `BUDGET` that run on a node."""
    for name in names:
        await call("POST", PODS, pod_with(name=name))
    store = call.served.cluster.api.store
    await until(lambda: all(store.pods[("default", name)].ready() for name in names))


async def test_evictions_spend_the_budget() -> None:
    async with api(generate={"zones": 1, "nodesPerZone": 2, "podsPerNode": 1}) as call:
        await running_pods(call, "p1", "p2")
        await call("POST", "/apis/policy/v1/namespaces/default/poddisruptionbudgets", BUDGET)
        store = call.served.cluster.api.store
        await until(lambda: _allowed(store) == 1)
        eviction = {"metadata": {"name": "p1"}}
        dry = await call("POST", f"{PODS}/p1/eviction?dryRun=All", eviction)
        assert dry[0] == 201
        assert _allowed(store) == 1
        assert (await call("POST", f"{PODS}/p1/eviction", eviction))[0] == 201
        assert _allowed(store) == 0
        code, status = await call("POST", f"{PODS}/p2/eviction", {"metadata": {"name": "p2"}})
        assert (code, status["reason"]) == (429, "TooManyRequests")
        assert status["details"]["causes"][0]["reason"] == "DisruptionBudget"
        target = store.pods[("default", "p1")].status.condition("DisruptionTarget")
        assert target is not None
        assert target.reason == "EvictionByEvictionAPI"


async def test_two_budgets_over_one_pod_are_an_error_without_a_reason() -> None:
    async with api(generate={"zones": 1, "nodesPerZone": 1, "podsPerNode": 1}) as call:
        await running_pods(call, "p1")
        path = "/apis/policy/v1/namespaces/default/poddisruptionbudgets"
        for name in ("b", "c"):
            await call("POST", path, {**BUDGET, "metadata": {"name": name}})
        code, status = await call("POST", f"{PODS}/p1/eviction", {"metadata": {"name": "p1"}})
        assert code == 500
        assert "reason" not in status
        assert "more than one PodDisruptionBudget" in status["message"]


def _allowed(store: Any) -> int:
    budget = store.get("PodDisruptionBudget", ("default", "b"))
    return -1 if budget is None else int(budget.status.disruptions_allowed)


@pytest.mark.parametrize("kind", ["SelfSubjectAccessReview", "SelfSubjectReview"])
async def test_reviews(kind: str) -> None:
    async with api() as call:
        call.served.server.faults.forbid.add("pods")
        group = "authorization" if "Access" in kind else "authentication"
        path = f"/apis/{group}.k8s.io/v1/{kind.lower()}s"
        answers = []
        for resource in ("pods", "nodes"):
            spec = {"resourceAttributes": {"verb": "list", "resource": resource}}
            code, answer = await call("POST", path, {"kind": kind, "spec": spec})
            assert code == 201
            answers.append(answer["status"].get("allowed"))
        assert answers == ([False, True] if "Access" in kind else [None, None])


async def test_an_annotation_reboots_a_machine_once() -> None:
    async with api(generate={"zones": 1, "nodesPerZone": 1, "podsPerNode": 0}) as call:
        word = {"metadata": {"annotations": {REBOOT: "100ms,kubeletVersion=v9.9.9"}}}
        code, node = await call("PATCH", "/api/v1/nodes/a1", word, "merge-patch+json")
        assert (code, node["metadata"]["annotations"][REBOOT][:5]) == (200, "100ms")
        nodes = call.served.cluster.api.store.nodes
        await until(lambda: nodes["a1"].status.node_info.kubelet_version == "v9.9.9")
        _, node = await call("GET", "/api/v1/nodes/a1")
        assert node["status"]["nodeInfo"]["kubeletVersion"] == "v9.9.9"
        assert REBOOT not in node["metadata"].get("annotations", {})
