"""A snapshot: a dump that gives the same answers later, and holds no secrets.

Its file is a v1 List, written as it comes, private, and there only when complete: written beside
its place under a name that begins with a dot, mode 0600, and renamed at the end; a failure on the
way leaves what was there before. The List's metadata comes last, as kubectl writes it, because only
then it is known what could be read. One object a line.

A kind's objects are read page by page, with GET only. Unlike in `live.listwatch` nothing is kept: a
page is passed on and dropped. Where the token of a list expires on the way, the list begins again
and what was passed on already is left out; the pages are then not of one version, which a snapshot
over minutes is not anyway.

It keeps all of an object that decisions read, and nothing that is secret. `Redaction` is pure: a
document in, the same document changed. Which strings stay is `kube.redaction`'s allow-list; all
others become digests, whose key is made anew for each snapshot and thrown away. Names, labels,
images and references to Secrets that a decision reads stay (Secrets themselves are never read).

Three tables say what else stays:

- `KEPT`: the annotations that some decision or answer here reads. A test finds every annotation key
  that the code reads and checks it against this table. Besides these a key stays that an admission
  policy or a webhook's match conditions read as an annotation (`keys_read`), because they are
  evaluated too. Within a template annotations stay as digests, because a template that differs in
  one is another one.
- Events' messages that name objects and quote no output. A kubelet's Event may hold the output of a
  probe, a registry or a program, a controller's Event that of an admission webhook.
- The flags of a control plane's command lines that decide: `engine.settings.FLAGS`, with the
  component that has each flag; nothing else of a static pod's command is kept, since it may hold
  tokens and URLs too.
"""

from __future__ import annotations

import contextlib
import gzip
import os
import shlex
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping
from types import TracebackType
from typing import IO, Any, Final

import msgspec

from kubectl_nodelife.engine.settings import FLAGS
from kubectl_nodelife.errors import BadInput, Failed
from kubectl_nodelife.kube.cel import Unknown
from kubectl_nodelife.kube.cel.parser import Node, parse
from kubectl_nodelife.kube.field_managers import read_field_managers
from kubectl_nodelife.kube.redaction import Digest, Digests, RememberedDigests, redact
from kubectl_nodelife.kube.wellknown import ANNOTATION_CONFIG_MIRROR, ANNOTATION_CONFIG_SOURCE
from kubectl_nodelife.live.client import ApiError, Client
from kubectl_nodelife.live.requests import PAGE_SIZE, Resource, list_url

GZIP_ENDING: Final = ".gz"

_LEVEL: Final = 4  # twice the speed of the usual 6, a tenth larger
_HEAD = b'{"apiVersion":"v1","kind":"List","items":['


class SnapshotFile:
    """A context; without `finish` in it no file is made. Raises BadInput, Failed.

    `written` counts the objects.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        self.written = 0
        self._draft = self._target = ""
        self._raw: IO[bytes] | None = None
        self._out: IO[bytes] | gzip.GzipFile | None = None

    def __enter__(self) -> SnapshotFile:
        self._target = os.path.realpath(self.path)  # a link stays, and what it leads to is replaced
        folder, name = os.path.split(self._target)
        if not name or os.path.isdir(self._target):
            raise BadInput("is a folder", on=self.path, remedy="name a file")
        if os.path.exists(self._target) and not os.path.isfile(self._target):
            raise BadInput("is no regular file", on=self.path, remedy="name a file")
        draft = os.path.join(folder, f".{name}.{os.getpid()}.part")
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
        try:
            self._raw = os.fdopen(os.open(draft, flags, 0o600), "wb", buffering=1 << 20)
        except OSError as error:
            raise self._failed(error) from None
        self._draft, self._out = draft, self._raw
        if name.endswith(GZIP_ENDING):
            self._out = gzip.GzipFile("", "wb", _LEVEL, self._raw, mtime=0)
        self._write(_HEAD)
        return self

    def add(self, document: Any) -> None:
        """Write one object."""
        self._write(b",\n" if self.written else b"\n")
        self._write(msgspec.json.encode(document))
        self.written += 1

    def finish(self, annotations: Mapping[str, str]) -> int:
        """Write the List's metadata and put the file in its place; returns its size in bytes."""
        metadata = msgspec.json.encode({"annotations": dict(annotations)})
        self._write(b'\n],"metadata":' + metadata + b"}\n")
        assert self._out is not None and self._raw is not None
        try:
            if self._out is not self._raw:
                self._out.close()
            self._raw.flush()
            os.fsync(self._raw.fileno())
            size = os.fstat(self._raw.fileno()).st_size
            self._raw.close()
            os.replace(self._draft, self._target)
        except OSError as error:
            raise self._failed(error) from None
        self._draft = ""
        return size

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if not self._draft:
            return
        with contextlib.suppress(OSError):
            os.unlink(self._draft)
        for stream in (self._out, self._raw):
            if stream is not None:
                with contextlib.suppress(OSError, ValueError):
                    stream.close()

    def _write(self, piece: bytes) -> None:
        assert self._out is not None
        try:
            self._out.write(piece)
        except OSError as error:
            raise self._failed(error) from None

    def _failed(self, error: OSError) -> Failed:
        what = f"cannot be written: {error.strerror or error}"
        return Failed(what, on=self.path, remedy="name a file in a folder of yours with room")


