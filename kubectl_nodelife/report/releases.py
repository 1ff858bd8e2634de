"""The pages of `upgrade preview` and `options --profile`: what a release changes, what it
defaults to."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import msgspec

from kubectl_nodelife.document import document
from kubectl_nodelife.engine.settings import Profile
from kubectl_nodelife.kube.names import counted, first_names
from kubectl_nodelife.outlook.releases import Applied, ReleasePreview, defaults
from kubectl_nodelife.report.formats import Block, Page, Table, columns

_COLUMNS = columns("release | program | area | change | concerns | names*")
_DEFAULTS = columns("name | default | of | locked*")
_NAMED = 3


def preview_page(shown: ReleasePreview) -> Page:
    """A `ReleasePreview` as an answer; its names are the objects that are concerned, each once."""
    return Page(
        partial(_preview, shown),
        shown.document,
        lambda: dict.fromkeys(name for applied in shown.changes for name in applied.names),
    )


def _preview(shown: ReleasePreview, *, wide: bool) -> Iterator[Block]:
    """How much changes, and each change that concerns something here."""
    yield headline(shown)
    yield Table(_COLUMNS, [_row(applied) for applied in shown.changes])


def _row(applied: Applied) -> tuple[str, ...]:
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


def headline(shown: ReleasePreview) -> str:
    """How many of the changes apply."""
    beta = ", a beta that may still change" if shown.after.is_beta else ""
    way = f"from {shown.before.name} to {shown.after.name}{beta}"
    if not shown.changes:
        return f"Going {way}, nothing changes for what is here."
    many = counted(len(shown.changes), "change")
    concern = "concerns" if len(shown.changes) == 1 else "concern"
    rest = f"; {shown.elsewhere} more of these releases do not" if shown.elsewhere else ""
    return f"Going {way}, {many} {concern} what is here{rest}."


def defaults_page(profile: Profile) -> Page:
    """The flags and feature gates of a release with their defaults, flags first."""
    flags, gates = defaults(profile)

    def blocks(*, wide: bool) -> Iterator[Block]:
        beta = ", a beta" if profile.is_beta else ""
        yield f"What {profile.name}{beta} does where nobody says otherwise."
        rows = [(d.name, d.default or '""', d.program, d.locked) for d in (*flags, *gates)]
        yield Table(_DEFAULTS, rows)

    def made() -> object:
        both = {"flags": msgspec.to_builtins(flags), "featureGates": msgspec.to_builtins(gates)}
        return document("ReleaseDefaults", profile=profile.name, **both)

    return Page(blocks, made, lambda: (f"flag/{flag.name}" for flag in flags))
