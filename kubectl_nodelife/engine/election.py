"""Leader election by a Lease, as a conversation without I/O or clock.

Follows client-go/tools/leaderelection/leaderelection.go (`tryAcquireOrRenew`, `release`) and
resourcelock/leaselock.go. A candidate waits until it has itself seen the record unchanged for the
record's leaseDurationSeconds: the stamps in it are another clock's. A renewal counts from when it
was sent, which is stricter than upstream's. Instants are ns of a clock that cannot be set and that
counts suspend; `stamp_ns` is the wall clock's time, written into the record and never compared.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Any, Final

import msgspec

from kubectl_nodelife.engine.calls import Answer, Get, Post, Replace
from kubectl_nodelife.engine.calls.call import CONFLICT, NOT_FOUND
from kubectl_nodelife.kube.times import SECOND_NS, format_micro_time

JITTER: Final = 1.2

_MEMBERS: Final[dict[str, type]] = {
    "holderIdentity": str,
    "leaseDurationSeconds": int,
    "acquireTime": str,
    "renewTime": str,
    "leaseTransitions": int,
}
"""The members of a Lease's spec that an election reads."""

Spec = dict[str, Any]
Trying = Generator[Get | Post | Replace, Answer, bool]


class ElectionTerms(msgspec.Struct, frozen=True):
    """How long a Lease lasts, and how it is kept. The defaults are client-go's.

    `counts_reacquiring`: a candidate that lost the Lease for a while and takes it again unchanged
    raises `leaseTransitions`, since it may have forgotten what it did before. `recreates`: False
    where a holder whose Lease is deleted has to end instead of making it again.
    """

    lease_duration_ns: int = 15 * SECOND_NS
    renew_deadline_ns: int = 10 * SECOND_NS
    retry_period_ns: int = 2 * SECOND_NS
    request_timeout_ns: int = 5 * SECOND_NS
    counts_reacquiring: bool = False
    recreates: bool = True


CLIENT_GO: Final = ElectionTerms()


