"""Ages, due times and times in a plan for people, as kubectl shows them: `42s`, `5m30s`, `5d3h`."""

from __future__ import annotations

from kubectl_nodelife.kube.times import SECOND_NS, human_duration

__all__ = ["age", "clock", "due_in", "due_within", "human_duration"]


def age(instant_ns: int | None, now_ns: int) -> str:
    """How long ago `instant_ns` was; `<unknown>` where there is none. As kubectl's AGE column."""
    return "<unknown>" if instant_ns is None else human_duration(now_ns - instant_ns)


def due_in(duration_ns: int) -> str:
    """`in 42s`, or `now`. Rounded up to a whole second: it is never said to be due before it is."""
    seconds = -(-duration_ns // SECOND_NS)
    return f"in {human_duration(seconds * SECOND_NS)}" if seconds > 0 else "now"


def due_within(low_ns: int, high_ns: int) -> str:
    """`in 37s-42s`, or `in 42s` where the ends are shown alike, or `now`."""
    latest = due_in(high_ns)
    if latest == "now" or due_in(low_ns) == latest:
        return latest
    seconds = -(-max(0, low_ns) // SECOND_NS)
    return f"in {human_duration(seconds * SECOND_NS)}-{latest.removeprefix('in ')}"


def clock(seconds: float | None) -> str:
    """`4.2s`, `72s`, `12m05s`, `2h03m`; `-` for None."""
    if seconds is None:
        return "-"
    if seconds < 10:
        return f"{seconds:.1f}s"
    whole = round(seconds)
    if whole < 120:
        return f"{whole}s"
    if whole < 7200:
        return f"{whole // 60}m{whole % 60:02d}s"
    return f"{whole // 3600}h{whole % 3600 // 60:02d}m"
