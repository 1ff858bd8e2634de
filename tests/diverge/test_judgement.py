"""Who does nothing, which settings are likely, who else was there, and the sentence on top."""

from typing import Any, NamedTuple

import pytest
from msgspec.structs import replace

from kubectl_nodelife.outlook.diverge.observations import (
    CORDONED,
    DRAINED,
    REMOVED,
    TAINTED,
    UNTAINTED,
    LeaseObservation,
    ObservedWrite,
    WriteAuthor,
)
from tests.diverge.rows import (
    HELD,
    UNREACHABLE,
    UNREADABLE,
    at,
    judged,
    kinds,
    lost,
    record,
    span,
    tainted,
    write,
)

LOST = write(1, 0)
EVICTION = (
    write(1, 0, came=1),
    write(2, 0, "AddTaint", came=1, cause=1),
    write(3, 10, "DeletePod", pod="p", cause=2),
)


def test_a_healthy_cluster_is_quiet() -> None:
    made = judged(100)
    assert (made.verdict, made.because) == ("agrees", "nothing differs; no write was due")
    made = judged(100, write(1, 0, came=3), lost(3, 42), on_time=5)
    assert made.because == "the controllers do what our copy does: 6 writes came when due"


def test_a_lease_that_nobody_renews_tells_at_once() -> None:
    made = judged(200, LOST, write(2, 0, "AddTaint", cause=1), stale_s=195, last_write_ns=at(2))
    assert kinds(made) == ["stalled", "missing"]
    assert made.because == (
        "kube-controller-manager has made no write for 3m18s while 2 were due: it is stopped or "
        "has lost its lease (not renewed for 3m15s, held by cm-1) (and 1 more)"
    )
    assert made.findings[0].sure == "certain"


def test_a_stale_lease_is_told_although_nothing_is_due() -> None:
    made = judged(100, stale_s=30)
    assert (made.verdict, kinds(made)) == ("differs", ["stalled"])
    assert made.because.endswith("nothing is due")


def test_a_lease_that_writes_contradict_tells_nothing() -> None:
    assert kinds(judged(100, stale_s=60, last_write_ns=at(90))) == []


def test_without_the_lease_silence_tells() -> None:
    assert kinds(judged(39, LOST, lease=UNREADABLE)) == ["missing"]  # or a longer grace period
    made = judged(60, LOST, lease=UNREADABLE)
    assert kinds(made) == ["stalled", "missing"]
    assert made.because.endswith(
        "it is stopped or has lost its lease, or node-lifecycle alone is disabled or stuck "
        "(its Lease gives no answer: it may not be read) (and 1 more)"
    )
    assert made.findings[0].sure == "likely"
    assert kinds(judged(20, LOST, lease=UNREADABLE, last_write_ns=at(5))) == ["missing"]


def test_one_controller_that_does_nothing_while_the_lease_is_renewed() -> None:
    assert kinds(judged(39, LOST)) == ["missing"]  # it may be a longer grace period
    made = judged(60, LOST)
    assert kinds(made) == ["disabled", "missing"]
    assert made.because.startswith(
        "node-lifecycle has made no write for 1m0s while 1 was due, but kube-controller-manager "
        "runs (its lease is renewed by cm-1): node-lifecycle is disabled "
        "(--controllers=-node-lifecycle-controller) or stuck"
    )


def test_taint_eviction_alone_is_disabled() -> None:
    made = judged(100, *EVICTION)
    assert kinds(made) == ["disabled", "missing"]
    assert made.findings[0].name == "taint-eviction"
    assert "--controllers=-taint-eviction-controller" in made.because


@pytest.mark.parametrize("lease", [HELD, UNREADABLE])
def test_taints_that_a_lower_rate_holds_back_accuse_nobody(lease: LeaseObservation) -> None:
    """They are missing by the rate that is assumed, and nothing else was due since."""
    lost_one = write(1, 0, came=1)
    waiting = write(2, 10, "AddTaint", cause=1)
    for last_s in (1, 11):
        seen = {"last_write_ns": at(last_s), "last_writes": {"node-lifecycle": at(last_s)}}
        assert kinds(judged(300, lost_one, waiting, lease=lease, **seen)) == ["missing"]


def test_nothing_is_judged_while_it_is_cold() -> None:
    made = judged(100, LOST, span(-10, None))
    assert made.verdict == "not-evaluated"
    assert made.because == "nothing was evaluated: warming up: it has only begun"
    assert made.not_evaluated == ("nothing is judged now: warming up: it has only begun",)
    assert judged(100, evaluated=()).verdict == "not-evaluated"


