"""Which Events are sent, as client-go's correlator decides (tools/record/events_cache_test.go)."""

from kubectl_nodelife.engine.actions import RecordEvent
from kubectl_nodelife.engine.calls import Patch, Post
from kubectl_nodelife.kube.times import SECOND_NS
from kubectl_nodelife.live.events import COMBINED, Correlator

NOW = 1_800_000_000 * SECOND_NS


def event(message: str = "m", name: str = "n", reason: str = "R") -> RecordEvent:
    return RecordEvent(
        controller="node-lifecycle",
        because="",
        kind="Node",
        name=name,
        object_uid="u",
        reason=reason,
        message=message,
    )


def test_the_first_is_posted_and_the_same_again_raises_its_count() -> None:
    correlator = Correlator()
    first = correlator.correlate(event(), NOW)
    again = correlator.correlate(event(), NOW + 3600 * SECOND_NS)
    assert first is not None and isinstance(first.call, Post)
    assert first.call.key[0] == "default" and first.call.body["count"] == 1
    assert first.call.body["source"] == {"component": "node-controller"}
    assert again is not None and isinstance(again.call, Patch)
    assert again.call.key == first.call.key and again.call.body["count"] == 2
    assert again.instead.body["count"] == 2, "where the first is gone a new one has the count"


def test_the_tenth_different_message_becomes_a_combined_event() -> None:
    correlator = Correlator()
    sent = [correlator.correlate(event(f"m{n}"), NOW) for n in range(12)]
    assert all(found is not None for found in sent)
    messages = [found.call.body["message"] for found in sent if found is not None]
    assert messages[8] == "m8" and messages[9] == COMBINED + "m9"
    kinds = [type(found.call) for found in sent if found is not None]
    assert kinds == [Post] * 10 + [Patch] * 2


def test_messages_ten_minutes_apart_are_not_similar() -> None:
    correlator = Correlator()
    for n in range(12):
        found = correlator.correlate(event(f"m{n}"), NOW + n * 601 * SECOND_NS)
        assert found is not None and not found.call.body["message"].startswith(COMBINED)


def test_25_for_an_object_then_one_in_five_minutes() -> None:
    correlator = Correlator()
    sent = [correlator.correlate(event(), NOW) is not None for _ in range(30)]
    assert sent == [True] * 25 + [False] * 5
    assert correlator.correlate(event(name="other"), NOW) is not None
    assert correlator.correlate(event(), NOW + 301 * SECOND_NS) is not None
