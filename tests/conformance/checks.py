"""What adapters share: a key that they do not know must fail, not pass unseen."""

from collections.abc import Collection, Iterable, Iterator
from typing import Any


def only(keys: Iterable[str], known: Collection[str], what: str) -> None:
    """Fail where `keys` hold one that the adapter does not know: `what` names the place."""
    unknown = sorted(set(keys) - set(known))
    assert not unknown, f"unknown {what}: {', '.join(unknown)}; known: {', '.join(sorted(known))}"


class Watched(dict[str, Any]):
    """A dict that knows which of its keys were read; going through all of them reads all."""

    def __init__(self, content: dict[str, Any]) -> None:
        super().__init__(content)
        self.read: set[str] = set()

    def __getitem__(self, key: str) -> Any:
        self.read.add(key)
        return super().__getitem__(key)

    def get(self, key: str, default: Any = None) -> Any:
        self.read.add(key)
        return super().get(key, default)

    def __iter__(self) -> Iterator[str]:
        self.read.update(super().keys())
        return super().__iter__()

    def items(self) -> Any:
        self.read.update(super().keys())
        return super().items()

    def __eq__(self, other: object) -> bool:
        self.read.update(super().keys())
        return super().__eq__(other)

    __hash__ = None  # type: ignore[assignment]

    def unread(self) -> list[str]:
        """The keys that nobody looked at."""
        return sorted(set(super().keys()) - self.read)
