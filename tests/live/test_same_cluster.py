"""Which cluster is behind the address is confirmed before anything of it is told."""

import pytest

from tests.live.test_source import agrees, change, following, watching
from tests.loopback import sandbox, until


@pytest.mark.parametrize("how", ["listed anew", "watched on"])
async def test_another_cluster_behind_the_address_is_told_before_anything_of_it(how: str) -> None:
    async with sandbox() as served, following(served, "Node") as seen:
        await until(watching(seen, "Node"))
        collection = served.cluster.api.served.collections["Namespace"]
        document = collection.entries[("", "kube-system")].document()
        own = document["metadata"]["uid"]
        for uid in ("11111111-2222-3333-4444-555555555555", own):
            document["metadata"]["uid"] = uid
            served.cluster.api.write(collection.resource, document)
            seen.other_clusters.clear()
            if how == "listed anew":
                seen.source.relist(["Node"])
            else:
                served.server.faults.cut_watches = 1
                change(served, cut=uid[0])
            await until(lambda: seen.other_clusters)
            because = seen.other_clusters[-1].because
            assert because == "" if uid == own else f"has uid {uid}, not {own}" in because
            await until(watching(seen, "Node"))


async def test_a_cluster_that_may_not_be_asked_who_it_is_is_believed() -> None:
    async with sandbox() as served:
        served.server.faults.forbid.add("namespaces")
        async with following(served, "Node") as seen:
            await until(watching(seen, "Node"))
            await until(lambda: agrees(seen, served))