class Grace(NamedTuple):
    """Losses (instant, silence), and what is guessed: (value in seconds, sure), or None."""

    about: str
    losses: tuple[tuple[float, float | None], ...]
    likely: tuple[float, str] | None
    more: dict[str, Any] = {}


CHANGED = {"leaders": ((at(85), "cm-2"),)}
GRACES = (
    Grace("as assumed", ((100, 41.0), (200, 44.8)), None),
    Grace("as assumed, in a slow pass", ((100, 46.9),), None),
    Grace("shorter, once", ((100, 21.0),), (20, "likely")),
    Grace("shorter, three times", ((100, 31.0), (200, 33.0), (300, 34.7)), (30, "likely")),
    Grace("longer, once", ((100, 52.4),), (50, "possible")),
    Grace("longer, three times", ((100, 50.4), (200, 52.0), (300, 49.9)), (50, "likely")),
    Grace("longer, a zone in one pass", ((100, 52.4), (100.2, 52.0)), (50, "possible")),
    Grace("a minute", ((100, 61.1), (200, 64.0)), (60, "likely")),
    Grace("one as assumed and one late", ((100, 42.0), (200, 75.0)), None),
    Grace("one early and one late", ((100, 20.0), (200, 75.0)), None),
    Grace("late, under a new leader", ((100, 75.0),), None, CHANGED),
    Grace("early, under a new leader", ((100, 21.0),), (20, "likely"), CHANGED),
    Grace("late, and the lease cannot be read", ((100, 52.4),), None, {"lease": UNREADABLE}),
    Grace(
        "late twice, lease unreadable",
        ((100, 52.4), (200, 51.0)),
        (50, "possible"),
        {"lease": UNREADABLE},
    ),
    Grace("the silence was not watched", ((100, None),), None),
)


@pytest.mark.parametrize("row", GRACES, ids=lambda row: row.about)
def test_the_grace_period_from_silences(row: Grace) -> None:
    losses = [lost(seen, silent, f"n{n}") for n, (seen, silent) in enumerate(row.losses)]
    made = judged(400, *losses, **row.more)
    found = [f for f in made.findings if f.kind == "settings"]
    if row.likely is None:
        assert found == []
        return
    assert [(g.likely / 1e9, g.sure) for g in made.guesses if not g.fits] == [row.likely]
    assert made.verdict == "differs"


def test_a_guess_says_what_it_stands_on() -> None:
    made = judged(400, lost(100, 50.4), lost(200, 52.0, "n2"), lost(300, 49.9, "n3"))
    assert made.because == (
        "node-monitor-grace-period is likely 50s (we assume 40s): "
        "3 times 49.9s to 52.0s after the last sign of life"
    )


def test_silences_over_a_break_tell_nothing() -> None:
    assert kinds(judged(400, lost(100, 21), span(85, 90, "no working watch of Node"))) == []


def test_silences_while_it_was_cold_but_in_sight_tell() -> None:
    cold = replace(span(85, 90), in_sight=True)
    assert kinds(judged(400, lost(100, 21), cold)) == ["settings"]


def test_a_longer_grace_period_makes_nothing_late() -> None:
    losses = (lost(50.4, 50.4), lost(152.0, 52.0, "n2"))
    late = (write(1, 40, came=50.4), write(2, 140, came=152, on="n2"))
    assert kinds(judged(200, *late)) == ["late", "late"]
    assert kinds(judged(200, *losses, *late)) == ["settings"]


def passes(*times: float) -> list[ObservedWrite]:
    return [lost(t, None, f"n{n}") for n, t in enumerate(times)]


@pytest.mark.parametrize(
    ("times", "likely"),
    [
        ((0, 5.02, 15.03, 35.1, 50.1), None),
        ((0, 5.02, 15.03), None),
        ((0, 2.02, 8.03, 12.1, 26.1), 2),
        ((0, 3.02, 12.03, 27.1, 33.1, 36.1, 48.1), 3),
        ((0, 7.02, 21.03, 28.1, 49.1), 7),
        ((0, 1.9, 6.5, 12.2, 16.9), None),
    ],
)
def test_the_period_from_distances_of_passes(times: tuple[float, ...], likely: int | None) -> None:
    guesses = [g for g in judged(100, *passes(*times)).guesses if g.flag == "node-monitor-period"]
    if likely == 7:
        assert guesses == []  # nobody sets seven: no value that somebody would write fits
        return
    assert [g.likely / 1e9 for g in guesses] == ([likely] if likely else [])


