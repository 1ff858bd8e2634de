"""What stays of a control plane's command lines: the flags that decisions here read.

The table is `engine.settings.FLAGS`, with the component that has each flag; nothing else of a
static pod's command survives, since tokens and URLs stand there too.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final

from kubectl_nodelife.engine.settings import FLAGS

NAMESPACE: Final = "kube-system"
COMPONENTS: Final = frozenset(flag.origin for flag in FLAGS.values())


def is_control_plane(namespace: str, name: str) -> bool:
    """True if a pod of that name may show a component's flags."""
    return namespace == NAMESPACE and any(name.startswith(f"{c}-") for c in COMPONENTS)


def kept_words(words: Iterable[Any], digest: Callable[[str], str]) -> Iterator[Any]:
    """The words with those that are no flag of ours digested; `--flag VALUE` stays together."""
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
    if any(" " in word for word in words):  # a line within the line: too deep to be sure
        return digest(line)
    return shlex.join(kept_words(words, digest))


def containers(pod: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """A raw pod's containers."""
    spec = pod.get("spec")
    found = spec.get("containers") if isinstance(spec, dict) else None
    for container in found if isinstance(found, list) else ():
        if isinstance(container, dict):
            yield container
