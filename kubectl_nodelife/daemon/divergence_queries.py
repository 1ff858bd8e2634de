"""Asks the API server what `diverge` needs besides: the manager's Lease, and who removed a node.

Lists with a name as field selector, so that the rights to list nodes and leases are enough. Whether
the Lease is held is told as other candidates for it tell: by whether a renewal was seen within its
duration, not by the instants that are written in it, since clocks differ. A Lease of which no
renewal was ever seen proves nothing: without leader election nobody renews what an earlier process
left.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import urlencode

import msgspec

from kubectl_nodelife.errors import NodelifeError
from kubectl_nodelife.kube.times import SECOND_NS, parse_time
from kubectl_nodelife.live.backoff import Backoff
from kubectl_nodelife.live.client import ApiError, Client
from kubectl_nodelife.outlook.diverge.observations import (
    MANAGER,
    LeaseObservation,
    ObservedWrite,
    UnwatchedSpan,
    WriteAuthor,
)

POLL_SECONDS: Final = 5.0
_SILENT_POLL_SECONDS: Final = 0.5
"""How often the lease is read when it is not renewed any more: who takes it next acts at once."""

_SOON_NS: Final = 60 * SECOND_NS

_LEASES: Final = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases"
_DEFAULT_DURATION_S: Final = 15
_NEAR_NS: Final = 5 * SECOND_NS
_MOST_SPANS: Final = 1_000

# Reasons of Events on a deleted node -> whose they are
_REMOVERS: Final = {
    "DeletingNode": "cloud-node-lifecycle-controller",
    "ScaleDown": "cluster-autoscaler",
}


class LeaseWatch:
    """Follows the leader lease. `leaders` and `stale` are as `Observations` has them.

    `pause_s`: when to look again.
    """

    def __init__(self) -> None:
        self.sight = LeaseObservation(error="it was not read yet")
        self.leaders: list[tuple[int, str]] = []
        self.stale: list[UnwatchedSpan] = []
        self.pause_s = POLL_SECONDS
        self._holder = ""
        self._renew: str | None = None
        self._is_renewed = False
        self._backoff = Backoff()

    @property
    def leader(self) -> tuple[int, str] | None:
        """Since when the newest leader leads, and its name; None where it was there before us."""
        return self.leaders[-1] if self.leaders else None

    async def look(self, client: Client, now_ns: int) -> None:
        """Read it once more."""
        query = urlencode({"fieldSelector": f"metadata.name={MANAGER}"})
        try:
            items = _items(await client.read(f"{_LEASES}?{query}"))
        except ApiError as error:
            refused = error.code in (401, 403)
            self._failed("it may not be read" if refused else str(error), now_ns)
        except (NodelifeError, msgspec.MsgspecError) as error:
            self._failed(str(error), now_ns)
        else:
            self._backoff.went_well()
            of_manager = [item for item in items if _name(item) == MANAGER]
            if of_manager:
                self.note(of_manager[0].get("spec") or {}, now_ns)
            else:
                self.pause_s = POLL_SECONDS
                self._unknown(f"there is no lease kube-system/{MANAGER}", now_ns)

    def note(self, spec: Mapping[str, Any], now_ns: int) -> None:
        """Take in what the lease says now."""
        before = self.sight
        holder, renew = str(spec.get("holderIdentity") or ""), spec.get("renewTime")
        seconds = int(spec.get("leaseDurationSeconds") or _DEFAULT_DURATION_S)
        if self._holder and holder and holder != self._holder:
            self.leaders.append((self._since(spec, before.read_ns, now_ns), holder))
            del self.leaders[:-_MOST_SPANS]
        self._holder = holder or self._holder  # one that was released names nobody
        renewed_ns = before.renewed_ns
        if renew != self._renew or not renewed_ns:
            self._is_renewed = bool(renewed_ns)
            self._renew, renewed_ns = renew, now_ns
            self.pause_s = min(POLL_SECONDS, seconds / 3)
        else:
            self.pause_s = POLL_SECONDS
        free = self._is_renewed and (not holder or renewed_ns < now_ns)
        if free and now_ns - renewed_ns < _SOON_NS:
            self.pause_s = _SILENT_POLL_SECONDS
        lasts_ns = round((max(seconds, 2 * POLL_SECONDS) + 1) * SECOND_NS)
        self.sight = LeaseObservation(holder, lasts_ns, renewed_ns, now_ns)
        if self.sight.stale_ns() is not None and not self._is_renewed:
            self._unknown("it has not been renewed since the daemon began to watch", now_ns)
        else:
            self._note_stale(now_ns)

    def _note_stale(self, now_ns: int) -> None:
        is_open = bool(self.stale) and self.stale[-1].end_ns is None
        if self.sight.stale_ns() is None:
            if is_open:
                self.stale[-1] = msgspec.structs.replace(self.stale[-1], end_ns=now_ns)
        elif not is_open:
            said = _time_ns(self._renew)
            renewed_ns = min(self.sight.renewed_ns, said or self.sight.renewed_ns)
            self.sight = msgspec.structs.replace(self.sight, renewed_ns=renewed_ns)
            self.stale.append(UnwatchedSpan(renewed_ns, None, "the lease was not renewed"))
            del self.stale[:-_MOST_SPANS]

    def _failed(self, error: str, now_ns: int) -> None:
        """It could not be read: a server that is sick is asked as seldom as by a watch."""
        self.pause_s = min(POLL_SECONDS, self._backoff.next_s())
        self._unknown(error, now_ns)

    def _unknown(self, error: str, now_ns: int) -> None:
        self.sight = msgspec.structs.replace(self.sight, error=error, read_ns=now_ns)

    @staticmethod
    def _since(spec: Mapping[str, Any], read_ns: int, now_ns: int) -> int:
        """When the new leader began: as it says, within the two looks at the lease."""
        return max(read_ns, min(now_ns, _time_ns(spec.get("acquireTime")) or now_ns))


async def who_removed(client: Client, seen: ObservedWrite) -> WriteAuthor | None:
    """Who said in an Event that the node goes. Needs the right to list Events."""
    selector = f"involvedObject.kind=Node,involvedObject.name={seen.node}"
    try:
        found = await client.read(f"/api/v1/events?{urlencode({'fieldSelector': selector})}")
        items = _items(found)
    except (NodelifeError, msgspec.MsgspecError):
        return None
    for event in reversed(items):
        remover = _REMOVERS.get(str(event.get("reason", "")))
        time_ns = _time_ns(event.get("lastTimestamp") or event.get("eventTime"))
        if (
            remover is not None
            and time_ns is not None
            and abs(time_ns - seen.at_ns) < 12 * _NEAR_NS
        ):
            component = (event.get("source") or {}).get("component") or remover
            return WriteAuthor(str(component), "Event", time_ns)
    return None


def _items(body: bytes) -> list[dict[str, Any]]:
    found = msgspec.json.decode(body, type=dict[str, Any])
    return list(found.get("items") or ())


def _name(item: Mapping[str, Any]) -> str:
    return str((item.get("metadata") or {}).get("name"))


def _time_ns(text: object) -> int | None:
    try:
        return int(parse_time(text)) if isinstance(text, str) else None
    except ValueError:
        return None
