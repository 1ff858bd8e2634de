"""Collects upstream's test vectors: one pytest item for each, named by the vector's id.

`pytest tests/conformance --cases DIR` takes the JSON files of DIR, the topics of one system,
instead of the project's own copies, collects nothing else and skips nothing.
"""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.conformance.skips import SKIPS

OWN_CASES = Path(__file__).parent / "cases"


def pytest_addoption(parser: pytest.Parser) -> None:
    """The folder of vectors to play instead of the project's own."""
    parser.addoption("--cases", metavar="DIR", help="play only the vectors in this folder")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """One item for each vector."""
    if "vector" not in metafunc.fixturenames:
        return
    chosen = metafunc.config.getoption("cases", default=None)
    vectors = read_vectors(Path(chosen)) if chosen else read_vectors(OWN_CASES)
    metafunc.parametrize(
        "vector",
        [pytest.param(v, id=v["id"], marks=_marks(v["id"], bool(chosen))) for v in vectors],
    )


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """With --cases, nothing but the vectors."""
    if not config.getoption("cases", default=None):
        return
    here = Path(__file__).parent
    kept = [
        i for i in items if here not in i.path.parents or "vector" in getattr(i, "fixturenames", ())
    ]
    config.hook.pytest_deselected(items=[item for item in items if item not in kept])
    items[:] = kept


def _marks(vector_id: str, foreign: bool) -> list[pytest.MarkDecorator]:
    if foreign or vector_id not in SKIPS:
        return []
    return [pytest.mark.skip(reason=SKIPS[vector_id])]


def read_vectors(folder: Path) -> list[dict[str, Any]]:
    """All vectors below the folder, each with its topic in it."""
    files = sorted(folder.rglob("*.json"))
    if not files:
        raise pytest.UsageError(f"no vectors (*.json) in {folder}")
    vectors = []
    for file in files:
        content = json.loads(file.read_text(encoding="utf-8"))
        vectors += [{"topic": content["topic"], **case} for case in content["cases"]]
    ids = [vector["id"] for vector in vectors]
    twice = sorted({i for i in ids if ids.count(i) > 1})
    if twice:
        raise pytest.UsageError(f"vectors of the same id in {folder}: {', '.join(twice)}")
    return vectors
