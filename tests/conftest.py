"""`pytest --update-golden` writes the narrations in tests/scenarios anew.

Commit a changed narration only when you can say why it changed.
"""

from __future__ import annotations

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    """The switch that rewrites the narrations."""
    parser.addoption("--update-golden", action="store_true", help="write the narrations anew")
    parser.addoption("--seeds", type=int, default=60, help="seeds of the simulations")
