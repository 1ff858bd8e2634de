"""The same answers before and after: each verb on a dump, and on that dump as a snapshot keeps it.

`NODELIFE_DUMPS` names a folder of more dumps, one in each of its folders.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from kubectl_nodelife.cli import main
from kubectl_nodelife.commands.cluster.look import view_of_dump
from kubectl_nodelife.dumps import dump
from kubectl_nodelife.kube.kinds import kind_of
from kubectl_nodelife.kube.meta import KubeObject
from kubectl_nodelife.outlook.explain_document import explanation_of
from kubectl_nodelife.outlook.status import KINDS
from kubectl_nodelife.report.explanation import explanation_page
from kubectl_nodelife.report.formats import render
from kubectl_nodelife.snapshot import Digests, Redaction
from tests.snapshot.planted import SECRETS, Document, plant, read_dump, redacted

OURS = Path(__file__).parents[1] / "dumps"
MORE = os.environ.get("NODELIFE_DUMPS")
DUMPS = [
    *sorted(OURS.iterdir()),
    *(sorted(p for p in Path(MORE).iterdir() if p.is_dir()) if MORE else ()),
]
KEY = bytes(range(32))
FORCE = ("--ignore-daemonsets", "--delete-emptydir-data", "--force")
FILE = "dump.json"

Capture = pytest.CaptureFixture[str]


@pytest.fixture
def said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture) -> Answers:
    monkeypatch.chdir(tmp_path)
    return Answers(capsys)


class Answers:
    """What every verb says of some documents."""

    def __init__(self, capsys: Capture) -> None:
        self._capsys = capsys

    def of(self, documents: list[Document]) -> dict[str, str]:
        """Verb and its words -> exit code, output and warnings."""
        Path(FILE).write_text("\n".join(json.dumps(d) for d in documents))
        snapshot = dump.read_dump([FILE])
        view = view_of_dump(snapshot, KINDS)
        found = {" ".join(words): self._run(*words) for words in self._questions(snapshot.objects)}
        for obj in snapshot.objects:
            kind = kind_of(obj)
            if kind in ("Node", "Pod"):
                page = explanation_page(explanation_of(view, kind, *obj.key))
                found[f"explain {kind} {obj.key}"] = render(page, "json")
        return found

    def _questions(self, objects: list[KubeObject]) -> Iterator[tuple[str, ...]]:
        yield ("status", "-o", "wide")
        yield ("status", "-o", "json")
        for verb in ("audit", "budgets", "daemonset"):
            yield (verb, "-A", "-o", "wide")
            yield (verb, "-A", "-o", "json")
        nodes = sorted(o.name for o in objects if kind_of(o) == "Node")
        for node in nodes:
            yield ("drain-plan", node, "-o", "json")
        yield ("drain-plan", *nodes, *FORCE, "--max-parallel", "2", "-o", "json")
        for obj in objects:
            if kind_of(obj) == "DaemonSet":
                name, namespace = obj.name, obj.namespace
                yield ("daemonset", name, "--nodes", "-n", namespace, "-o", "json")
                for word in ("status", "history", "undo"):
                    yield ("rollout", word, "ds", name, "-n", namespace, "-o", "json")

    def _run(self, *words: str) -> str:
        code = main([*words, "-f", FILE])
        out, err = self._capsys.readouterr()
        return f"{code}\n{out}\n{err}"


class Remembered(Digests):
    """Digests that can be undone, for once."""

    def __init__(self, key: bytes) -> None:
        super().__init__(key)
        self.texts: dict[str, str] = {}

    def __call__(self, text: str) -> str:
        made = super().__call__(text)
        self.texts[made] = text
        return made

    def undone(self, text: str) -> str:
        """JSON text with the digests' own texts in their place."""
        for made, was in self.texts.items():
            text = text.replace(made, json.dumps(was, ensure_ascii=False)[1:-1])
        return text


def redaction_and_memory() -> tuple[Redaction, Remembered]:
    redaction, memory = Redaction(KEY), Remembered(KEY)
    redaction.digest = memory
    return redaction, memory


def differences(before: dict[str, str], after: dict[str, str]) -> dict[str, tuple[str, str]]:
    assert before.keys() == after.keys()
    return {k: (before[k], after[k]) for k in before if not _alike(before[k], after[k])}


def _alike(before: str, after: str) -> bool:
    """The same words: a column is as wide as a digest before it is undone, and a long text that is
    cut ("word...") may stand there whole.
    """
    words = before.split()
    if not any(word.endswith("...") for word in words):
        return words == after.split()
    patterns = (
        re.escape(word.removesuffix("...")) + (".*?" if word.endswith("...") else "")
        for word in words
    )
    return re.fullmatch(" ".join(patterns), " ".join(after.split())) is not None


@pytest.mark.parametrize("path", DUMPS, ids=lambda path: path.stem)
def test_a_dump_and_its_snapshot_answer_alike(path: Path, said: Answers) -> None:
    documents = read_dump(path)
    redaction, memory = redaction_and_memory()
    before = said.of(documents)
    after = said.of(redacted(documents, redaction))
    assert len(before) > 10
    assert not differences(before, {k: memory.undone(text) for k, text in after.items()})


def test_planted_secrets_change_no_answer_but_their_own_words(said: Answers) -> None:
    documents = plant(read_dump(OURS / "two-zones"))
    redaction, memory = redaction_and_memory()
    before = said.of(documents)
    kept = redacted(documents, redaction)
    after = said.of(kept)
    assert "s3cr3t-env" in memory.texts.values()
    assert any("s3cr3t-env" in text for text in before.values())  # `daemonset history` tells it
    assert not [secret for secret in SECRETS if secret in json.dumps(kept)]
    assert not [secret for secret in SECRETS if any(secret in text for text in after.values())]
    assert not differences(before, {k: memory.undone(text) for k, text in after.items()})
