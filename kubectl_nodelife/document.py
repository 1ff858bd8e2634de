"""The head of each document that is printed or answered: its API version and kind."""

from __future__ import annotations

from typing import Any, Final

API_VERSION: Final = "nodelife.dev/v1alpha1"


def document(kind: str, **content: Any) -> dict[str, Any]:
    """A document of that kind, its content in the order given."""
    return {"apiVersion": API_VERSION, "kind": kind, **content}
