"""The fast and the slow play begin after the join of the middle one where that changed nothing:
what is told is what plays that join anew tell, byte for byte."""

import msgspec
import pytest

from kubectl_nodelife.outlook.what_if import question
from tests.what_if.stand import ask, budget, service, workload


@pytest.mark.parametrize(
    "words",
    [
        "lose node a1",
        "lose zone a --for 20m",
        "lose node a1 --at 40s --and drain b1 --force",
        "drain a1 --force",
        "set node-monitor-grace-period=20s --and lose node a1",
    ],
)
def test_plays_after_one_join_are_those_that_join_anew(
    words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    objects = [*workload("web", ["a1", "a2", "b1", "b2"]), *service("web"), *budget("web", 3, 4)]
    joined = msgspec.json.encode(ask(words, objects))
    made: list[bool] = []
    begins = question._Beginning.__init__

    def anew(self: question._Beginning, *args: object, **kwargs: object) -> None:
        begins(self, *args, **kwargs)  # type: ignore[arg-type]
        made.append(self._rests)
        self._rests = False

    monkeypatch.setattr(question._Beginning, "__init__", anew)
    assert msgspec.json.encode(ask(words, objects)) == joined
    assert any(made), "its first tick changed nothing"
