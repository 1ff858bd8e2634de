"""Files of acts among those that `-f` names: documents of kind Acts, or the events of a Scenario.

Only a file of one document that says so is one; everything else is a dump.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from kubectl_nodelife.commands.cluster.file_size import read_named
from kubectl_nodelife.errors import BadInput

_KINDS: Final = ("Acts", "Scenario")
_PEEK: Final = 4096
_ENDINGS: Final = (".yaml", ".yml", ".json")


class ActsFile(NamedTuple):
    """The file's name, and the events in it as they are written."""

    name: str
    events: list[Any]


class ActsAndDumps(NamedTuple):
    """What `-f` names: files of acts, and the rest."""

    acts: list[ActsFile]
    dumps: tuple[str, ...]


def acts_and_dumps(filenames: Sequence[str]) -> ActsAndDumps:
    """Take the files of acts apart. Raises BadInput."""
    acts, dumps = [], []
    for name in filenames:
        if _names_acts(name):
            acts.append(_read(name))
        else:
            dumps.append(name)
    return ActsAndDumps(acts, tuple(dumps))


def _names_acts(name: str) -> bool:
    """True if the file looks like a document of acts."""
    if not name.endswith(_ENDINGS) or not os.path.isfile(name):
        return False
    with open(name, "rb") as file:
        begins = file.read(_PEEK).decode("utf-8", "replace")
    words = begins.replace('"', " ").replace(",", " ").split()
    return any(
        word == "kind:" and words[i + 1 : i + 2] in (["Acts"], ["Scenario"])
        for i, word in enumerate(words)
    ) or any(
        words[i : i + 3] in (["kind", ":", "Acts"], ["kind", ":", "Scenario"])
        for i in range(len(words))
    )


def _read(name: str) -> ActsFile:
    from kubectl_nodelife.sim.fields import FieldPath, mapping, sequence
    from kubectl_nodelife.sim.scenario import API_VERSION
    from kubectl_nodelife.sim.scenario_document import only_document

    top = FieldPath(name)
    document = mapping(only_document(read_named(name), name), top)
    kind, version = document.get("kind"), document.get("apiVersion")
    if kind not in _KINDS or version != API_VERSION:
        remedy = f"acts have apiVersion: {API_VERSION} and kind: Acts"
        raise BadInput(f"is {version} {kind}", on=name, remedy=remedy)
    spec = mapping(document.get("spec", {}), top.key("spec"))
    for field in spec if kind == "Acts" else ():
        if field != "events":
            raise top.key("spec").key(field).fault("is no field of Acts", "it has only events")
    events = sequence(spec.get("events", []), top.key("spec").key("events"))
    if not events:
        raise BadInput("holds no events", on=name, remedy="give spec.events")
    return ActsFile(name, list(events))
