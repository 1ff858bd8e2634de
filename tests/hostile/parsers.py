"""Mutated inputs without end: what reads a file or a text of others ends with an answer or a line.

`python -m tests.hostile.parsers --seconds 3600 --seed 1` is the mode by hand. Each parser gets
well-formed inputs, mutated as bytes and, where they are JSON, as documents; what it may raise is an
error with a line for the user, or the ValueError that its docstring names. Anything else is a find.
"""

import argparse
import asyncio
import contextlib
import io
import json
import os
import random
import sqlite3
import sys
import tarfile
import tempfile
import time
import traceback
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple

import yaml

from kubectl_nodelife.cli import main as command_line
from kubectl_nodelife.controllers.upgrade.document import (
    ANNOTATION_REQUEST,
    ANNOTATION_RUN,
    UnreadableDocument,
    document_of,
    request_on,
)
from kubectl_nodelife.controllers.upgrade.marks import UnreadableMark, decode_mark
from kubectl_nodelife.controllers.upgrade.policy import (
    parse_target,
    parse_window,
    policy_from,
    policy_of_spec,
)
from kubectl_nodelife.controllers.upgrade.report import ANNOTATION_REPORT, report_on
from kubectl_nodelife.daemon.intents import Intent, Intents
from kubectl_nodelife.daemon.journal import open_journal
from kubectl_nodelife.daemon.settings import load_config
from kubectl_nodelife.errors import NodelifeError
from kubectl_nodelife.kube.cel import CelError
from kubectl_nodelife.kube.cel.evaluation import evaluate
from kubectl_nodelife.kube.codec import decode
from kubectl_nodelife.kube.kinds import KINDS
from kubectl_nodelife.kube.node import Lease
from kubectl_nodelife.kube.quantity import parse_quantity
from kubectl_nodelife.kube.selectors import parse_selector
from kubectl_nodelife.kube.times import parse_duration, parse_time
from kubectl_nodelife.kube.unreadable import InputError
from kubectl_nodelife.kube.wellknown import ANNOTATION_KINDS, ANNOTATION_MOMENT, ANNOTATION_RUNNING
from kubectl_nodelife.live.connection import Connection
from kubectl_nodelife.live.listwatch import MalformedLine, WatchStream
from kubectl_nodelife.live.plugin import read_credential
from kubectl_nodelife.live.target import find_target
from kubectl_nodelife.sim.scenario import parse_scenario
from kubectl_nodelife.snapshot import Redaction
from tests.hostile.fuzz import STRANGE, Mutation, clusters, mutated, paths_of
from tests.objects import budget, event

NOW: Final = "2026-01-02T00:00:00Z"
TOKENS: Final = (
    *(b"2026-13-01", b"2026-02-30T25:61:61Z", b"0000-00-00", b"9" * 40, b"-", b"1e999", b".inf"),
    *(b"!!python/object:os.system x", b"!!timestamp x", b"&a [*a]", b"<<: 1", b"? ", b"[" * 300),
    *(b"{" * 300, b"null", b"~", b"\xff\xfe", b"\x00", b"\xe2\x80\xae", b"%s%n", b")", b"(", b'"'),
    *(
        b"\n---\n",
        b"\t",
        b"- ",
        b": ",
        b"0o8",
        b"0x",
        b"1_000",
        b"=",
        b"<",
        b"../../x",
        b"",
    ),
)
"""What readers stumble over: times that are none, tags, aliases, depth, control characters."""


class Parser(NamedTuple):
    """`read` raises only what a user is told. `seeds` are well-formed; `suffix`: of the file."""

    name: str
    seeds: list[bytes]
    read: Callable[[Path], object]
    suffix: str = ""


class Find(Exception):
    """A parser failed otherwise than with a line for the user."""

    def __init__(self, parser: Parser, data: bytes, trace: str) -> None:
        super().__init__(f"{parser.name}, input {data[:2000]!r}\n{trace}")
        self.data = data


# --- the parsers ---------------------------------------------------------------------------------


def _command(*arguments: str) -> Callable[[Path], None]:
    """A command of ours that reads the file with -f."""

    def read(path: Path) -> None:
        out, err = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            command_line([*arguments, str(path)])
        if "a bug in kubectl nodelife" in err.getvalue():
            raise AssertionError(err.getvalue())

    return read


def _upgrade_file(path: Path) -> None:
    from kubectl_nodelife.commands.upgrade.flags import spec_of_file
    from kubectl_nodelife.upgrade.answers import drain_options

    drain_options(policy_from(spec_of_file(str(path))))


def _kubeconfig(path: Path) -> None:
    find_target(Connection(kubeconfig=str(path)), {"HOME": str(path.parent)})