_MOST_EXPIRIES: Final = 3


class _RawPageMeta(msgspec.Struct, rename="camel"):
    continue_: str | None = msgspec.field(default=None, name="continue")
    remaining_item_count: int | None = None


class _SnapshotPage(msgspec.Struct):
    metadata: _RawPageMeta = msgspec.field(default_factory=_RawPageMeta)
    items: list[dict[str, Any]] | None = None


async def count(client: Client, resource: Resource) -> int:
    """About how many objects there are, as far as the server reports. Raises as `pages`."""
    page = _decode(await client.read(list_url(resource, limit=1)), resource)
    return len(page.items or ()) + (page.metadata.remaining_item_count or 0)


async def pages(client: Client, resource: Resource) -> AsyncIterator[list[dict[str, Any]]]:
    """All objects, each with apiVersion and kind in front. Raises ApiError, Unreachable, Failed."""
    head = {"apiVersion": resource.kind.api_version, "kind": resource.kind.name}
    seen: set[tuple[str, str]] = set()
    token, expiries = "", 0
    while True:
        try:
            body = await client.read(list_url(resource, limit=PAGE_SIZE, continue_=token))
        except ApiError as error:
            if not (error.gone and token) or expiries == _MOST_EXPIRIES:
                raise
            token, expiries = "", expiries + 1
            continue
        page = _decode(body, resource)
        new = [{**head, **item} for item in page.items or () if _key(item) not in seen]
        seen.update(map(_key, new))
        yield new
        token = page.metadata.continue_ or ""
        if not token:
            return


def _key(item: dict[str, Any]) -> tuple[str, str]:
    metadata = item.get("metadata") or {}
    return metadata.get("namespace", ""), metadata.get("name", "")


def _decode(body: bytes, resource: Resource) -> _SnapshotPage:
    try:
        return msgspec.json.decode(body, type=_SnapshotPage)
    except msgspec.MsgspecError as error:
        raise Failed(f"the server's list cannot be decoded: {error}", on=str(resource)) from None


_WORKLOADS: Final = frozenset({"DaemonSet", "StatefulSet"})
_ADMISSION: Final = frozenset({"expression", "messageExpression"})

Document = dict[str, Any]


KEPT: Final = {
    ANNOTATION_CONFIG_MIRROR: "a mirror pod: the API cannot evict it",
    ANNOTATION_CONFIG_SOURCE: "a kubelet's own pods, from a file or from the API",
    "deprecated.daemonset.template.generation": "which pods are of the present template",
    "scheduler.alpha.kubernetes.io/critical-pod": "tolerations of DaemonSet pods before v1.16",
    "scheduler.alpha.kubernetes.io/node-selector": "which nodes a namespace's pods may go to",
    "controller.kubernetes.io/pod-deletion-cost": "which pods a ReplicaSet gives up first",
    "kubernetes.io/change-cause": "the words of a revision in `daemonset history`",
    "nodelife.dev/upgrade": "the state of a node's upgrade",
    "cluster-autoscaler.kubernetes.io/scale-down-disabled": "a shield of an upgrade",
    "karpenter.sh/do-not-disrupt": "a shield of an upgrade",
    "nodelife.dev/canary-spec": "whether a canary is of the manifest that is tried",
    "weave.works/kured-reboot-in-progress": "a node that kured reboots is not available",
    "machineconfiguration.openshift.io/state": "nor is one whose machine config is applied",
    "cluster.x-k8s.io/machine": "whose machine Cluster API may replace during an upgrade",
    "sandbox.nodelife.dev/heartbeats": "a kubelet that the sandbox has silenced",
}
"""Annotation key -> what depends on it."""
_ANNOTATIONS: Final = "annotations"
_SOURCES: Final = frozenset(
    {
        "cluster-autoscaler",
        "daemonset-controller",
        "default-scheduler",
        "deployment-controller",
        "node-controller",
        "pod-garbage-collector-controller",
        "replicaset-controller",
        "statefulset-controller",
        "taint-controller",
        "taint-eviction-controller",
    }
)
_QUOTING_REASONS: Final = frozenset({"FailedCreate", "FailedDelete"})
_KUBELET_REASONS: Final = frozenset(
    {"Killing", "NodeNotReady", "NodeReady", "NodeNotSchedulable", "NodeSchedulable"}
)
NAMESPACE: Final = "kube-system"
COMPONENTS: Final = frozenset(flag.origin for flag in FLAGS.values())


