"""The targets of a release: four pairs of system and architecture, four versions of CPython.

Archives for macOS are put together on Linux: pip downloads wheels for any platform, and nothing
is compiled. An archive holds the extension modules of all versions beside one another, since
their file names carry the version.
"""

from __future__ import annotations

from typing import Final, NamedTuple

PYTHONS: Final = ("3.11", "3.12", "3.13", "3.14")
"""3.15 is to be added when all packages that need one have wheels for it."""


class Platform(NamedTuple):
    """A system and architecture by Go's names, as in krew's manifest.

    `tags`: the platforms of wheels, as pip names them. `machines`: what uname says there.
    `extension`: how the names of extension modules end, behind the version.
    """

    system: str
    arch: str
    tags: tuple[str, ...]
    machines: tuple[str, ...]
    extension: str

    @property
    def name(self) -> str:
        """As in file names and on the command line: linux-amd64."""
        return f"{self.system}-{self.arch}"

    def suffix(self, python: str) -> str:
        """How an extension module for that CPython ends."""
        return f".cpython-{python.replace('.', '')}-{self.extension}.so"

    def suffixes(self) -> tuple[str, ...]:
        """The same for all that are shipped."""
        return tuple(self.suffix(python) for python in PYTHONS)


def _linux(arch: str, machine: str) -> Platform:
    tags = ("manylinux_2_28", "manylinux_2_17", "manylinux2014", "manylinux_2_5", "manylinux1")
    return Platform(
        "linux", arch, tuple(f"{t}_{machine}" for t in tags), (machine,), f"{machine}-linux-gnu"
    )


PLATFORMS: Final = (
    _linux("amd64", "x86_64"),
    _linux("arm64", "aarch64"),
    Platform("darwin", "amd64", ("macosx_13_0_x86_64",), ("x86_64",), "darwin"),
    Platform("darwin", "arm64", ("macosx_13_0_arm64",), ("arm64",), "darwin"),
)
BY_NAME: Final = {platform.name: platform for platform in PLATFORMS}