@pytest.mark.parametrize(
    ("times", "rate", "likely"),
    [
        ((0, 10.05, 20.1), 0.1, None),
        ((0, 10.05), 0.5, None),
        ((0, 2.0, 4.1, 6.1), 0.1, 0.5),
        ((0, 50.1, 100.2), 0.1, 0.02),
        ((0, 2.0, 9.0, 11.0), 0.1, None),
        ((0, 0.1, 0.2, 0.3, 0.4), 5, None),
    ],
)
def test_the_rate_from_distances_of_taints(
    times: tuple[float, ...], rate: float, likely: float | None
) -> None:
    seen = [tainted(t, -1, f"n{n}", rate=rate) for n, t in enumerate(times)]
    made = judged(200, *seen)
    assert [g.likely for g in made.guesses if not g.fits] == ([likely] if likely else [])
    assert kinds(made) == (["settings"] if likely else [])


def test_taints_of_nodes_that_were_only_just_lost_tell_no_rate() -> None:
    seen = [tainted(t, t, f"n{n}") for n, t in enumerate((0, 2.0, 4.1, 6.1))]
    assert judged(200, *seen).guesses == ()


def test_the_rate_of_a_zone_that_is_disrupted_in_part_is_the_secondary_one() -> None:
    seen = [
        tainted(t, -1, f"n{n}", rate=0.01, zone_state="PartialDisruption")
        for n, t in enumerate((0, 20.0, 40.1))
    ]
    assert [(g.flag, g.likely) for g in judged(200, *seen).guesses] == [
        ("secondary-node-eviction-rate", 0.05)
    ]


PERSON = WriteAuthor("kubectl-taint", "Update", at(50))
OWN = ObservedWrite(
    at(50), TAINTED, "n1", detail=f"{UNREACHABLE}:NoExecute", own=True, ready="True"
)
FOREIGN = ObservedWrite(at(50), TAINTED, "n1", detail="dedicated=x:NoExecute", ready="True")


@pytest.mark.parametrize(
    ("seen", "found", "words"),
    [
        (replace(OWN, author=PERSON), "extra", "was added by kubectl-taint"),
        (replace(OWN, author=PERSON, what=UNTAINTED), "extra", "was taken off by kubectl-taint"),
        (replace(OWN, author=WriteAuthor("kube-controller-manager")), None, ""),
        (replace(OWN, author=WriteAuthor("k3s")), None, ""),
        (OWN, None, ""),
        (replace(OWN, author=PERSON, explained=True), None, ""),
        (replace(FOREIGN, author=PERSON), "other-actor", "dedicated=x:NoExecute by kubectl-taint"),
        (FOREIGN, "other-actor", "by another client"),
        (replace(FOREIGN, detail="karpenter.sh/disrupted:NoSchedule"), "other-actor", "Karpenter"),
        (replace(FOREIGN, detail="a=b:PreferNoSchedule"), None, ""),
        (replace(FOREIGN, what=UNTAINTED), None, ""),
        (replace(FOREIGN, what=CORDONED, detail=""), "other-actor", "n1 was cordoned"),
        (replace(FOREIGN, what=REMOVED, detail=""), "other-actor", "node n1 (Ready) was deleted:"),
        (replace(FOREIGN, what=DRAINED, detail="a/p"), "other-actor", "1 pod of n1 left through"),
    ],
)
def test_who_else_was_there(seen: ObservedWrite, found: str | None, words: str) -> None:
    made = judged(100, seen)
    assert kinds(made) == ([found] if found else [])
    if found:
        assert words in made.findings[0].message
    assert made.verdict == ("differs" if found == "extra" else "agrees")


def test_a_drain_is_one_finding() -> None:
    seen = [replace(FOREIGN, what=DRAINED, detail=f"a/p{n}") for n in range(12)]
    made = judged(100, *seen)
    assert [(f.count, f.message[:20]) for f in made.findings] == [(12, "12 pods of n1 left t")]
    assert made.because == "nothing differs; no write was due; 1 note on others"


def test_a_lease_is_stale_only_after_its_duration() -> None:
    assert replace(HELD, read_ns=at(16)).stale_ns() is None
    assert replace(HELD, read_ns=at(17)).stale_ns() == 17 * 10**9
    assert record().led_throughout(at(0), at(1))
