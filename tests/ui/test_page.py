"""The page in a real Chromium, on a daemon that watches the sandbox."""

import asyncio
import contextlib
import os
import signal
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, NamedTuple

import pytest

from kubectl_nodelife.sandbox.tls import Sandbox
from tests.daemon.user import User, silence, user
from tests.loopback import sandbox
from tests.raw_server import Request, raw_server
from tests.ui.browser import DOWN, ENTER, ESCAPE, RIGHT, Browser, browser, needs_chromium

pytestmark = needs_chromium

FLAGS = {
    "node-monitor-period": "500ms",
    "node-monitor-grace-period": "6s",
    "node-eviction-rate": "10",
}
CONTROLLERS = ("node-lifecycle", "taint-eviction", "daemonset", "pod-gc")
GENERATE = {"zones": 3, "nodesPerZone": 4, "podsPerNode": 4, "daemonSets": 1}

WIDE = "return document.documentElement.scrollWidth > innerWidth"
NEXT = "return document.getElementById('next-list').textContent"
"""Not `innerText`: a browser lays out no list that is out of sight."""
ZONES = "return document.querySelectorAll('.zone').length === 3"


class Opened(NamedTuple):
    """A page in a browser, and what it shows."""

    browser: Browser
    user: User
    served: Sandbox
    url: str


@contextlib.asynccontextmanager
async def opened(*flags: str, **given: Any) -> AsyncIterator[Opened]:
    given = {"generate": GENERATE, **given}
    async with (
        sandbox(controllers=CONTROLLERS, flags=FLAGS, **given) as served,
        user(served.kubeconfig) as one,
    ):
        await one.watching(FLAGS)
        url = (await one.ok("ui", "--no-open")).strip()
        async with browser(*flags) as window:
            await window.look(1280, 900)
            await window.go(url)
            await window.until("return document.querySelectorAll('.zone').length > 0")
            yield Opened(window, one, served, url.partition("#")[0])


async def test_a_zone_goes_dark_and_the_wall_shows_it() -> None:
    async with opened() as page:
        await page.browser.until(ZONES)
        state = "return [...document.querySelectorAll('.zone')].map(z => z.dataset.state).join()"
        assert await page.browser.run(state) == "Normal,Normal,Normal"
        assert "12 nodes, none in trouble" in await page.browser.text("#summary")
        for name in ("a1", "a2", "a3", "a4"):
            silence(page.served, name)
        await page.browser.until(f"return ({state[7:]}).startsWith('FullDisruption')")
        await page.browser.until(
            "return document.getElementById('summary').textContent"
            ".includes('4 of 12 nodes in trouble; zone r1/a is in FullDisruption')"
        )
        await page.browser.until(
            "return document.querySelector('#legend').innerText.includes('unreachable 4')"
        )
        await page.browser.until(
            "return document.getElementById('happened').textContent.includes('SetZoneState')"
        )
        await page.browser.until(
            "return document.getElementById('happened').textContent"
            ".includes('unreachable:NoExecute')"
        )
        next_up = await page.browser.until(
            "const t = document.querySelector('#next-list').textContent;"
            "return t.includes('DeletePod') && t"
        )
        assert "a1" in next_up and "in " in next_up
        assert await page.browser.log() == []


async def test_the_token_leaves_the_address_and_works_once() -> None:
    async with opened() as page:
        window = page.browser
        assert await window.run("return location.href") == f"{page.url}#/"
        assert await window.run("return document.cookie") == ""
        assert await window.run("return Object.keys(localStorage).length") == 0
        fetched = "return performance.getEntriesByType('resource').map(e => e.name)"
        names = await window.run(fetched)
        assert names and all(name.startswith(page.url) for name in names)
        await window.run("document.getElementById('leave').click()")
        await window.until("return !document.getElementById('banner').hidden")
        assert "kubectl nodelife ui" in await window.text("#banner")
        await window.go(f"{page.url}#/")
        await window.run("location.reload()")
        await window.until("return !document.getElementById('banner').hidden")


