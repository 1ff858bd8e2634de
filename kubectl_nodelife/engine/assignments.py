"""The arguments of `--set`: FLAG=VALUE, with the flag names of kube-controller-manager."""

from __future__ import annotations

from collections.abc import Iterable

from kubectl_nodelife.errors import BadInput


def parse_assignments(assignments: Iterable[str]) -> dict[str, str]:
    """The flags with their values, a leading `--` left out. Raises BadInput."""
    flags: dict[str, str] = {}
    for assignment in assignments:
        name, equals, value = assignment.partition("=")
        if not equals or not name:
            raise BadInput(
                f"{assignment!r} is not FLAG=VALUE",
                on="--set",
                remedy="write for example --set node-monitor-grace-period=40s",
            )
        flags[name.removeprefix("--")] = value
    return flags
