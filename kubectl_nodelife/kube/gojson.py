"""JSON as Go's encoding/json writes it: sorted keys, no blanks, and HTML characters escaped.

A ControllerRevision's `data` is compared byte by byte (`EqualRevision`, `Match`): one other byte,
and the DaemonSet controller that comes back makes another revision. Everything that is sent is
written by this one function, so that no request needs a rule of its own. Numbers are written as
Python has them; a pod template has integers only.
"""

from __future__ import annotations

import json
from typing import Any

_ESCAPES = str.maketrans(
    {
        "<": "\\u003c",
        ">": "\\u003e",
        "&": "\\u0026",
        "\u2028": "\\u2028",
        "\u2029": "\\u2029",
    }
)


def go_json(value: Any) -> bytes:
    """The bytes of `json.Marshal` for a value of plain Python objects.

    Raises ValueError for a number that JSON has not.
    """
    text = json.dumps(
        value, sort_keys=True, ensure_ascii=False, separators=(",", ":"), allow_nan=False
    )
    return text.translate(_ESCAPES).encode()
