"""`kubectl nodelife doctor`: whether everything is there that this program needs."""

from __future__ import annotations

import json
import os
import platform
import re
import shutil
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, closing
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import click

from kubectl_nodelife import PROGRAM, SHIM, __version__
from kubectl_nodelife.build_info import COMMIT
from kubectl_nodelife.commands.flags import Connection, Output, connection_flags, output_flags
from kubectl_nodelife.document import document
from kubectl_nodelife.errors import EXIT_DONE, EXIT_NO, NodelifeError
from kubectl_nodelife.kube.names import counted, first_names
from kubectl_nodelife.report.formats import NONE, Block, Page, Table, columns

if TYPE_CHECKING:
    from kubectl_nodelife.live.client import Client
    from kubectl_nodelife.live.target import Target

CLUSTER_SECONDS: Final = 10
_PROGRAM_SECONDS: Final = 10
_FORBIDDEN: Final = 403
_OLDEST_KUBECTL: Final = 26
"""Minor version of the first kubectl that asks plugins for completion."""
_HINT: Final = "The exit code is 0 all the same; with --exit-code it is 4 where a check failed."
_SWEEP: Final = ("cryptography", "distributed", "pyarrow")
"""Modules of the extra `sweep`."""


@click.command()
@click.option("--exit-code", is_flag=True, help="Exit with 4 if a check failed.")
@output_flags()
@connection_flags
def doctor(exit_code: bool, output: Output, connection: Connection) -> int:
    """Check the program, kubectl, completion, kubeconfig, cluster, clock, daemon and journal.

    Says of each what was found and what to do. Changes nothing, and starts nothing; the cluster
    is asked for its version only, and from v1.37 on for the role of its node controller.

    Before you uninstall: daemon stop --all, and completion uninstall. What the program has written
    for you stays, in ~/.cache/nodelife, ~/.local/state/nodelife and ~/.config/nodelife.

    \b
    Examples:
      kubectl nodelife doctor
      kubectl nodelife doctor -o json
    """
    findings = list(diagnose(connection))
    failed = any(finding.result == FAILED for finding in findings)
    output.show(doctor_page(findings, "" if exit_code or not failed else _HINT))
    return EXIT_NO if exit_code and failed else EXIT_DONE


def diagnose(connection: Connection) -> Iterator[Finding]:
    """All checks, in order; those of the cluster only where the flags mean one."""
    from kubectl_nodelife.live.target import cluster_identity, find_target

    yield from (check() for check in (_program, _extras, _kubectl, _completion))
    try:
        target = find_target(connection, os.environ)
    except (NodelifeError, OSError) as error:
        yield Finding("kubeconfig", FAILED, str(error), "see: kubectl config get-contexts")
        return
    where = f"context {target.context or '<none>'}, {target.server}"
    yield Finding("kubeconfig", OK, where)
    yield from _cluster(target)
    identity = cluster_identity(target)
    yield _attempt("daemon", lambda: _daemon(identity))
    yield _attempt("journal", lambda: _journal(identity))


def _attempt(name: str, check: Callable[[], Finding]) -> Finding:
    try:
        return check()
    except NodelifeError as error:
        what = f"{error.on}: {error.what}" if error.on else error.what
        return Finding(name, FAILED, what, error.remedy)


def _program() -> Finding:
    installed = installation()
    text = f"v{__version__} by {installed.by}, Python {platform.python_version()}"
    on_path = shutil.which(PROGRAM)
    if on_path is None:
        return Finding("program", WARNING, f"{text}; {PROGRAM} is not on PATH",
                       "put a link to it on PATH, or kubectl does not find it")  # fmt: skip
    of_path = _version_of(on_path)
    if of_path != f"v{__version__}":
        return Finding("program", WARNING, f"{text}; kubectl runs {on_path}, which is {of_path}",
                       "remove one of the two, or change PATH")  # fmt: skip
    return Finding("program", OK, f"{text}, {on_path}")


def _version_of(program: str) -> str:
    """The version that the program says it is."""
    said = _said_by(program, "--version")
    return "not to be run" if said is None else (said.split() or ["without a version"])[-1]


