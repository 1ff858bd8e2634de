"""The rows of the preflight, one by one: each refuses in one line that says what to do."""

import asyncio
from collections.abc import Callable
from typing import Any, cast

import pytest

from kubectl_nodelife.daemon.flags import Orders
from kubectl_nodelife.daemon.preflight import (
    ClusterChecks,
    KillSwitch,
    Preflight,
    check_settings,
    check_transport,
    check_words,
)
from kubectl_nodelife.engine.calls import Answer, Get, Request
from kubectl_nodelife.errors import EXIT_REFUSED, NodelifeError, Refused, Unreachable
from kubectl_nodelife.kube.times import SECOND_NS
from kubectl_nodelife.live.kubeconfig import Cluster, User
from kubectl_nodelife.live.manager_role import MAY_NOT, ROLE_PATH
from kubectl_nodelife.live.target import Target
from tests.enforce.test_manager import pod

ALL = ("node-lifecycle", "taint-eviction", "pod-gc", "daemonset")
ORDERS = Orders(controllers=("daemonset",), assume_stopped=("daemonset",))
Answers = Callable[[str, dict[str, Any]], Answer | None]


def target(server: str = "https://10.0.0.1:6443", **cluster: Any) -> Target:
    return Target("c", "", "c", "u", Cluster(server=server, **cluster), User())


class Server:
    """A writer, journal, clock and Lease keeper in one, answering as told."""

    def __init__(self, answers: Answers = lambda path, body: None) -> None:
        self._answers = answers
        self.marks: dict[str, str] = {}
        self.path = "/journal"
        self.known = True
        self.spread_ns = 0
        self.sent: list[tuple[str, str]] = []
        self.clock = self
        self.holder = ""
        self.error = ""
        self.now = 1

    async def send(self, request: Request, kind: str, **_: Any) -> Answer:
        self.sent.append((request.method, request.path))
        answer = self._answers(request.path, request.body)
        if answer is not None:
            return answer
        if request.path.endswith("selfsubjectaccessreviews"):
            return Answer(201, raw={**request.body, "status": {"allowed": True}})
        if request.path.endswith("nodelife-stop"):
            return Answer(404, reason="NotFound")
        return Answer(200, raw={"metadata": {"uid": "u"}, "items": []})

    async def call(self, call: Get, **_: Any) -> Answer:
        return self._answers(f"lease {call.key[1]}", {}) or Answer(404, reason="NotFound")

    def mark(self, name: str, value: str | None = None) -> str:
        if value is not None:
            self.marks[name] = value
        return self.marks.get(name, "")

    async def attempt(self) -> bool:
        return not self.holder

    @property
    def election(self) -> Any:
        return self


def preflight(
    server: Server,
    orders: Orders = ORDERS,
    to: Target | None = None,
    assignments: tuple[str, ...] = (),
) -> None:
    one = cast(Any, server)
    switch = KillSwitch(one, lambda: 1)
    check = Preflight(orders, to or target(), one, one, switch, one, lambda text: None, assignments)
    asyncio.run(check.run())


def test_all_is_well() -> None:
    server = Server()
    preflight(server)
    assert server.marks == {"kube-system-uid": "u"}


def refusal(
    server: Server,
    orders: Orders = ORDERS,
    to: Target | None = None,
    assignments: tuple[str, ...] = (),
) -> str:
    with pytest.raises(Refused) as caught:
        preflight(server, orders, to, assignments)
    assert caught.value.exit_code == EXIT_REFUSED and caught.value.remedy
    assert "\n" not in str(caught.value)
    writes = {path for method, path in server.sent if method != "GET"}
    assert all(path.endswith("selfsubjectaccessreviews") for path in writes), "nothing is written"
    return str(caught.value)


def deny(path: str, body: dict[str, Any]) -> Answer | None:
    if not path.endswith("selfsubjectaccessreviews"):
        return None
    asked = body["spec"]["resourceAttributes"]
    allowed = (asked["resource"], asked["verb"]) != ("pods", "delete")
    return Answer(201, raw={**body, "status": {"allowed": allowed}})


def there(path: str, body: dict[str, Any]) -> Answer | None:
    return Answer(200, raw={}) if path.endswith("nodelife-stop") else None


def hidden(path: str, body: dict[str, Any]) -> Answer | None:
    return Answer(403, message="no") if path.endswith("nodelife-stop") else None