def _scenario(path: Path) -> None:
    parse_scenario(path.read_bytes(), str(path))


def _credential(path: Path) -> None:
    read_credential(path.read_bytes(), "client.authentication.k8s.io/v1", "plugin")


def _watch(path: Path) -> None:
    data = path.read_bytes()
    for kind in KINDS:
        with contextlib.suppress(MalformedLine, NodelifeError):
            list(WatchStream(kind.type).feed(data + b"\n"))


def _run_on_lease(path: Path) -> None:
    """What stands on the Lease of an upgrade, which others may write."""
    text = path.read_bytes().decode(errors="replace")
    annotations = dict.fromkeys((ANNOTATION_RUN, ANNOTATION_REQUEST, ANNOTATION_REPORT), text)
    meta = {"name": "l", "namespace": "n", "annotations": annotations}
    lease = decode("Lease", {"metadata": meta})
    assert isinstance(lease, Lease)
    report_on(lease)
    with contextlib.suppress(UnreadableDocument):
        request_on(lease)
    with contextlib.suppress(UnreadableDocument, NodelifeError):
        if (document := document_of(lease)) is not None:
            policy_of_spec(document.spec)


def _mark(path: Path) -> None:
    with contextlib.suppress(UnreadableMark):
        decode_mark(path.read_bytes().decode(errors="replace"))


def _journal(path: Path) -> None:
    """The journal of the daemon, and that of writes, damaged on the disk."""
    from kubectl_nodelife.daemon.changes import ChangeFilter

    data = path.read_bytes()
    journal = open_journal(str(path))
    with contextlib.suppress(sqlite3.Error):
        journal.store.select(ChangeFilter())
        journal.store.still_open()
    journal.store.close()
    writes = path.with_name("writes.db")
    writes.write_bytes(data)
    intents = Intents(str(writes))
    with contextlib.suppress(sqlite3.Error):
        intents.unsettled()
        intents.mark("x")
    intents._db.close()
    intents._thread.shutdown()
    os.close(intents._lock)


_TEXTS: Final[tuple[Callable[[str], object], ...]] = (
    parse_quantity,
    parse_duration,
    parse_selector,
    parse_time,
    parse_window,
    parse_target,
)


def _texts(path: Path) -> None:
    text = path.read_bytes().decode(errors="replace")
    for parse in _TEXTS:
        with contextlib.suppress(ValueError):
            parse(text)


def _cel(path: Path) -> None:
    from kubectl_nodelife.kube.cel import Unknown

    with contextlib.suppress(CelError, Unknown):
        evaluate(path.read_bytes().decode(errors="replace"), {"object": {"a": [1, "x"]}})


# --- their seeds ---------------------------------------------------------------------------------


def _dump(seed: int) -> dict[str, Any]:
    made = clusters(seed, most=3)
    status = {"disruptionsAllowed": 1, "currentHealthy": 2, "desiredHealthy": 1}
    made += [
        event(
            ("Pod", "app-0000-0"),
            "TaintManagerEviction",
            "Marking for deletion Pod team-0/app-0000-0",
            when="2026-01-01T00:00:00Z",
            by="taint-eviction-controller",
            namespace="team-0",
        ),
        budget("b", "app-0000", namespace="team-0", status=status, minAvailable="50%"),
    ]
    return {"apiVersion": "v1", "kind": "List", "items": made}


def _archive(data: bytes) -> Iterator[bytes]:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as made:
        made.writestr("a/nodes.json", data)
    yield packed.getvalue()
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as tar:
        info = tarfile.TarInfo("a/nodes.json")
        info.size = len(data)
        tar.addfile(info, io.BytesIO(data))
    yield packed.getvalue()


