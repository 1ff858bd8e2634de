"""The acts of a question, from the words of a command line: `lose zone a --for 20m --and drain b1`.

An act is a verb, its targets and its options. Each becomes events of a scenario, in the very form
that a scenario's document has them in, so that they are checked and played by the same code.
`set` changes settings instead, for the whole of the future.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from difflib import get_close_matches
from functools import cached_property
from typing import Any, Final, NamedTuple

import msgspec

from kubectl_nodelife.engine.cache import Cache
from kubectl_nodelife.engine.pace import ENFORCED_BURST, ENFORCED_QPS
from kubectl_nodelife.errors import BadInput
from kubectl_nodelife.kube.names import (
    NODE,
    POD,
    ZONE,
    first_names,
    kind_of,
    parse_names,
    parse_subjects,
)
from kubectl_nodelife.kube.node import zone_display, zone_key
from kubectl_nodelife.kube.selectors import label_selector, matches
from kubectl_nodelife.kube.times import SECOND_NS, parse_duration
from kubectl_nodelife.sim.events import UpgradeCommandEvent, UpgradeEvent, read_events
from kubectl_nodelife.sim.fields import FieldPath

FORMS: Final = {
    "lose node NAME...": "what-if lose node worker-1 --for 10m",
    "lose nodes -l SELECTOR": "what-if lose nodes -l rack=r7",
    "lose zone ZONE...": "what-if lose zone eu-1a --for 20m",
    "lose link [node NAME...|zone ZONE...]": "what-if lose link zone eu-1a --for 5m",
    "taint node NAME... K=V:EFFECT...": "what-if taint node worker-1 maintenance=now:NoExecute",
    "untaint node NAME... K[=V][:EFFECT]...": "what-if untaint node worker-1 maintenance",
    "cordon NAME...": "what-if cordon worker-1 --and lose node worker-1 --at 1m",
    "uncordon NAME...": "what-if uncordon worker-1",
    "drain NODE... [flags of kubectl drain]": "what-if drain worker-1 --ignore-daemonsets",
    "delete node NAME...": "what-if delete node worker-1",
    "delete pod NAMESPACE/NAME...": "what-if delete pod shop/web-0",
    "set FLAG=VALUE... [--restart] [--restamp]": "what-if set node-monitor-grace-period=20s --and "
    "lose node worker-1",
}
"""Each form of an act -> an example."""

TOLERATION_SECONDS: Final = "toleration-seconds"
"""Stands for the API server's two flags of default tolerations."""

_VERBS: Final = ("lose", "taint", "untaint", "cordon", "uncordon", "drain", "delete", "set")
_NAMED: Final = 5

ENFORCED: Final = "enforced"
"""The act that is no word of the command line: the flag of that name."""

_DRAIN_SWITCHES: Final = {
    "--ignore-daemonsets": "ignoreDaemonSets",
    "--delete-emptydir-data": "deleteEmptyDirData",
    "--force": "force",
    "--disable-eviction": "disableEviction",
}
_DRAIN_VALUES: Final = {
    "--grace-period": "gracePeriod",
    "--timeout": "timeout",
    "--pod-selector": "podSelector",
    "--skip-wait-for-delete-timeout": "skipWaitForDeleteTimeout",
}
_VALUES: Final = frozenset({"--at", "--for", "-l", "--selector", *_DRAIN_VALUES})


