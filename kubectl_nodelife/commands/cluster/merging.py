"""The objects of several files as one set: of one that is there twice, the newer counts."""

from __future__ import annotations

import msgspec

from kubectl_nodelife.errors import BadInput
from kubectl_nodelife.kube.field_managers import NOBODY
from kubectl_nodelife.kube.kinds import kind_of
from kubectl_nodelife.kube.load import Loaded
from kubectl_nodelife.kube.meta import KubeObject
from kubectl_nodelife.kube.node import Node
from kubectl_nodelife.kube.unreadable import Ref, Unreadable


class MergedObjects:
    """Objects by kind and key. The newer resourceVersion counts, in whatever order they come; where
    two differ and nothing tells which is newer, the input is refused: the last name would be luck.
    """

    def __init__(self) -> None:
        self.readable: dict[Ref, KubeObject] = {}
        self.unreadable: dict[Ref, Unreadable] = {}
        self._sources: dict[Ref, str] = {}
        self._twice: list[str] = []

    def add(self, loaded: Loaded, source: str) -> None:
        """Take in what a file holds. Raises BadInput."""
        for obj in loaded.objects:
            ref = kind_of(obj), obj.key
            before = self.readable.get(ref)
            if before is None or self._is_newer(obj, before, ref, source):
                self.readable[ref] = obj
                self._sources[ref] = source
                self.unreadable.pop(ref, None)
        for found in loaded.unreadable:
            ref = found.kind, found.key
            self.readable.pop(ref, None)
            self.unreadable[ref] = found

    def warnings(self) -> list[str]:
        """The sentence about objects that are there twice."""
        if not self._twice:
            return []
        more = f", and of {len(self._twice) - 1} more" if len(self._twice) > 1 else ""
        return [f"the newer resourceVersion counts of {self._twice[0]}{more}"]

    def _is_newer(self, obj: KubeObject, before: KubeObject, ref: Ref, source: str) -> bool:
        if obj == before:
            return False
        name = f"{ref[0]} {'/'.join(filter(None, ref[1]))}"
        where = f"in {self._sources[ref]} and in {source}"
        old, new = before.metadata.resource_version, obj.metadata.resource_version
        if isinstance(obj, Node) and isinstance(before, Node) and _alike(obj, before):
            return bool(obj.managers)
        if not (old.isdecimal() and new.isdecimal()) or int(old) == int(new):
            what = f"is {where}, not alike, and no resourceVersion says which is newer"
            raise BadInput(what, on=name, remedy="take one of them out")
        self._twice.append(f"{name}, {where}")
        return int(new) > int(old)


def _alike(one: Node, other: Node) -> bool:
    """True if they differ in managedFields at most, as `kubectl get` prints them or does not."""
    plain, also = (msgspec.structs.replace(n.metadata, managed_fields=NOBODY) for n in (one, other))
    return plain == also and (one.spec, one.status) == (other.spec, other.status)