UPGRADE: Final = {
    "apiVersion": "nodelife.dev/v1alpha1",
    "kind": "Upgrade",
    "spec": {
        "selector": "pool=blue",
        "target": ["bootID=changed", "label:a=b"],
        "maxUnavailable": "10%",
        "minAvailable": 2,
        "window": ["Mon-Fri 22:00-04:00 Europe/Berlin"],
        "soak": "5m",
        "run": "./x",
        "force": True,
        "gracePeriod": 10,
        "podSelector": "a=b",
        "require": ["A=True"],
        "canaryTemplate": {"spec": {"containers": [{"name": "c", "image": "i"}]}},
    },
}
KUBECONFIG: Final = {
    "apiVersion": "v1",
    "kind": "Config",
    "current-context": "c",
    "clusters": [{"name": "k", "cluster": {"server": "https://127.0.0.1:1"}}],
    "contexts": [{"name": "c", "context": {"cluster": "k", "user": "u", "namespace": "n"}}],
    "users": [
        {
            "name": "u",
            "user": {"token": "t", "exec": {"command": "x", "args": ["a"], "env": []}},
        }
    ],
}
CONFIG: Final = {
    "clusters": {"a": {"server": "https://x", "settings": {"pod-eviction-timeout": "5m"}}}
}
SCENARIO: Final = {
    "apiVersion": "nodelife.dev/v1alpha1",
    "kind": "Scenario",
    "metadata": {"name": "s"},
    "spec": {
        "start": "2026-01-01T00:00:00Z",
        "duration": "10m",
        "generate": {"zones": 2, "nodesPerZone": 2, "podsPerNode": 2},
        "events": [{"at": "1m", "nodeDown": {"nodes": ["z0-n0"]}}],
    },
}
RUN: Final = {
    "run": "r1",
    "phase": "Running",
    "policy": "sha256:x",
    "spec": {"maxUnavailable": "10%", "target": ["bootID=changed"], "work": {"mode": "wait"}},
    "step": {"pool": "", "k": 1, "window": 2, "nodes": {"a": {"uid": "u", "zone": "z"}}},
    "verb": "pause",
    "gates": {"blind": "x"},
}
MARK: Final = {
    "run": "r1",
    "state": "Working",
    "epoch": 3,
    "since": "2026-01-01T00:00:00Z",
    "try": 1,
    "cordon": "ours",
    "before": {"uid": "u", "taints": [{"key": "k", "effect": "NoSchedule"}]},
    "work": {"started": "2026-01-01T00:00:00Z", "code": 75},
}
CREDENTIAL: Final = {
    "apiVersion": "client.authentication.k8s.io/v1",
    "kind": "ExecCredential",
    "status": {"token": "t", "expirationTimestamp": "2026-01-01T00:00:00Z"},
}
RUNNING: Final = {
    "version": "v1.36.0",
    "flags": {"node-monitor-period": "5s", "large-cluster-size-threshold": "50"},
    "origins": {"node-monitor-period": "the pod kube-system/kube-controller-manager"},
}
WORDS: Final = (
    *("1.5Gi", "1m30s", "a=b,c in (d,e),!f", "2026-01-01T00:00:00.5Z", "500m", "label:a=b"),
    *("Mon-Fri 22:00-04:00 Europe/Berlin", "bootID=changed"),
)
EXPRESSIONS: Final = (
    "object.a.all(x, x == 1) || !has(object.b) ? 'a' + 'b' : object.a[0]",
    "object.metadata.labels['a'] == \"b\" && [1, 2].exists(y, y > 1)",
)


def _snapshot(dump: dict[str, Any]) -> bytes:
    """A snapshot of ours; what it says of itself stands in annotations of the List."""
    redaction = Redaction(b"key")
    items = [redaction(item["kind"], item) for item in json.loads(json.dumps(dump["items"]))]
    said = {
        ANNOTATION_KINDS: "nodes,pods,leases,daemonsets,poddisruptionbudgets,events",
        ANNOTATION_MOMENT: "2026-01-02T00:00:00.000000Z",
        ANNOTATION_RUNNING: json.dumps(RUNNING),
        "nodelife.dev/made-by": "kubectl-nodelife v0.2.0",
        "nodelife.dev/values": "digests",
        "nodelife.dev/not-read": "services,jobs",
    }
    listed = {"apiVersion": "v1", "kind": "List", "metadata": {"annotations": said}}
    return json.dumps({**listed, "items": items}).encode()


def _both(document: Any) -> list[bytes]:
    return [json.dumps(document).encode(), yaml.safe_dump(document).encode()]


