"""Taints and tolerations: what is tolerated and for how long, and arithmetic on taint lists.

Follows staging api/core/v1/toleration.go (`ToleratesTaint`), component-helpers
scheduling/corev1/helpers.go (`FindMatchingUntoleratedTaint`), pkg/util/taints/taints.go,
pkg/controller/tainteviction (`getMinTolerationTime`) and
plugin/pkg/admission/defaulttolerationseconds. All pure: the GET, PATCH and retry around a change of
a node's taints belong to the writer.

Two taints are the same taint when key and effect agree; value and timeAdded do not count.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence
from functools import lru_cache

import msgspec

from kubectl_nodelife.kube import wellknown
from kubectl_nodelife.kube.meta import Time
from kubectl_nodelife.kube.node import Taint
from kubectl_nodelife.kube.pod import Toleration
from kubectl_nodelife.kube.selectors import parse_int64

_TAINT_NAME = r"[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?"
_TAINT_KEY = re.compile(rf"(?:{_TAINT_NAME}/)?{_TAINT_NAME}")
_TAINT_VALUE = re.compile(rf"(?:{_TAINT_NAME})?")


def tolerates(toleration: Toleration, taint: Taint, *, comparison_operators: bool = False) -> bool:
    """True if `toleration` tolerates `taint`. Follows `Toleration.ToleratesTaint`.

    An empty effect or key stands for every effect or key. `comparison_operators` is the gate
    TaintTolerationComparisonOperators: without it Lt and Gt tolerate nothing, and with it a value
    that is not a signed 64-bit decimal tolerates nothing either.
    """
    if toleration.effect and toleration.effect != taint.effect:
        return False
    if toleration.key and toleration.key != taint.key:
        return False
    operator = toleration.operator
    if operator == wellknown.TOLERATION_EXISTS:
        return True
    if not operator or operator == wellknown.TOLERATION_EQUAL:
        return toleration.value == taint.value
    if comparison_operators and operator in (wellknown.TOLERATION_LT, wellknown.TOLERATION_GT):
        return _compares(operator, taint.value, toleration.value)
    return False


def _compares(operator: str, taint_value: str, toleration_value: str) -> bool:
    taint_number, limit = parse_int64(taint_value), parse_int64(toleration_value)
    if taint_number is None or limit is None:
        return False
    return taint_number < limit if operator == wellknown.TOLERATION_LT else taint_number > limit


def first_tolerating(
    tolerations: Iterable[Toleration], taint: Taint, *, comparison_operators: bool = False
) -> Toleration | None:
    """The first toleration in list order that tolerates `taint`: the one that counts."""
    for toleration in tolerations:
        if tolerates(toleration, taint, comparison_operators=comparison_operators):
            return toleration
    return None


def tolerates_for_ever(tolerations: Sequence[Toleration], taints: Iterable[Taint]) -> bool:
    """True if the toleration that counts for each of the taints has no tolerationSeconds."""
    for taint in taints:
        counts = first_tolerating(tolerations, taint, comparison_operators=True)
        if counts is None or counts.toleration_seconds is not None:
            return False
    return True


def find_matching_untolerated_taint(
    taints: Iterable[Taint],
    tolerations: Sequence[Toleration],
    effects: Collection[str] | None = None,
    *,
    comparison_operators: bool = False,
) -> Taint | None:
    """The first taint that no toleration tolerates. Follows `FindMatchingUntoleratedTaint`.

    Only taints with one of `effects` are looked at; None looks at all, an empty collection at none.
    """
    for taint in taints:
        if effects is not None and taint.effect not in effects:
            continue
        toleration = first_tolerating(tolerations, taint, comparison_operators=comparison_operators)
        if toleration is None:
            return taint
    return None


def matching_tolerations(
    taints: Iterable[Taint],
    tolerations: Sequence[Toleration],
    *,
    comparison_operators: bool = False,
) -> tuple[bool, tuple[Toleration, ...]]:
    """(all taints tolerated?, the tolerations used). Follows `GetMatchingTolerations`.

    Each taint uses the first toleration that tolerates it. Where a taint has none the answer is
    (False, ()). No taints: (True, ()).
    """
    used = []
    for taint in taints:
        toleration = first_tolerating(tolerations, taint, comparison_operators=comparison_operators)
        if toleration is None:
            return False, ()
        used.append(toleration)
    return True, tuple(used)


def min_toleration_seconds(tolerations: Iterable[Toleration]) -> int | None:
    """The shortest tolerationSeconds among *used* tolerations; None: for ever.

    Follows `getMinTolerationTime`: no tolerations at all is 0, a value of 0 or less is 0, unset
    values are ignored, all unset is for ever.
    """
    used = list(tolerations)
    if not used:
        return 0
    limits = [t.toleration_seconds for t in used if t.toleration_seconds is not None]
    return max(0, min(limits)) if limits else None


def no_execute_taints(taints: Iterable[Taint]) -> tuple[Taint, ...]:
    """The taints with effect NoExecute, in order. Follows `getNoExecuteTaints`."""
    return tuple(taint for taint in taints if taint.effect == wellknown.NO_EXECUTE)


def add_or_update_taints(taints: tuple[Taint, ...], new: Iterable[Taint]) -> tuple[Taint, ...]:
    """`taints` with each of `new` put in the place of its like, or appended.

    Follows `AddOrUpdateTaint`. Where nothing changes (value and timeAdded agree too) the very same
    tuple comes back: `result is taints` means that no patch is needed.
    """
    result = list(taints)
    for taint in new:
        for index, present in enumerate(result):
            if taint.matches(present):
                result[index] = taint
                break
        else:
            result.append(taint)
    changed = tuple(result)
    return taints if changed == taints else changed


def remove_taints(taints: tuple[Taint, ...], drop: Iterable[Taint]) -> tuple[Taint, ...]:
    """`taints` without those that match one of `drop`. Follows `DeleteTaint`.

    An empty effect in `drop` stands for every effect, as in `kubectl taint nodes n key-`. Where
    nothing matches the very same tuple comes back.
    """
    dropped = {(taint.key, taint.effect) for taint in drop}
    others = tuple(
        taint
        for taint in taints
        if (taint.key, taint.effect) not in dropped and (taint.key, "") not in dropped
    )
    return taints if len(others) == len(taints) else others


def stamp_taints(taints: Iterable[Taint], now_ns: int) -> tuple[Taint, ...]:
    """`taints` with timeAdded = now, as every swap does before it adds."""
    now = Time(now_ns)
    return tuple(msgspec.structs.replace(taint, time_added=now) for taint in taints)


def swap_taints(
    taints: tuple[Taint, ...], add: Iterable[Taint], remove: Iterable[Taint], now_ns: int
) -> tuple[Taint, ...]:
    """The taints after a swap: `add` stamped and put in first, then `remove` taken out.

    Follows `SwapNodeControllerTaint`; upstream writes two patches, with both sets there in between.
    """
    return remove_taints(add_or_update_taints(taints, stamp_taints(add, now_ns)), remove)


def parse_taint(text: str) -> Taint:
    """The taint that `key=value:Effect` or `key:Effect` names, as kubectl reads it.

    Raises ValueError for anything else. Follows `parseTaint`.
    """
    body, colon, effect = text.partition(":")
    key, _, value = body.partition("=")
    if not colon:
        raise ValueError(f"taint {text!r} has no effect; write key=value:Effect or key:Effect")
    _check_taint(text, key, effect)
    if _TAINT_VALUE.fullmatch(value) is None or len(value) > 63:
        raise ValueError(f"taint {text!r}: {value!r} is not a valid value")
    return Taint(key=key, effect=effect, value=value)


def parse_taint_to_remove(text: str) -> Taint:
    """The taint that `key:Effect-`, `key-`, `key:Effect` or `key=value:Effect` asks to take away.

    The dash at the end may be missing. Without an effect the result's effect is empty: every effect
    (`remove_taints`). A value is read but does not count. Raises ValueError.
    """
    body, colon, effect = text.removesuffix("-").partition(":")
    key, _, value = body.partition("=")
    _check_taint(text, key, effect if colon else wellknown.NO_EXECUTE)
    return Taint(key=key, effect=effect, value=value)


def _check_taint(text: str, key: str, effect: str) -> None:
    if _TAINT_KEY.fullmatch(key) is None:
        raise ValueError(f"taint {text!r}: {key!r} is not a valid key")
    if effect not in wellknown.TAINT_EFFECTS:
        effects = ", ".join(wellknown.TAINT_EFFECTS)
        raise ValueError(f"taint {text!r}: unknown effect {effect!r}; it is one of {effects}")


@lru_cache(maxsize=1 << 10)
def default_tolerations(
    tolerations: tuple[Toleration, ...],
    *,
    not_ready_seconds: int = 300,
    unreachable_seconds: int = 300,
) -> tuple[Toleration, ...]:
    """`tolerations` with what the admission plugin DefaultTolerationSeconds appends to a pod's.

    The plugin runs on CREATE and UPDATE of pods. A toleration of the taint's key or of every key,
    for NoExecute or every effect, counts as the pod's own word, whatever its operator or seconds.
    Pods that tolerate the same get the very same tuple.
    """
    own = {t.key for t in tolerations if t.effect in ("", wellknown.NO_EXECUTE)}
    if "" in own:
        return tolerations
    added = tuple(
        Toleration(
            key=key,
            operator=wellknown.TOLERATION_EXISTS,
            effect=wellknown.NO_EXECUTE,
            toleration_seconds=seconds,
        )
        for key, seconds in (
            (wellknown.TAINT_NODE_NOT_READY, not_ready_seconds),
            (wellknown.TAINT_NODE_UNREACHABLE, unreachable_seconds),
        )
        if key not in own
    )
    return tolerations + added


DEFAULT_TOLERATIONS_OPERATIONS = frozenset({"CREATE", "UPDATE"})
"""The admission operations on pods that get default tolerations."""
