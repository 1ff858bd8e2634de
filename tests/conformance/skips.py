"""Vectors that the project's own run leaves out: id -> why. Runs with --cases know no skips."""

SKIPS: dict[str, str] = {}
