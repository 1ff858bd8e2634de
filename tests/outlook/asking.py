"""Asks the command line about a small cluster that a test writes down as objects."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from kubectl_nodelife.cli import main
from tests.drain.build import Json, merged, node
from tests.objects import write_list

ALL_KINDS = {"nodelife.dev/kinds": "all"}


class Said(NamedTuple):
    """What a command left: its exit code, stdout and stderr."""

    code: int
    out: str
    err: str

    @property
    def document(self) -> Json:
        """stdout as JSON."""
        found: Json = json.loads(self.out)
        return found


Ask = Callable[..., Said]
"""`ask(objects, *words, kinds="all")`: write a dump of the objects, run `VERB ... -f DUMP`."""


def asker(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Ask:
    """A way to ask about clusters in that folder."""

    def ask(objects: list[Any], *words: str, kinds: str = "all") -> Said:
        flat = [o for each in objects for o in (each if isinstance(each, list) else [each])]
        noted = {"annotations": {"nodelife.dev/kinds": kinds}} if kinds else {}
        code = main([*words, "-f", write_list(tmp_path / "dump.json", flat, **noted)])
        out, err = capsys.readouterr()
        return Said(code, out, err)

    return ask


def lost(name: str, *, zone: str = "a", key: str = "unreachable", **more: Any) -> list[Json]:
    """A node of which the controller says Unknown, with the taints that it gives."""
    since = "2026-01-01T00:50:00Z"
    taints = [
        {"key": f"node.kubernetes.io/{key}", "effect": effect, "timeAdded": since}
        for effect in ("NoSchedule", "NoExecute")
    ]
    says = {
        "type": "Ready",
        "status": "Unknown",
        "reason": "NodeStatusUnknown",
        "lastHeartbeatTime": "2026-01-01T00:49:00Z",
        "lastTransitionTime": since,
    }
    made = {"spec": {"taints": taints}, "status": {"conditions": [says]}}
    return node(name, zone=zone, lease="2026-01-01T00:49:10Z", **merged(made, more))
