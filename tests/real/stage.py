"""Plays the events of a scenario on a real cluster: its vocabulary as API calls.

The same list of events can so be given to the simulator and to a real control plane.
"""

from typing import Any

from kubectl_nodelife.kube.kinds import KINDS, Kind
from kubectl_nodelife.kube.taints import parse_taint, parse_taint_to_remove
from tests.real.control_plane import Api, Refused
from tests.real.kubelets import Kubelets

Json = dict[str, Any]


class Stage:
    """A real cluster and its played kubelets, on which events happen."""

    def __init__(self, api: Api, kubelets: Kubelets) -> None:
        self.api = api
        self._kubelets = kubelets
        self._played: set[str] = set()
        self._silent: set[str] = set()

    def play(self, event: Json) -> None:
        """One event of a scenario, now. Raises Refused."""
        for verb, what in event.items():
            if verb != "at":
                getattr(self, f"_{verb}")(what)

    def is_alive(self, node: str) -> bool:
        """True if a kubelet is played for the node, and has not fallen silent."""
        return node in self._played and node not in self._silent

    def _apply(self, obj: Json) -> None:
        meta = obj["metadata"]
        path = path_of(obj["kind"], meta.get("namespace", ""), meta["name"])
        try:
            self.api.get(path)
        except Refused as refused:
            if refused.code != 404:
                raise
            self._create(obj)
            return
        self.api.merge(path, {key: value for key, value in obj.items() if key != "status"})
        if "status" in obj:
            self.api.merge(f"{path}/status", {"status": obj["status"]})

    def _create(self, obj: Json) -> None:
        kind, meta = obj["kind"], obj["metadata"]
        if kind == "Node":
            self._kubelets.add_node(meta["name"], meta.get("labels"))
            self._played.add(meta["name"])
            if obj.get("spec"):
                self.api.merge(path_of("Node", "", meta["name"]), {"spec": obj["spec"]})
            return
        self.api.create(path_of(kind, meta.get("namespace", "")), obj)

    def _delete(self, what: Json) -> None:
        path = path_of(what["kind"], what.get("namespace", ""), what["name"])
        self.api.delete(path, {"propagationPolicy": "Background"})

    def _cordon(self, what: Json) -> None:
        for name in what["nodes"]:
            self.api.merge(path_of("Node", "", name), {"spec": {"unschedulable": True}})

    def _uncordon(self, what: Json) -> None:
        for name in what["nodes"]:
            self.api.merge(path_of("Node", "", name), {"spec": {"unschedulable": None}})

    def _taint(self, what: Json) -> None:
        for name in what["nodes"]:
            path = path_of("Node", "", name)
            node = self.api.get(path)
            gone = [parse_taint_to_remove(text) for text in what.get("remove", [])]
            added = [parse_taint(text) for text in what.get("add", [])]
            kept = [
                taint
                for taint in node["spec"].get("taints") or []
                if not any(
                    taint["key"] == t.key and t.effect in ("", taint["effect"]) for t in gone
                )
            ]
            kept += [{"key": t.key, "value": t.value, "effect": t.effect} for t in added]
            version = {"resourceVersion": node["metadata"]["resourceVersion"]}
            self.api.merge(path, {"metadata": version, "spec": {"taints": kept}})

    def _kubelet(self, what: Json) -> None:
        for name in what["nodes"]:
            for type_, status in what.get("conditions", {}).items():
                self._kubelets[name].report(type_, status)
            if what.get("heartbeats") == "stop":
                self._kubelets.stop(name)
                self._silent.add(name)
            elif what.get("heartbeats") == "start":
                self._kubelets.start(name)
                self._silent.discard(name)


def kind_named(name: str) -> Kind:
    """The kind. Raises StopIteration for one that is not known."""
    return next(kind for kind in KINDS if kind.name == name)


def path_of(kind: str, namespace: str, name: str = "") -> str:
    """Where objects of a kind, or one of them, are in the API."""
    known = kind_named(kind)
    root = f"/apis/{known.api_version}" if "/" in known.api_version else f"/api/{known.api_version}"
    within = f"/namespaces/{namespace}" if known.namespaced and namespace else ""
    return f"{root}{within}/{known.plural}{f'/{name}' if name else ''}"


def merge_patch(old: Any, new: Any) -> Any:
    """The merge patch that makes `new` of `old` (RFC 7396)."""
    if not isinstance(old, dict) or not isinstance(new, dict):
        return new
    patch: Json = dict.fromkeys(old.keys() - new.keys())
    for key, value in new.items():
        if key not in old:
            patch[key] = value
        elif old[key] != value:
            patch[key] = merge_patch(old[key], value)
    return patch
