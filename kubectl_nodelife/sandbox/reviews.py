"""The reviews that a client can ask for about itself: may I, what may I, who am I."""

from __future__ import annotations

from typing import Any

from kubectl_nodelife.sandbox.faults import Faults
from kubectl_nodelife.sandbox.status import bad_request, no_such_path


def review(body: Any, faults: Faults, user: str) -> dict[str, Any]:
    """The review with its status filled in. Raises StatusError."""
    if not isinstance(body, dict):
        raise bad_request("the body is not an object")
    kind = body.get("kind")
    if kind == "SelfSubjectAccessReview":
        asked = (body.get("spec") or {}).get("resourceAttributes") or {}
        allowed = asked.get("resource") not in faults.forbid
        status: dict[str, Any] = {"allowed": allowed}
        if not allowed:
            status["reason"] = "refused in this run"
    elif kind == "SelfSubjectRulesReview":
        rule = {"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}
        status = {"resourceRules": [rule], "nonResourceRules": [], "incomplete": False}
    elif kind == "SelfSubjectReview":
        status = {"userInfo": {"username": user, "groups": ["system:masters"]}}
    else:
        raise no_such_path()
    return {**body, "status": status}
