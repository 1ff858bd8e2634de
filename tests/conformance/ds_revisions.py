"""DaemonSet vectors about revisions: a set's history, and the general history package."""

from functools import partial
from typing import Any

from msgspec.structs import replace

from kubectl_nodelife.controllers.daemonset.history import (
    clean_up_history,
    compute_hash,
    construct_history,
    controlled_histories,
    controller_revision_name,
    equal_data,
    hash_label,
    revision_order,
    split_revisions,
)
from kubectl_nodelife.controllers.daemonset.memory import (
    Calls,
    Failures,
    RevisionHistory,
    SyncContext,
)
from kubectl_nodelife.controllers.daemonset.pods_on_node import Claim, claim_object
from kubectl_nodelife.controllers.daemonset.template import controller_reference
from kubectl_nodelife.engine import actions as dact
from kubectl_nodelife.kube.meta import LabelSelector, ObjectMeta, controller_of
from kubectl_nodelife.kube.wellknown import LABEL_CONTROLLER_REVISION_HASH
from kubectl_nodelife.kube.workload import ControllerRevision, DaemonSet, DaemonSetSpec
from tests.conformance.ds_play import Play
from tests.conformance.ds_world import Json
from tests.conformance.world import decode

# --- a set's history -----------------------------------------------------------------------------


def claim_revisions(play: Play) -> None:
    part = play.world.drive(controlled_histories)
    play.notes["error"] = part.error
    play.notes["claimed"] = sorted(revision.name for revision in part.context.revisions)


def construct(play: Play) -> None:
    world = play.world
    part = world.drive(construct_history)
    play.notes["error"] = part.error
    history = part.context.history
    _note_deleted(play)
    play.notes["revisions"] = {r.name: r.revision for r in world.cache.all("ControllerRevision")}
    play.notes["podHashes"] = {
        pod.name: (pod.metadata.labels or {}).get(LABEL_CONTROLLER_REVISION_HASH)
        for pod in world.cache.pods.values()
    }
    if history is None:
        return
    current = history.current
    kinds = [type(action) for action in world.actions]
    shown = world.cache.get("ControllerRevision", current.key)
    assert shown == current
    play.notes["old"] = sorted(revision.name for revision in history.old)
    template = (current.data or {})["spec"]["template"]
    created = dact.CreateControllerRevision in kinds and current.key not in world.api_only
    play.notes["current"] = {
        "name": current.name,
        "revision": current.revision,
        "created": created,
        "updated": dact.UpdateControllerRevision in kinds,
        "dataImage": template["spec"]["containers"][0]["image"],
        "hash": hash_label(current),
        "labels": current.metadata.labels or {},
        "annotations": current.metadata.annotations or {},
    }
    assert template["$patch"] == "replace"


def clean_up(play: Play) -> None:
    world = play.world
    part = world.drive(controlled_histories)
    current, old = split_revisions(world.daemon_set.spec.template, part.context.revisions)
    history = RevisionHistory(current[0] if current else ControllerRevision(), tuple(old))
    play.notes["error"] = world.drive(partial(_clean_up, history)).error
    _note_deleted(play)


def _clean_up(history: RevisionHistory, sync: SyncContext, failures: Failures) -> Calls:
    sync.history = history
    return clean_up_history(sync, failures)


def _note_deleted(play: Play) -> None:
    play.notes["deletedRevisions"] = sorted(
        a.name for a in play.world.actions if isinstance(a, dact.DeleteControllerRevision)
    )


def check_current(play: Play, want: Json) -> None:
    """Hold the current revision against a vector's."""
    have = play.notes["current"]
    for key, value in want.items():
        if key == "namePattern":
            assert have["name"] == value.replace("<hash>", have["hash"])
        elif key in ("labelsInclude", "annotationsInclude"):
            present = have[key.removesuffix("Include")]
            assert {k: present.get(k) for k in value} == value
        else:
            assert have[key] == value, (key, have[key], value)


# --- the general history package -----------------------------------------------------------------


def sort_revisions(play: Play) -> None:
    revisions = [decode(raw, ControllerRevision) for raw in play.case["given"]["revisions"]]
    play.notes["order"] = [r.name for r in sorted(revisions, key=revision_order)]


