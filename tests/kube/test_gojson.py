"""JSON as Go writes it."""

from typing import Any

import pytest

from kubectl_nodelife.kube.codec import go_json


@pytest.mark.parametrize(
    "value, written",
    [
        pytest.param({"b": 1, "a": [True, None]}, b'{"a":[true,null],"b":1}', id="sorted-keys"),
        pytest.param("a && b < c > d", rb'"a \u0026\u0026 b \u003c c \u003e d"', id="html"),
        pytest.param("x\u2028y\u2029", rb'"x\u2028y\u2029"', id="line-separators"),
        pytest.param("é\n\t\x01", '"é\\n\\t\\u0001"'.encode(), id="unicode-and-controls"),
    ],
)
def test_json_is_go_s(value: Any, written: bytes) -> None:
    assert go_json(value) == written
