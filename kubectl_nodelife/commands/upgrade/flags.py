"""The flags of `upgrade plan` and `start`, and the file of `kind: Upgrade`.

Each flag is a field of `UpgradePolicy` in another spelling: `--max-unavailable` is `maxUnavailable`
in the file; a flag wins over it. Work may also stand there as `work: {mode: ...}`, and kubectl
drain's flags as `drain: {...}`, which is how they stand in a run's document.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

import click
from msgspec.structs import fields

from kubectl_nodelife.commands.flags import Connection, with_options
from kubectl_nodelife.controllers.upgrade.policy import (
    NodeWork,
    UpgradePolicy,
    WorkMode,
    policy_from,
)
from kubectl_nodelife.dumps.file_size import read_named
from kubectl_nodelife.errors import BadInput
from kubectl_nodelife.kube.names import did_you_mean, parse_names

_NO_COMMAND: Final = "\0"


class _Flag(NamedTuple):
    """A flag. `kind`: text, many, names, choice, number, share, switch (on), or off (a switch that
    is on unless `--no-...` is given).
    """

    name: str
    kind: str
    metavar: str
    help: str

    @property
    def field(self) -> str:
        """Its name in the file, and of the policy's field: `maxUnavailable`."""
        first, *rest = self.name.split("-")
        return first + "".join(word.capitalize() for word in rest)


_WORK: Final = (
    _Flag("run", "text", "CMD", "Work: run by sh -c on this machine for each node."),
    _Flag("job", "text", "FILE", "Work: a Job on the node; $(NODE) and others are put in."),
    _Flag("wait", "switch", "", "The work is done by others; --target says when it is done."),
    _Flag("replace", "command", "CMD", "Work: the node goes and a new one of its pool comes."),
    _Flag("nothing", "switch", "", "Work: none; drain, prove and release only."),
    _Flag("rerun-safe", "switch", "", "Running the work twice at once does no harm."),
)
_POLICY: Final = (
    _Flag("exclude", "text", "NAMES|SELECTOR", "Nodes to leave out."),
    _Flag("include-control-plane", "switch", "", "These too, last."),
    _Flag("target", "many", "KEY=VALUE", "Evidence of change; repeatable."),
    _Flag("max-unavailable", "text", "N|P%", "Out of a pool at most [10%]."),
    _Flag("min-available", "text", "N|P%", "Available in a pool at least."),
    _Flag("cluster-min-available", "text", "N|P%", "In the cluster."),
    _Flag("max-per-zone", "text", "N|P%", "Out of a pool's zone at most."),
    _Flag("max-parallel", "number", "N", "In flight at most."),
    _Flag("low-water", "share", "PERCENT", "Cpu and memory to keep free [10]."),
    _Flag("zones", "number", "N", "Zones at once, 0 for all [1]."),
    _Flag("pools", "names", "NAMES", "The order of pools."),
    _Flag("pool-label", "text", "KEY", "The label that names a node's pool."),
    _Flag("allow-dark-zone", "switch", "", "A zone's only node may go."),
    _Flag("canary", "text", "N|NAMES", "The first step: how many, or which [1]."),
    _Flag("soak", "text", "DURATION", "Wait after each step [5m]."),
    _Flag("node-soak", "text", "DURATION", "Watch of a released node [1m]."),
    _Flag("max-failures", "number", "N", "Failures before it pauses [0]."),
    _Flag("drain-timeout", "text", "DURATION", "For a node's drain [15m]."),
    _Flag("work-timeout", "text", "DURATION", "For one try of the work [30m]."),
    _Flag("return-timeout", "text", "DURATION", "To be well again [15m]."),
    _Flag("prove-timeout", "text", "DURATION", "For the proof [5m]."),
    _Flag("ready-for", "text", "DURATION", "Ready without a break for [1m]."),
    _Flag("retries", "number", "N", "Further tries of the work [1]."),
    _Flag("expect-work", "text", "DURATION", "How long the work will take."),
    _Flag("window", "many", "'DAYS FROM-TO ZONE'", "Claim only then; repeatable."),
    _Flag("gate", "text", "CMD", "Hold while this fails."),
    _Flag("unhealthy", "choice", "skip|include", "Nodes that were NotReady [skip]."),
    _Flag("include-cordoned", "switch", "", "Nodes that others cordoned."),
    _Flag("accept-unknown", "switch", "", "Nodes of which too little is read."),
    _Flag("shield", "off", "", "Ask autoscalers to leave nodes in work alone."),
    _Flag("mark-outdated", "off", "", "Softly taint nodes still to be done."),
    _Flag("require", "many", "TYPE=STATUS", "A condition to be met; repeatable."),
    _Flag("allow-less", "switch", "", "Fewer resources than before will do."),
    _Flag("lease-namespace", "text", "NS", "Of the Lease [kube-system]."),
    _Flag("canary-image", "text", "IMAGE", "The canary's; else a pause image."),
    _Flag("canary-template", "text", "FILE", "A pod of your own as the canary."),
)
_DRAIN: Final = (
    _Flag("force", "switch", "", "As kubectl drain."),
    _Flag("ignore-daemonsets", "switch", "", "As kubectl drain; always on."),
    _Flag("delete-emptydir-data", "switch", "", "As kubectl drain."),
    _Flag("grace-period", "number", "SECONDS", "As kubectl drain."),
    _Flag("pod-selector", "text", "SELECTOR", "As kubectl drain."),
    _Flag("skip-wait-for-delete-timeout", "number", "SECONDS", "As kubectl drain."),
)
_NODES: Final = ("nodes", "selector", "all_nodes")
_WHICH: Final = (
    click.argument("nodes", nargs=-1, metavar="[NODE...]"),
    click.option("-l", "--selector", help="Nodes with these labels."),
    click.option(
        "--all", "all_nodes", is_flag=True, help="All nodes but those of the control plane."
    ),
    click.option("-f", "--filename", multiple=True, metavar="PATH", help="A file of kind Upgrade."),
)
_TYPES: Final[Mapping[str, Any]] = {"number": int, "share": float}


