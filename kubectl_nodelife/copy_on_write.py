"""Dicts that are copied by sharing: what forks of a cache or of a controller's memory consist of.

`fork_dict` makes two dicts of one in constant time. Both read the former content, which does
not change from then on, and keep what they write to themselves. A small dict is copied, and one
that was never forked stays the built-in one, so that code that never forks pays nothing; a
persistent map as of `immutables` costs a tenth of a zone outage's time, since each write to it
takes twelve times as long.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, KeysView, Mapping
from itertools import islice
from operator import lt
from types import MappingProxyType
from typing import Any, Final, TypeVar, cast, overload

_MISSING: Final[Any] = object()
_FLATTENED_FROM: Final = 64
"""So many entries of its own may be copied before it is asked whether that is too many."""

_FEW: Final = 64
"""A dict of so many entries is copied, which takes a microsecond: all that its owners read and
write from then on costs no call."""

_get: Final = dict.get  # a `super()` for each of millions of look-ups would take as long as they
_has: Final = dict.__contains__

K = TypeVar("K")
V = TypeVar("V")
T = TypeVar("T")
Ordered = TypeVar("Ordered", str, tuple[str, str])


class CopyOnWriteDict(dict[K, V]):
    """A dict over a shared one, in the same order as if it had been copied.

    The dict itself holds what was written since, `_hidden` the shared keys that were deleted since.
    `copy_value`: values can be changed in place, so that one is copied when it is first read here.
    `in_order`: brings the shared one in its order, when entries are first gone through.
    """

    __slots__ = ("_copy_value", "_hidden", "_in_order", "_shared")

    def __init__(
        self,
        shared: dict[K, V],
        copy_value: Callable[[V], V] | None = None,
        own: Iterable[tuple[K, V]] = (),
        hidden: Iterable[K] = (),
        *,
        in_order: Callable[[dict[K, V]], dict[K, V]] | None = None,
    ) -> None:
        super().__init__(own)
        self._shared = shared
        self._in_order = in_order
        self._hidden = set(hidden)
        self._copy_value = copy_value

    # Look-ups

    def __missing__(self, key: K) -> V:
        value = self._shared[key]
        if key in self._hidden:
            raise KeyError(key)
        if self._copy_value is not None:
            value = self._copy_value(value)
            super().__setitem__(key, value)
        return value

    @overload
    def get(self, key: K, default: None = None, /) -> V | None: ...
    @overload
    def get(self, key: K, default: V | T, /) -> V | T: ...
    def get(self, key: K, default: Any = None, /) -> Any:
        """As of a dict."""
        value: Any = _get(self, key, _MISSING)
        if value is not _MISSING:
            return value
        if self._copy_value is not None:
            return self.__missing__(key) if self._shows(key) else default
        return default if key in self._hidden else self._shared.get(key, default)

    def __contains__(self, key: object) -> bool:
        return _has(self, key) or (key in self._shared and key not in self._hidden)

    def _shows(self, key: object) -> bool:
        """True if the shared dict's entry stands."""
        return key in self._shared and key not in self._hidden

    def __len__(self) -> int:
        return len(self._shared) - len(self._hidden) + sum(1 for _ in self._later())

    def __bool__(self) -> bool:
        return len(self._shared) > len(self._hidden) or super().__len__() > 0

    def __eq__(self, other: object) -> bool:
        return isinstance(other, dict) and dict(self) == dict(other)

    __hash__ = None

    def __repr__(self) -> str:
        return repr(dict(self))

    def peek(self, key: K) -> V | None:
        """The value, or None; a shared one is not copied."""
        value: Any = _get(self, key, _MISSING)
        if value is not _MISSING:
            return value
        return None if key in self._hidden else self._shared.get(key)

    # Iteration

    def _ordered(self) -> dict[K, V]:
        """The shared dict, in its order."""
        if self._in_order is not None:
            self._shared, self._in_order = self._in_order(self._shared), None
        return self._shared

    def _later(self) -> Iterator[K]:
        """The keys that came since, in order."""
        shared, hidden = self._shared, self._hidden
        for key in list(super().__iter__()):
            if key not in shared or key in hidden:
                yield key

    def __iter__(self) -> Iterator[K]:
        hidden, shared = self._hidden, self._ordered()
        if hidden:
            yield from [key for key in shared if key not in hidden]
        else:
            yield from shared
        yield from self._later()

    def keys(self) -> Any:
        """As of a dict."""
        return KeysView(self)

    def values(self) -> Any:
        """The values, as a list, or as the view of a dict that does not change."""
        if self._in_order is not None:
            return ValuesInOrder(self)
        if self._copy_value is None:
            return list(self.merged().values()) if self._differs else self._shared.values()
        return [self[key] for key in self]

    def items(self) -> Any:
        """The entries, as `values`."""
        if self._copy_value is None:
            return list(self.merged().items()) if self._differs else self._ordered().items()
        return [(key, self[key]) for key in self]

    def values_at(self, keys: Iterable[K]) -> list[V]:
        """See the function of that name."""
        if self._differs or self._copy_value is not None:
            return [self[key] for key in keys]
        shared = self._shared
        return [shared[key] for key in keys]

    @property
    def _differs(self) -> bool:
        """True if it is not the shared dict any more."""
        return bool(self._hidden) or super().__len__() > 0

    def merged(self) -> dict[K, V]:
        """A plain dict of the same, made without a call for each entry: no value is copied."""
        merged = dict(self._ordered())
        for key in self._hidden:
            del merged[key]
        merged.update(zip(super().__iter__(), super().values(), strict=True))
        return merged

    def unchanging(self) -> dict[K, V]:
        """A plain dict of the same, not to be changed: the shared one, where it has them all."""
        return self.merged() if self._differs else self._ordered()

    # Changes

    def __delitem__(self, key: K) -> None:
        self.pop(key)

    def pop(self, key: K, default: Any = _MISSING, /) -> Any:
        """As of a dict."""
        own = super().pop(key, _MISSING)
        if self._shows(key):
            value = own if own is not _MISSING else self._read(key)
            self._hidden.add(key)
            return value
        if own is not _MISSING:
            return own
        if default is _MISSING:
            raise KeyError(key)
        return default

    def _read(self, key: K) -> V:
        value = self._shared[key]
        return value if self._copy_value is None else self._copy_value(value)

    @overload
    def setdefault(self: dict[K, T | None], key: K, default: None = None, /) -> T | None: ...
    @overload
    def setdefault(self, key: K, default: V, /) -> V: ...
    def setdefault(self, key: K, default: Any = None, /) -> Any:
        """As of a dict."""
        if key in self:
            return self[key]
        self[key] = default
        return default

    def clear(self) -> None:
        """As of a dict."""
        super().clear()
        self._shared, self._hidden, self._in_order = {}, set(), None

    def popitem(self) -> tuple[K, V]:
        """As of a dict."""
        key = list(self)[-1]
        return key, self.pop(key)

    def copy(self) -> dict[K, V]:
        """A plain dict of the same."""
        return self.merged() if self._copy_value is None else dict(self)

    def __copy__(self) -> dict[K, V]:
        return dict(self)

    def fork(self, copy_value: Callable[[V], V] | None) -> tuple[dict[K, V], dict[K, V]]:
        """See `fork_dict`; takes as long as there are changes since the last one."""
        own = super().__len__()
        if own > _FLATTENED_FROM and own > len(self._shared) // 8:
            return _share(self.copy(), copy_value)
        entries = list(zip(super().__iter__(), super().values(), strict=True))
        if copy_value is not None:
            entries = [(key, copy_value(value)) for key, value in entries]
        other = CopyOnWriteDict(
            self._shared, copy_value, entries, self._hidden, in_order=self._in_order
        )
        return self, other


