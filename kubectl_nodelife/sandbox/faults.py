"""What can be made to go wrong with the API server, request by request.

Each fault is a plain field that a test or the sandbox's control path sets; nothing happens by
chance. Counted faults (`fail_next`, `cut_watches`) go away as they are used.
"""

from __future__ import annotations

import msgspec

from kubectl_nodelife.sandbox.resources import ServedResource
from kubectl_nodelife.sandbox.status import StatusError, expired, forbidden

WRITES = frozenset({"create", "update", "patch", "delete", "deletecollection"})


class Failure(msgspec.Struct):
    """The next `times` requests of these verbs and resources (empty: all) are answered so."""

    code: int
    times: int = 1
    verbs: tuple[str, ...] = ()
    resources: tuple[str, ...] = ()
    retry_after_s: int = 0
    reason: str = ""
    message: str = "injected"

    def applies(self, verb: str, resource: ServedResource | None) -> bool:
        """True if the request is one of those."""
        if self.times <= 0 or (self.verbs and verb not in self.verbs):
            return False
        return not self.resources or (resource is not None and resource.plural in self.resources)


class Faults(msgspec.Struct):
    """All faults of a server. Seconds, and plurals of resources such as `pods`.

    `latency_s`: before each answer; `list_latency_s`: before the answer to a list, by plural.
    `hang_watches`: watches of these stay open and say nothing. `cut_watches`: so many watches are
    cut off in the middle of their next event; `torn`: with half a line sent. `forbid`: plurals
    that RBAC refuses. `expire_watches`: the next watch of each of these plurals gets a 410.
    `fail_writes`: every write is refused and remembered in `writes_seen`. `clock_skew_s`: added to
    the `Date` of answers. `down`: connections are closed without an answer. `refuse_tokens`:
    whatever token comes is no longer good.
    """

    latency_s: float = 0.0
    list_latency_s: dict[str, float] = {}
    failures: list[Failure] = []
    hang_watches: set[str] = set()
    cut_watches: int = 0
    torn: bool = False
    forbid: set[str] = set()
    expire_watches: set[str] = set()
    watch_list: bool = True
    fail_writes: bool = False
    writes_seen: list[str] = []
    clock_skew_s: float = 0.0
    down: bool = False
    refuse_tokens: bool = False

    def check(
        self, verb: str, resource: ServedResource | None, namespace: str, user: str, path: str
    ) -> None:
        """Raises StatusError where this request is to fail."""
        if self.fail_writes and verb in WRITES:
            self.writes_seen.append(f"{verb} {path}")
            raise StatusError(500, "InternalError", f"writes are not allowed in this run: {verb}")
        for failure in self.failures:
            if failure.applies(verb, resource):
                failure.times -= 1
                raise StatusError(
                    failure.code,
                    failure.reason,
                    failure.message,
                    retry_after_s=failure.retry_after_s,
                )
        if resource is None:
            return
        if resource.plural in self.forbid:
            raise forbidden(user, verb, resource, namespace)
        if verb == "watch" and resource.plural in self.expire_watches:
            self.expire_watches.discard(resource.plural)
            raise expired()
