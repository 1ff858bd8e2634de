"""Which of many selectors match a pod's labels, without trying them all.

A cluster holds hundreds of budgets and spread constraints, and the question is asked for every pod.
Nearly every selector demands at least one `key=value` pair, so a selector is filed under one such
pair, and only those filed under a pair that the pod has are tried; the rest are tried always. The
answer is exactly that of trying each in the order in which it was added.
"""

from __future__ import annotations

from collections.abc import Mapping
from operator import itemgetter
from typing import Generic, TypeVar

from kubectl_nodelife.kube.meta import LabelSelector
from kubectl_nodelife.kube.selectors import IN, matches

Item = TypeVar("Item")

_NO_LABELS: Mapping[str, str] = {}


Entry = tuple[int, LabelSelector, Item]


class SelectorIndex(Generic[Item]):
    """Items that are found by the labels that their selectors match, within a namespace."""

    __slots__ = ("_added", "_always", "_by_pair")

    def __init__(self) -> None:
        self._added = 0
        # By namespace, label key and label value: a namespace's selectors use few different keys.
        self._by_pair: dict[str, dict[str, dict[str, list[Entry[Item]]]]] = {}
        self._always: dict[str, list[Entry[Item]]] = {}

    def add(self, namespace: str, selector: LabelSelector | None, item: Item) -> None:
        """File `item` under its selector. None matches nothing and so is not kept."""
        self._added += 1
        if selector is None:
            return
        entry = (self._added, selector, item)
        pair = _demanded_pair(selector)
        if pair is None:
            self._always.setdefault(namespace, []).append(entry)
        else:
            by_value = self._by_pair.setdefault(namespace, {}).setdefault(pair[0], {})
            by_value.setdefault(pair[1], []).append(entry)

    def find(self, namespace: str, labels: Mapping[str, str] | None) -> list[Item]:
        """The items whose selectors match, in the order in which they were added."""
        labels = labels or _NO_LABELS
        candidates = self._always.get(namespace)
        by_key = self._by_pair.get(namespace)
        if by_key is not None:
            for key, by_value in by_key.items():
                value = labels.get(key)
                filed = by_value.get(value) if value is not None else None
                if filed is not None:
                    candidates = filed if candidates is None else candidates + filed
        if candidates is None:
            return []
        found = [entry for entry in candidates if matches(entry[1], labels)]
        if len(found) > 1:
            found.sort(key=itemgetter(0))
        return [entry[2] for entry in found]


def _demanded_pair(selector: LabelSelector) -> tuple[str, str] | None:
    """One label that everything the selector matches must have, or None."""
    if selector.match_labels:
        # The last one: generated labels (a template's hash) tend to come late and are the rarest.
        key = next(reversed(selector.match_labels))
        return key, selector.match_labels[key]
    for requirement in selector.match_expressions:
        if requirement.operator == IN and len(requirement.values) == 1:
            return requirement.key, requirement.values[0]
    return None
