"""Every action's conversation, played against the sandbox."""

import aiohttp
import pytest

from tests.call_cases import CASES, Case
from tests.loopback import sandbox
from tests.played_calls import play_case
from tests.sandbox.test_api import Api


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.title)
async def test_leaves_what_effect_says(case: Case) -> None:
    async with sandbox(generate=None) as served, aiohttp.ClientSession() as session:
        call = Api(served, session)
        playing = play_case(case)
        try:
            method, path, body, content_type = next(playing)
            while True:
                headers = {
                    "Authorization": f"Bearer {served.token}",
                    "Content-Type": content_type or "application/json",
                }
                async with call.session.request(
                    method, served.url + path, data=body, headers=headers, ssl=False
                ) as response:
                    answer = (response.status, await response.json())
                method, path, body, content_type = playing.send(answer)
        except StopIteration:
            return
