"""Secrets planted in every text that no decision reads come out nowhere: in no answer, page,
journal, log, message or bug report.
"""

import json
import logging
from pathlib import Path
from typing import Any

import pytest

from kubectl_nodelife.cli import main
from kubectl_nodelife.daemon.changes import document
from kubectl_nodelife.daemon.controller_host import ControllerHost
from kubectl_nodelife.daemon.enforce.recorder import ChangeRecorder, action_text
from kubectl_nodelife.daemon.gate import KINDS, NEEDS
from kubectl_nodelife.daemon.ledger import Ledger
from kubectl_nodelife.daemon.logs import log, log_bug, log_end
from kubectl_nodelife.engine.actions import Action, RecordEvent
from kubectl_nodelife.engine.calls import Result
from kubectl_nodelife.engine.events import Put
from kubectl_nodelife.engine.quarantine import Bug
from kubectl_nodelife.engine.settings import make_settings
from kubectl_nodelife.kube.codec import decode
from kubectl_nodelife.kube.load import load_documents
from kubectl_nodelife.kube.times import SECOND_NS
from kubectl_nodelife.outlook.replay.timeline import ReplayFilter, ReplaySources, timeline
from kubectl_nodelife.report import replay
from kubectl_nodelife.report.bug import report_bug
from kubectl_nodelife.report.formats import render
from kubectl_nodelife.report.replay import Replay
from tests.drain.build import NOW_NS
from tests.hostile.openapi import SECRET, found_in
from tests.hostile.secretive import cluster, secretive
from tests.objects import write_list

SHOWN = {"spec.validations[].message"}
"""What an answer quotes on purpose: the words with which a policy refuses an eviction."""


@pytest.fixture(scope="module")
def dump(tmp_path_factory: pytest.TempPathFactory) -> str:
    return write_list(tmp_path_factory.mktemp("secret") / "cluster.json", cluster())


def test_there_are_many_secrets_and_they_are_read(dump: str) -> None:
    text = Path(dump).read_text()
    assert len(found_in(text)) > 600
    loaded = load_documents([json.loads(text)], "x")
    assert not loaded.unreadable and len(loaded.objects) > 30


DRAIN = ["--force", "--ignore-daemonsets", "--delete-emptydir-data"]


@pytest.mark.parametrize(
    "arguments",
    [
        *(["drain-plan", "--all", *DRAIN, "-o", o] for o in ("html", "json", "wide", "commands")),
        ["drain-plan", "a", "-o", "html"],
        *(["status", "-o", o] for o in ("wide", "json")),
        *(["explain", kind, name] for kind, name in (("node", "a"), ("pod", "alone"))),
        ["explain", "pod", "web-0", "-o", "json"],
        ["audit", "-o", "json"],
        ["budgets", "-o", "json"],
        ["daemonset", "agent", "-o", "json"],
        ["daemonset", "history", "ds", "agent", "-n", "default", "-o", "json"],
        ["repair", "-o", "json"],
        ["diverge", "-o", "json"],
        *(["what-if", "lose", "node", "a", "-o", o] for o in ("json", "html", "timeline")),
        ["what-if", "drain", "a", *DRAIN, "--why", "node/a"],
        ["what-if", "--each", "node", "-o", "json"],
    ],
    ids=" ".join,
)
def test_no_answer_tells_them(
    arguments: list[str], dump: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*arguments, "-f", dump]) in (0, 4)
    said = capsys.readouterr()
    assert said.out and found_in(said.out + said.err) <= SHOWN


def test_no_replay_tells_them() -> None:
    """But for an Event's message, which is what it quotes of the cluster that is asked."""
    loaded = load_documents([{"apiVersion": "v1", "kind": "List", "items": cluster()}], "x")
    of = {kind: [o for o in loaded.objects if type(o).__name__ == kind] for kind in NEEDED}
    sources: Any = ReplaySources([], of["Event"], of["Node"], of["Pod"])  # type: ignore[arg-type]
    lines = timeline(sources, ReplayFilter(0, 2 * NOW_NS, "", None, True))
    assert lines
    page = Replay(lines, {"kind": "cluster"}, 0, NOW_NS, [])
    texts = [replay.html_page(page, "node a"), *(render(page.page(), o) for o in ("wide", "json"))]
    found = found_in("".join(texts))
    assert all(one.startswith("message") for one in found), found