async def test_keys_explain_a_node_and_filter() -> None:
    async with opened() as page:
        window = page.browser
        await window.until(ZONES)
        await window.run("document.getElementById('wall').focus()")
        await window.keys(RIGHT, RIGHT)
        said = await window.text("#announce")
        assert said.startswith("a2: healthy")
        await window.keys(DOWN, ENTER)
        await window.until("return !document.getElementById('panel').hidden")
        name = (await window.text("#panel-title")).removeprefix("Node ")
        assert await window.run("return location.hash") == f"#/node/{name}"
        await window.until("return document.querySelectorAll('#panel-body h3').length > 2")
        command = await window.text("#panel-command")
        assert command == f"kubectl nodelife explain node {name} --context sandbox"
        told = await page.user.ok(*command.split()[2:])
        question = await window.run("return document.querySelector('#panel-body h3').textContent")
        assert question in told
        await window.run("document.getElementById('what-if-form').requestSubmit()")
        await window.until(
            "return document.getElementById('what-if-answer').innerText"
            f".includes('what if node {name} is lost')"
        )
        answer = await window.text("#what-if-answer")
        assert f"kubectl nodelife what-if lose node {name} --context sandbox" in answer
        await window.keys(ESCAPE)
        await window.until("return document.getElementById('panel').hidden")
        await window.keys("/", *"zone=c")
        await window.until(
            "return document.querySelector('#legend').innerText.includes('healthy 4')"
        )
        await window.run("location.hash = '#/node/missing'")
        await window.until(
            "return document.getElementById('panel-body').innerText.includes('missing')"
        )


@pytest.mark.parametrize("scheme", ["light", "dark"])
async def test_it_fits_and_can_be_read_at_every_width(scheme: str) -> None:
    async with opened() as page:
        window = page.browser
        silence(page.served, "a1")
        await window.until(
            "return document.querySelector('#legend').innerText.includes('unreachable 1')"
        )
        await window.run("document.getElementById('table-box').open = true")
        await window.until("return document.querySelectorAll('#rows tr').length === 12")
        first = await window.text("#rows tr")
        assert "a1" in first and "unreachable" in first
        for width in (360, 768, 1280, 1920):
            for forced in ("none", "active"):
                await window.look(width, 900, scheme, **{"forced-colors": forced})
                for at in ("#/", "#/node/a1"):
                    await window.run("location.hash = arguments[0]", at)
                    await window.until("return true")
                    assert not await window.run(WIDE), (width, forced, at)
                if forced == "none":  # else the colours are the system's
                    assert await window.run(CONTRAST) == [], width


CONTRAST = """
  const light = (colour) => {
    const [r, g, b] = colour.match(/[\\d.]+/g).map(Number).map((v) => v / 255)
      .map((v) => (v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const ground = (e) => {
    for (; e; e = e.parentElement) {
      const c = getComputedStyle(e).backgroundColor;
      if (!c.endsWith(', 0)') && c !== 'transparent') return c;
    }
    return 'rgb(255, 255, 255)';
  };
  const poor = [];
  const texts = 'h1, h2, h3, p, li, td, th, label, button, span, code, summary';
  for (const e of document.querySelectorAll(texts)) {
    if (!e.offsetParent || !e.textContent.trim() || e.closest('[aria-hidden], .unseen')) continue;
    const [a, b] = [light(getComputedStyle(e).color), light(ground(e))].sort((x, y) => y - x);
    if ((a + 0.05) / (b + 0.05) < 4.5) poor.push(`${e.tagName} ${e.className} ${e.innerText}`);
  }
  return poor;
"""
"""What has less than the contrast that WCAG's level AA asks of text."""


