"""The pages of `upgrade preview` and `options --profile`: what a release changes, what it
defaults to."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import msgspec

from kubectl_nodelife.document import API_VERSION
from kubectl_nodelife.engine.profiles import Profile
from kubectl_nodelife.kube.names import counted, first_names
from kubectl_nodelife.outlook.releases import Applied, Default, ReleasePreview, defaults
from kubectl_nodelife.report.formats import Block
from kubectl_nodelife.report.table import Table, columns

_COLUMNS = columns("release | program | area | change | concerns | names*")
_DEFAULTS = columns("name | default | of | locked*")
_NAMED = 3


class PreviewPage:
    """A `ReleasePreview` as an answer."""

    def __init__(self, found: ReleasePreview) -> None:
        self._found = found

    def blocks(self, *, wide: bool) -> Iterable[Block]:
        """How much changes, and each change that concerns something here."""
        yield headline(self._found)
        yield Table(_COLUMNS, [self._row(applied) for applied in self._found.changes])

    def _row(self, applied: Applied) -> tuple[str, ...]:
        change, names = applied.change, first_names(applied.names, _NAMED)
        concerns = names if names and len(applied.names) <= _NAMED else applied.concerns
        return (
            change.release,
            change.program,
            change.area,
            change.change,
            concerns,
            ", ".join(applied.names),
        )

    def document(self) -> object:
        """The ReleasePreview."""
        return self._found.document()

    def names(self) -> Iterable[str]:
        """The objects that are concerned, each once."""
        return dict.fromkeys(name for applied in self._found.changes for name in applied.names)


def headline(found: ReleasePreview) -> str:
    """How many of the changes apply."""
    beta = ", a beta that may still change" if found.after.is_beta else ""
    way = f"from {found.before.name} to {found.after.name}{beta}"
    if not found.changes:
        return f"Going {way}, nothing changes for what is here."
    many = counted(len(found.changes), "change")
    concern = "concerns" if len(found.changes) == 1 else "concern"
    rest = f"; {found.elsewhere} more of these releases do not" if found.elsewhere else ""
    return f"Going {way}, {many} {concern} what is here{rest}."


class DefaultsPage:
    """The flags and feature gates of a release with their defaults."""

    def __init__(self, profile: Profile) -> None:
        self._profile = profile
        self._flags, self._gates = defaults(profile)

    def blocks(self, *, wide: bool) -> Iterable[Block]:
        """Flags, then gates."""
        beta = ", a beta" if self._profile.is_beta else ""
        yield f"What {self._profile.name}{beta} does where nobody says otherwise."
        yield Table(_DEFAULTS, [*self._rows(self._flags), *self._rows(self._gates)])

    def _rows(self, rows: Iterable[Default]) -> Iterator[tuple[object, ...]]:
        return ((d.name, d.default or '""', d.program, d.locked) for d in rows)

    def document(self) -> object:
        """The same for programs."""
        return {
            "apiVersion": API_VERSION,
            "kind": "ReleaseDefaults",
            "profile": self._profile.name,
            "flags": msgspec.to_builtins(self._flags),
            "featureGates": msgspec.to_builtins(self._gates),
        }

    def names(self) -> Iterable[str]:
        """The flags and gates."""
        return (f"flag/{flag.name}" for flag in self._flags)
