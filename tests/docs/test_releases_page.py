"""docs/releases.md is what the tables say, and every row of the tables is told in words."""

import pytest

from kubectl_nodelife.controllers.daemonset.behaviour import SINCE_UNTIL as DAEMON_SETS
from kubectl_nodelife.engine.settings import SWITCHES, Span
from kubectl_nodelife.kubelet.releases import SINCE_UNTIL as KUBELETS
from kubectl_nodelife.outlook.release_notes import CONTROL_PLANE, DAEMON_SET, KUBELET, Note
from tests.docs.releases_page import PAGE, page

TABLES = {
    "switches": (SWITCHES, CONTROL_PLANE),
    "daemonset": (DAEMON_SETS, DAEMON_SET),
    "kubelet": (KUBELETS, KUBELET),
}


def test_the_page_is_what_the_tables_say() -> None:
    assert PAGE.read_text() == page(), "run: python -m tests.docs.releases_page --write"


@pytest.mark.parametrize("name", TABLES)
def test_every_row_of_the_tables_has_a_note(name: str) -> None:
    spans, notes = TABLES[name]
    assert spans.keys() == notes.keys()
    assert [rule for rule, span in spans.items() if not is_told(span, notes[rule])] == []


def is_told(span: Span, note: Note) -> bool:
    """True if the release that begins a behaviour has words, or else the one that ends it, and no
    words are for a release that there is not."""
    since, until = span
    has = (bool(note.begins), bool(note.ends))
    return any(has) and (since > 0 or not has[0]) and (until is not None or not has[1])
