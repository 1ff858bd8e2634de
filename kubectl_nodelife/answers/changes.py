"""`changes`: what the controllers would change or have changed, as a document.

An item is made where the change is known, by the daemon; this is a quick verb's module and imports
nothing heavy.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kubectl_nodelife.answers import document


def change_list(items: Sequence[dict[str, Any]], source: dict[str, Any]) -> dict[str, Any]:
    """The contract's ChangeList."""
    return document("ChangeList", source=source, items=list(items))


def change_document(item: dict[str, Any]) -> dict[str, Any]:
    """One change as a document of its own."""
    return document("Change", **item)
