"""Each integer that is kept of an object is bounded where it is decoded."""

from collections.abc import Iterator
from typing import Any

import msgspec.inspect as inspect

from kubectl_nodelife.kube.kinds import KINDS


def test_no_kept_integer_is_wider_than_64_bits() -> None:
    wide = [path for kind in KINDS for path in _wide(inspect.type_info(kind.type), kind.name, ())]
    # a quantity may be a number, and is looked at apart (`kube.codec`)
    assert [p for p in wide if not p.endswith((".requests", ".limits", ".overhead"))] == [
        "Node.status.capacity",
        "Node.status.allocatable",
    ]


def _wide(type_: Any, path: str, above: tuple[Any, ...]) -> Iterator[str]:
    if isinstance(type_, inspect.IntType):
        if type_.le is None or type_.ge is None:
            yield path
    elif isinstance(type_, inspect.StructType):
        if type_.cls not in above:
            for field in type_.fields:
                yield from _wide(field.type, f"{path}.{field.encode_name}", (*above, type_.cls))
    elif isinstance(type_, inspect.UnionType):
        for one in type_.types:
            yield from _wide(one, path, above)
    elif isinstance(type_, inspect.DictType):
        yield from _wide(type_.value_type, path, above)
    elif isinstance(type_, (inspect.VarTupleType, inspect.ListType)):
        yield from _wide(type_.item_type, path, above)