def _databases() -> Iterator[bytes]:
    """A journal of the daemon, and one of writes that one has been sent of."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "journal.db")
        open_journal(str(path)).store.close()
        yield path.read_bytes()
        path = Path(folder, "writes.db")
        asyncio.run(_write_intents(str(path)))
        with contextlib.closing(sqlite3.connect(path)) as written:
            written.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        yield path.read_bytes()


async def _write_intents(path: str) -> None:
    intents = Intents(path)
    for number in range(3):
        intent = Intent(number, "pod-gc", "{}", "Pod", "d", f"p{number}", "u", "7", "", 1)
        await intents.begin(intent)
    intents.note(1, "applied")
    await intents.close()


def parsers() -> list[Parser]:
    """All of them, with their seeds."""
    dump = _dump(1)
    small = {**dump, "items": dump["items"][:3] + dump["items"][-2:]}
    lines = [json.dumps({"type": "ADDED", "object": item}).encode() for item in dump["items"]]
    status = _command("status", "--now", NOW, "-f")
    return [
        Parser("dump", _both(small), status, ".yaml"),
        Parser("archive", list(_archive(json.dumps(small).encode())), status, ".zip"),
        Parser("changes", _both(dump), _command("changes", "--now", NOW, "-f"), ".yaml"),
        Parser("replay", _both(dump), _command("replay", "--now", NOW, "-f"), ".json"),
        Parser("audit", _both(dump), _command("audit", "--now", NOW, "-f"), ".json"),
        Parser(
            "drain plan", _both(small), _command("drain-plan", "--all", "--now", NOW, "-f"), ".json"
        ),
        *(
            Parser(f"snapshot, {words[0]}", [_snapshot(small)], _command(*words, "-f"), ".json")
            for words in (("status",), ("what-if", "lose", "node", "a1"), ("budgets", "-A"))
        ),
        Parser("upgrade file", _both(UPGRADE), _upgrade_file, ".yaml"),
        Parser("scenario", _both(SCENARIO), _scenario, ".yaml"),
        Parser("kubeconfig", _both(KUBECONFIG), _kubeconfig),
        Parser("config file", _both(CONFIG), lambda path: load_config(str(path)), ".yaml"),
        Parser("run on a Lease", [json.dumps(RUN).encode()], _run_on_lease),
        Parser("mark on a Node", [json.dumps(MARK).encode()], _mark),
        Parser("watch line", lines, _watch),
        Parser("credential", [json.dumps(CREDENTIAL).encode()], _credential),
        Parser("journal", list(_databases()), _journal, ".db"),
        Parser("texts", [word.encode() for word in WORDS], _texts),
        Parser("CEL", [text.encode() for text in EXPRESSIONS], _cel),
    ]


# --- the mutations -------------------------------------------------------------------------------


def mutation(seed: bytes, chance: random.Random) -> bytes:
    """The input, changed as a document where it is one, or as bytes."""
    if seed[:1] == b"{" and chance.random() < 0.6:
        document = json.loads(seed)
        places = list(paths_of(document))
        count = chance.randint(1, 3)
        words = [*STRANGE, *(token.decode(errors="replace") for token in TOKENS)]
        changes = tuple(
            Mutation(chance.choice(places), chance.choice(words), chance.random() < 0.1)
            for _ in range(count)
        )
        changed = mutated(document, changes)
        if chance.random() < 0.3:
            with contextlib.suppress(yaml.YAMLError):
                return yaml.safe_dump(changed).encode()
        return json.dumps(changed).encode()
    data = bytearray(seed)
    for _ in range(chance.randint(1, 4)):
        at = chance.randrange(len(data) + 1) if data else 0
        end = min(len(data), at + chance.choice((0, 1, 1, 2, 8, 64)))
        token = chance.choice(
            (*TOKENS, bytes([chance.randrange(256)]), bytes(data[end : end + 40]))
        )
        data[at:end] = token
    return bytes(data[: chance.randrange(len(data) + 1)] if chance.random() < 0.1 else data)


def run(parser: Parser, data: bytes, folder: Path) -> None:
    """One input. Raises Find."""
    path = folder / f"input{parser.suffix}"
    for left in folder.iterdir():
        left.unlink()
    path.write_bytes(data)
    try:
        parser.read(path)
    except (NodelifeError, InputError):
        pass  # a line for the user
    except BaseException:
        raise Find(parser, data, traceback.format_exc()) from None


def fuzz(parser: Parser, seconds: float, seed: int, folder: Path, most: int | None = None) -> int:
    """Mutated inputs for so long, or until there were so many; how many. Raises Find."""
    chance = random.Random(f"{parser.name} {seed}")
    for well_formed in parser.seeds:
        run(parser, well_formed, folder)  # also imports what it needs, which is not timed
    until, tried = time.monotonic() + seconds, 0
    while time.monotonic() < until and tried != most:
        run(parser, mutation(chance.choice(parser.seeds), chance), folder)
        tried += 1
    return tried


def main() -> int:
    """By hand; 1 where something was found, each kind of it once."""
    flags = argparse.ArgumentParser(description=__doc__)
    flags.add_argument("--seconds", type=float, default=60.0)
    flags.add_argument("--seed", type=int, default=1)
    flags.add_argument("--only", default="")
    given = flags.parse_args()
    chosen = [parser for parser in parsers() if given.only in parser.name]
    found: dict[str, Find] = {}
    with tempfile.TemporaryDirectory() as folder:
        for parser in chosen:
            until, seed, tried = time.monotonic() + given.seconds / len(chosen), given.seed, 0
            while time.monotonic() < until:
                try:
                    tried += fuzz(parser, until - time.monotonic(), seed, Path(folder))
                except Find as find:
                    kind = "\n".join(str(find).splitlines()[-3:])
                    if kind not in found:
                        found[kind] = find
                        print(f"FIND {find}\n", flush=True)
                seed += 1_000
            print(f"{parser.name}: {tried} inputs in the last rounds", flush=True)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
