"""Skips what needs a real control plane where there is none;

NODELIFE_REAL=required forbids that.
"""

import os

import pytest

from tests.real.control_plane import ASSETS, PROGRAMS, assets

_WHY = f"{ASSETS} names no folder with {', '.join(PROGRAMS)}: .ci/kube-assets builds one"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests of this folder."""
    if assets() is not None:
        return
    for item in items:
        if "/tests/real/" in str(item.path):
            if os.environ.get("NODELIFE_REAL") == "required":
                pytest.exit(f"error: {_WHY}", returncode=1)
            item.add_marker(pytest.mark.skip(reason=_WHY))
