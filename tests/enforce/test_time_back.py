"""etcd restored from a backup: a list older than one before it opens the breaker."""

import pytest

from kubectl_nodelife.daemon.enforce.host import JOIN, EnforcingHost
from kubectl_nodelife.engine.actions import ActionNumbers
from kubectl_nodelife.live.news import ListNews


@pytest.mark.parametrize(
    "lists, restored",
    [
        pytest.param([("Pod", "5"), ("Pod", "9")], False, id="forward"),
        pytest.param([("Pod", "9"), ("Pod", "9")], False, id="the-same"),
        pytest.param([("Pod", "9"), ("Pod", "5")], True, id="back"),
        pytest.param([("Pod", "9"), ("Node", "5")], False, id="another-kind-asked-earlier"),
        pytest.param([("Pod", "9"), ("Pod", "")], False, id="not-known"),
    ],
)
def test_time_runs_back(lists: list[tuple[str, str]], restored: bool) -> None:
    said: list[str] = []
    host = EnforcingHost(JOIN, lambda names: None, ActionNumbers())
    host.on_time_back = said.append
    for kind, version in lists:
        host.note(ListNews(kind, [], version=version), 7)
    assert bool(said) is restored
