"""Profiles: how a release is written, and which behaviours it has."""

import pytest

from kubectl_nodelife.engine.settings import NEWEST, SWITCHES, Profile, parse_profile


@pytest.mark.parametrize(
    ("text", "minor"),
    [
        ("v1.16", 16),
        ("1.29", 29),
        ("v1.36.3", 36),
        ("v1.31.5+k3s1", 31),
        ("v1.30.2-gke.1587003", 30),
        (" v1.11 ", 11),
        ("v1.40", 40),
    ],
)
def test_a_release_is_read_in_all_its_forms(text: str, minor: int) -> None:
    assert parse_profile(text) == Profile(minor)
    assert parse_profile(text).name == f"v1.{minor}"


def test_current_is_the_newest() -> None:
    assert parse_profile("current") == parse_profile("newest") == parse_profile(NEWEST)


@pytest.mark.parametrize("text", ["", "v1", "1", "v2.1", "v1.10", "v1.x", "v1.36x", "latest"])
def test_anything_else_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="unknown profile"):
        parse_profile(text)


@pytest.mark.parametrize("switch", sorted(SWITCHES))
def test_a_switch_holds_from_its_first_release_to_its_last(switch: str) -> None:
    since, until = SWITCHES[switch]
    releases = range(16, 45)
    assert [m for m in releases if Profile(m).has(switch)] == [
        m for m in releases if since <= m and (until is None or m < until)
    ]


def test_releases_before_the_described_ones_behave_as_the_oldest_of_these() -> None:
    for switch in SWITCHES:
        assert Profile(11).has(switch) == Profile(16).has(switch)


def test_an_unknown_switch_is_a_bug() -> None:
    with pytest.raises(KeyError):
        Profile(36).has("no_such_behaviour")
