"""Names of objects: which ones the API server allows, how one stands in a command line, which one
may have been meant by one that does not exist, and how many of them stand in a sentence.

Follows `NameIsDNSSubdomain` of k8s.io/apimachinery. A file may hold any name, and so may a
PodDisruptionBudget or an Event, of which the API server checks no more than that the name fits into
a path: `--kubeconfig=evil` and `$(reboot)` do.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Sequence
from typing import Final

LONGEST_NAME: Final = 253
LONGEST_LABEL: Final = 63
_DNS_SUBDOMAIN: Final = re.compile(
    r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*", re.ASCII
)


def is_dns_subdomain(name: str) -> bool:
    """True if the API server takes the name for an object of nearly every kind."""
    return len(name) <= LONGEST_NAME and _DNS_SUBDOMAIN.fullmatch(name) is not None


def is_dns_label(name: str) -> bool:
    """True if the API server takes the name for a namespace (`NameIsDNSLabel`)."""
    return len(name) <= LONGEST_LABEL and "." not in name and is_dns_subdomain(name)


def subject(resource: str, name: str) -> str:
    """An object as kubectl takes it: `pdb web`; of a name that a shell or kubectl might take for
    something else `'pdb/$(reboot)'`, one word that is no option.
    """
    return f"{resource} {name}" if is_dns_subdomain(name) else shlex.quote(f"{resource}/{name}")


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
