"""`status -L`, `--show-labels` and `--field-selector`: what kubectl makes of them, and refuses."""

from pathlib import Path

import pytest
from click.testing import CliRunner

from kubectl_nodelife.commands.status import status
from kubectl_nodelife.errors import BadInput

DUMP = str(Path(__file__).parents[1] / "dumps/two-zones")
ZONE = "topology.kubernetes.io/zone"


def lines(*words: str) -> list[str]:
    done = CliRunner().invoke(status, [*words, "-f", DUMP], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return done.stdout.splitlines()


def nodes(*words: str) -> list[str]:
    return [line.partition("/")[2] for line in lines(*words, "-o", "name")]


def rows(*words: str) -> list[str]:
    """The header of the table of nodes, and its first row."""
    found = lines(*words)
    at = next(i for i, line in enumerate(found) if line.startswith("NAME"))
    return [line.rstrip() for line in found[at : at + 2]]


@pytest.mark.parametrize(
    "words",
    [
        ("-L", ZONE, "-L", "none.such"),
        ("-L", f"{ZONE},none.such"),
        (f"--label-columns={ZONE},none.such",),
    ],
    ids=["twice", "with-a-comma", "in-one-word"],
)
def test_label_columns_come_last(words: tuple[str, ...]) -> None:
    header, row = rows(*words)
    assert header.split()[-2:] == ["ZONE", "NONE.SUCH"]
    assert row.split()[-2:] == ["eu-1a", "<none>"]


def test_all_labels_are_one_column_in_the_order_of_their_keys() -> None:
    header, row = rows("--show-labels")
    assert header.endswith("LABELS")
    pairs = row.split()[-1].split(",")
    assert f"{ZONE}=eu-1a" in pairs and pairs == sorted(pairs)


def test_labels_change_no_document() -> None:
    assert lines("-o", "json", "--show-labels", "-L", ZONE) == lines("-o", "json")


@pytest.mark.parametrize(
    "text, expected",
    [
        ("metadata.name=worker-b1", ["worker-b1"]),
        ("metadata.name==worker-b1", ["worker-b1"]),
        ("spec.unschedulable=true", ["worker-b3"]),
        (
            "spec.unschedulable!=true,metadata.name!=worker-a1",
            ["worker-a2", "worker-a3", "worker-b1", "worker-b2"],
        ),
        ("metadata.name=none", []),
    ],
)
def test_fields_choose(text: str, expected: list[str]) -> None:
    assert nodes("--field-selector", text) == expected


def test_fields_and_labels_together() -> None:
    both = ("-l", f"{ZONE}=eu-1b", "--field-selector", "spec.unschedulable=false")
    assert nodes(*both) == ["worker-b1", "worker-b2"]


@pytest.mark.parametrize(
    "words, message",
    [
        (("--field-selector", "spec.nodeName=x"), "not supported for Node"),
        (("--field-selector", "metadata.namespace=x"), "not supported for Node"),
        (("--field-selector", "spec"), "write field=value"),
        (("worker-a1", "--field-selector", "metadata.name=x"), "names or a selector, not both"),
    ],
)
def test_what_makes_no_sense_is_refused(words: tuple[str, ...], message: str) -> None:
    with pytest.raises(BadInput, match=message):
        CliRunner().invoke(status, [*words, "-f", DUMP], catch_exceptions=False)
