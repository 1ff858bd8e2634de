"""The conversation on the socket, from the client's side."""

import json
import socket
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from kubectl_nodelife import errors
from kubectl_nodelife.daemon import client
from kubectl_nodelife.daemon.client import PROTOCOL, NotRunning, OtherProtocol, ask, follow
from tests.daemon.fake import FakeDaemon


@pytest.fixture
def folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="nl", dir="/tmp") as name:
        yield Path(name)


def test_a_question_with_all_that_it_asks_for(folder: Path) -> None:
    with FakeDaemon(folder, {"text": "ä"}) as daemon:
        answer = ask(
            daemon.path, "status", node=["a", "b c"], selector="x in (a,b)", none=None, empty="",
            headers=False,
        )  # fmt: skip
        assert answer["text"] == "ä"
        line, *headers = daemon.requests[0].split("\r\n")
        assert line == (
            "GET /v1/status?node=a&node=b%20c&selector=x%20in%20%28a%2Cb%29&headers=false HTTP/1.0"
        )
        assert f"X-Nodelife-Protocol: {PROTOCOL}" in headers


def test_orders_are_posted(folder: Path) -> None:
    with FakeDaemon(folder, {}) as daemon:
        ask(daemon.path, "stop")
        assert daemon.requests[0].startswith("POST /v1/stop HTTP/1.0")


def test_nobody_there(folder: Path) -> None:
    path = str(folder / "none.sock")
    with pytest.raises(NotRunning, match="no daemon runs for this cluster"):
        ask(path, "status")
    stale = socket.socket(socket.AF_UNIX)
    stale.bind(path)
    stale.close()  # a socket that a daemon left behind
    with pytest.raises(NotRunning):
        ask(path, "status")
    assert Path(path).exists(), "a client removes nothing"


def test_one_who_listens_and_says_nothing(folder: Path) -> None:
    path = str(folder / "mute.sock")
    mute = socket.socket(socket.AF_UNIX)
    mute.bind(path)
    mute.listen()
    with pytest.raises(errors.Unreachable, match="does not answer: no answer in time"):
        ask(path, "status", seconds=0.2)
    mute.close()


def test_another_protocol_is_told_apart_whatever_else_it_says(folder: Path) -> None:
    with FakeDaemon(folder, {"protocol": 7, "version": "9.9.9"}) as daemon:
        with pytest.raises(OtherProtocol) as other:
            ask(daemon.path, "status")
        assert str(other.value) == (
            "the daemon (version 9.9.9) speaks protocol 7, and we 2; "
            "run: kubectl nodelife daemon restart"
        )


def test_an_answer_has_a_limit(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "MOST_BYTES", 1000)
    with (
        FakeDaemon(folder, {"text": "x" * 2000}) as daemon,
        pytest.raises(errors.Unreachable, match="too long"),
    ):
        ask(daemon.path, "status")


HEAD = b"HTTP/1.0 200 OK\r\nContent-Type: application/x-ndjson\r\n\r\n"


def test_following_gives_each_line(folder: Path) -> None:
    with FakeDaemon(folder, HEAD + b'{"text": "a"}\n\n{"text": "b"}\n') as daemon:
        assert [a["text"] for a in follow(daemon.path, "status")] == ["a", "b"]


def test_following_ends_with_the_error_that_is_told(folder: Path) -> None:
    lines = b'{"text": "a"}\n{"error": {"what": "too slow", "exitCode": 1}}\n'
    with FakeDaemon(folder, HEAD + lines) as daemon:
        answers = follow(daemon.path, "status")
        assert next(answers)["text"] == "a"
        with pytest.raises(errors.ErrorElsewhere, match="too slow"):
            next(answers)


def test_following_what_is_refused(folder: Path) -> None:
    refused = b'HTTP/1.0 422 X\r\n\r\n{"error": {"what": "no such node", "exitCode": 1}}'
    with (
        FakeDaemon(folder, refused) as daemon,
        pytest.raises(errors.ErrorElsewhere, match="no such node"),
    ):
        next(follow(daemon.path, "status"))


@pytest.mark.parametrize(
    "body",
    [b"", b"[]", b"null", b"7", b"{", b"[" * 200_000, b'{"a": ' * 200_000, b"\xff\xfe"],
    ids=["nothing", "a-list", "null", "a-number", "cut-off", "deep-list", "deep", "no-text"],
)
def test_an_answer_that_is_none_is_one_line(folder: Path, body: bytes) -> None:
    for asked in (lambda path: ask(path, "status"), lambda path: next(follow(path, "status"))):
        head = b"HTTP/1.0 502 X\r\n\r\n"
        with FakeDaemon(folder, head + body) as daemon:
            with pytest.raises(errors.Unreachable, match="cannot be decoded") as error:
                asked(daemon.path)
            assert "\n" not in str(error.value)
        Path(daemon.path).unlink()


@pytest.mark.parametrize(
    "error, said, code",
    [
        ({"what": "w", "on": "o", "remedy": "r", "exitCode": 3}, "o: w; r", 3),
        # Of another form it is still one.
        ("text", "text", 1),
        (["a"], "['a']", 1),
        ({"what": {"x": 1}, "on": 7, "exitCode": "3"}, "7: {'x': 1}", 1),
        ({"exitCode": None}, "?", 1),
    ],
)
def test_an_error_travels_with_its_exit_code(
    folder: Path, error: object, said: str, code: int
) -> None:
    with FakeDaemon(folder, {"error": error}) as daemon:
        with pytest.raises(errors.ErrorElsewhere) as denied:
            ask(daemon.path, "status")
        assert (str(denied.value), denied.value.exit_code) == (said, code)


@pytest.mark.parametrize(
    "error", [errors.BadInput("w", on="o", remedy="r"), errors.Refused("no"), errors.Failed("f")]
)
def test_an_error_is_the_same_in_another_process(error: errors.NodelifeError) -> None:
    again = errors.error_of(json.loads(json.dumps(error.document())))
    assert (str(again), again.exit_code) == (str(error), error.exit_code)


@pytest.mark.parametrize("code", [0, -1, 256, "2", None, 1.5])
def test_an_exit_code_that_is_none_is_a_failure(code: object) -> None:
    assert errors.error_of({"what": "w", "exitCode": code}).exit_code == 1