def policy_flags(callback: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command NODE... and all flags of work and policy, in one argument `given`: a dict."""

    @functools.wraps(callback)
    def with_given(*args: Any, **kwargs: Any) -> Any:
        names = [_keyword(flag) for flag in (*_WORK, *_POLICY, *_DRAIN)]
        given = {name: kwargs.pop(name) for name in (*names, *_NODES, "filename")}
        return callback(*args, given=given, **kwargs)

    return with_options(
        with_given, (*_WHICH, *(_option(flag) for flag in (*_WORK, *_POLICY, *_DRAIN)))
    )


def given_mapping(given: Mapping[str, Any], connection: Connection) -> dict[str, Any]:
    """The values of flags and file, in the file's names. Raises BadInput."""
    mapping: dict[str, Any] = {}
    for path in given["filename"]:
        mapping |= spec_of_file(path)
    for flag in _POLICY:
        value = given[_keyword(flag)]
        if value not in (None, ()):
            mapping[flag.field] = value.split(",") if flag.kind == "names" else value
    mapping |= _canary(mapping.get("canary"))
    if given["nodes"]:
        mapping["nodes"] = parse_names(given["nodes"])
    if given["selector"]:
        mapping["selector"] = given["selector"]
    if connection.namespace:
        mapping["namespace"] = connection.namespace
    drain = {f.field: given[_keyword(f)] for f in _DRAIN if given[_keyword(f)] is not None}
    if drain:
        mapping["drain"] = {**mapping.get("drain", {}), **drain}
    if path := given["canary_template"]:
        mapping["canaryTemplate"] = one_document(path)
    if work := _work(given):
        mapping["work"] = work
    elif given["rerun_safe"] and isinstance(mapping.get("work"), dict):
        mapping["work"] = {**mapping["work"], "rerunSafe": True}
    return mapping


def policy_of(given: Mapping[str, Any], connection: Connection) -> UpgradePolicy:
    """The policy of flags and file. Raises BadInput, also where no nodes or no work are named."""
    mapping = given_mapping(given, connection)
    named = mapping.get("nodes") or mapping.get("selector")
    if given["all_nodes"] and named:
        raise BadInput("--all names all nodes", remedy="leave out NODE..., -l and --selector")
    if not named and not given["all_nodes"]:
        raise BadInput("no nodes are named", remedy="give NODE..., -l SELECTOR or --all")
    if "work" not in mapping:
        raise BadInput(
            "no work is named", remedy="give --run, --job, --wait, --replace or --nothing"
        )
    return policy_from(mapping)


def split_dumps(given: Mapping[str, Any]) -> tuple[dict[str, Any], tuple[str, ...]]:
    """The flags with the files of kind Upgrade alone, and the other files, which are dumps."""
    files = tuple(path for path in given["filename"] if is_upgrade_file(path))
    dumps = tuple(path for path in given["filename"] if path not in files)
    return {**given, "filename": files}, dumps


def _canary(value: Any) -> dict[str, Any]:
    """`--canary 2` is a size, `--canary b1,b2` are names."""
    if value is None or isinstance(value, int):
        return {}
    if str(value).isdecimal():
        return {"canary": int(value)}
    names = str(value).split(",")
    return {"canary": len(names), "canaryNodes": names}


def _work(given: Mapping[str, Any]) -> dict[str, Any]:
    """The work of the flags, {} where none is named. Raises BadInput."""
    commands = {mode: _command(given[mode]) for mode in ("run", "replace")}
    work = _named_work({**given, **commands}, "--")
    return {**work, "rerunSafe": bool(given["rerun_safe"])} if work else {}


def _command(text: str | None) -> str | None:
    return text if text is None else text.replace(_NO_COMMAND, "")


def _named_work(named: Mapping[str, Any], flag: str, on: str = "") -> dict[str, Any]:
    """The work that the one mode of these names, which it must have; {} for none. `flag` leads the
    names in errors, and `on` the place. Raises BadInput.
    """
    from kubectl_nodelife.controllers.upgrade.manifests import check_job_manifest

    modes = [mode for mode in WorkMode if named.get(str(mode)) not in (None, False)]
    if len(modes) > 1:
        raise BadInput(f"{flag}{modes[0]} and {flag}{modes[1]} exclude each other", on=on)
    if not modes:
        return {}
    (mode,), value = modes, named[str(modes[0])]
    work: dict[str, Any] = {"mode": str(mode)}
    if mode is WorkMode.JOB:
        work["manifest"] = one_document(str(value))
        check_job_manifest(work["manifest"], str(value))
    elif mode in (WorkMode.RUN, WorkMode.REPLACE) and value is not True:
        work["command"] = value
    if mode is WorkMode.RUN and not str(work.get("command", "")).strip():
        raise BadInput("is empty", on=f"{on}.run" if on else "--run")
    return work


def _option(flag: _Flag) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    name = f"--{flag.name}"
    if flag.kind == "switch":
        return click.option(name, is_flag=True, default=None, help=flag.help)
    if flag.kind == "off":
        return click.option(f"{name}/--no-{flag.name}", default=None, help=flag.help)
    if flag.kind == "command":
        return click.option(
            name, is_flag=False, flag_value=_NO_COMMAND, metavar="[CMD]", help=flag.help
        )
    if flag.kind == "choice":
        return click.option(name, type=click.Choice(flag.metavar.split("|")), help=flag.help)
    many = flag.kind == "many"
    type_ = _TYPES.get(flag.kind)
    return click.option(name, multiple=many, type=type_, metavar=flag.metavar, help=flag.help)


def _keyword(flag: _Flag) -> str:
    return flag.name.replace("-", "_")


API_VERSION: Final = "nodelife.dev/v1alpha1"
KIND: Final = "Upgrade"
_BEGINNING: Final = 4096
_OF_KIND: Final = re.compile(rb"""^\W*kind["']?\s*:\s*["']?Upgrade["']?\s*,?\s*$""", re.MULTILINE)
_FIELDS: Final = tuple(field.encode_name for field in fields(UpgradePolicy))
_WORK_FIELDS: Final = tuple(field.encode_name for field in fields(NodeWork))
_MODES: Final = tuple(str(mode) for mode in WorkMode)
_RERUN_SAFE: Final = "rerunSafe"
_LISTS: Final = ("nodes", "target", "window", "require", "pools", "canaryNodes")


def is_upgrade_file(path: str) -> bool:
    """True if the file says at its beginning that it is of kind Upgrade."""
    file = Path(path)
    if not file.is_file():
        return False
    with file.open("rb") as opened:
        return _OF_KIND.search(opened.read(_BEGINNING)) is not None


def spec_of_file(path: str) -> dict[str, Any]:
    """The spec of such a file, as `policy_from` takes it. Raises BadInput."""
    from kubectl_nodelife.upgrade.answers import DRAIN_FLAGS

    document = one_document(path)
    if (document.get("apiVersion"), document.get("kind")) != (API_VERSION, KIND):
        raise BadInput(f"is no {KIND} of {API_VERSION}", on=path)
    spec = document.get("spec")
    if not isinstance(spec, dict):
        raise BadInput("has no spec", on=path)
    keys = (*_FIELDS, *_MODES, _RERUN_SAFE, *DRAIN_FLAGS)
    _check_names(f"{path}: spec", spec, keys)
    _check_names(f"{path}: spec.work", spec.get("work") or {}, _WORK_FIELDS)
    _check_names(f"{path}: spec.drain", spec.get("drain") or {}, DRAIN_FLAGS)
    mapping = {name: value for name, value in spec.items() if name in _FIELDS}
    for name in _LISTS:
        if isinstance(mapping.get(name), str):
            mapping[name] = [mapping[name]]
    drain = {name: value for name, value in spec.items() if name in DRAIN_FLAGS}
    if drain:
        mapping["drain"] = {**(spec.get("drain") or {}), **drain}
    if isinstance(spec.get("canaryTemplate"), str):
        mapping["canaryTemplate"] = one_document(spec["canaryTemplate"])
    return mapping | _work_of_file(path, spec)


def one_document(path: str) -> dict[str, Any]:
    """The one object of a file. Raises BadInput."""
    from kubectl_nodelife.kube.documents import utf8, yaml_documents
    from kubectl_nodelife.kube.unreadable import InputError

    try:
        documents = list(yaml_documents(utf8(read_named(path), path), path))
    except InputError as error:
        raise BadInput(str(error)) from None
    if len(documents) != 1 or not isinstance(documents[0], dict):
        raise BadInput("is not one object", on=path)
    return documents[0]


def _work_of_file(path: str, spec: Mapping[str, Any]) -> dict[str, Any]:
    """The work by the flags' names: `run: CMD`, `job: FILE`, `wait: true`. Raises BadInput."""
    from kubectl_nodelife.controllers.upgrade.manifests import check_job_manifest

    work = _named_work(spec, "", f"{path}: spec")
    if work and "work" in spec:
        raise BadInput(f"{work['mode']} and work exclude each other", on=f"{path}: spec")
    if not work:
        work = dict(spec.get("work") or {})
        if work.get("mode") == WorkMode.JOB:
            check_job_manifest(work.get("manifest"), f"{path}: spec.work.manifest")
        if work.get("mode") == WorkMode.RUN and not str(work.get("command", "")).strip():
            raise BadInput("is empty", on=f"{path}: spec.work.command")
    if work and _RERUN_SAFE in spec:
        work["rerunSafe"] = spec[_RERUN_SAFE]
    return {"work": work} if work else {}


def _check_names(on: str, mapping: Any, keys: Iterable[str]) -> None:
    if not isinstance(mapping, dict):
        raise BadInput("must be a map", on=on)
    names = sorted(keys)
    for name in mapping:
        if name not in names:
            raise BadInput(f"unknown key {name!r}", on=on, remedy=did_you_mean(str(name), names))
