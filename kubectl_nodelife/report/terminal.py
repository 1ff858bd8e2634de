"""Writes text to stdout and notes to stderr, without control characters that a terminal would obey.

Names in a dump can be anything, so each text is cleaned, as kubectl does with table cells
(cli-runtime/pkg/printers/terminal.go). kubectl replaces ESC and CR only; here all of C0 and C1,
DEL, line separators and marks that reverse the direction of writing are replaced.
"""

from __future__ import annotations

import functools
import sys

from kubectl_nodelife.report.screen import END, SEQUENCES, this_screen

TYPE_CHECKING = False  # as typing's, without importing typing: this is on the quick path
if TYPE_CHECKING:
    import re

_C0_NAMES = {"\t": "\\t", "\n": "\\n", "\r": "\\r"}
_UNSAFE_RANGES = (
    (0x00, 0x1F),
    (0x7F, 0x9F),
    (0x061C, 0x061C),  # marks of writing direction
    (0x200E, 0x200F),
    (0x2028, 0x202E),  # line and paragraph separators, embeddings, overrides
    (0x2066, 0x2069),
    (0xD800, 0xDFFF),  # lone surrogates, which no encoding can print
    (0xFDD0, 0xFDD3),  # where our colours begin and end; see `screen`
)


def _shown(code: int) -> str:
    """What stands for the character: `^[` for ESC, `\\r` for CR, `^G`, `\\x9b`, `\\u202e`."""
    character = chr(code)
    if character in _C0_NAMES:
        return _C0_NAMES[character]
    if code < 0x20 or code == 0x7F:
        return "^" + chr(code ^ 0x40)
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"


@functools.cache
def _unsafe(kept: str = "") -> re.Pattern[str]:
    """The unsafe characters.

    Made when it is needed: most texts are found clean in a quicker way.
    """
    import re

    inside = "".join(rf"\u{low:04x}-\u{high:04x}" for low, high in _UNSAFE_RANGES)
    return re.compile(f"(?![{kept}])[{inside}]" if kept else f"[{inside}]")


def printable(text: str) -> str:
    """`text` on one line with no control character in it: for names, cells and error lines."""
    if text.isprintable():
        return text
    return _unsafe().sub(lambda match: _shown(ord(match[0])), text)


def printable_text(text: str) -> str:
    """As `printable`, but newlines and tabs stay."""
    if text.replace("\n", "").replace("\t", "").isprintable():
        return text
    return _unsafe(kept=r"\n\t").sub(lambda match: _shown(ord(match[0])), text)


def escape_json(text: str) -> str:
    """JSON text with its unsafe characters as `\\uXXXX`: the same document, safe to show."""
    if text.isascii() and "\x7f" not in text:
        return text  # JSON itself escapes the controls below that
    return _unsafe(kept=r"\n\t").sub(lambda match: f"\\u{ord(match[0]):04x}", text)


def prepare() -> None:
    """Print what stdout's encoding does not have as escapes instead of failing."""
    for stream in (sys.stdout, sys.stderr):
        if stream is not None and hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")


def write(text: str) -> None:
    """Put `text` on stdout, cleaned, with a newline at its end; nothing at all for an empty text.

    Marks of colours become colours where they are shown.

    Raises OSError (BrokenPipeError if the reader went away); `cli.main` knows what to do.
    """
    if text and sys.stdout is not None:
        sys.stdout.write(_colored(text) if END in text else printable_text(text))
        if not text.endswith("\n"):
            sys.stdout.write("\n")


def _colored(text: str) -> str:
    if not this_screen().color:
        return printable_text(text)
    unsafe = _unsafe(kept=r"\n\t\ufdd0-\ufdd3")
    return unsafe.sub(lambda match: _shown(ord(match[0])), text).translate(SEQUENCES)


def flush() -> None:
    """Hand over what is buffered for stdout. Raises OSError."""
    if sys.stdout is not None:
        sys.stdout.flush()


def note(text: str) -> None:
    """Put one line on stderr: an error, a warning, what is being done. Never raises OSError."""
    if sys.stderr is None:
        return
    try:
        sys.stderr.write(printable(text) + "\n")
        sys.stderr.flush()
    except OSError:
        pass  # there is nobody left to tell


def warn(text: str) -> None:
    """A warning line on stderr, worded as kubectl's."""
    note(f"Warning: {text}")
