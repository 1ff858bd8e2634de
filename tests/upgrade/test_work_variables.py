"""What `--run` is told of its node: a compromised kubelet cannot point it at another machine."""

from typing import Any

import pytest

from kubectl_nodelife.controllers.upgrade.claims import DrainVerdict
from kubectl_nodelife.engine.actions import StartWork
from kubectl_nodelife.kube.node import NodeAddress
from tests.upgrade.stand import Stand
from tests.upgrade.vector_cases import DRAINING


def reports(address: str, type_: str = "InternalIP") -> dict[str, Any]:
    return {"addresses": (NodeAddress(type=type_, address=address),)}


def cluster(planned: tuple[str, str] | None = None) -> Stand:
    """x at 10.0.0.7 is about to be worked on; y at 10.0.0.8 is none of the run's."""
    s = Stand(nodes=["x"], maxUnavailable=5)
    s.add_nodes("x", "y")
    s.edit("x", spec={"provider_id": "aws:///a/i-7"}, **reports("10.0.0.7"))
    s.edit("y", spec={"provider_id": "aws:///a/i-8"}, **reports("10.0.0.8"))
    if planned is not None:
        s.controller.memory.addresses["uid-x"] = planned
    s.mark("x", DRAINING)
    return s


def started(s: Stand) -> StartWork:
    (found,) = (action for action in s.settle() if isinstance(action, StartWork))
    return found


def test_an_address_and_a_provider_id_of_one_node_alone_are_handed_on() -> None:
    action = started(cluster())
    assert action.env["INTERNAL_IP"] == "10.0.0.7" and action.env["PROVIDER_ID"] == "aws:///a/i-7"
    assert "not given" not in action.because


@pytest.mark.parametrize("type_", ["InternalIP", "ExternalIP", "Hostname"])
@pytest.mark.parametrize("spelled", ["10.0.0.7", "::ffff:10.0.0.7", "::ffff:a00:7"])
def test_an_address_that_another_node_reports_as_well_is_not(type_: str, spelled: str) -> None:
    s = cluster()
    s.edit("y", **reports(spelled, type_))
    action = started(s)
    assert action.env["INTERNAL_IP"] == ""
    assert "INTERNAL_IP is not given: 10.0.0.7 is reported by node y too" in action.because


@pytest.mark.parametrize(
    "address",
    [
        *("127.0.0.1", "::1", "::ffff:127.0.0.1", "0.0.0.0", "169.254.169.254", "fe80::1"),
        *("224.0.0.1", "2001:db8::1%$(reboot)", "-oProxyCommand=reboot", "a.example", "10.0.0.07"),
        *("10.0.0.7 -o ProxyCommand=x", "10.0.0.7\n", "0x7f.1", "2130706433"),
    ],
)
def test_what_is_no_address_of_a_machine_is_not(address: str) -> None:
    s = cluster()
    s.edit("x", **reports(address))
    action = started(s)
    assert action.env["INTERNAL_IP"] == ""
    assert "is no address of a machine on a network" in action.because


def test_an_address_that_changed_since_the_plan_is_not() -> None:
    action = started(cluster(planned=("10.0.0.6", "aws:///a/i-7")))
    assert action.env["INTERNAL_IP"] == "" and action.env["PROVIDER_ID"] == "aws:///a/i-7"
    assert "it was 10.0.0.6 at the plan and is 10.0.0.7 now" in action.because


def test_an_address_that_changed_under_the_leader_is_not() -> None:
    s = cluster()
    s.add_pod("p", "x")
    s.verdicts["x"] = DrainVerdict("slow")
    s.step()
    s.edit("x", **reports("10.0.0.9"))
    del s.verdicts["x"]
    action = started(s)
    assert action.env["INTERNAL_IP"] == ""
    assert "it was 10.0.0.7 at the plan and is 10.0.0.9 now" in action.because


@pytest.mark.parametrize(
    ("provider_id", "because"),
    [
        ("aws:///a/i-8", "is claimed by node y too"),
        ("aws:///a/--endpoint-url=http:", "a shell might obey"),
        ("--no-sign-request", "a shell might obey"),
        ("aws:///a/$(reboot)", "a shell might obey"),
    ],
)
def test_a_provider_id_is_held_to_the_same(provider_id: str, because: str) -> None:
    s = cluster()
    s.edit("x", spec={"provider_id": provider_id})
    action = started(s)
    assert action.env["PROVIDER_ID"] == "" and action.env["INTERNAL_IP"] == "10.0.0.7"
    assert "PROVIDER_ID is not given: " in action.because and because in action.because