class Redaction:
    """The rule, with one snapshot's key."""

    def __init__(self, key: bytes) -> None:
        self.digest: Digest = RememberedDigests(Digests(key)).__getitem__
        self._named: set[str] = set()

    def admit(self, document: Document) -> None:
        """Take note of the expressions of an admission object, before pods are redacted."""
        self._named |= keys_read(expressions(document))

    def __call__(self, kind: str, document: Document) -> Document:
        """The document as it may be kept; the one given is changed."""
        metadata = document.get("metadata")
        metadata = metadata if isinstance(metadata, dict) else {}
        managers = read_field_managers(metadata.pop("managedFields", None))
        annotations = metadata.pop("annotations", None)
        commands = self._commands(kind, document, metadata)
        if kind == "ControllerRevision" and not _of_a_workload(metadata):
            self._whole(document)  # some operator's: its content is not known here
        templates = [*_templates(document)]
        redacted = [self._of_template(template) for template in templates]
        redact(kind, document, self.digest)
        for template, noted in zip(templates, redacted, strict=True):
            if noted is not None:
                template["annotations"] = noted
        if kind == "Event" and not names_objects_only(document):
            document["message"] = self.digest(str(document.get("message", "")))
        if isinstance(annotations, dict):
            metadata["annotations"] = {k: v for k, v in annotations.items() if self._keeps(k)}
        if kind == "Node" and managers:
            metadata["managedFields"] = managers.document()
        for container, member, words in commands:
            container[member] = words
        return document

    def _keeps(self, key: str) -> bool:
        return key in KEPT or key in self._named

    def _commands(
        self, kind: str, document: Document, metadata: Document
    ) -> list[tuple[Document, str, list[Any]]]:
        """The redacted words for the containers of a control plane's pod."""
        where = str(metadata.get("namespace")), str(metadata.get("name"))
        if kind != "Pod" or not is_control_plane(*where):
            return []
        return [
            (container, member, list(kept_words(container[member], self.digest)))
            for container in containers(document)
            for member in ("command", "args")
            if isinstance(container.get(member), list)
        ]

    def _of_template(self, metadata: Document) -> Document | None:
        """The annotations of a template as they may stay."""
        annotations = metadata.get("annotations")
        if not isinstance(annotations, dict):
            return None
        return {
            key: text if key in KEPT or not isinstance(text, str) else self.digest(text)
            for key, text in annotations.items()
        }

    def _whole(self, document: Document) -> None:
        if "data" in document:
            text = msgspec.json.encode(document["data"]).decode()
            document["data"] = {"digest": self.digest(text)}


def _templates(document: Document) -> Iterator[Document]:
    """The metadata of the pod template in an object, or in a revision's data."""
    data = document.get("data")
    for outer in (document, data):
        value: Any = outer
        for name in ("spec", "template", "metadata"):
            value = value.get(name) if isinstance(value, dict) else None
        if isinstance(value, dict):
            yield value


def expressions(document: Any) -> Iterator[str]:
    """Every text under a member `expression`, however deep: CEL."""
    inner: Iterable[Any] = ()
    if isinstance(document, dict):
        for name, value in document.items():
            if name in _ADMISSION and isinstance(value, str):
                yield value
        inner = document.values()
    elif isinstance(document, list):
        inner = document
    for value in inner:
        if isinstance(value, (dict, list)):
            yield from expressions(value)