class ValuesInOrder(Iterable[V]):
    """The values of a dict that is brought in order when they are first gone through."""

    def __init__(self, of: CopyOnWriteDict[Any, V]) -> None:
        self._of = of

    def __iter__(self) -> Iterator[V]:
        return iter(self._of.unchanging().values())

    def __len__(self) -> int:
        return len(self._of)


def fork_dict(
    present: dict[K, V], copy_value: Callable[[V], V] | None = None
) -> tuple[dict[K, V], dict[K, V]]:
    """Two dicts of one, which is not to be used any more: the first goes in its place.

    `copy_value` is needed where values are changed in place.
    """
    if isinstance(present, CopyOnWriteDict):
        return cast("CopyOnWriteDict[K, V]", present).fork(copy_value)
    if len(present) <= _FEW and copy_value is None:
        return present, dict(present)
    return _share(present, copy_value)


class _MadeLater(dict[K, V]):
    """What `make` makes of each value of another dict, once for all who share it."""

    __slots__ = ("_make", "_of")

    def __init__(self, of: dict[K, T], make: Callable[[T], V]) -> None:
        super().__init__()
        self._of: dict[K, Any] = of
        self._make: Callable[[Any], V] = make

    def __missing__(self, key: K) -> V:
        value = self[key] = self._make(self._of[key])
        return value

    def get(self, key: K, default: Any = None, /) -> Any:
        """As of a dict."""
        return self[key] if key in self._of else default

    def __contains__(self, key: object) -> bool:
        return key in self._of

    def __len__(self) -> int:
        return len(self._of)

    def __iter__(self) -> Iterator[K]:
        return iter(self._of)

    def keys(self) -> Any:
        """As of a dict."""
        return KeysView(self)

    def values(self) -> Any:
        """As of a dict, in a list."""
        return [self[key] for key in self._of]

    def items(self) -> Any:
        """As of a dict, in a list."""
        return [(key, self[key]) for key in self._of]


