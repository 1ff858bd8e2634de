"""Node lifecycle vectors that ask one thing of the vocabulary: taints, tolerations, zones."""

from collections.abc import Callable
from typing import Any

import msgspec

from kubectl_nodelife.kube import taints
from kubectl_nodelife.kube.node import Taint, zone_key
from kubectl_nodelife.kube.pod import Toleration
from kubectl_nodelife.kube.times import decode_time
from tests.conformance.checks import only
from tests.conformance.world import api_times

Case = dict[str, Any]

_DEFAULT_SECONDS = {
    "default_not_ready_toleration_seconds": "not_ready_seconds",
    "default_unreachable_toleration_seconds": "unreachable_seconds",
}


def toleration_match(case: Case) -> None:
    """One toleration, one taint."""
    given = _given(case, "toleration", "taint")
    tolerated = taints.tolerates(
        _toleration(given["toleration"]),
        _taint(given["taint"]),
        comparison_operators=_comparison_operators(case),
    )
    _expect(case, {"tolerates": tolerated})


def untolerated_taint(case: Case) -> None:
    """The first taint that no toleration tolerates."""
    given = _given(case, "tolerations", "taints", "effects_considered")
    found = taints.find_matching_untolerated_taint(
        _taints(given["taints"]),
        _tolerations(given["tolerations"]),
        given["effects_considered"],
        comparison_operators=_comparison_operators(case),
    )
    _expect(case, {"untolerated": found}, untolerated=_taint)


def min_toleration_time(case: Case) -> None:
    """The shortest time over some tolerations."""
    given = _given(case, "toleration_seconds")
    used = [Toleration(toleration_seconds=seconds) for seconds in given["toleration_seconds"]]
    _expect(case, _time(taints.min_toleration_seconds(used)))


def used_tolerations(case: Case) -> None:
    """Which tolerations count for some taints, and the shortest time over them."""
    given = _given(case, "taints", "tolerations")
    everything, used = taints.matching_tolerations(
        _taints(given["taints"]), _tolerations(given["tolerations"])
    )
    time = _time(taints.min_toleration_seconds(used)) if everything else {}
    _expect(case, {"all_tolerated": everything, **time})


def noexecute_filter(case: Case) -> None:
    """The NoExecute taints among some."""
    given = _given(case, "taints")
    _expect(case, {"taints": taints.no_execute_taints(_taints(given["taints"]))}, taints=_taints)


def zone(case: Case) -> None:
    """The zone key of a node's labels."""
    given = _given(case, "labels")
    key = zone_key(given["labels"], beta_only=case["profile"] == "v1.16")
    _expect(case, {"zone_key": key})


def admission(case: Case) -> None:
    """Default tolerations, or whether the plugin looks at an operation at all."""
    given = _given(case, "tolerations", "config", "operation")
    if "operation" in given:
        _expect(case, {"handled": given["operation"] in taints.DEFAULT_TOLERATIONS_OPERATIONS})
        return
    config = given.get("config", {})
    seconds = {_DEFAULT_SECONDS[flag]: value for flag, value in config.items()}
    result = taints.default_tolerations(_tolerations(given["tolerations"]), **seconds)
    _expect(case, {"tolerations": result}, tolerations=_tolerations)


def _given(case: Case, *known: str) -> dict[str, Any]:
    only(case["given"], known, "key of given")
    assert not case.get("steps"), "this topic knows no steps"
    return dict(case["given"])


def _expect(case: Case, got: dict[str, Any], **read: Callable[[Any], Any]) -> None:
    """Compare what is expected with what came out; `read` turns an expected value into slices."""
    for expected in (case["expect"], case.get("expect_derived", {})):
        only(expected, got, "key of expect")
        for key, value in expected.items():
            assert got[key] == (read[key](value) if key in read and value is not None else value)


def _time(minimum_seconds: int | None) -> dict[str, Any]:
    if minimum_seconds is None:
        return {"infinite": True}
    return {"min_seconds": minimum_seconds, "infinite": False}


def _comparison_operators(case: Case) -> bool:
    requires = case.get("requires", {})
    only(requires, ["toleration_comparison_operators"], "key of requires")
    return bool(requires.get("toleration_comparison_operators", False))


def _taint(raw: dict[str, Any]) -> Taint:
    return msgspec.convert(api_times(raw), Taint, dec_hook=decode_time)


def _taints(raw: list[dict[str, Any]]) -> tuple[Taint, ...]:
    return tuple(_taint(taint) for taint in raw)


def _toleration(raw: dict[str, Any]) -> Toleration:
    return msgspec.convert(raw, Toleration)


def _tolerations(raw: list[dict[str, Any]]) -> tuple[Toleration, ...]:
    return tuple(_toleration(toleration) for toleration in raw)


TOPICS = {
    "toleration-match": toleration_match,
    "untolerated-taint": untolerated_taint,
    "min-toleration-time": min_toleration_time,
    "used-tolerations": used_tolerations,
    "noexecute-filter": noexecute_filter,
    "zone-key": zone,
    "default-tolerations": admission,
}
