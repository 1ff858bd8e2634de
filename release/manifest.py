"""krew's manifest of a release: `krew-manifest.yaml` with version, addresses and sums.

That file is kept as a template, so that the text that users read in krew's index is reviewed like
any other; its addresses lead nowhere and its sums are zeros, which krew refuses.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from release.source import ReleaseError, tag_of

NO_ADDRESS = "https://kubectl-nodelife.invalid"
_NO_SUM = "0" * 64
_PLATFORM = re.compile(rf'(?P<uri>uri: )\S*/(?P<name>[^/\s]+)(?P<sum>\n\s+sha256: )"{_NO_SUM}"')


def archive_name(platform_name: str) -> str:
    """The file name of a platform's archive; the version is in the folder's name where it lies."""
    return f"kubectl-nodelife-{platform_name}.tar.gz"


def components_name(platform_name: str) -> str:
    """The file name of the list of what is inside a platform's archive."""
    return f"kubectl-nodelife-{platform_name}.cdx.json"


def render(
    template: str, version: str, base_url: str, sums: Mapping[str, str], homepage: str = ""
) -> str:
    """The manifest. `sums`: sha256 by the archive's file name; others' platforms are left out.

    Without a `homepage` it names none: the template's leads nowhere. Raises ReleaseError where the
    template has no place for one of them.
    """
    head, *platforms = re.split(r"(?m)^(?=    - selector:)", template)
    head = "".join(line for line in head.splitlines(True) if not line.lstrip().startswith("#"))
    head = re.sub(r"(?m)^(  version: )v\S+$", rf"\g<1>{tag_of(version)}", head)
    place_of_home = f"  homepage: {homepage}\n" if homepage else ""
    head = re.sub(r"(?m)^  homepage: \S+\n", lambda _: place_of_home, head)
    written, filled = "", set()
    for platform in platforms:
        place = _PLATFORM.search(platform)
        if place is None:
            raise ReleaseError("krew-manifest.yaml: a platform has no address with a sum of zeros")
        name = place["name"]
        if name in sums:
            entry = f'{place["uri"]}{base_url.rstrip("/")}/{name}{place["sum"]}"{sums[name]}"'
            written += platform[: place.start()] + entry + platform[place.end() :]
            filled.add(name)
    if filled != set(sums):
        missing = ", ".join(sorted(set(sums) - filled))
        raise ReleaseError(f"krew-manifest.yaml: no platform for {missing}")
    return head + written
