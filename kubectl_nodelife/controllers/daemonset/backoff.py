"""The backoff that keeps a crash-looping daemon pod from being killed and made again at once.

Follows `flowcontrol.Backoff` (`client-go/util/flowcontrol/backoff.go`) as the DaemonSet controller
uses it: 1 s, doubling, 15 min at most; an entry idle for twice the cap starts afresh. The key holds
the generation that status observed, so a changed template starts afresh too.
"""

from __future__ import annotations

from copy import copy
from dataclasses import dataclass

from kubectl_nodelife.copy_on_write import fork_dict
from kubectl_nodelife.kube.workload import DaemonSet

SECOND_NS = 1_000_000_000
BACKOFF_INITIAL_NS = 1 * SECOND_NS
BACKOFF_MAX_NS = 15 * 60 * SECOND_NS
BACKOFF_GC_INTERVAL_NS = 60 * SECOND_NS


@dataclass
class BackoffEntry:
    """One key's present delay and when it was last advanced."""

    delay_ns: int
    last_update_ns: int


def failed_pods_backoff_key(daemon_set: DaemonSet, node_name: str) -> str:
    """`uid/observedGeneration/node`. Follows `failedPodsBackoffKey`."""
    return f"{daemon_set.uid}/{daemon_set.status.observed_generation}/{node_name}"


class FailedPodsBackoff:
    """Delays by key, with an exponential cap."""

    def __init__(self, initial_ns: int = BACKOFF_INITIAL_NS, max_ns: int = BACKOFF_MAX_NS) -> None:
        self.initial_ns = initial_ns
        self.max_ns = max_ns
        self._entries: dict[str, BackoffEntry] = {}
        self._collected_ns = 0

    def fork(self) -> FailedPodsBackoff:
        """Another one with the same delays."""
        other = copy(self)
        self._entries, other._entries = fork_dict(self._entries)
        return other

    def entry(self, key: str) -> BackoffEntry | None:
        """The key's entry, or None where it never failed or was forgotten."""
        return self._entries.get(key)

    def get(self, key: str) -> int:
        """The key's delay in nanoseconds, 0 where it has none. Follows `Get`."""
        entry = self._entries.get(key)
        return entry.delay_ns if entry is not None else 0

    def in_backoff_since_update(self, key: str, now: int) -> bool:
        """True if less than its delay is past since the key's last failure.

        Follows `IsInBackOffSinceUpdate`: at exactly the end of the delay the key is free.
        """
        entry = self._entries.get(key)
        if entry is None or self._expired(entry, now):
            return False
        return now - entry.last_update_ns < entry.delay_ns

    def next(self, key: str, now: int) -> int:
        """Advance the key and return its new delay in nanoseconds. Follows `Next`."""
        entry = self._entries.get(key)
        if entry is None or self._expired(entry, now):
            delay = self.initial_ns
        else:
            delay = min(2 * entry.delay_ns, self.max_ns)
        self._entries[key] = BackoffEntry(delay, now)
        return delay

    def collect(self, now: int) -> None:
        """Drop entries idle for more than twice the cap, at most once a minute. Follows `GC`."""
        if now - self._collected_ns < BACKOFF_GC_INTERVAL_NS:
            return
        self._collected_ns = now
        self._entries = {k: e for k, e in self._entries.items() if not self._expired(e, now)}

    def _expired(self, entry: BackoffEntry, now: int) -> bool:
        return now - entry.last_update_ns > 2 * self.max_ns
