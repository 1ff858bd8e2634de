"""The policy as it stands in a run's document, for all to read, and as it is read from there.

Commands and manifests stand in it as digests alone, and none is ever taken from there: whoever may
write a Lease shall not have anything run on an operator's machine, or by his rights. Who goes on
with a run gives them again.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from kubectl_nodelife.controllers.upgrade.policy import UpgradePolicy, policy_from, policy_mapping

_HIDDEN: Final = {"gate": "--gate", "canaryTemplate": "--canary-template"}
"""What is a command or a manifest besides the work: the field, and its flag."""
_WORK: Final = "work"
_SHOWN_OF_WORK: Final = ("mode", "rerunSafe")


def shown_policy(policy: UpgradePolicy) -> dict[str, Any]:
    """The policy in the names of a file of kind Upgrade, with digests of what nobody shall read."""
    shown = policy_mapping(policy)
    work = shown[_WORK]
    hidden = {name: value for name, value in work.items() if name not in _SHOWN_OF_WORK and value}
    shown[_WORK] = {name: work[name] for name in _SHOWN_OF_WORK if name in work}
    if hidden:
        shown[_WORK]["digest"] = _digest(hidden)
    for field in _HIDDEN:
        if shown.get(field):
            shown[field] = _digest(shown[field])
    return shown


def policy_of_spec(spec: Mapping[str, Any], given: Mapping[str, Any] = {}) -> UpgradePolicy:
    """The policy that a document shows, and on top what is given by flags or file.

    A command or a manifest that somebody has put into the document is none. Raises BadInput.
    """
    mapping = {name: value for name, value in spec.items() if name not in _HIDDEN}
    work = mapping.get(_WORK)
    if isinstance(work, Mapping):
        mapping[_WORK] = {name: work[name] for name in _SHOWN_OF_WORK if name in work}
    return policy_from({**mapping, **given})


def spec_with(
    spec: Mapping[str, Any], policy: UpgradePolicy, given: Mapping[str, Any]
) -> dict[str, Any]:
    """What a document shows once its policy is this one; what was not given again stays as it was.

    So that the order that the run was begun with is known as the same one later.
    """
    shown = shown_policy(policy)
    return shown | {k: spec[k] for k in (*_HIDDEN, _WORK) if k in spec and k not in given}


def spec_digest(spec: Mapping[str, Any]) -> str:
    """A digest of work and policy, of what is shown of them."""
    return _digest(spec)


def policy_digest(policy: UpgradePolicy) -> str:
    """The digest of the document of a run with this policy."""
    return spec_digest(shown_policy(policy))


def not_given_again(spec: Mapping[str, Any], given: Mapping[str, Any]) -> list[str]:
    """The flags, besides the work, that the run had and that are not among what is given."""
    return [flag for field, flag in _HIDDEN.items() if spec.get(field) and field not in given]


def _digest(value: Any) -> str:
    text = msgspec.json.encode(value, order="deterministic")
    return f"sha256:{hashlib.sha256(text).hexdigest()[:16]}"