async def test_a_screen_reader_finds_names_and_roles() -> None:
    async with opened() as page:
        window = page.browser
        await window.run("document.getElementById('table-box').open = true")
        await window.until("return document.querySelectorAll('#rows tr').length === 12")
        tree = await window.devtools("Accessibility.getFullAXTree")
        found = [
            (node["role"]["value"], node.get("name", {}).get("value", ""))
            for node in tree["nodes"]
            if not node["ignored"]
        ]
        roles = {role for role, _ in found}
        assert {"banner", "main", "search", "table", "columnheader", "rowheader"} <= roles
        assert ("heading", "Nodes by zone") in found and ("rowheader", "a1") in found
        named = {"button", "searchbox", "combobox", "group", "region", "link", "progressbar"}
        assert [pair for pair in found if pair[0] in named and not pair[1]] == []
        ids = "return [...document.querySelectorAll('[id]')].map(e => e.id)"
        every = await window.run(ids)
        assert len(every) == len(set(every))
        assert await window.run("return document.documentElement.lang") == "en"
        targets = await window.run(
            "return [...document.querySelectorAll('button, input, select, summary')]"
            ".filter(e => e.offsetParent && e.getBoundingClientRect().height < 24)"
            ".map(e => e.outerHTML)"
        )
        assert targets == []


ODD = "<img src=x onerror=alert(1)>\u202e\u0007"


async def test_text_of_the_cluster_is_never_markup() -> None:
    """Names cannot hold markup; a taint's key, a reason or a message can hold anything."""
    node = {
        "kind": "Node", "apiVersion": "v1",
        "metadata": {"name": "odd", "uid": "odd", "labels": {
            "topology.kubernetes.io/zone": "<b>zone", "topology.kubernetes.io/region": "r1"}},
        "spec": {"taints": [{"key": ODD, "effect": "NoExecute"}]},
        "status": {"conditions": [{"type": "Ready", "status": "True", "reason": "<b>Reason"}]},
    }  # fmt: skip
    async with opened(objects=[node], generate=None) as page:
        window = page.browser
        await window.run("location.hash = '#/node/odd'")
        await window.until(
            "return document.getElementById('panel-body').innerText.includes('<img src=x')"
        )
        shown = await window.text("body")
        assert "\\u202e^G" in shown and "\u202e" not in shown and "\u0007" not in shown
        assert "<b>zone" in await window.text("#wall")
        assert await window.run("return document.querySelectorAll('img, #panel b').length") == 0
        assert await window.log() == []


async def test_an_object_without_any_optional_field_is_shown() -> None:
    """One missing field must not empty the wall; the longest name must not widen it."""
    names = ["bare", "n" * 253]
    nodes = [
        {"kind": "Node", "apiVersion": "v1", "metadata": {"name": name, "uid": name[:9]}}
        for name in names
    ]
    async with opened(objects=nodes) as page:
        window = page.browser
        await window.run("document.getElementById('table-box').open = true")
        await window.until("return document.querySelectorAll('#rows tr').length === 14")
        shown = await window.text("#rows")
        assert all(name in shown for name in names) and "never-posted" in shown
        for width in (360, 1280):
            await window.look(width, 900)
            for name in names:
                await window.run("location.hash = `#/node/${arguments[0]}`", name)
                await window.until("return document.querySelectorAll('#panel-body h3').length > 2")
                assert not await window.run(WIDE), (width, name)
        assert await window.log() == []


async def test_a_daemon_that_is_gone_stops_the_clocks() -> None:
    async with opened() as page:
        window = page.browser
        silence(page.served, "a1")
        await window.until(
            "return document.querySelector('#next-list').textContent.includes('DeletePod')"
        )
        await page.user.ok("daemon", "stop")
        await window.until("return document.body.classList.contains('stale')")
        assert "No news from the daemon" in await window.text("#banner")
        first = await window.run(NEXT)
        await asyncio.sleep(2.5)
        assert await window.run(NEXT) == first


async def stopped(page: Opened) -> None:
    await page.user.ok("ui", "--stop")


async def killed(page: Opened) -> None:
    """The daemon; `ui` starts another one."""
    os.kill((await page.user.health())["pid"], signal.SIGKILL)


