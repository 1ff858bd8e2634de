"""What the page's server answers besides its stream: the documents of the verbs of that name."""

from typing import Any

from tests.daemon.user import silence
from tests.ui.browser import Browser, needs_chromium
from tests.ui.test_page import opened

pytestmark = needs_chromium

FETCH = """
  const headers = { "X-Nodelife-Session": sessionStorage.nodelife };
  return fetch(`/api/v1/${arguments[0]}`, { headers })
    .then((got) => got.json().then((told) => [got.status, told]));
"""
FLAGS = ("--ignore-daemonsets", "--force", "--delete-emptydir-data")
ESTIMATE = ("verdict", "flagsNeeded", "budgets", "webhooks")


async def read(window: Browser, path: str, status: int = 200) -> Any:
    found, told = await window.run(FETCH, path)
    assert found == status, told
    return told


async def test_drains_upgrade_and_replay_are_the_documents_of_the_verbs() -> None:
    async with opened() as page:
        window, one = page.browser, page.user
        assert (await read(window, "drains"))["items"] == []
        told = await read(window, "drains?node=a2&node=b1")
        assert told["kind"] == "DrainPlanList"
        assert [plan["nodes"][0]["name"] for plan in told["items"]] == ["a2", "b1"]
        plan = await one.json("drain-plan", "a2", *FLAGS, "-o", "json")
        assert {k: told["items"][0][k] for k in ESTIMATE} == {k: plan[k] for k in ESTIMATE}
        assert told["items"][0].keys() == plan.keys()
        wrong = await read(window, "drains?node=missing", 422)
        assert "missing" in str(wrong["error"])
        many = "&".join(f"node=a{number}" for number in range(9))
        assert "at most 8" in (await read(window, f"drains?{many}", 422))["error"]["what"]

        status = await one.json("upgrade", "status", "-o", "json")
        told = await read(window, "upgrade")
        same = status.keys() - {"source", "warnings"}
        assert {key: told[key] for key in same} == {key: status[key] for key in same}

        silence(page.served, "a1")
        await window.until(
            "return document.querySelector('#happened-list').textContent.includes('AddTaint')"
        )
        told = await read(window, "replay?since=600000000000")
        assert told["kind"] == "Replay" and told["warnings"] == []
        actions = {(item["action"], item["object"]["name"]) for item in told["items"]}
        assert ("AddTaint", "a1") in actions
        assert {kind for item in told["items"] for kind in item["seenBy"]} >= {"journal", "event"}
        of_pods = await read(window, "replay?since=600000000000&node=a1&all=true")
        assert {item.get("node", "a1") for item in of_pods["items"]} == {"a1"}
        wrong = await read(window, "replay?since=1000000000&until=2000000000", 422)
        assert "longer ago" in wrong["error"]["what"]