def _said_by(*words: str) -> str | None:
    """What a program writes to stdout; None where it cannot be run, or takes too long."""
    import subprocess

    try:
        done = subprocess.run(
            words, capture_output=True, timeout=_PROGRAM_SECONDS, text=True, errors="replace"
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout


def _extras() -> Finding:
    from importlib.util import find_spec

    missing = [name for name in _SWEEP if find_spec(name) is None]
    if missing:
        return Finding("extras", OK, f"sweep is not installed ({', '.join(missing)})",
                       "only for studies: install kubectl-nodelife[sweep]")  # fmt: skip
    return Finding("extras", OK, "sweep is installed")


def _kubectl() -> Finding:
    program = shutil.which("kubectl")
    if program is None:
        return Finding("kubectl", WARNING, "not on PATH", "install kubectl")
    said = _said_by(program, "version", "--client", "-o", "json")
    try:
        version = str(json.loads(said or "")["clientVersion"]["gitVersion"])
    except (ValueError, KeyError):
        return Finding("kubectl", WARNING, f"{program} does not say its version")
    minor = re.match(r"v1\.(\d+)", version)
    if minor is not None and int(minor[1]) < _OLDEST_KUBECTL:
        need = f"v1.{_OLDEST_KUBECTL} or newer completes plugins' words"
        return Finding("kubectl", WARNING, version, need)
    return Finding("kubectl", OK, version)


def _completion() -> Finding:
    shim = shutil.which(SHIM)
    if shim is None:
        remedy = "run: kubectl nodelife completion install"
        return Finding("completion", WARNING, f"{SHIM} is not on PATH", remedy)
    return Finding("completion", OK, shim)


def _cluster(target: Target) -> Iterator[Finding]:
    """That the cluster does not answer; else its version, and by how much our clock is off."""
    import asyncio

    from kubectl_nodelife.live.clock import SKEW_WARNED_NS
    from kubectl_nodelife.live.manager_role import release_reads_leases

    try:
        version, skew_ns = asyncio.run(_ask_version(target))
    except NodelifeError as error:
        remedy = error.remedy or "see: kubectl get --raw /version"
        yield Finding("cluster", FAILED, error.what, remedy)
        return
    yield Finding("cluster", OK, f"Kubernetes {version}")
    seconds = abs(skew_ns) / 1e9
    if abs(skew_ns) > SKEW_WARNED_NS:
        yield Finding("clock", WARNING, f"{seconds:.1f}s off the API server's",
                      "set this machine's clock, by NTP for instance")  # fmt: skip
    else:
        yield Finding("clock", OK, f"within {seconds:.1f}s of the API server's")
    yield _rights(target)
    if release_reads_leases(version):
        yield _node_controller(asyncio.run(_read_role(target)))


def _rights(target: Target) -> Finding:
    """Which of the resources that verbs read may not be listed; without nodes no verb answers."""
    import asyncio

    try:
        refused = asyncio.run(_refused(target))
    except NodelifeError as error:
        return Finding("rights", WARNING, error.what, error.remedy)
    if not refused:
        return Finding("rights", OK, "may list all that verbs read")
    result = FAILED if "nodes" in refused else WARNING
    return Finding("rights", result, f"may not list {first_names(refused, 4)}",
                   "see: kubectl nodelife rbac")  # fmt: skip


async def _refused(target: Target) -> list[str]:
    """The resources of which the server refuses a list. Raises NodelifeError."""
    from kubectl_nodelife.commands.access_rules import BEHIND_GATES, RULES
    from kubectl_nodelife.live.client import ApiError

    refused = []
    async with _asking(target) as connected:
        for group, resources, verbs in RULES:
            if "list" not in verbs or (group, resources, verbs) in BEHIND_GATES:
                continue
            path = f"/apis/{group}/v1" if group else "/api/v1"
            for name in resources:
                try:
                    await connected.read(f"{path}/{name}?limit=1", retry=False)
                except ApiError as error:
                    refused += [name] if error.code == _FORBIDDEN else []
    return refused


def _node_controller(role: dict[str, Any] | None) -> Finding:
    """Whether the node controller's role lets Leases be read, without which no node is lost."""
    from kubectl_nodelife.live.manager_role import (
        AUTOUPDATE,
        MAY_NOT,
        NODE_CONTROLLER,
        REMEDY,
        lets_read_leases,
    )

    check, see = "node controller", f"see: kubectl get clusterrole {NODE_CONTROLLER} -o yaml"
    if role is None:
        return Finding(check, WARNING, f"ClusterRole {NODE_CONTROLLER} cannot be read: whether it "
                       "lets Leases be read, without which no node is called lost, is not known",
                       see)  # fmt: skip
    annotations = (role.get("metadata") or {}).get("annotations") or {}
    if not lets_read_leases(role):
        return Finding(check, WARNING, MAY_NOT, REMEDY)
    if annotations.get(AUTOUPDATE) == "false":
        return Finding(check, WARNING, f"ClusterRole {NODE_CONTROLLER} has {AUTOUPDATE}=false: "
                       "what newer releases need is not added to it", see)  # fmt: skip
    return Finding(check, OK, f"ClusterRole {NODE_CONTROLLER} lets Leases be read")


async def _read_role(target: Target) -> dict[str, Any] | None:
    from kubectl_nodelife.live.manager_role import read_role

    async with _asking(target) as connected:
        return await read_role(connected)


async def _ask_version(target: Target) -> tuple[str, int]:
    from kubectl_nodelife.live.clock import steady_ns

    async with _asking(target) as connected:
        answer = json.loads(await connected.read("/version", retry=False))
        return str(answer["gitVersion"]), connected.clock.skew_ns(steady_ns(), time.time_ns())


@asynccontextmanager
async def _asking(target: Target) -> AsyncIterator[Client]:
    """A client that waits no longer than CLUSTER_SECONDS."""
    import msgspec

    from kubectl_nodelife.live.auth import Session
    from kubectl_nodelife.live.client import Client

    limit_ns = CLUSTER_SECONDS * 1_000_000_000
    asked = msgspec.structs.replace(
        target, request_timeout_ns=min(target.request_timeout_ns or limit_ns, limit_ns)
    )
    connected = Client(Session(asked, os.environ))
    try:
        yield connected
    finally:
        await connected.close()


def _daemon(identity: str) -> Finding:
    from kubectl_nodelife.daemon import client
    from kubectl_nodelife.daemon.paths import folder_of_sockets, socket_path

    none_runs = Finding("daemon", OK, "none runs", "to watch: kubectl nodelife daemon start")
    runtime = folder_of_sockets(os.environ)
    if not runtime:
        return none_runs
    try:
        health = client.ask(socket_path(runtime, identity), "health", seconds=2.0)
    except client.NotRunning:
        return none_runs
    version, warnings = str(health.get("version")), list(health.get("warnings") or ())
    text = f"v{version}, pid {health.get('pid')}"
    if version != __version__:
        return Finding("daemon", WARNING, f"{text}, and this is v{__version__}",
                       "run: kubectl nodelife daemon restart")  # fmt: skip
    if warnings or not health.get("synced"):
        what = str(warnings[0]) if warnings else "still reading the cluster"
        return Finding("daemon", WARNING, f"{text}: {what}", "see: kubectl nodelife daemon status")
    return Finding("daemon", OK, text)


def _journal(identity: str) -> Finding:
    import sqlite3

    from kubectl_nodelife.daemon.paths import journal_path, open_to_read, state_folder

    folder = os.path.join(state_folder(os.environ), identity)
    if not os.path.isdir(folder):
        return Finding("journal", OK, "none yet")
    path = journal_path(dict(os.environ), identity)
    if path == ":memory:" or not os.path.exists(path):
        return Finding("journal", OK, "none yet")
    try:
        with closing(open_to_read(path, seconds=2)) as db:
            fault = str(db.execute("PRAGMA quick_check(1)").fetchone()[0])
    except sqlite3.Error as error:
        fault = str(error)
    size = os.path.getsize(path) / 1e6
    if fault != "ok":
        return Finding("journal", FAILED, f"{path}: {fault}",
                       f"stop the daemon and move it away: mv {path} {path}.old")  # fmt: skip
    return Finding("journal", OK, f"{path}, {size:.1f} MB")


OK, WARNING, FAILED = "ok", "warning", "failed"

_COLUMNS = columns("check | result | found | to do")


class Finding(NamedTuple):
    """The finding of one check: OK, WARNING or FAILED, in words, and what to do about it."""

    check: str
    result: str
    found: str
    remedy: str = ""


def doctor_page(findings: Sequence[Finding], hint: str = "") -> Page:
    """All findings, in the order of the checks. Names: the checks that did not pass. `hint`: the
    last line for people, "" for none."""
    bad = [f for f in findings if f.result != OK]
    many = counted(len(findings), "check")

    def blocks(*, wide: bool) -> Iterator[Block]:
        if not bad:
            yield f"Nothing is missing: {many} passed."
        else:
            first = next((f for f in bad if f.result == FAILED), bad[0])
            failed = sum(f.result == FAILED for f in bad)
            yield (
                f"Of {many} {failed} failed, {counted(len(bad) - failed, 'warning')}; the first "
                f"is {first.check}: {first.found}."
            )
        yield Table(_COLUMNS, [(f.check, f.result, f.found, f.remedy or NONE) for f in findings])
        if hint:
            yield hint

    return Page(
        blocks,
        lambda: document("Doctor", items=[finding._asdict() for finding in findings]),
        lambda: (f"check/{f.check}" for f in bad),
    )


class Installation(NamedTuple):
    """`by`: krew, archive, pipx, uv, pip or checkout. `commit` is empty where it is unknown."""

    by: str
    folder: str
    commit: str


def installation() -> Installation:
    """The way of installation, as the package's place shows."""
    folder = Path(__file__).parents[2]
    if (folder.parent / "kubectl-nodelife").is_file() and folder.name == "lib":
        home = folder.parent
        by = "krew" if "store" in home.parts and home.parts[-3:-2] == ("nodelife",) else "archive"
        return Installation(by, str(home), COMMIT)
    if (folder / ".git").exists():
        head = COMMIT or _said_by("git", "-C", str(folder), "rev-parse", "HEAD") or ""
        return Installation("checkout", str(folder), head.strip())
    where = Path(sys.prefix).parts
    by = "pipx" if "pipx" in where else "uv" if {"uv", "tools"} <= set(where) else "pip"
    return Installation(by, sys.prefix, COMMIT)
