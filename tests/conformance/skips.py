"""Vectors that the project's own run leaves out: id -> why. Runs with --cases know no skips."""

from __future__ import annotations

SKIPS: dict[str, str] = {}