async def ended(page: Opened) -> None:
    """The daemon, and another one has begun."""
    await page.user.ok("daemon", "stop")
    await page.user.ok("daemon", "start")


@pytest.mark.parametrize("end", [stopped, killed, ended])
async def test_a_new_session_in_another_tab_brings_the_page_back(
    end: Callable[[Opened], Awaitable[None]],
) -> None:
    async with opened() as page:
        window = page.browser
        first = await window.command("GET", "window")
        await end(page)
        await window.until("return document.body.classList.contains('stale')")
        banner = "return document.getElementById('banner').textContent"
        await window.until(f"return ({banner[7:]}).includes('kubectl nodelife ui')")
        said = await page.user.ok("ui", "--no-open")
        url = said.splitlines()[-1]  # after what it says of a daemon that it starts
        assert url.startswith(page.url)
        made = await window.command("POST", "window/new", type="tab")
        await window.command("POST", "window", handle=made["handle"])
        await window.go(url.replace("/#", "/?wall#"))
        await window.until(ZONES)
        assert await window.run("return location.search + location.hash") == "?wall#/"
        shown = "return document.getElementById('next').offsetParent === null"
        assert await window.run(shown)
        await window.command("POST", "window", handle=first)
        await window.until("return !document.body.classList.contains('stale')")
        assert not await window.run(shown)


async def test_seven_tabs_share_one_stream() -> None:
    async with opened() as page:
        window = page.browser
        for _ in range(6):
            made = await window.command("POST", "window/new", type="tab")
            await window.command("POST", "window", handle=made["handle"])
            await window.go(f"{page.url}#/")
            await window.until("return document.querySelectorAll('.zone').length === 3")
        silence(page.served, "b1")
        for handle in await window.command("GET", "window/handles"):
            await window.command("POST", "window", handle=handle)
            await window.until(
                "return document.querySelector('#legend').innerText.includes('unreachable 1')"
            )
        assert (await page.user.health())["ui"]["readers"] == 1


async def test_a_site_elsewhere_reaches_nothing() -> None:
    """A page of another origin, an image, a form, and a name that was rebound to 127.0.0.1."""

    async def evil(request: Request) -> bool:
        body = b"<title>evil</title><body>"
        await request.reply(body, headers={"Content-Type": "text/html"})
        return True

    async with (
        raw_server() as other,
        opened("--host-resolver-rules=MAP evil.example 127.0.0.1") as page,
    ):
        other.sickness = evil
        window = page.browser
        await window.go(f"{other.url}/")
        tried = await window.run(TRY_ALL, page.url)
        assert set(tried) == {"refused"}, tried
        own = page.url.rpartition(":")[2].strip("/")
        await window.go(f"http://evil.example:{own}/")
        assert "HTTP ERROR 403" in await window.text("body")
        await window.go(f"{other.url}/")
        await window.run("location.href = arguments[0]", f"{page.url}api/v1/status")
        await window.until("return document.body.innerText.includes('403')")
        await window.go(f"{page.url}#/")
        await window.until(ZONES)


TRY_ALL = """
  const url = arguments[0], done = [];
  const asked = (promise) => promise.then(() => done.push('answered'), () => done.push('refused'));
  const loaded = (tag, name, at) => asked(new Promise((yes, no) => {
    const e = document.createElement(tag);
    e.onload = yes; e.onerror = no; e[name] = url + at;
    document.head.append(e);
  }));
  return Promise.all([
    asked(fetch(url + 'api/v1/status', { credentials: 'include' })),
    asked(fetch(url + 'session', { method: 'POST', body: '{}' })),
    loaded('img', 'src', 'icon.svg'),
    loaded('script', 'src', 'main.js'),
    asked(new Promise((yes, no) => {
      const s = new EventSource(url + 'api/v1/stream', { withCredentials: true });
      s.onopen = yes; s.onerror = () => { s.close(); no(); };
    })),
  ]).then(() => done);
"""
