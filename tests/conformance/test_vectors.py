"""Upstream's own test vectors, each against the part of the product that it is about."""

from typing import Any

from tests.conformance.checks import Watched, only
from tests.conformance.conftest import OWN_CASES, read_vectors
from tests.conformance.registry import CASE_KEYS, topics
from tests.conformance.skips import SKIPS

ADAPTERS = topics()


WATCHED = ("given", "expect", "expect_derived")


def test_vector(vector: dict[str, Any]) -> None:
    only(vector, CASE_KEYS, "key of a case")
    only([vector["topic"]], ADAPTERS, "topic")
    parts = {part: Watched(vector[part]) for part in WATCHED if part in vector}
    case = Watched({**vector, **parts})
    ADAPTERS[vector["topic"]](case)
    assert not vector.get("steps") or "steps" in case.read, "the adapter knows no steps"
    for name, part in parts.items():
        assert name == "given" or not part.unread(), f"{name}: nobody judges {part.unread()}"


def test_every_skip_has_a_reason_and_a_vector() -> None:
    known = {vector["id"] for vector in read_vectors(OWN_CASES)}
    assert [i for i, reason in SKIPS.items() if i not in known or not reason.strip()] == []