def elsewhere(path: str, body: dict[str, Any]) -> Answer | None:
    if "leases?" not in path:
        return None
    lease = {"metadata": {"namespace": "other"}, "spec": {"holderIdentity": "laptop"}}
    return Answer(200, raw={"items": [lease]})


@pytest.mark.parametrize(
    "answers, said",
    [
        pytest.param(deny, "delete pods; kubectl nodelife rbac --mode enforce", id="permission"),
        pytest.param(there, "stops all writers", id="kill-switch"),
        pytest.param(hidden, "counts as its being there", id="kill-switch-unreadable"),
        pytest.param(elsewhere, "laptop enforces", id="lease-in-another-namespace"),
    ],
)
def test_refused(answers: Answers, said: str) -> None:
    assert said in refusal(Server(answers))


def test_another_cluster_behind_the_same_address() -> None:
    server = Server()
    server.marks["kube-system-uid"] = "other"
    assert "another cluster is behind this address" in refusal(server)


def test_no_date_in_answers() -> None:
    server = Server()
    server.known = False
    assert "no Date" in refusal(server)


def test_an_old_server() -> None:
    def old(path: str, body: dict[str, Any]) -> Answer | None:
        return Answer(404, reason="NotFound") if path == "/apis/policy/v1" else None

    assert "policy/v1 is not there" in refusal(Server(old))


def test_clocks_of_api_servers_ten_seconds_apart() -> None:
    server = Server()
    server.spread_ns = 10 * SECOND_NS
    assert "differ by 10s about the time" in refusal(server)
    server.spread_ns = SECOND_NS
    preflight(server)


def test_set_against_what_the_manager_runs_with() -> None:
    def shown(path: str, body: dict[str, Any]) -> Answer | None:
        flags = pod("--node-monitor-grace-period=50s")
        return Answer(200, raw={"items": [flags]}) if path.endswith("/pods") else None

    said = refusal(Server(shown), assignments=("node-monitor-grace-period=40s",))
    assert "--set node-monitor-grace-period=40s, but it runs with 50s" in said
    preflight(Server(shown), assignments=("node-monitor-grace-period=50s",))


def test_a_server_that_does_not_answer_is_unreachable() -> None:
    with pytest.raises(Unreachable):
        preflight(Server(lambda path, body: Answer(0, message="refused")))


