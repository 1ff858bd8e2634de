"""The API's errors: `metav1.Status` documents with code, reason and message."""

from __future__ import annotations

from typing import Any

from kubectl_nodelife.kube.kinds import Kind, group_of


class StatusError(Exception):
    """An answer that is a Status. `retry_after_s` goes into the header of that name."""

    def __init__(
        self,
        code: int,
        reason: str,
        message: str,
        *,
        details: dict[str, Any] | None = None,
        retry_after_s: int = 0,
    ) -> None:
        super().__init__(message)
        self.code = code
        self.reason = reason
        self.message = message
        self.details = details
        self.retry_after_s = retry_after_s

    def document(self) -> dict[str, Any]:
        """The Status as JSON."""
        details = dict(self.details or {})
        if self.retry_after_s:
            details["retryAfterSeconds"] = self.retry_after_s
        status: dict[str, Any] = {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "message": self.message,
            "code": self.code,
        }
        if self.reason:
            status["reason"] = self.reason
        if details:
            status["details"] = details
        return status


def _about(resource: Kind, name: str) -> dict[str, Any]:
    return {"name": name, "group": group_of(resource.api_version), "kind": resource.plural}


def not_found(resource: Kind, name: str) -> StatusError:
    """404 for an object."""
    message = f'{resource.resource} "{name}" not found'
    return StatusError(404, "NotFound", message, details=_about(resource, name))


def no_such_path() -> StatusError:
    """404 for a path that is not served."""
    return StatusError(404, "NotFound", "the server could not find the requested resource")


def already_exists(resource: Kind, name: str) -> StatusError:
    """409 for a create."""
    message = f'{resource.resource} "{name}" already exists'
    return StatusError(409, "AlreadyExists", message, details=_about(resource, name))


def conflict(resource: Kind, name: str, why: str = "") -> StatusError:
    """409 for a write that was made on an older version."""
    why = why or (
        "the object has been modified; please apply your changes to the latest version"
        " and try again"
    )
    message = f'Operation cannot be fulfilled on {resource.resource} "{name}": {why}'
    return StatusError(409, "Conflict", message, details=_about(resource, name))


def bad_request(why: str) -> StatusError:
    """400."""
    return StatusError(400, "BadRequest", why)


def invalid(resource: Kind, name: str, field: str, why: str) -> StatusError:
    """422 for what a field holds; `why` such as `Forbidden: may not be changed`."""
    cause = {"reason": f"FieldValue{why.partition(':')[0].replace(' value', '')}", "message": why}
    group = group_of(resource.api_version)
    causes = [{**cause, "field": field}]
    details = {"name": name, "group": group, "kind": resource.name, "causes": causes}
    kind = f"{resource.name}.{group}" if group else resource.name
    message = f'{kind} "{name}" is invalid: {field}: {why}'
    return StatusError(422, "Invalid", message, details=details)


def unprocessable() -> StatusError:
    """422 for a patch that does not fit the object."""
    message = "the server rejected our request due to an error in our request"
    return StatusError(422, "Invalid", message)


def unmet(resource: Kind, name: str, what: str, wanted: str, present: str) -> StatusError:
    """409 for a precondition of a delete. `what` is UID or ResourceVersion."""
    since = "deleted and then recreated" if what == "UID" else "modified"
    why = (
        f"the {what} in the precondition ({wanted}) does not match the {what} in record"
        f" ({present}). The object might have been {since}"
    )
    message = f'Operation cannot be fulfilled on {resource.name} "{name}": {why}'
    details = {"name": name, "group": group_of(resource.api_version), "kind": resource.name}
    return StatusError(409, "Conflict", message, details=details)


def expired(message: str = "The resourceVersion for the provided watch is too old.") -> StatusError:
    """410: the client must list again."""
    return StatusError(410, "Expired", message)
