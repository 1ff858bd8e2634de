"""The kubelet's table of the pods that it received, with the mirrors of static pods.

Follows pkg/kubelet/pod/pod_manager.go. A static pod comes from a file and has a uid of its own;
the API server shows a *mirror* of it, with another uid, and only the mirror's status can be
written. A mirror belongs to the pod of the same namespace and name. Left out on purpose: making
and deleting mirrors; the world does that and reports it.
"""

from __future__ import annotations

from collections.abc import Iterator

from msgspec.structs import replace

from kubectl_nodelife.kube.pod import Pod, PodStatus, is_mirror_pod
from kubectl_nodelife.kube.wellknown import ANNOTATION_CONFIG_MIRROR

CONFIG_SOURCE_ANNOTATION = "kubernetes.io/config.source"

Key = tuple[str, str]


def is_static_pod(pod: Pod) -> bool:
    """True if the pod's source is anything but the API server. Follows `IsStaticPod`."""
    source = (pod.metadata.annotations or {}).get(CONFIG_SOURCE_ANNOTATION, "api")
    return source != "api"


def static_pod_of(mirror: Pod) -> Pod:
    """The static pod that the kubelet read from a file, as far as its mirror shows it.

    Its uid is the hash of that file's pod, which the mirror's annotation holds. Follows
    `applyDefaults` in pkg/kubelet/config and `CreateMirrorPod`.
    """
    annotations = dict(mirror.metadata.annotations or {})
    uid = annotations.pop(ANNOTATION_CONFIG_MIRROR)
    if annotations.get(CONFIG_SOURCE_ANNOTATION, "api") == "api":
        annotations[CONFIG_SOURCE_ANNOTATION] = "file"
    metadata = replace(
        mirror.metadata,
        uid=uid or f"{mirror.uid}-static",
        annotations=annotations,
        deletion_timestamp=None,
        deletion_grace_period_seconds=None,
    )
    return replace(mirror, metadata=metadata, status=PodStatus(phase="Pending"))


class PodTable:
    """Pods by uid, mirrors by the name that they share with their static pod."""

    def __init__(self) -> None:
        self._pods: dict[str, Pod] = {}
        self._uid_by_key: dict[Key, str] = {}
        self._mirrors: dict[Key, Pod] = {}

    def copy(self) -> PodTable:
        """Another one with the same pods."""
        other = PodTable()
        other._pods, other._mirrors = dict(self._pods), dict(self._mirrors)
        other._uid_by_key = dict(self._uid_by_key)
        return other

    def __iter__(self) -> Iterator[Pod]:
        """All pods but mirrors."""
        return iter(self._pods.values())

    def __len__(self) -> int:
        return len(self._pods)

    def set(self, pod: Pod) -> None:
        """Add the pod or mirror, or replace the one of its uid (a mirror: of its name)."""
        if is_mirror_pod(pod):
            self._mirrors[pod.key] = pod
        else:
            self._pods[pod.uid] = pod
            self._uid_by_key[pod.key] = pod.uid

    def remove(self, pod: Pod) -> None:
        """Forget the pod or mirror of that uid; nothing happens where it is not known."""
        if is_mirror_pod(pod):
            mirror = self._mirrors.get(pod.key)
            if mirror is not None and mirror.uid == pod.uid:
                del self._mirrors[pod.key]
        elif self._pods.pop(pod.uid, None) and self._uid_by_key.get(pod.key) == pod.uid:
            del self._uid_by_key[pod.key]

    def set_status(self, uid: str, status: PodStatus) -> None:
        """Overwrite the status that the table shows for that pod; nothing else changes it so."""
        self._pods[uid] = replace(self._pods[uid], status=status)

    def by_uid(self, uid: str) -> Pod | None:
        """The pod of that uid; a mirror's uid names none. Follows `GetPodByUID`."""
        return self._pods.get(uid)

    def mirror_of(self, pod: Pod) -> Pod | None:
        """The mirror of that name. Follows `GetMirrorPodByPod`."""
        return self._mirrors.get(pod.key)

    def translate_uid(self, uid: str) -> str:
        """A mirror's uid to that of its static pod; any other uid to itself. Follows
        `TranslatePodUID`."""
        if uid in self._pods or not self._mirrors:
            return uid
        return next((owner for mirror, owner in self._translations() if mirror == uid), uid)

    def mirror_uids(self) -> dict[str, str]:
        """Static pod's uid -> its mirror's, or "". Follows `GetUIDTranslations`."""
        translations = {pod.uid: "" for pod in self._pods.values() if is_static_pod(pod)}
        translations.update((owner, mirror) for mirror, owner in self._translations())
        return translations

    def _translations(self) -> Iterator[tuple[str, str]]:
        """(mirror's uid, uid of the pod of that name), for mirrors whose pod is known."""
        for key, mirror in self._mirrors.items():
            if key in self._uid_by_key:
                yield mirror.uid, self._uid_by_key[key]