@pytest.mark.parametrize("renewed", [True, False], ids=["it-runs", "it-ended"])
def test_a_controller_manager(renewed: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    async def at_once(seconds: float) -> None:
        assert seconds == 17.0, "its own leaseDurationSeconds and two more"

    monkeypatch.setattr("kubectl_nodelife.daemon.preflight.asyncio.sleep", at_once)
    seen: list[int] = []

    def manager(path: str, body: dict[str, Any]) -> Answer | None:
        if path != "lease kube-controller-manager":
            return None
        seen.append(1)
        stamp = len(seen) if renewed else 0
        spec = {"holderIdentity": "m", "leaseDurationSeconds": 15, "renewTime": stamp}
        return Answer(200, raw={"spec": spec})

    orders = ORDERS._replace(assume_stopped=())
    if not renewed:
        preflight(Server(manager), orders)
        return
    assert "a kube-controller-manager runs (m)" in refusal(Server(manager), orders)
    preflight(Server(manager))  # --assume-stopped is the user's word


@pytest.mark.parametrize("code", [0, 403, 500, 502])
def test_a_managers_lease_that_cannot_be_read_proves_nothing(code: int) -> None:
    def hidden(path: str, body: dict[str, Any]) -> Answer | None:
        return Answer(code, message="no") if path == "lease kube-controller-manager" else None

    orders = ORDERS._replace(assume_stopped=())
    assert "whether one runs is unknown: no" in refusal(Server(hidden), orders)
    preflight(Server(hidden))  # --assume-stopped is the user's word


def test_a_manager_whose_flags_show_that_it_does_not_run_the_controller(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def at_once(seconds: float) -> None:
        pass

    monkeypatch.setattr("kubectl_nodelife.daemon.preflight.asyncio.sleep", at_once)
    renewals = iter(range(100))

    def manager(path: str, body: dict[str, Any]) -> Answer | None:
        if path == "lease kube-controller-manager":
            spec = {"holderIdentity": "cp-1_x", "renewTime": next(renewals)}
            return Answer(200, raw={"spec": spec})
        off = pod("--controllers=*,-daemonset-controller")
        return Answer(200, raw={"items": [off]}) if path.endswith("/pods") else None

    preflight(Server(manager), ORDERS._replace(assume_stopped=()))
    both = Orders(controllers=("daemonset", "pod-gc"))
    assert "--assume-stopped=pod-gc" in refusal(Server(manager), both)


@pytest.mark.parametrize(
    "to, orders, refused",
    [
        pytest.param(target(), ORDERS, False, id="https"),
        pytest.param(target("http://10.0.0.1"), ORDERS, True, id="http"),
        pytest.param(target("http://127.0.0.1"), ORDERS, True, id="http-to-loopback-unsaid"),
        pytest.param(
            target("http://127.0.0.1"), ORDERS._replace(insecure=True), False, id="http-loopback"
        ),
        pytest.param(
            target("http://10.0.0.1"), ORDERS._replace(insecure=True), True, id="http-elsewhere"
        ),
        pytest.param(target(insecure_skip_tls_verify=True), ORDERS, True, id="unverified"),
        pytest.param(
            target("https://localhost:6443", insecure_skip_tls_verify=True),
            ORDERS,
            False,
            id="unverified-loopback",
        ),
    ],
)
def test_transport(to: Target, orders: Orders, refused: bool) -> None:
    try:
        check_transport(to, lambda text: None, insecure=orders.insecure)
    except NodelifeError as error:
        assert refused and isinstance(error, Refused) and error.remedy
    else:
        assert not refused


def test_restart_needs_the_word_for_every_controller() -> None:
    orders = Orders(controllers=ALL, assume_stopped=ALL[:3], begin="restart")
    with pytest.raises(Refused, match="restart") as caught:
        check_words(orders)
    assert "--assume-stopped=daemonset" in caught.value.remedy
    check_words(orders._replace(assume_stopped=ALL))
    check_words(orders._replace(begin="join"))


def test_settings_that_contradict_what_runs() -> None:
    with pytest.raises(Refused):
        check_settings(["--set node-monitor-period=1s, but it runs with 5s"])
    check_settings(["the profile is a guess"])


def test_the_lease_cannot_be_had(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kubectl_nodelife.daemon.preflight._LEASE_WAIT_S", -1.0)

    class NoLease(Server):
        async def attempt(self) -> bool:
            return False

    missing, taken = NoLease(), NoLease()
    missing.error = 'namespaces "x" not found'
    assert 'it cannot be had: namespaces "x" not found' in refusal(missing)
    taken.holder = "laptop"
    assert "laptop holds it" in refusal(taken)


def test_one_that_waits_begins_without_the_lease_and_not_beside_another_writer() -> None:
    said: list[str] = []
    server = Server()
    server.holder = "the first replica"
    one = cast(Any, server)
    orders = Orders(controllers=ORDERS.controllers, assume_stopped=ORDERS.controllers, wait=True)
    switch = KillSwitch(one, lambda: 1)
    asyncio.run(Preflight(orders, target(), one, one, switch, one, said.append).run())
    assert [word for word in said if "the first replica holds it" in word]
    server._answers = elsewhere
    assert "laptop enforces" in refusal(server, orders)


def test_a_lease_is_not_taken_while_another_namespace_has_a_holder() -> None:
    server = Server()
    one = cast(Any, server)
    checks = ClusterChecks(target(), one, one, KillSwitch(one, lambda: 1))
    assert asyncio.run(checks.why_not_take("nodelife")) == ""
    server._answers = elsewhere
    assert "laptop enforces" in asyncio.run(checks.why_not_take("nodelife"))
    assert asyncio.run(checks.why_not_take("other")) == ""


@pytest.mark.parametrize(
    ("version", "verbs", "warned"),
    [
        ("v1.37.2", ["list", "watch"], True),
        ("v1.37.2", ["get", "list", "watch"], False),
        ("v1.36.3", ["list", "watch"], False),
    ],
)
def test_a_manager_that_may_not_read_leases_is_told(
    version: str, verbs: list[str], warned: bool
) -> None:
    rule = {"apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "verbs": verbs}

    def answers(path: str, body: dict[str, Any]) -> Answer | None:
        if path == "/version":
            return Answer(200, raw={"gitVersion": version})
        return Answer(200, raw={"rules": [rule]}) if path == ROLE_PATH else None

    server, said = cast(Any, Server(answers)), list[str]()
    switch = KillSwitch(server, lambda: 1)
    asyncio.run(Preflight(ORDERS, target(), server, server, switch, server, said.append).run())
    assert any(text.startswith(MAY_NOT) for text in said) == warned
