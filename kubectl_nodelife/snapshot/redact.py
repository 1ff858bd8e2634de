"""What a snapshot keeps of one object: everything that decides, nothing that is a secret.

Pure: a document in, the same document changed. Values of env, args, command, HTTP headers and
driver parameters, and messages of containers' states, become digests. The key of a digest is made
anew for each snapshot and thrown away: equal stays equal within one snapshot (a DaemonSet's
template still equals its revision's data), and nothing can be looked up or guessed. Names, labels,
images and references to Secrets (which are never read) stay.

An object's annotations go, but for those of `annotations.KEPT`. Within a template they stay as
digests, because a template that differs in an annotation is another one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from hashlib import blake2b
from typing import Any, Final

import msgspec

from kubectl_nodelife.snapshot.annotations import KEPT
from kubectl_nodelife.snapshot.flags import containers, is_control_plane, kept_words

KEY_BYTES: Final = 32
DIGEST: Final = "digest:"
"""What every digest begins with."""

_WORKLOADS: Final = frozenset({"DaemonSet", "StatefulSet"})

Document = dict[str, Any]


class Digests:
    """Keyed digests of text: 96 bits, so that two texts of a cluster never share one."""

    def __init__(self, key: bytes) -> None:
        self._key = key

    def __call__(self, text: str) -> str:
        """The text's digest."""
        data = text.encode("utf-8", "surrogatepass")
        return DIGEST + blake2b(data, key=self._key, digest_size=12).hexdigest()


class Redaction:
    """The rule, with one snapshot's key. `mentioned`: CEL that may read annotations by name."""

    def __init__(self, key: bytes) -> None:
        self.digest = Digests(key)
        self._mentioned: list[str] = []
        self._members: dict[str, Callable[[Any], Any]] = {
            "env": self._named_values,
            "httpHeaders": self._named_values,
            "args": self._words,
            "command": self._words,
            "annotations": self._of_template,
            "parameters": self._values,
            "options": self._values,
            "volumeAttributes": self._values,
            "terminated": self._words_of_a_container,
            "waiting": self._words_of_a_container,
        }

    def admit(self, document: Document) -> None:
        """Take note of the expressions of an admission object, before pods are redacted."""
        self._mentioned += expressions(document)

    def __call__(self, kind: str, document: Document) -> Document:
        """The document as it may be kept; the one given is changed."""
        metadata = document.get("metadata")
        metadata = metadata if isinstance(metadata, dict) else {}
        metadata.pop("managedFields", None)
        annotations = metadata.pop("annotations", None)
        commands = self._commands(kind, document, metadata)
        if kind == "ControllerRevision" and not _of_a_workload(metadata):
            self._whole(document)  # some operator's: nobody here knows what stands in it
        self._walk(document)
        if isinstance(annotations, dict):
            metadata["annotations"] = {k: v for k, v in annotations.items() if self._keeps(k)}
        for container, member, words in commands:
            container[member] = words
        return document

    def _keeps(self, key: str) -> bool:
        return key in KEPT or any(key in text for text in self._mentioned)

    def _walk(self, value: Any) -> None:
        if type(value) is list:
            for inner in value:
                if type(inner) is dict or type(inner) is list:
                    self._walk(inner)
            return
        members = self._members
        for name, inner in value.items():
            if type(inner) is dict or type(inner) is list:
                if name in members:
                    value[name] = members[name](inner)
                else:
                    self._walk(inner)

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

    def _words(self, value: Any) -> Any:
        """A list of words, each digested."""
        return self._texts(value) if isinstance(value, list) else self._other(value)

    def _other(self, value: Any) -> Any:
        """What has the name of something secret and another shape."""
        self._walk(value)
        return value

    def _values(self, value: Any) -> Any:
        """A map from names to texts, each text digested."""
        if isinstance(value, dict):
            return {k: self.digest(v) if isinstance(v, str) else v for k, v in value.items()}
        return self._other(value)

    def _texts(self, value: list[Any]) -> list[Any]:
        return [self.digest(word) if isinstance(word, str) else word for word in value]

    def _named_values(self, value: Any) -> Any:
        """A list of `{name, value}`: each value digested, references to elsewhere kept."""
        if not isinstance(value, list):
            return self._other(value)
        for item in value:
            if isinstance(item, dict) and isinstance(item.get("value"), str):
                item["value"] = self.digest(item["value"])
        return self._texts(value)

    def _of_template(self, value: Any) -> Any:
        """The annotations of a template: a map from names to texts."""
        if not isinstance(value, dict):
            return self._other(value)
        return {
            key: text if key in KEPT or not isinstance(text, str) else self.digest(text)
            for key, text in value.items()
        }

    def _words_of_a_container(self, value: Any) -> Any:
        """The message of a state: what the program wrote, or a runtime that names its command."""
        if isinstance(value, dict) and isinstance(value.get("message"), str):
            value["message"] = self.digest(value["message"])
        return value

    def _whole(self, document: Document) -> None:
        if "data" in document:
            text = msgspec.json.encode(document["data"]).decode()
            document["data"] = {"digest": self.digest(text)}


def expressions(document: Any) -> Iterator[str]:
    """Every text under a member `expression`, however deep: CEL."""
    inner: Iterable[Any] = ()
    if isinstance(document, dict):
        for name, value in document.items():
            if name in ("expression", "messageExpression") and isinstance(value, str):
                yield value
        inner = document.values()
    elif isinstance(document, list):
        inner = document
    for value in inner:
        if isinstance(value, (dict, list)):
            yield from expressions(value)


def _of_a_workload(metadata: Document) -> bool:
    """Whether a revision holds a pod template: a DaemonSet's or a StatefulSet's, or an orphan."""
    owners = metadata.get("ownerReferences")
    for owner in owners if isinstance(owners, list) else ():
        if isinstance(owner, dict) and owner.get("controller"):
            group = str(owner.get("apiVersion", "")).rpartition("/")[0]
            return owner.get("kind") in _WORKLOADS and group in ("apps", "extensions")
    return True
