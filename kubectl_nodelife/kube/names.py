"""How objects are named: by the API server, on a command line, in messages.

Follows `NameIsDNSSubdomain` of k8s.io/apimachinery. A file may hold any name, and so may a
PodDisruptionBudget or an Event, of which the API server checks no more than that the name fits into
a path: `--kubeconfig=evil` and `$(reboot)` do.

On a command line an object is `NAME`, `KIND/NAME` or `KIND NAME...`, and one of a namespace also
`KIND/NAMESPACE/NAME`. A kind goes by the names under which kubectl knows its resource: singular,
plural, short, and with its group (`daemonsets.apps`). All verbs read their arguments here, so that
what one of them takes the others take as well.

Where upstream makes a name, or a number, of a name or a body, it takes their `fnv1a_32`.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from kubectl_nodelife.errors import BadInput

LONGEST_NAME: Final = 253
LONGEST_LABEL: Final = 63
_DNS_SUBDOMAIN: Final = re.compile(
    r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*", re.ASCII
)

NODE: Final = "Node"
POD: Final = "Pod"
DAEMON_SET: Final = "DaemonSet"
BUDGET: Final = "PodDisruptionBudget"
ZONE: Final = "Zone"

_SPELLINGS: Final = {
    NODE: ("node", "nodes", "no"),
    POD: ("pod", "pods", "po"),
    DAEMON_SET: ("daemonset", "daemonsets", "ds", "daemonset.apps", "daemonsets.apps"),
    BUDGET: (
        "budget",
        "budgets",
        "pdb",
        "poddisruptionbudget",
        "poddisruptionbudgets",
        "poddisruptionbudget.policy",
        "poddisruptionbudgets.policy",
    ),
    ZONE: ("zone", "zones"),
}
_KIND_OF: Final = {word: kind for kind, words in _SPELLINGS.items() for word in words}
WITHOUT_NAMESPACE: Final = frozenset({NODE, ZONE})


class Subject(NamedTuple):
    """An object that is meant. `namespace`: "" where none is given, or the kind has none."""

    kind: str
    namespace: str
    name: str


def fnv1a_32(content: bytes) -> int:
    """The 32-bit FNV-1a hash."""
    value = 0x811C9DC5
    for byte in content:
        value = ((value ^ byte) * 0x01000193) & 0xFFFFFFFF
    return value


def is_dns_subdomain(name: str) -> bool:
    """True if the API server takes the name for an object of nearly every kind."""
    return len(name) <= LONGEST_NAME and _DNS_SUBDOMAIN.fullmatch(name) is not None


def is_dns_label(name: str) -> bool:
    """True if the API server takes the name for a namespace (`NameIsDNSLabel`)."""
    return len(name) <= LONGEST_LABEL and "." not in name and is_dns_subdomain(name)


def word_for(kind: str) -> str:
    """The word that names the kind in messages and commands."""
    return _SPELLINGS[kind][0]


def kind_of(word: str) -> str | None:
    """The kind that a word names, in any of kubectl's spellings; None if it names none."""
    return _KIND_OF.get(word.lower())


def parse_subjects(words: Sequence[str], kinds: Sequence[str], default: str = "") -> list[Subject]:
    """The objects that the words name, each once, in their order.

    `kinds`: those that may be named; `default`: the kind of a name alone, "" where a kind has to
    be given. Raises BadInput.
    """
    kind = kind_of(words[0]) if len(words) > 1 else None
    if kind is None:
        return list(dict.fromkeys(_subject(word, kinds, default) for word in words))
    if kind not in kinds:
        raise _unclear(" ".join(words[:2]), kinds)
    # A slash behind a kind that was said parts a namespace from a name.
    spelled = (
        word if kind_of(word.partition("/")[0]) == kind else f"{words[0]}/{word}"
        for word in words[1:]
    )
    return list(dict.fromkeys(_subject(word, kinds, kind) for word in spelled))


def parse_subject(words: Sequence[str], kinds: Sequence[str], default: str = "") -> Subject:
    """The one object that the words name. Raises BadInput, also where they name several."""
    named = parse_subjects(words, kinds, default)
    if len(named) != 1:
        raise _unclear(" ".join(words), kinds)
    return named[0]


def parse_names(words: Sequence[str]) -> list[str]:
    """The names of nodes, each once. Raises BadInput."""
    return [each.name for each in parse_subjects(words, (NODE,), NODE)]


def subject(resource: str, name: str) -> str:
    """An object as kubectl takes it: `pdb web`; of a name that a shell or kubectl might take for
    something else `'pdb/$(reboot)'`, one word that is no option.
    """
    return f"{resource} {name}" if is_dns_subdomain(name) else shlex.quote(f"{resource}/{name}")


def shown_object(obj: Mapping[str, Any]) -> str:
    """`Pod/shop/web-0`, of the `object` of a document's item."""
    return "/".join(filter(None, (obj["kind"], obj.get("namespace"), obj["name"])))


def did_you_mean(name: str, valid: Iterable[str]) -> str:
    """`did you mean maxUnavailable?`, or which names there are."""
    import difflib  # here, for `daemon --help` asks for no name

    names = list(valid)
    near = difflib.get_close_matches(name, names, 1)
    return f"did you mean {near[0]}?" if near else f"known are {', '.join(names)}"


def first_names(names: Sequence[str], most: int, separator: str = ", ") -> str:
    """`a, b, c and 4 more`; all of them where there are at most `most`."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return separator.join(names[:most]) + more


def counted(number: int, noun: str) -> str:
    """`1 pod`, `3 pods`: nouns with a plural in s alone, perhaps with a word before them."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def _subject(word: str, kinds: Sequence[str], default: str) -> Subject:
    first, slash, name = word.partition("/")
    kind, name = (kind_of(first) or "", name) if slash else (default, word)
    namespace = ""
    # A zone's name has slashes of its own, such as us-east/us-east-1a.
    if kind != ZONE and "/" in name:
        namespace, _, name = name.partition("/")
        if kind in WITHOUT_NAMESPACE or not namespace or "/" in name:
            raise _unclear(word, kinds)
    if kind not in kinds or not name:
        raise _unclear(word, kinds)
    return Subject(kind, namespace, name)


def _unclear(given: str, kinds: Sequence[str]) -> BadInput:
    ways = [
        f"{word_for(kind)}/NAME"
        if kind in WITHOUT_NAMESPACE
        # The namespace may come with -n as well.
        else f"{word_for(kind)}/NAMESPACE/NAME"
        for kind in kinds
    ]
    what = f"which object is meant is unclear from {given!r}" if given else "no object is named"
    return BadInput(what, remedy=f"write {' or '.join(ways)}")
