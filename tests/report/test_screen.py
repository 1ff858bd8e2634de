"""Tables on a terminal: what gives way, what is broken between words, when there are colours."""

from pathlib import Path

import pytest

from kubectl_nodelife.cli import main
from kubectl_nodelife.commands import status as status_command
from kubectl_nodelife.outlook.status import SORT_KEYS
from kubectl_nodelife.report.formats import Column, Page, Table, Widths, as_table
from kubectl_nodelife.report.terminal import BAD, END, ColoredText, Screen

DUMP = str(Path(__file__).parents[1] / "dumps" / "two-zones")
COLUMNS = (Column("name"), Column("age", gives=1), Column("taints", gives=2), Column("why"))
ROW = ["worker-1", "5d", "unreachable:NoExecute", "its kubelet stopped posting its status"]


def text(width: int, **how: bool) -> str:
    """The table on a screen of that width."""
    return Table(COLUMNS, [ROW]).text(screen=Screen(width), **how)


def test_with_room_everything_is_on_one_line() -> None:
    assert text(0) == text(200) == Table(COLUMNS, [ROW]).text()


def test_the_least_important_column_gives_way_first_and_a_line_says_so() -> None:
    assert text(64) == (
        "NAME       AGE   WHY\n"
        "worker-1   5d    its kubelet stopped posting its status\n"
        "(no room for TAINTS: -o wide shows all)\n"
    )


def test_the_last_column_is_broken_between_words() -> None:
    assert text(44) == (
        "NAME       WHY\n"
        "worker-1   its kubelet stopped posting its\n"
        "           status\n"
        "(no room for AGE, TAINTS: -o wide shows all)\n"
    )


def test_wide_leaves_nothing_out_and_breaks_cells_into_lines() -> None:
    assert text(60, wide=True) == (
        "NAME       AGE   TAINTS                  WHY\n"
        "worker-1   5d    unreachable:NoExecute   its kubelet stopped\n"
        "                                         posting its status\n"
    )


def test_a_word_without_room_is_broken() -> None:
    table = Table((Column("a"), Column("b"), Column("c")), [["x" * 50, "y" * 30, "z"]])
    lines = table.text(screen=Screen(60)).splitlines()
    assert max(map(len, lines)) <= 60
    assert sum(line.count("x") for line in lines) == 50


def test_what_has_no_room_beside_the_rest_stands_below_each_row() -> None:
    many = (*(Column(f"column-{n}", gives=n) for n in range(5)), Column("why", wide=True))
    cells = [*(f"a rather long value {n}" for n in range(5)), "because"]
    lines = Table(many, [cells]).text(wide=True, screen=Screen(60)).splitlines()
    assert max(map(len, lines)) <= 60
    assert any(line.startswith("    COLUMN-3: a rather long value 3") for line in lines)
    assert lines[-2].startswith("(no room for COLUMN-3, COLUMN-4 beside the rest: below each")


def test_what_gave_way_once_stays_away_in_lines_that_follow() -> None:
    widths, screen = Widths(), Screen(64)
    first = Table(COLUMNS, [ROW]).lines(widths, screen=screen)
    later = Table(COLUMNS, [["n", "1s", "", ""]]).lines(widths, screen=screen)
    assert len(first) == 2 and later == ["n          1s    <none>\n"]


@pytest.mark.parametrize("width", [80, 120])
@pytest.mark.parametrize(
    "words",
    [
        ("status",),
        ("audit",),
        ("budgets",),
        ("explain", "node", "worker-a1"),
        ("explain", "pod", "db-0", "-n", "shop"),
        ("daemonset",),
    ],
)
def test_every_page_fits(
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    words: tuple[str, ...],
    width: int,
) -> None:
    """But for lines with a command, of which a piece may be copied, and a word without a break."""
    monkeypatch.setattr("kubectl_nodelife.report.terminal.columns_of", lambda stream: width)
    assert main([*words, "-f", DUMP]) == 0
    lines = capsys.readouterr().out.splitlines()
    over = [line for line in lines if len(line) > width and "kubectl " not in line]
    assert [line for line in over if " " in line[width - 16 :].strip()] == []


def test_colours_are_for_verdicts_alone_and_only_where_asked(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def shown(*words: str) -> str:
        assert main(["status", "-f", DUMP, *words]) == 0
        return capsys.readouterr().out

    plain = shown()
    assert "\x1b" not in plain and plain == shown("--color", "never")
    colored = shown("--color", "always")
    assert "\x1b[31munreachable" in colored and "\x1b[32mhealthy\x1b[0m" in colored
    for sequence in ("\x1b[31m", "\x1b[32m", "\x1b[33m", "\x1b[0m"):
        colored = colored.replace(sequence, "")
    assert colored == plain  # the columns stand where they stand without colours
    assert shown("--color", "auto") == plain  # not a terminal


def test_a_name_cannot_bring_its_own_colour(capsys: pytest.CaptureFixture[str]) -> None:
    table = Table((Column("name"), Column("state")), [[f"{BAD}x{END}", ColoredText("bad", BAD)]])

    page = Page(lambda *, wide: [table, f"says {BAD}hello"], dict, list)
    made = as_table(page, True, Screen(color=True))
    assert made.count(BAD) == 1 and "\\ufdd1" not in made and "\\ufdd2x\\ufdd3" in made


def test_trouble_first_in_a_large_cluster_and_on_demand(
    capsys: pytest.CaptureFixture[str],
) -> None:
    def names(*words: str) -> list[str]:
        main(["status", "-f", DUMP, "-o", "name", *words])
        return [line.removeprefix("node/") for line in capsys.readouterr().out.split()]

    assert names()[:2] == ["worker-a1", "worker-a2"]
    assert names("--sort-by", "trouble")[:2] == ["worker-a2", "worker-b2"]
    assert names("--trouble") == ["worker-a2", "worker-b1", "worker-b2"]
    assert names("--sort-by", "lease-age")[:2] == ["worker-a2", "worker-b2"]
    assert main(["status", "-f", DUMP, "--trouble", "worker-a1"]) == 0
    assert "No node is in trouble." in capsys.readouterr().err
    assert list(SORT_KEYS) == status_command.SORT_KEYS
