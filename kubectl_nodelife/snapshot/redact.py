"""What a snapshot keeps of one object: everything that decides, nothing that is a secret.

Pure: a document in, the same document changed. Which strings stay is `kube.redaction`'s allow-list;
all others become digests, whose key is made anew for each snapshot and thrown away. Names, labels,
images and references to Secrets that a decision reads stay (Secrets themselves are never read).

An object's annotations go, but for those of `annotations.KEPT` and those whose key an expression of
an admission policy names as a whole. Within a template they stay as digests, because a template
that differs in an annotation is another one. Of a control plane's pods the flags that decide stay.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final

import msgspec

from kubectl_nodelife.kube.field_managers import read_field_managers
from kubectl_nodelife.kube.redaction import DIGEST as DIGEST
from kubectl_nodelife.kube.redaction import KEY_BYTES as KEY_BYTES
from kubectl_nodelife.kube.redaction import Digests, redact
from kubectl_nodelife.snapshot.annotations import KEPT, keys_read
from kubectl_nodelife.snapshot.event_messages import names_objects_only
from kubectl_nodelife.snapshot.flags import containers, is_control_plane, kept_words

_WORKLOADS: Final = frozenset({"DaemonSet", "StatefulSet"})
_ADMISSION: Final = frozenset({"expression", "messageExpression"})

Document = dict[str, Any]


class Redaction:
    """The rule, with one snapshot's key."""

    def __init__(self, key: bytes) -> None:
        self.digest = Digests(key)
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
            self._whole(document)  # some operator's: nobody here knows what stands in it
        templates = [*_templates(document)]
        kept = [self._of_template(template) for template in templates]
        redact(kind, document, self.digest)
        for template, noted in zip(templates, kept, strict=True):
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
        """What is to stand in the containers of a control plane's pod."""
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
