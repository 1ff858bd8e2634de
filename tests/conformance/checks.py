"""What adapters share: a key that they do not know must fail, not pass unseen."""

from __future__ import annotations

from collections.abc import Collection, Iterable


def only(keys: Iterable[str], known: Collection[str], what: str) -> None:
    """Fail where `keys` hold one that the adapter does not know: `what` names the place."""
    unknown = sorted(set(keys) - set(known))
    assert not unknown, f"unknown {what}: {', '.join(unknown)}; known: {', '.join(sorted(known))}"
