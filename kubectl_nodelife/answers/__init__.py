"""Each answer as a document, made once: the terminal, the daemon's socket and the page show it.

A module an answer. What an answer is made from is handed in: a `ClusterView`, a plan, lines of a
timeline. Documents are plain JSON values with `apiVersion` and `kind`, in the order of keys in
which they are printed. How an answer looks to people is `report`'s.
"""

from __future__ import annotations

from typing import Any, Final

API_VERSION: Final = "nodelife.dev/v1alpha1"


def document(kind: str, **content: Any) -> dict[str, Any]:
    """A document of that kind, its content in the order given."""
    return {"apiVersion": API_VERSION, "kind": kind, **content}
