"""Takes the containers' logs out of what `kubectl cluster-info dump` prints.

Without `--output-directory` it prints Lists one after another, and between them each container's
log between two lines that name it. The log may hold anything, Kubernetes objects included, and need
not end with a line's end. As kubectl/pkg/cmd/clusterinfo/clusterinfo_dump.go writes it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from kubectl_nodelife.kube.errors import InputError

_BEGINS: Final = b"==== START logs for container "
_ENDS: Final = b"==== END logs for container "
_CLOSES: Final = b" ===="
_LONGEST_LINE: Final = 1 << 10
"""Of the lines around a log; names are far shorter."""


def without_logs(pieces: Iterator[bytes], source: str) -> Iterator[bytes]:
    """The pieces of a file without the logs in it, none of them empty.

    Raises InputError where a log has no end.
    """
    held, end = b"", b""
    starts_line = True
    for piece in pieces:
        text = held + piece if held else piece
        while True:
            if end:
                at = text.find(end)
                if at < 0:
                    held = text[-len(end) :]
                    break
                text, end, starts_line = b"\n" + text[at + len(end) :], b"", True
            at = _begin_of_log(text, starts_line)
            line = text[at : at + _LONGEST_LINE]
            name, closes, _ = line.removeprefix(_BEGINS).partition(_CLOSES)
            if not line.startswith(_BEGINS) or not closes:
                kept, held = text[:at], text[at:]
                if len(held) > _LONGEST_LINE:  # a line like those, and none of them
                    kept, held = text, b""
                if kept:
                    starts_line = kept.endswith(b"\n")
                    yield kept
                break
            if at:
                yield text[:at]
            end = _ENDS + name + _CLOSES
            text = text[at + len(_BEGINS) :]
    if end:
        whose = end.removeprefix(_ENDS).removesuffix(_CLOSES).decode(errors="replace")
        what = f"is cut off in the logs of container {whose}"
        raise InputError(what, source=source, remedy="write it again")
    if held:
        yield held


def _begin_of_log(text: bytes, starts_line: bool) -> int:
    """Where a log begins, or may begin with what comes next; the length where none does."""
    if starts_line and (text.startswith(_BEGINS) or _BEGINS.startswith(text)):
        return 0
    at = text.find(b"\n" + _BEGINS)
    if at >= 0:
        return at + 1
    last = text.rfind(b"\n") + 1
    if last and _BEGINS.startswith(text[last:]):
        return last
    return len(text)