class Store:
    """The revisions of a history vector and their parents, which are sets here."""

    def __init__(self, play: Play) -> None:
        given = play.case["given"]
        self.parents = {raw["name"]: _parent(raw) for raw in given["parents"]}
        self.revisions = {
            name: self._revision(name, raw) for name, raw in given["revisions"].items()
        }
        self.there = {self.revisions[name].name: self.revisions[name] for name in given["existing"]}

    def _revision(self, name: str, raw: Json) -> ControllerRevision:
        parent = self.parents[raw["parent"]]
        owners = () if raw.get("ownerless") else (controller_reference(parent),)
        selector = parent.spec.selector
        assert selector is not None
        metadata = ObjectMeta(
            name=raw.get("name", name),
            namespace="default",
            uid=f"uid-{name}",
            labels=selector.match_labels,
            owner_references=owners,
        )
        data = {"data": raw.get("data")}
        return ControllerRevision(metadata=metadata, data=data, revision=raw["revision"])


def _parent(raw: Json) -> DaemonSet:
    selector = LabelSelector(match_labels=raw["selector"])
    metadata = ObjectMeta(name=raw["name"], namespace="default", uid=raw["uid"])
    return DaemonSet(metadata=metadata, spec=DaemonSetSpec(selector=selector))


def create_revision(play: Play, revision: str, parent: str) -> None:
    store = _store(play)
    new = store.revisions[revision]
    name, count = new.name, 0
    while (present := store.there.get(name)) is not None and not equal_data(present, new):
        count += 1
        name = controller_revision_name(parent, compute_hash(new.data or {}, count))
    if present is None:
        store.there[name] = replace(new, metadata=replace(new.metadata, name=name))
    play.notes |= {
        "renamed": name != new.name,
        "collisionCount": count,
        "created": present is None,
        "revision": new.revision,
        "error": False,
    }


def update_revision(play: Play, revision: str, newRevision: int) -> None:  # noqa: N803
    store = _store(play)
    present = store.there.get(store.revisions[revision].name)
    action = dact.UpdateControllerRevision(
        controller="", because="", namespace="default", name=revision, number=newRevision
    )
    changed = action.effect(present, 0)
    play.notes["error"] = changed is None
    if isinstance(changed, ControllerRevision):
        play.notes["revision"] = changed.revision


def delete_revision(play: Play, revision: str) -> None:
    store = _store(play)
    play.notes["error"] = store.there.pop(store.revisions[revision].name, None) is None


def adopt_revision(play: Play, revision: str, parent: str) -> None:
    store = _store(play)
    owner = store.parents[parent]
    present = store.there.get(store.revisions[revision].name)
    if present is None or claim_object(owner, present) is not Claim.ADOPT:
        play.notes["error"] = True
        return
    action = dact.AdoptObject(
        controller="",
        because="",
        kind="ControllerRevision",
        namespace="default",
        name=revision,
        owner=controller_reference(owner),
    )
    _note_owner(play, action.effect(present, 0))


def release_revision(play: Play, revision: str, parent: str) -> None:
    store = _store(play)
    present = store.there.get(store.revisions[revision].name)
    action = dact.ReleaseObject(
        controller="",
        because="",
        kind="ControllerRevision",
        namespace="default",
        name=revision,
        owner_uid=store.parents[parent].uid,
    )
    _note_owner(play, action.effect(present, 0))


def _note_owner(play: Play, revision: Any) -> None:
    owner = controller_of(revision.metadata) if revision is not None else None
    play.notes |= {"error": False, "controlledBy": owner.name if owner else None}


def find_equal(play: Play, revision: str) -> None:
    store = _store(play)
    needle = store.revisions[revision]
    play.notes["found"] = [r.name for r in store.there.values() if equal_data(r, needle)]


def list_revisions(play: Play, parent: str) -> None:
    store = _store(play)
    claims = (Claim.KEEP, Claim.ADOPT)
    owner = store.parents[parent]
    play.notes["found"] = [r.name for r in store.there.values() if claim_object(owner, r) in claims]


def _store(play: Play) -> Store:
    store = play.notes.setdefault("store", None) or Store(play)
    play.notes["store"] = store
    assert isinstance(store, Store)
    return store


STEPS = {
    "adoptRevision": adopt_revision,
    "claimRevisions": claim_revisions,
    "cleanupHistory": clean_up,
    "constructHistory": construct,
    "createRevision": create_revision,
    "deleteRevision": delete_revision,
    "findEqual": find_equal,
    "listRevisions": list_revisions,
    "releaseRevision": release_revision,
    "sortRevisions": sort_revisions,
    "updateRevision": update_revision,
}