def _of_a_workload(metadata: Document) -> bool:
    """True if a revision holds a pod template: a DaemonSet's or a StatefulSet's, or an orphan."""
    owners = metadata.get("ownerReferences")
    for owner in owners if isinstance(owners, list) else ():
        if isinstance(owner, dict) and owner.get("controller"):
            group = str(owner.get("apiVersion", "")).rpartition("/")[0]
            return owner.get("kind") in _WORKLOADS and group in ("apps", "extensions")
    return True


def keys_read(expressions: Iterable[str]) -> set[str]:
    """The annotation keys that the CEL expressions of one object read: `annotations['k']`,
    `annotations.k`, `'k' in annotations`, what a macro over annotations compares. A variable may be
    annotations where one of the expressions mentions them.
    """
    parsed = []
    for text in expressions:
        try:
            parsed.append(parse(text))
        except Unknown:  # nor will it be evaluated
            continue
    if not any(_mentions(node, _ANNOTATIONS) for node in parsed):
        return set()
    return {key for node in parsed for part in _parts(node) for key in _keys_of(part)}


def _keys_of(node: Node) -> Iterator[str]:
    """The keys that this node itself reads."""
    match node:
        case ("index" | "optional", base, ("literal", str(key))) if _may_be_annotations(base):
            yield key
        case ("select", base, str(key)) if _may_be_annotations(base):
            yield key
        case ("chain", ("literal", str(key)), steps):
            if any(word == "in" and _may_be_annotations(right) for word, right in steps):
                yield key
        case ("method", _, base, arguments) if _may_be_annotations(base):
            for part in _parts(arguments):
                match part:
                    case ("literal", str(key)):
                        yield key


def _may_be_annotations(base: Node) -> bool:
    match base:
        case ("select", _, "annotations") | ("select", ("name", "variables"), _):
            return True
        case ("index" | "optional", _, ("literal", "annotations")):
            return True
        case ("method", "orValue", inner, _):
            return _may_be_annotations(inner)
    return False


def _mentions(node: Node, word: str) -> bool:
    return any(part == ("literal", word) or (part[:1] == ("select",) and part[2] == word)
               for part in _parts(node))  # fmt: skip


def _parts(node: Any) -> Iterator[tuple[Any, ...]]:
    """The node and all below it."""
    waiting = [node]
    while waiting:
        part = waiting.pop()
        if isinstance(part, tuple):
            yield part
        if isinstance(part, (tuple, list)):
            waiting += part


def names_objects_only(event: dict[str, Any]) -> bool:
    """True if the message of an Event, as the API writes it, may stay."""
    source = event.get("source")
    source_component = source.get("component") if isinstance(source, dict) else ""
    component, reason = event.get("reportingComponent") or source_component, event.get("reason")
    if component == "kubelet":
        return reason in _KUBELET_REASONS
    return component in _SOURCES and reason not in _QUOTING_REASONS


def is_control_plane(namespace: str, name: str) -> bool:
    """True if a pod of that name may show a component's flags."""
    return namespace == NAMESPACE and any(name.startswith(f"{c}-") for c in COMPONENTS)


def kept_words(words: Iterable[Any], digest: Callable[[str], str]) -> Iterator[Any]:
    """The words, with digests for all that are not in `FLAGS`; `--flag VALUE` stays together."""
    expected = False
    for word in words:
        if not isinstance(word, str):
            yield word
            continue
        if " " in word.strip() and "--" in word:  # a shell's command line in one word
            expected = False
            yield _kept_line(word, digest)
            continue
        name, equals, _ = word.lstrip("-").partition("=")
        if expected and not word.startswith("-"):
            expected = False
            yield word
            continue
        flag = FLAGS.get(name) if word.startswith("-") else None
        expected = flag is not None and not equals and flag.type != "bool"
        yield word if flag is not None else digest(word)


def _kept_line(line: str, digest: Callable[[str], str]) -> str:
    try:
        words = shlex.split(line)
    except ValueError:
        return digest(line)
    if any(" " in word for word in words):  # a line within the line: not parsed
        return digest(line)
    return shlex.join(kept_words(words, digest))


def containers(pod: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """A raw pod's containers."""
    spec = pod.get("spec")
    listed = spec.get("containers") if isinstance(spec, dict) else None
    for container in listed if isinstance(listed, list) else ():
        if isinstance(container, dict):
            yield container
