"""The word without which `upgrade start` changes nothing: the number of nodes, typed."""

import sys
from types import SimpleNamespace

import click
import pytest

from kubectl_nodelife.commands.upgrade.start import is_confirmed
from kubectl_nodelife.errors import EXIT_REFUSED, Refused


@pytest.fixture()
def at_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(isatty=lambda: True))


def typing(monkeypatch: pytest.MonkeyPatch, text: str) -> list[str]:
    asked: list[str] = []

    def prompt(question: str, **_: object) -> str:
        asked.append(question)
        return text

    monkeypatch.setattr(click, "prompt", prompt)
    return asked


def test_in_a_pod_it_is_the_flag_or_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(isatty=lambda: False))
    assert is_confirmed(True, 12, "https://c")
    with pytest.raises(Refused, match="no terminal") as caught:
        is_confirmed(False, 12, "https://c")
    assert caught.value.exit_code == EXIT_REFUSED and "--yes" in caught.value.remedy


@pytest.mark.usefixtures("at_terminal")
@pytest.mark.parametrize(
    ("typed", "goes_on"), [("12", True), (" 12 ", True), ("y", False), ("", False), ("1", False)]
)
def test_the_number_of_nodes_is_typed_and_no_yes(
    monkeypatch: pytest.MonkeyPatch, typed: str, goes_on: bool
) -> None:
    asked = typing(monkeypatch, typed)
    assert is_confirmed(False, 12, "https://c") is goes_on
    assert "12" in asked[0]
