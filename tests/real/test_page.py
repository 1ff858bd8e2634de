"""The live page in a real Chromium, of a real control plane: a zone goes dark and comes back."""

import asyncio

from tests.daemon.user import user
from tests.loopback import play
from tests.real.control_plane import control_plane
from tests.real.kubelets import Kubelets
from tests.real.page_screens import FLAGS, furnish
from tests.ui.browser import browser, needs_chromium

ZONE_C = "[...document.querySelectorAll('.zone')].at(-1)?.dataset.state"
HAPPENED = "document.querySelector('#happened-list').textContent"


@needs_chromium
def test_a_zone_goes_dark_and_comes_back() -> None:
    manager = [f"--{flag}" for flag in FLAGS]
    with (
        control_plane(controller_manager=manager, scheduler=True) as plane,
        Kubelets(plane.api) as kubelets,
    ):
        furnish(plane, kubelets)

        async def test() -> None:
            async with user(str(plane.kubeconfig)) as one:
                await one.begin(*(f"--set={flag}" for flag in FLAGS))
                await asyncio.sleep(12)  # a grace period has been watched
                async with browser() as window:
                    await window.go((await one.ok("ui", "--no-open")).strip())
                    await window.until(f"return {ZONE_C} === 'Normal'")
                    kubelets.stop("c1", "c2")
                    await window.until(f"return {ZONE_C} === 'FullDisruption'")
                    await window.until(f"return {HAPPENED}.includes('AddTaint')")
                    await window.until(f"return {HAPPENED}.includes('confirmed')")
                    kubelets.start("c1", "c2")
                    await window.until(f"return {ZONE_C} === 'Normal'")
                    await window.until(
                        "return document.querySelector('#summary').innerText"
                        ".includes('6 nodes, none in trouble')"
                    )
                    assert await window.log() == []

        play(test, 400)