NEEDED = ("Event", "Node", "Pod")


class Carried(Ledger):
    """A ledger in which each action is noted as the journals of changes and of writes would."""

    def __init__(self) -> None:
        super().__init__()
        self.recorder = ChangeRecorder(self)
        self.intents: list[str] = []
        self.kinds: set[str] = set()
        self.host = ControllerHost(self)

    def note(self, action: Action, now_ns: int, *about: Any, enforced: bool = False) -> None:
        super().note(action, now_ns, *about, enforced=enforced)
        if enforced or not action.writes:
            return
        self.kinds.add(type(action).__name__)
        self.intents.append(action_text(action))
        if isinstance(action, RecordEvent):
            return
        seen = self.host.shown(*action.target)
        self.recorder.planned(action, seen, now_ns)
        self.recorder.ended(action, Result(500, "refused"), now_ns)


def test_no_journal_tells_them() -> None:
    """All nodes fall silent, and every controller has its say."""
    digests = set()
    carried = Carried()
    host = carried.host
    for obj in cluster():
        if obj["kind"] in KINDS:
            host.cache.apply(Put(obj["kind"], decode(obj["kind"], obj)), NOW_NS)
    host.join(make_settings("newest"), list(NEEDS))
    for second in (0, 1, 5, 60, 120, 400, 800):
        for _ in host.step(NOW_NS + second * SECOND_NS, []):
            pass
    told = {"SetNodeConditions", "AddTaints", "MarkPodNotReady", "CreateControllerRevision"}
    assert told <= carried.kinds
    changes, _, _ = carried.take_batch()
    for change in changes:
        made = json.dumps([document(change), change.data])
        digests |= found_in(made.replace("digest:", SECRET))
        assert found_in(made) == set(), change.action
    assert digests, "an object that would be created is kept by digests"
    assert found_in("".join(carried.intents)) == set()


def raised() -> BaseException:
    try:
        try:
            raise KeyError(f"{SECRET}first")
        except KeyError as error:
            raise ExceptionGroup(f"{SECRET}group", [ValueError(f"{SECRET}inner")]) from error
    except ExceptionGroup as error:
        error.add_note(f"{SECRET}note")
        return error


def test_no_bug_report_tells_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """An exception's text may quote whatever it stumbled over."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    for arguments in (["status", "--token", f"{SECRET}t"], ["status", f"--token={SECRET}t"]):
        report_bug(raised(), arguments)
    (path, _) = tmp_path.iterdir()
    text = path.read_text() + capsys.readouterr().err
    assert found_in(text) == set()
    for word in ("KeyError", "ExceptionGroup", "ValueError", "in raised", __file__):
        assert word in text


def test_no_log_tells_of_a_bug_with_them(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG, log.name):
        log_bug(Bug("c", ("Pod", ("d", "p")), raised(), 0))
        log_end("watcher", raised())
    assert "KeyError" in caplog.text and found_in(caplog.text) == set()


@pytest.mark.parametrize("kind", sorted({obj["kind"] for obj in cluster()}))
def test_no_complaint_of_a_file_tells_them(
    kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of an object that has secrets and nothing else; some of its fields are of another type."""
    names = {"name": "one", "namespace": "default"}
    made = secretive({"apiVersion": apis()[kind], "kind": kind, "metadata": names})
    path = tmp_path / "one.json"
    path.write_text(json.dumps(made))
    main(["status", "-f", str(path)])
    said = capsys.readouterr()
    assert found_in(said.out + said.err) <= SHOWN


def apis() -> dict[str, str]:
    return {obj["kind"]: obj["apiVersion"] for obj in cluster()}
