"""The order of claims and the growth of steps: rows 15, 16 and 47 of the decision vectors."""

from kubectl_nodelife.controllers.upgrade import claims


def names(candidates: list[claims.UpgradeCandidate]) -> list[str]:
    return [candidate.name for candidate in candidates]


def test_16_a_ready_node_goes_before_a_slow_one() -> None:
    x, y = (
        claims.UpgradeCandidate("x", "p", "a", claims.DrainVerdict("slow", high_seconds=1.0)),
        claims.UpgradeCandidate("y", "p", "a", claims.DrainVerdict("ready", high_seconds=100.0)),
    )
    assert names(claims.claim_order([x, y])) == ["y", "x"]


def test_in_a_zone_the_cheapest_drain_goes_first() -> None:
    pods = [("default", f"web-{i}") for i in range(9)]
    drains = {
        "d": claims.DrainVerdict("ready", high_seconds=20.0, moving=tuple(pods[:1])),
        "c": claims.DrainVerdict("ready", high_seconds=10.0, moving=tuple(pods)),
        "b": claims.DrainVerdict("ready", high_seconds=10.0, moving=tuple(pods[:2])),
        "a": claims.DrainVerdict("ready", high_seconds=10.0, moving=tuple(pods[:2])),
        "e": claims.DrainVerdict("unknown"),
    }
    nodes = [claims.UpgradeCandidate(name, "p", "a", drain) for name, drain in drains.items()]
    assert names(claims.claim_order(nodes)) == ["a", "b", "c", "d", "e"]


def test_named_canaries_go_first_in_their_order_and_zones_by_name() -> None:
    nodes = [claims.UpgradeCandidate(n, "p", z) for n, z in (("n1", "b"), ("n2", "a"), ("n3", "b"))]
    assert names(claims.claim_order(nodes)) == ["n2", "n1", "n3"]
    assert names(claims.claim_order(nodes, canaries=["n3", "gone", "n1"])) == ["n3", "n1", "n2"]


def steps(canary: int, most: int, max_parallel: int | None = None) -> list[int]:
    widths, step = [], 0
    while claims.is_growing(step, canary, most, max_parallel):
        widths.append(claims.step_width(step, canary))
        step += 1
    return widths


def test_growth_doubles_until_it_meets_the_limit() -> None:
    assert steps(1, 50) == [1, 2, 4, 8, 16, 32]
    assert steps(1, 32) == [1, 2, 4, 8, 16]
    assert steps(1, 50, max_parallel=4) == [1, 2]
    assert steps(3, 50) == [3, 6, 12, 24, 48]


def test_step_0_is_played_however_small_the_limit() -> None:
    assert steps(1, 1) == [1]
    assert steps(5, 2) == [5]


def test_47_what_follows_a_step() -> None:
    assert claims.next_step(3, done=8, failed=0) == 4
    assert claims.next_step(1, done=1, failed=1) == 0, "a failure within the allowance"
    assert claims.next_step(2, done=0, failed=0) == 2, "20: none Done, played again"
