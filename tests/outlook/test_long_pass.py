"""What is said of a zone whose loss takes the monitor pass longer than a present is played."""

from typing import Any

import pytest

from kubectl_nodelife.outlook import foretelling
from tests.drain.build import node, pod
from tests.outlook.asking import Ask

NODES, PODS = 60, 50
SINCE = "2026-01-01T00:59:40Z"
POSTED = {"conditions": [{"type": "Ready", "status": "True", "lastHeartbeatTime": SINCE}]}
CLUSTER: list[Any] = [
    *(node(f"a{i}", lease=SINCE, status=POSTED) for i in range(NODES)),
    *(pod(f"p{i}-{j}", f"a{i}") for i in range(NODES) for j in range(PODS)),
    *(node(f"b{i}", zone="b") for i in range(3)),
]
SLOW = ("--profile", "v1.36", "--set", "kube-api-qps=3", "--set", "kube-api-burst=1")


def zone_a(ask: Ask, *words: str, cluster: list[Any] = CLUSTER) -> dict[str, Any]:
    """Zone a as a status has it."""
    zones = ask(cluster, "status", "-o", "json", *words).document["zones"]
    found: dict[str, Any] = next(zone for zone in zones if zone["name"] == "a")
    return found


@pytest.mark.parametrize("silent", [NODES, NODES - 5], ids=["dark", "partly"])
def test_the_reckoned_end_is_that_of_a_longer_play(
    ask: Ask, monkeypatch: pytest.MonkeyPatch, silent: int
) -> None:
    cluster = [*CLUSTER[:silent], *(node(f"a{i}") for i in range(silent, NODES)), *CLUSTER[NODES:]]
    reckoned = zone_a(ask, *SLOW, cluster=cluster)
    monkeypatch.setattr(foretelling, "HORIZON_NS", 3600 * 10**9)
    played = zone_a(ask, *SLOW, cluster=cluster)
    (said,), (really,) = reckoned["foretold"], played["foretold"][:1]
    assert really["earliestSeconds"] > 900
    assert (said["state"], said["rate"]) == (really["state"], really["rate"])
    for end in ("earliestSeconds", "latestSeconds"):
        assert said[end] == pytest.approx(really[end], rel=0.05)
    assert reckoned["passTakes"] == played["passTakes"]
    assert reckoned["silent"] == silent


def test_what_is_tainted_until_then_is_what_the_play_taints(
    ask: Ask, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At one node each 200 s some of them, as a zone that counts as Normal has them."""
    rate = ("--set", "node-eviction-rate=0.005")
    said = zone_a(ask, *SLOW, *rate)["passTakes"]
    counts: list[int] = []

    def counting(branch: Any, asked: Any) -> Any:
        foretold = read(branch, asked)
        (end,) = [s.low_ns for s in foretold.zones[":\0:a"].states[:1]]
        counts.append(sum(at_ns <= end for at_ns in foretold.zones[":\0:a"].taints_ns))
        return foretold

    read = foretelling._read
    monkeypatch.setattr(foretelling, "HORIZON_NS", 3600 * 10**9)
    monkeypatch.setattr(foretelling, "_read", counting)
    zone_a(ask, *SLOW, *rate)
    assert counts[0] > 3
    assert said["taintedBefore"] == pytest.approx(counts[0], abs=1)


def test_every_verb_says_it(ask: Ask) -> None:
    words = (
        "60 of 60 silent: the pass that finds them lost takes about 19m, until it ends the zone "
        "counts as Normal and up to 60 nodes may be tainted; then FullDisruption (0.1/s) in 20m"
    )
    assert words in ask(CLUSTER, "status", *SLOW).out.partition("\n")[0]
    assert words in ask(CLUSTER, "explain", "zone", "a", *SLOW).out


def test_where_the_pace_is_not_seen_the_end_is_a_range(ask: Ask) -> None:
    many = [pod(f"q{i}-{j}", f"a{i}") for i in range(NODES) for j in range(280)]
    told = ask([*CLUSTER, *many], "status", "--profile", "v1.36", "-o", "json").document
    zone = next(zone for zone in told["zones"] if zone["name"] == "a")
    takes, (step,) = zone["passTakes"], zone["foretold"]
    assert takes["latestSeconds"] > 900 > takes["earliestSeconds"]
    assert takes["latestSeconds"] == pytest.approx(5 * takes["earliestSeconds"], rel=0.01)
    assert step["earliestSeconds"] == pytest.approx(takes["earliestSeconds"] + 30, abs=15)
    assert step["latestSeconds"] == pytest.approx(takes["latestSeconds"] + 30, abs=15)


def test_what_if_says_how_long_the_brake_takes(ask: Ask) -> None:
    """Of all nodes at once the pass takes as long as audit reckons; of nodes that are lost one
    after another the earlier passes do not count."""
    names = [f"a{i}" for i in range(12)]
    cluster: list[Any] = [*map(node, names), *(node(f"b{i}", zone="b") for i in range(3))]
    cluster += [pod(f"p{name}-{j}", name) for name in names for j in range(20)]
    words = ("--profile", "v1.36", "--set", "kube-api-qps=20", "--until", "10m")
    (zone,) = ask(cluster, "what-if", "lose", "zone", "a", *words, "-o", "json").document["zones"]
    assert zone["passSeconds"] == pytest.approx((12 + 240 + 24 + 34 - 30) / 20, abs=1.5)
    assert zone["taintedBefore"] == 2
    said = ask(cluster, "what-if", "lose", "zone", "a", *words).out
    assert "zone a: the pass that finds them lost takes about 1" in said
    assert "counts as Normal and up to 2 nodes may be tainted; then FullDisruption" in said
    acts = ("lose", "node", "a0", "--and", "lose", "node", *names[1:9], "--at", "3m")
    (zone,) = ask(cluster, "what-if", *acts, *words, "-o", "json").document["zones"]
    assert 5 < zone["passSeconds"] < 15
