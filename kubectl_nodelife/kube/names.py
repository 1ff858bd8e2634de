"""Names of objects: which ones the API server allows, and how one stands in a command line.

Follows `NameIsDNSSubdomain` of k8s.io/apimachinery. A file may hold any name, and so may a
PodDisruptionBudget or an Event, of which the API server checks no more than that the name fits into
a path: `--kubeconfig=evil` and `$(reboot)` do.
"""

from __future__ import annotations

import re
import shlex
from typing import Final

LONGEST_NAME: Final = 253
_DNS_SUBDOMAIN: Final = re.compile(
    r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*", re.ASCII
)


def is_dns_subdomain(name: str) -> bool:
    """True if the API server takes the name for an object of nearly every kind."""
    return len(name) <= LONGEST_NAME and _DNS_SUBDOMAIN.fullmatch(name) is not None


def subject(resource: str, name: str) -> str:
    """How kubectl is told of an object: `pdb web`; of a name that a shell or kubectl might take for
    something else `'pdb/$(reboot)'`, one word that is no option.
    """
    return f"{resource} {name}" if is_dns_subdomain(name) else shlex.quote(f"{resource}/{name}")