class Election:
    """One candidate for one Lease. `taken_from`: its holder before us, if any.

    `deleted`: the Lease went while we held it, and is not made again. `annotations`: what each
    renewal says besides. `unreadable`: why the Lease last seen cannot be understood, "" if it can.
    `raw`: the Lease as last read or written; None where it was never seen.
    """

    def __init__(
        self, namespace: str, name: str, identity: str, terms: ElectionTerms = CLIENT_GO
    ) -> None:
        self.key = (namespace, name)
        self.identity = identity
        self.terms = terms
        self.transitions = 0
        self.taken_from = ""
        self.deleted = False
        self.unreadable = ""
        self.annotations: dict[str, str] = {}
        self._record: Spec | None = None
        self.raw: Spec | None = None
        self._seen_ns = 0
        self._renewed_ns: int | None = None
        self._last_ns: int | None = None
        self._held = False

    @property
    def holder(self) -> str:
        """The identity in the record last seen, "" for none."""
        return str((self._record or {}).get("holderIdentity") or "")

    @property
    def uid(self) -> str:
        """The Lease's uid, "" where it was never seen."""
        return str(((self.raw or {}).get("metadata") or {}).get("uid") or "")

    def leads(self, now_ns: int) -> bool:
        """True if writes are allowed: the last renewal was sent within the renew deadline."""
        return self._renewed_ns is not None and (
            now_ns < self._renewed_ns + self.terms.renew_deadline_ns
        )

    def is_over(self, now_ns: int) -> bool:
        """True if another may hold it by now: our last renewal has lasted for its whole time."""
        return self._last_ns is None or now_ns >= self._last_ns + self.terms.lease_duration_ns

    def lose(self) -> None:
        """The renew deadline has passed: whatever comes next is an acquisition."""
        self._renewed_ns = None

    def attempt(self, now_ns: int, stamp_ns: int) -> Trying:
        """Acquire or renew once; whether we hold it. Follows `tryAcquireOrRenew`.

        The answers' `now_ns` is of the clock of `now_ns`: a record is seen when it comes.
        """
        renews = self._renewed_ns is not None and self.raw is not None
        if renews and (yield from self._write(self._put(self._wanted(stamp_ns)), now_ns)):
            return True
        answer = yield Get("Lease", self.key)
        if answer.code == NOT_FOUND:
            if self.raw is not None and self._held and not self.terms.recreates:
                self._renewed_ns, self.deleted = None, True
                return False
            return (yield from self._create(now_ns, stamp_ns))
        if not answer.ok or answer.raw is None:
            return False
        self.unreadable = why_unreadable(answer.raw)
        if self.unreadable:
            self._renewed_ns = None
            return False
        self._observe(answer.raw, max(now_ns, answer.now_ns))
        if self.holder and self.holder != self.identity and not self._has_expired(now_ns):
            self._renewed_ns = None
            return False
        before = self.holder
        took = yield from self._write(self._put(self._wanted(stamp_ns)), now_ns)
        if took and before != self.identity:
            self.taken_from = before
        return took

    def release(self, stamp_ns: int) -> Generator[Replace | Get, Answer, bool]:
        """Give the Lease up, so that the next one need not wait. Follows `release`.

        A renewal that was broken off may have been stored: the version is read anew then.
        """
        if self._renewed_ns is None or self.raw is None:
            return False
        self._renewed_ns = None
        spec = {
            "holderIdentity": "",
            "leaseDurationSeconds": 1,
            "acquireTime": format_micro_time(stamp_ns),
            "renewTime": format_micro_time(stamp_ns),
            "leaseTransitions": self.transitions,
        }
        answer = yield self._put(spec)
        if answer.code != CONFLICT:
            return answer.ok
        answer = yield Get("Lease", self.key)
        if answer.raw is None or why_unreadable(answer.raw):
            return False
        if (answer.raw.get("spec") or {}).get("holderIdentity") != self.identity:
            return False
        self.raw = answer.raw
        answer = yield self._put(spec)
        return answer.ok

    def _create(self, now_ns: int, stamp_ns: int) -> Trying:
        namespace, name = self.key
        self._record = None
        meta = {"namespace": namespace, "name": name}
        body = _lease(meta, {**self._wanted(stamp_ns), "leaseTransitions": 0})
        return (yield from self._write(Post("Lease", self.key, body), now_ns))

    def _write(self, call: Post | Replace, sent_ns: int) -> Trying:
        """Send it; whether the answer proves that we hold the Lease from then on."""
        answer = yield call
        raw = answer.raw
        if not answer.ok or raw is None or why_unreadable(raw):
            return False
        sent, stored = call.body["spec"], raw.get("spec") or {}
        if any(stored.get(key) != sent[key] for key in ("holderIdentity", "renewTime")):
            return False
        before = call.body["metadata"].get("resourceVersion")
        if raw["metadata"].get("resourceVersion") in (None, before):
            return False  # what was sent, and not what was stored
        self.unreadable = ""
        self._observe(raw, sent_ns)
        self.transitions = int((self._record or {}).get("leaseTransitions") or 0)
        self._renewed_ns = self._last_ns = sent_ns
        self._held = True
        return True

    def _observe(self, raw: dict[str, Any], now_ns: int) -> None:
        spec = dict(raw.get("spec") or {})
        if spec != self._record:
            self._record, self._seen_ns = spec, now_ns
        self.raw = raw

    def _has_expired(self, now_ns: int) -> bool:
        seconds = int((self._record or {}).get("leaseDurationSeconds") or 0)
        return now_ns >= self._seen_ns + seconds * SECOND_NS

    def _wanted(self, stamp_ns: int) -> Spec:
        record = self._record or {}
        ours = self.holder == self.identity
        now = format_micro_time(stamp_ns)
        transitions = int(record.get("leaseTransitions") or 0)
        renews = ours and (self._renewed_ns is not None or not self.terms.counts_reacquiring)
        return {
            "holderIdentity": self.identity,
            "leaseDurationSeconds": self.terms.lease_duration_ns // SECOND_NS,
            "acquireTime": record.get("acquireTime") or now if ours else now,
            "renewTime": now,
            "leaseTransitions": transitions if renews or not record else transitions + 1,
        }

    def _put(self, spec: Spec) -> Replace:
        assert self.raw is not None
        meta = {k: v for k, v in self.raw["metadata"].items() if k != "managedFields"}
        if self.annotations:
            meta["annotations"] = {**(meta.get("annotations") or {}), **self.annotations}
        return Replace("Lease", self.key, _lease(meta, spec))


def _lease(metadata: Spec, spec: Spec) -> Spec:
    head = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease"}
    return {**head, "metadata": metadata, "spec": spec}


def why_unreadable(raw: Any) -> str:
    """Why a Lease cannot be understood, "" where it can. A member that is missing is none."""
    meta, spec = raw.get("metadata"), raw.get("spec") or {}
    if not isinstance(meta, dict) or not isinstance(spec, dict):
        return "it has no metadata, or its spec is no object"
    for key, types in _MEMBERS.items():
        value = spec.get(key)
        if value is None:
            continue
        if not isinstance(value, types) or isinstance(value, bool):
            return f"its {key} is no {types.__name__}"
        if isinstance(value, int) and not 0 <= value < 1 << 31:
            return f"its {key} is out of range"
    return ""
