"""One answer in every format."""

import json

import msgspec
import pytest
import yaml

from kubectl_nodelife.report.formats import FORMATTERS, Column, Page, Table, render

NASTY = "a\x1b[31m\x9b\u202e\x7f\r\n\té"


class Zone(msgspec.Struct, rename="camel", omit_defaults=True):
    zone_name: str = ""
    rate: float = 0.0


def nodes_page(name: str = "n1") -> Page:
    """Two blocks, one with a wide column; a document with a struct in it."""
    nodes = Table((Column("name"), Column("zone", wide=True)), [[name, "a"]])
    never = Table((Column("never"),), [])
    return Page(
        lambda *, wide: [nodes, never, "1 node"],
        lambda: {"kind": "Nodes", "b": name, "a": [Zone("x", 0.1)], "none": None},
        lambda: [f"node/{name}"],
    )


@pytest.mark.parametrize(
    ("output", "text"),
    [
        ("table", "NAME\nn1\n\n1 node\n"),
        ("wide", "NAME   ZONE\nn1     a\n\n1 node\n"),
        ("name", "node/n1\n"),
        ("yaml", "kind: Nodes\nb: n1\na:\n- zoneName: x\n  rate: 0.1\nnone: null\n"),
    ],
)
def test_formats(output: str, text: str) -> None:
    assert render(nodes_page(), output) == text


def test_json_keeps_order_and_is_indented() -> None:
    text = render(nodes_page(), "json")
    document = {"kind": "Nodes", "b": "n1", "a": [{"zoneName": "x", "rate": 0.1}], "none": None}
    assert text == json.dumps(document, indent=2) + "\n"


def test_no_headers() -> None:
    assert render(nodes_page(), "table", headers=False) == "n1\n\n1 node\n"


@pytest.mark.parametrize("output", ["json", "yaml"])
def test_documents_are_safe_to_show_and_lose_nothing(output: str) -> None:
    text = render(nodes_page(NASTY), output)
    assert not set(text) & set("\x1b\x9b\u202e\x7f\r\t")
    parsed = json.loads(text) if output == "json" else yaml.safe_load(text)
    assert parsed["b"] == NASTY


@pytest.mark.parametrize("output", ["table", "wide", "name"])
def test_pages_are_safe_to_show(output: str) -> None:
    assert not set(render(nodes_page(NASTY), output)) & set("\x1b\x9b\u202e\x7f\r\t")


def test_yaml_does_not_fold() -> None:
    text = render(nodes_page("word " * 100), "yaml")
    assert text.count("\n") == 5 + 1


def test_every_format_but_the_page_is_a_word_of_kubectl() -> None:
    assert set(FORMATTERS) - {"table", "markdown"} <= {"json", "yaml", "name", "wide"}
