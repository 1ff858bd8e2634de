"""A watch that fails is told to the tripwires, and one that works is not."""

from types import SimpleNamespace

import pytest

from kubectl_nodelife.daemon.enforce.host import EnforcingHost
from kubectl_nodelife.live.news import FAILING, LISTING, WATCHING, KindPhase

NOW = 7


@pytest.mark.parametrize(
    "phase, began, told",
    [
        pytest.param(FAILING, True, [NOW], id="failing"),
        pytest.param(FAILING, False, [], id="before-anything-is-decided"),
        pytest.param(WATCHING, True, [], id="watching"),
        pytest.param(LISTING, True, [], id="listing"),
    ],
)
def test_a_failing_watch_is_trouble(phase: str, began: bool, told: list[int]) -> None:
    said: list[int] = []
    host = EnforcingHost.__new__(EnforcingHost)
    host.tripwires = SimpleNamespace(trouble=said.append)  # type: ignore[assignment]
    host.engine = SimpleNamespace() if began else None  # type: ignore[assignment]
    host.note(KindPhase("Node", phase), NOW)
    assert said == told
