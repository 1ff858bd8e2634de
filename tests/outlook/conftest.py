"""The fixture that asks the command line."""

from pathlib import Path

import pytest

from tests.outlook.asking import Ask, asker


@pytest.fixture
def ask(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Ask:
    """A way to ask about clusters that the test writes down."""
    return asker(tmp_path, capsys)
