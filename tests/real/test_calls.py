"""Every action's conversation, played against a real API server."""

import json
from collections.abc import Iterator

import pytest

from tests.call_cases import CASES, Case
from tests.played_calls import play_case
from tests.real.control_plane import Api, control_plane


@pytest.fixture(scope="module")
def api() -> Iterator[Api]:
    with control_plane() as plane:
        yield plane.api


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.title)
def test_leaves_what_effect_says(case: Case, api: Api) -> None:
    playing = play_case(case)
    try:
        method, path, body, content_type = next(playing)
        while True:
            code, content = api.exchange(method, path, body, content_type or "application/json")
            method, path, body, content_type = playing.send((code, json.loads(content)))
    except StopIteration:
        return