def made_later(
    of: dict[K, T],
    make: Callable[[T], V],
    copy_value: Callable[[V], V] | None = None,
    own: Mapping[K, V] = MappingProxyType({}),
) -> dict[K, V]:
    """What `make` makes of each value, when it or a fork's is first asked for, and the entries of
    `own`. Neither `of` nor what `make` looks at is changed any more; `copy_value`: as of a fork.
    """
    return CopyOnWriteDict(_MadeLater(of, make), copy_value, own.items())


def _share(
    shared: dict[K, V], copy_value: Callable[[V], V] | None
) -> tuple[dict[K, V], dict[K, V]]:
    return CopyOnWriteDict(shared, copy_value), CopyOnWriteDict(shared, copy_value)


def peek(of: dict[K, V], key: K) -> V | None:
    """The value of a key, or None, for a caller that does not change it: it is not copied."""
    return of.peek(key) if isinstance(of, CopyOnWriteDict) else of.get(key)


def entries_of(of: dict[K, V]) -> Iterable[tuple[K, V]]:
    """All entries, for a caller that changes no value: none is copied."""
    return of.merged().items() if isinstance(of, CopyOnWriteDict) else of.items()


def values_at(of: dict[K, V], keys: Iterable[K]) -> list[V]:
    """The values of these keys; without a call for each, where nothing was written yet."""
    return of.values_at(keys) if isinstance(of, CopyOnWriteDict) else [of[key] for key in keys]


def unchanging(of: dict[K, V]) -> dict[K, V]:
    """The same entries for one who only looks up, where nobody changes them any more: the shared
    dict, if that has them all, whose look-ups take no call."""
    return of.unchanging() if isinstance(of, CopyOnWriteDict) else of


def in_key_order(store: dict[Ordered, V]) -> dict[Ordered, V]:
    """The store in the order of its keys, which most have already: then it is the same one."""
    entries = unchanging(store)
    keys = list(entries)
    if all(map(lt, keys, islice(keys, 1, None))):
        return store
    keys.sort()
    return {key: entries[key] for key in keys}


def copy_of_dict(of: dict[K, V]) -> dict[K, V]:
    """A copy, for dicts that are values of a dict that is forked."""
    return dict(of)
