"""Tables against what `kubectl get` prints for the same cells."""

import pytest

from kubectl_nodelife.report.formats import UNKNOWN, Column, Table, cell

COLUMNS = (Column("name"), Column("zone", wide=True), Column("age"))


def test_columns_are_padded_by_three_and_the_last_is_not() -> None:
    table = Table(COLUMNS, [["node-1", "a", "5d"], ["n2", "b", "43s"]])
    assert table.text() == "NAME     AGE\nnode-1   5d\nn2       43s\n"


def test_wide_columns_and_headers_on_demand() -> None:
    table = Table(COLUMNS, [["n1", "a", "5d"]])
    assert table.text(wide=True) == "NAME   ZONE   AGE\nn1     a      5d\n"
    assert table.text(wide=True, headers=False) == "n1    a     5d\n"  # six columns at least


def test_no_rows_no_text() -> None:
    assert Table(COLUMNS, []).text() == ""


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "<none>"),
        ("", "<none>"),
        (UNKNOWN, "<unknown>"),
        (0, "0"),
        (True, "true"),
        (False, "false"),
        ("one\ntwo", "one..."),
        ("one\rtwo", "one..."),
        ("\x1b[31mred", "^[[31mred"),
        ("a\tb", "a\\tb"),
    ],
)
def test_cells(value: object, text: str) -> None:
    assert cell(value) == text


def test_widths_count_what_is_shown() -> None:
    table = Table((Column("name"), Column("age")), [["\x1b\x1b\x1b\x1b\x1b", "1s"], ["n", "2s"]])
    assert table.text(headers=False) == "^[^[^[^[^[   1s\nn            2s\n"
