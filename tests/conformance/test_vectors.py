"""Upstream's own test vectors, each against the part of the product that it is about."""

from __future__ import annotations

from typing import Any

from tests.conformance.checks import only
from tests.conformance.conftest import OWN_CASES, read_vectors
from tests.conformance.registry import CASE_KEYS, topics
from tests.conformance.skips import SKIPS

ADAPTERS = topics()


def test_vector(vector: dict[str, Any]) -> None:
    only(vector, CASE_KEYS, "key of a case")
    only([vector["topic"]], ADAPTERS, "topic")
    ADAPTERS[vector["topic"]](vector)


def test_every_skip_has_a_reason_and_a_vector() -> None:
    known = {vector["id"] for vector in read_vectors(OWN_CASES)}
    assert [i for i, reason in SKIPS.items() if i not in known or not reason.strip()] == []