class Act(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """One act as it was understood. `nodes`: those that it is about; seconds since the question.

    `detail`: the scenario events that it comes to, or the settings; `restart`: the controllers are
    started anew with them; `restamp`: pods that are there get other default tolerations, too.
    """

    index: int
    act: str
    targets: list[str]
    nodes: list[str]
    at_seconds: float
    detail: list[dict[str, Any]]
    for_seconds: float | None = None
    restart: bool = False
    restamp: bool = False

    @property
    def is_setting(self) -> bool:
        """True if it changes settings, and not the cluster."""
        return self.act in ("set", ENFORCED)


def enforced_act() -> Act:
    """Our daemon in enforce mode takes the place of the controllers: its clients' own pace."""
    flags = {"kube-api-qps": f"{ENFORCED_QPS:g}", "kube-api-burst": str(ENFORCED_BURST)}
    return Act(0, ENFORCED, [f"{name}={value}" for name, value in flags.items()], [], 0.0, [flags])


class ActWords(NamedTuple):
    """An act's words: its verb, its targets, its options ("" for a switch)."""

    verb: str
    targets: list[str]
    options: dict[str, str]


def read_acts(words: Sequence[str], cluster: Cache, *, beta_zone_labels_only: bool) -> list[Act]:
    """The acts, resolved on a cluster. Raises BadInput."""
    resolver = _Resolver(cluster, beta_zone_labels_only)
    return [resolver.act(i, each) for i, each in enumerate(split_words(words))]


class Narrowing(NamedTuple):
    """Which nodes a ranking is about, of those of a cluster: all, or as -l and --zone say."""

    selector: str | None = None
    zones: tuple[str, ...] = ()

    def nodes(self, cluster: Cache, *, beta_zone_labels_only: bool) -> list[str]:
        """Their names, in order. Raises BadInput where there are none."""
        resolver = _Resolver(cluster, beta_zone_labels_only)
        names = sorted(cluster.nodes)
        if self.selector is not None:
            names = resolver.matching(self.selector)
        if self.zones:
            there = {node for zone in self.zones for node in resolver.of_zone(zone)}
            names = [name for name in names if name in there]
            if not names:
                what = f"no node of {', '.join(self.zones)} matches"
                raise BadInput(what, on=f"--selector {self.selector}", remedy="check the labels")
        return names


def narrowing(words: Sequence[str]) -> tuple[Narrowing, list[str]]:
    """The choice of nodes in the words of a ranking, and the rest of the words. Raises BadInput."""
    selector, zones, rest = None, list[str](), list[str]()
    remaining = list(words)
    while remaining:
        word = remaining.pop(0)
        name, equals, value = word.partition("=")
        if name not in ("-l", "--selector", "--zone"):
            rest.append(word)
            continue
        if not equals:
            if not remaining:
                raise BadInput("lacks its value", on=name)
            value = remaining.pop(0)
        if name == "--zone":
            zones.append(value)
        else:
            selector = value
    return Narrowing(selector, tuple(zones)), rest


def acts_of_file(name: str, events: Sequence[Any], cluster: Cache) -> Act:
    """The events of a file as one act. Raises BadInput."""
    read = read_events(list(events), FieldPath(name).key("spec").key("events"))
    nodes: dict[str, None] = {}
    for event in read:
        targets = getattr(event.what, "targets", None)
        if isinstance(event.what, (UpgradeEvent, UpgradeCommandEvent)):
            remedy = "play a scenario with simulate"
            raise event.place.fault("upgrades are not played here", remedy)
        if targets is None:
            continue
        for node in targets.nodes:
            if node not in cluster.nodes:
                raise event.place.fault(f"no node {node}", _meant(node, cluster.nodes))
        nodes |= dict.fromkeys(targets.nodes)
        if targets.selector is not None:
            of_all = sorted(cluster.nodes.items())
            nodes |= {n: None for n, o in of_all if matches(targets.selector, o.metadata.labels)}
    detail = [dict(event) for event in events]
    first_ns = min(event.at_ns for event in read)
    return Act(0, "file", [name], list(nodes), first_ns / SECOND_NS, detail)


def split_words(words: Sequence[str]) -> Iterator[ActWords]:
    """The words act by act. Of `set` the first word that is no FLAG=VALUE begins the next act, so
    that `set A=B -- lose zone a` is understood as well. Raises BadInput for what is no act on any
    cluster.
    """
    act: ActWords | None = None
    rest = list(words)
    while rest:
        word = rest.pop(0)
        if word == "--and":
            if act is None:
                raise BadInput("stands between two acts", on="--and")
            yield act
            act = None
        elif act is None:
            act = ActWords(_verb(word), [], {})
        elif word.startswith("-"):
            name, equals, value = word.partition("=")
            if name in _VALUES and not equals:
                if not rest:
                    raise BadInput("lacks its value", on=name)
                value = rest.pop(0)
            act.options[name] = value
        elif act.verb == "set" and "=" not in word:
            yield act
            act = ActWords(_verb(word), [], {})
        else:
            act.targets.append(word)
    if act is None:
        raise BadInput("no act is given", on="what-if", remedy="see 'kubectl nodelife what-if'")
    yield act


def _verb(word: str) -> str:
    if word in _VERBS:
        return word
    near = get_close_matches(word, _VERBS, 1)
    meant = f"did you mean {near[0]}?" if near else f"it is one of {', '.join(_VERBS)}"
    raise BadInput(f"no act {word!r}", on="what-if", remedy=meant)


class _Resolver:
    """Finds an act's nodes in a cluster."""

    def __init__(self, cluster: Cache, beta_zone_labels_only: bool) -> None:
        self._cluster, self._beta_only = cluster, beta_zone_labels_only

    @cached_property
    def _zones(self) -> dict[str, list[str]]:
        """The nodes of each zone."""
        zones: dict[str, list[str]] = {}
        for name, node in sorted(self._cluster.nodes.items()):
            zone = zone_display(zone_key(node.metadata.labels, beta_only=self._beta_only))
            zones.setdefault(zone, []).append(name)
        return zones

    def act(self, index: int, words: ActWords) -> Act:
        """The act. Raises BadInput."""
        make: Callable[[ActWords], Act] = getattr(self, f"_{words.verb}")
        act = make(words)
        return msgspec.structs.replace(act, index=index)

    def _lose(self, words: ActWords) -> Act:
        link = words.targets[:1] == ["link"]
        targets = words.targets[1:] if link else words.targets
        of_all = link and not targets and _selector(words) is None
        if of_all:
            targets = sorted(self._cluster.nodes)
        kind, nodes = self._group("lose link" if link else "lose", targets, words)
        lose: dict[str, Any] = {"nodes": nodes}
        if link:
            lose["link"] = True
        if (for_ns := _duration(words, "--for")) is not None:
            lose["for"] = words.options["--for"]
        name = f"lose link {kind}" if link else f"lose {kind}"
        name, named = ("lose link", []) if of_all else (name, _kind_and_names(targets)[1])
        return _made(name, named, nodes, words, {"lose": lose}, for_ns)

    def _taint(self, words: ActWords) -> Act:
        taints = [target for target in words.targets if ":" in target or "=" in target]
        names = [target for target in words.targets if target not in taints]
        if not taints or (not names and _selector(words) is None):
            raise BadInput("give nodes and taints", on="taint", remedy=_example("taint"))
        _, nodes = self._group("taint", names, words)
        return _made("taint", taints, nodes, words, {"taint": {"nodes": nodes, "add": taints}})

    def _untaint(self, words: ActWords) -> Act:
        names, taints = _names_and_taints(words)
        nodes = self._named([name for name in names if name in self._cluster.nodes])
        taints += [name for name in names if name not in self._cluster.nodes]
        if not taints or not nodes:
            raise BadInput("give nodes and taints", on="untaint", remedy=_example("untaint"))
        return _made("untaint", taints, nodes, words, {"taint": {"nodes": nodes, "remove": taints}})

    def _cordon(self, words: ActWords) -> Act:
        _, nodes = self._group(words.verb, words.targets, words)
        return _made(words.verb, nodes, nodes, words, {words.verb: {"nodes": nodes}})

    _uncordon = _cordon

    def _drain(self, words: ActWords) -> Act:
        _, nodes = self._group("drain", words.targets, words, tuple(_DRAIN_OPTIONS))
        drain: dict[str, Any] = {"nodes": nodes}
        for name, value in words.options.items():
            if name in _DRAIN_SWITCHES:
                drain[_DRAIN_SWITCHES[name]] = value != "false"
            elif name in _DRAIN_VALUES:
                drain[_DRAIN_VALUES[name]] = f"{value}s" if value.isdecimal() else value
        return _made("drain", nodes, nodes, words, {"drain": drain})

    def _delete(self, words: ActWords) -> Act:
        first = (words.targets or [""])[0]
        if kind_of(first.partition("/")[0]) != POD:
            _, nodes = self._group("delete", words.targets, words)
            lost = {"lose": {"nodes": nodes}}
            gone = [{"delete": {"kind": "Node", "name": name}} for name in nodes]
            return _made("delete node", nodes, nodes, words, lost, more=gone)
        named = words.targets if words.targets[1:] or "/" in first else []
        events, targets = list[dict[str, Any]](), list[str]()
        for _, namespace, name in parse_subjects(named, (POD,), POD):
            key = (namespace or "default", name)
            targets.append("/".join(key))
            if key not in self._cluster.pods:
                raise BadInput(f'pods "{targets[-1]}" not found', remedy="write NAMESPACE/NAME")
            events.append({"delete": {"kind": "Pod", "namespace": key[0], "name": key[1]}})
        _needed("delete", targets)
        return _made("delete pod", targets, [], words, events[0], more=events[1:])

    def _set(self, words: ActWords) -> Act:
        restart, restamp = "--restart" in words.options, "--restamp" in words.options
        for name in words.options:
            if name == "--at" and not restart:
                what = "is not for set without --restart: it is as if it had always been so"
                raise BadInput(what, on=name)
            if name not in ("--at", "--restart", "--restamp"):
                raise BadInput("is not known by set", on=name, remedy=_example("set"))
        if not words.targets and not restart:
            raise BadInput("give FLAG=VALUE", on="set", remedy=_example("set"))
        if restamp and not any(_is_toleration(target) for target in words.targets):
            remedy = f"such as: set {TOLERATION_SECONDS}=30 --restamp"
            raise BadInput(f"is for {TOLERATION_SECONDS}", on="--restamp", remedy=remedy)
        detail = [dict([target.split("=", 1)]) for target in words.targets]
        at_s = (_duration(words, "--at") or 0) / SECOND_NS
        return Act(0, "set", words.targets, [], at_s, detail, restart=restart, restamp=restamp)

    def _group(
        self, verb: str, targets: Sequence[str], words: ActWords, more: tuple[str, ...] = ()
    ) -> tuple[str, list[str]]:
        """(kind, nodes) of `node A B`, `nodes -l SELECTOR`, `zone A`. Raises BadInput."""
        flags = {"--at", "-l", "--selector", *(("--for",) if "lose" in verb else ()), *more}
        for name in words.options:
            if name not in flags:
                raise BadInput(f"is not known by {verb}", on=name, remedy=_example(verb))
        kind, names = _kind_and_names(targets)
        if kind == ZONE:
            return "zone", [node for zone in _needed(verb, names) for node in self.of_zone(zone)]
        if (selector := _selector(words)) is not None:
            if names:
                raise BadInput("give names or a selector, not both", on="--selector")
            return "nodes", self.matching(selector)
        return "node", self._named(_needed(verb, names))

    def _named(self, names: Sequence[str]) -> list[str]:
        for name in names:
            if name not in self._cluster.nodes:
                if self._cluster.is_quarantined("Node", ("", name)):
                    raise BadInput(f"node {name} cannot be read")
                remedy = _meant(name, self._cluster.nodes)
                raise BadInput(f'nodes "{name}" not found', remedy=remedy)
        return list(names)

    def of_zone(self, zone: str) -> list[str]:
        """A zone by its name, or by the part behind its region."""
        last = {name.rpartition("/")[2]: name for name in self._zones}
        name = zone if zone in self._zones else last.get(zone, "")
        if not name:
            raise BadInput(f"no zone {zone!r}", on="zone", remedy=_meant(zone, self._zones))
        return self._zones[name]

    def matching(self, selector: str) -> list[str]:
        """The nodes that a selector matches. Raises BadInput where it is none of them."""
        wanted, nodes = label_selector(selector), self._cluster.nodes
        names = sorted(n for n, node in nodes.items() if matches(wanted, node.metadata.labels))
        if not names:
            what = f"no node of {len(nodes)} matches"
            raise BadInput(what, on=f"--selector {selector}", remedy="check the labels")
        return names


_DRAIN_OPTIONS: Final = {**_DRAIN_SWITCHES, **_DRAIN_VALUES}


def _made(
    act: str,
    targets: Sequence[str],
    nodes: list[str],
    words: ActWords,
    event: Mapping[str, Any],
    for_ns: int | None = None,
    *,
    more: Sequence[Mapping[str, Any]] = (),
) -> Act:
    at, at_s = words.options.get("--at", "0s"), (_duration(words, "--at") or 0) / SECOND_NS
    detail = [{"at": at, **each} for each in (event, *more)]
    for_s = None if for_ns is None else for_ns / SECOND_NS
    return Act(0, act, list(targets), nodes, at_s, detail, for_s)


def _duration(words: ActWords, name: str) -> int | None:
    """Ns. Raises BadInput."""
    text = words.options.get(name)
    if text is None:
        return None
    try:
        span_ns = parse_duration(text)
    except ValueError:
        span_ns = -1
    if span_ns < 0 or (name == "--for" and not span_ns):
        raise BadInput(f"{text!r} is no such duration", on=name, remedy="write 90s, 10m or 2h")
    return span_ns


def _is_toleration(target: str) -> bool:
    name = target.partition("=")[0]
    return name == TOLERATION_SECONDS or name.endswith("-toleration-seconds")


def _selector(words: ActWords) -> str | None:
    return words.options.get("-l", words.options.get("--selector"))


def _kind_and_names(targets: Sequence[str]) -> tuple[str, list[str]]:
    """(Node or Zone, names) of `NAME...`, `node/NAME...`, `zone NAME...`. Raises BadInput."""
    if len(targets) == 1 and kind_of(targets[0]) in (NODE, ZONE):  # and -l, or nothing
        return NODE, []
    named = parse_subjects(targets, (NODE, ZONE), NODE)
    kinds = {subject.kind for subject in named} or {NODE}
    if len(kinds) > 1:
        raise BadInput("nodes and zones stand together", remedy="write an act for each")
    return kinds.pop(), [subject.name for subject in named]


def _names_and_taints(words: ActWords) -> tuple[list[str], list[str]]:
    """Names of nodes, and the targets that are written as taints. Raises BadInput."""
    for name in words.options:
        if name != "--at":
            raise BadInput(f"is not known by {words.verb}", on=name, remedy=_example(words.verb))
    taints = [target for target in words.targets if _is_taint(target)]
    names = parse_names([target for target in words.targets if target not in taints])
    if not names:
        raise BadInput("give nodes and taints", on=words.verb, remedy=_example(words.verb))
    return names, taints


def _is_taint(word: str) -> bool:
    """True for `KEY=VALUE`, `KEY:EFFECT` and for a key with a prefix; another key may be a name."""
    first, slash, _ = word.partition("/")
    return ":" in word or "=" in word or bool(slash and kind_of(first) is None)


def _needed(verb: str, names: list[str]) -> list[str]:
    if not names:
        raise BadInput("names nothing", on=verb, remedy=_example(verb))
    return names


def _example(verb: str) -> str:
    example = next((e for form, e in FORMS.items() if form.startswith(verb)), "what-if lose node N")
    return f"such as: kubectl nodelife {example}"


def _meant(word: str, words: Mapping[str, object]) -> str:
    known = f"known: {first_names(sorted(filter(None, words)), _NAMED)}"
    near = get_close_matches(word, words, 1)
    return f"did you mean {near[0]}?" if near else known
