"""The flags of `upgrade plan` and `start`, and the file of `kind: Upgrade`.

A file holds the same flags by their names in lowerCamelCase, `--max-unavailable` as
`maxUnavailable`; a flag on the command line wins over it, and its work over all work of the file.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

import click

from kubectl_nodelife.commands.flags import Connection, with_options
from kubectl_nodelife.controllers.upgrade import policy
from kubectl_nodelife.dumps.file_size import read_named
from kubectl_nodelife.errors import BadInput
from kubectl_nodelife.kube.names import did_you_mean, parse_names

_NO_COMMAND: Final = "\0"


_KINDS: Final[Mapping[str, Mapping[str, Any]]] = {
    "text": {},
    "many": {"multiple": True},
    "number": {"type": int},
    "share": {"type": float},
    "command": {"is_flag": False, "flag_value": _NO_COMMAND},
    "unhealthy": {"metavar": None, "type": click.Choice(("skip", "include"))},
    "switch": {"is_flag": True, "default": None},
    "off": {"default": None},
}
"""How click takes a flag of each kind; `off`: a switch that is on unless `--no-...` is given."""


class _Flag(NamedTuple):
    """A flag. `kind`: one of _KINDS."""

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
    _Flag("replace", "command", "[CMD]", "Work: the node goes and a new one of its pool comes."),
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
    _Flag("pools", "text", "NAMES", "The order of pools."),
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
    _Flag("unhealthy", "unhealthy", "", "Nodes that were NotReady [skip]."),
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
_NODES: Final = ("nodes", "selector", "all_nodes", "filename")
_WHICH: Final = (
    click.argument("nodes", nargs=-1, metavar="[NODE...]"),
    click.option("-l", "--selector", help="Nodes with these labels."),
    click.option(
        "--all", "all_nodes", is_flag=True, help="All nodes but those of the control plane."
    ),
    click.option("-f", "--filename", multiple=True, metavar="PATH", help="A file of kind Upgrade."),
)


def policy_flags(callback: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command NODE... and all flags of work and policy, in one argument `given`: a dict."""

    @functools.wraps(callback)
    def with_given(*args: Any, **kwargs: Any) -> Any:
        names = (*map(_keyword, _FLAGS), *_NODES)
        given = {name: kwargs.pop(name) for name in names}
        return callback(*args, given=given, **kwargs)

    return with_options(with_given, (*_WHICH, *map(_option, _FLAGS)))


def _said(given: Mapping[str, Any], connection: Connection) -> dict[str, Any]:
    """All that is said, by the names of a file. Raises BadInput."""
    typed = {flag.field: given[_keyword(flag)] for flag in _FLAGS}
    typed["nodes"] = parse_names(given["nodes"]) or None
    typed |= {"selector": given["selector"] or None, "namespace": connection.namespace or None}
    typed = {name: value for name, value in typed.items() if value not in (None, ())}
    said: dict[str, Any] = {}
    for path in given["filename"]:
        said |= spec_of_file(path)
    if not _MODES.isdisjoint(typed):
        said = {n: value for n, value in said.items() if n not in (*_MODES, "rerunSafe")}
    return said | typed


def policy_of(given: Mapping[str, Any], connection: Connection) -> policy.UpgradePolicy:
    """The policy of flags and file. Raises BadInput, also where no nodes or no work are named."""
    said = _said(given, connection)
    mapping = {name: said[name] for name in (*_WHERE, *(f.field for f in _POLICY)) if name in said}
    for name, separator in _LISTS.items():
        if isinstance(text := mapping.get(name), str):
            mapping[name] = text.split(separator) if separator else [text]
    mapping |= _canary(mapping.get("canary"))
    if isinstance(path := mapping.get("canaryTemplate"), str):
        mapping["canaryTemplate"] = one_document(path)
    if drain := {flag.field: said[flag.field] for flag in _DRAIN if flag.field in said}:
        mapping["drain"] = drain
    work = _work(said)
    named = mapping.get("nodes") or mapping.get("selector")
    if given["all_nodes"] and named:
        raise BadInput("--all names all nodes", remedy="leave out NODE..., -l and --selector")
    if not named and not given["all_nodes"]:
        raise BadInput("no nodes are named", remedy="give NODE..., -l SELECTOR or --all")
    if not work:
        raise BadInput(
            "no work is named", remedy="give --run, --job, --wait, --replace or --nothing"
        )
    return policy.policy_from(mapping | {"work": work})


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


def _work(said: Mapping[str, Any]) -> dict[str, Any]:
    """The work that is named, {} for none. Raises BadInput."""
    from kubectl_nodelife.controllers.upgrade.manifests import check_job_manifest

    modes = [mode for mode in policy.WorkMode if said.get(mode) not in (None, False)]
    if len(modes) > 1:
        raise BadInput(f"--{modes[0]} and --{modes[1]} exclude each other")
    if not modes:
        return {}
    (mode,), value = modes, said[modes[0]]
    work = {"mode": str(mode), "rerunSafe": bool(said.get("rerunSafe"))}
    if mode is policy.WorkMode.JOB:
        work["manifest"] = one_document(str(value))
        check_job_manifest(work["manifest"], str(value))
    elif mode in (policy.WorkMode.RUN, policy.WorkMode.REPLACE) and value is not True:
        work["command"] = str(value).replace(_NO_COMMAND, "")
    if mode is policy.WorkMode.RUN and not str(work.get("command", "")).strip():
        raise BadInput("is empty", on="--run")
    return work


def _option(flag: _Flag) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    name = f"--{flag.name}/--no-{flag.name}" if flag.kind == "off" else f"--{flag.name}"
    how = {"metavar": flag.metavar or None, **_KINDS[flag.kind]}
    return click.option(name, help=flag.help, **how)


def _keyword(flag: _Flag) -> str:
    return flag.name.replace("-", "_")


_FLAGS: Final = (*_WORK, *_POLICY, *_DRAIN)
_MODES: Final = frozenset(map(str, policy.WorkMode))
_WHERE: Final = ("nodes", "selector", "namespace")
"""What a file may name beside flags."""
_LISTS: Final = {"nodes": "", "pools": ",", **{f.field: "" for f in _POLICY if f.kind == "many"}}
"""Fields that hold several texts, and what may stand between them in one."""
API_VERSION: Final = "nodelife.dev/v1alpha1"
KIND: Final = "Upgrade"
_BEGINNING: Final = 4096
_OF_KIND: Final = re.compile(rb"""^\W*kind["']?\s*:\s*["']?Upgrade["']?\s*,?\s*$""", re.MULTILINE)


def is_upgrade_file(path: str) -> bool:
    """True if the file says at its beginning that it is of kind Upgrade."""
    file = Path(path)
    if not file.is_file():
        return False
    with file.open("rb") as opened:
        return _OF_KIND.search(opened.read(_BEGINNING)) is not None


def spec_of_file(path: str) -> dict[str, Any]:
    """The spec of such a file: flags by their names. Raises BadInput."""
    document = one_document(path)
    if (document.get("apiVersion"), document.get("kind")) != (API_VERSION, KIND):
        raise BadInput(f"is no {KIND} of {API_VERSION}", on=path)
    spec = document.get("spec")
    if not isinstance(spec, dict):
        raise BadInput("has no spec", on=path)
    names = sorted({*_WHERE, *(flag.field for flag in _FLAGS)})
    for name in spec:
        if name not in names:
            remedy = did_you_mean(str(name), names)
            raise BadInput(f"unknown key {name!r}", on=f"{path}: spec", remedy=remedy)
    return spec


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
