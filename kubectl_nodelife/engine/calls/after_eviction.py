"""What `kubectl drain` does after the API server's answer to an eviction: one table.

Follows `evictPods` (k8s.io/kubectl/pkg/drain/drain.go, v1.36). A simulated drain, a live one and
the evictions of an upgrade ask it alike.
"""

from __future__ import annotations

from typing import Final

from kubectl_nodelife.engine.calls.call import FORBIDDEN, NOT_FOUND, TOO_MANY_REQUESTS
from kubectl_nodelife.kube.times import SECOND_NS

EVICTION_RETRY_NS: Final = 5 * SECOND_NS
"""How long kubectl sleeps before it asks again; the server's Retry-After does not matter to it."""

NAMESPACE_TERMINATING: Final = "NamespaceTerminating"
"""The cause of a 403 in a namespace that is being deleted."""

WAIT: Final = "wait"
GONE: Final = "gone"
ASK_AGAIN: Final = "ask again"
FAIL: Final = "fail"


def after_eviction(code: int, *, terminating: bool, going: bool) -> str:
    """WAIT until the pod is gone, it is GONE, ASK_AGAIN after `EVICTION_RETRY_NS`, or FAIL the pod.

    `code`: HTTP status. `terminating`: the answer has the cause `NAMESPACE_TERMINATING`. `going`:
    the pod was marked deleted when it was last read; in such a namespace its eviction can never
    succeed, and it goes all the same.
    """
    if 200 <= code < 300:
        return WAIT
    if code == NOT_FOUND:
        return GONE
    if code == TOO_MANY_REQUESTS:
        return ASK_AGAIN
    if code == FORBIDDEN and terminating:
        return WAIT if going else ASK_AGAIN
    return FAIL
