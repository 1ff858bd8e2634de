"""A 403 opens the breaker only where the API server, asked again, confirms that a right is gone."""

import asyncio

import pytest

from kubectl_nodelife.daemon.enforce.write_gate import ForbiddenCheck
from kubectl_nodelife.engine.actions import DeletePod
from kubectl_nodelife.engine.calls import Answer
from kubectl_nodelife.engine.guard import GO, UPSTREAM, Guard, Hold, WriteConditions
from kubectl_nodelife.errors import NodelifeError, Refused, Unreachable

NOW = 7
DELETE = DeletePod(controller="taint-eviction", because="b", namespace="d", pod="p", pod_uid="u")
DENIED = Answer(403, message="pods is forbidden")
TERMINATING = [{"reason": "NamespaceTerminating"}]


def asked(answer: Answer, word: NodelifeError | None) -> tuple[Guard, int]:
    """What a 403 leads to where the review says this; the guard, and how often it was asked."""
    guard, times = Guard(UPSTREAM), 0

    async def ask() -> None:
        nonlocal times
        times += 1
        if word is not None:
            raise word

    async def run() -> None:
        check = ForbiddenCheck(ask, guard, lambda: NOW)
        check.note(DELETE, answer)
        await asyncio.sleep(0)
        await asyncio.sleep(0)

    asyncio.run(run())
    return guard, times


def test_a_right_that_is_gone_needs_a_person() -> None:
    guard, _ = asked(DENIED, Refused("these rights are missing: delete pods"))
    (breaker,) = guard.breakers.values()
    assert breaker.rule == "forbidden" and not breaker.heals and not breaker.recovery_passes
    assert "these rights are missing: delete pods" in breaker.because
    view = WriteConditions(kill_switch_absent_ns=NOW)
    assert isinstance(guard.admit(DELETE, view, NOW + 10**12), Hold)
    guard.resume()
    assert guard.admit(DELETE, view, NOW) == GO


@pytest.mark.parametrize(
    ("answer", "word", "times"),
    [
        pytest.param(DENIED, None, 1, id="every-right-is-there"),
        pytest.param(DENIED, Unreachable("no answer"), 1, id="nobody-confirms-it"),
        pytest.param(
            Answer(403, message="terminating", causes=TERMINATING),  # type: ignore[arg-type]
            Refused("these rights are missing"),
            0,
            id="admission-says-why",
        ),
        pytest.param(Answer(409), Refused("these rights are missing"), 0, id="another-code"),
        pytest.param(Answer(200), Refused("these rights are missing"), 0, id="it-went-well"),
    ],
)
def test_what_is_not_confirmed_opens_nothing(
    answer: Answer, word: NodelifeError | None, times: int
) -> None:
    guard, count = asked(answer, word)
    assert guard.breakers == {} and count == times
