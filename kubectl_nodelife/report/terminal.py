"""Writes text to stdout and notes to stderr, without control characters that a terminal would obey,
and says how wide the terminal is that text is made for, and whether it shows colours.

Names in a dump can be anything, so each text is cleaned, as kubectl does with table cells
(cli-runtime/pkg/printers/terminal.go). kubectl replaces ESC and CR only; here all of C0 and C1,
DEL, line separators and marks that reverse the direction of writing are replaced.

Colours follow kubectl: on a terminal, not where NO_COLOR is set, and `--color` decides. The width
is the terminal's, or what COLUMNS says there; what goes into a file or a pipe is not cut, unless
NODELIFE_WIDTH says how wide it may be.

Commands that we print lead to the cluster that they are about. A sentence of a document says
`kubectl taint node b2 ...`: which flags lead kubectl to that cluster only the command line knows
that asked. So they are put into each command when an answer takes its form, here and nowhere else:
kubectl's own behind the word `kubectl`, a plugin's behind `nodelife`, those of a dump, and settings
that were given, at the end. A command that has such a flag already is left as it is.
"""

from __future__ import annotations

import functools
import os
import shlex
import sys
from collections import namedtuple
from contextvars import ContextVar

TYPE_CHECKING = False  # as typing's, without importing typing: this is on the quick path
if TYPE_CHECKING:
    import re
    from collections.abc import Callable, Sequence
    from typing import Any, Final, TextIO


AUTO, ALWAYS, NEVER = "auto", "always", "never"

LEAST_WIDTH: Final = 40

GOOD, WARN, BAD = "\ufdd0", "\ufdd1", "\ufdd2"
END: Final = "\ufdd3"
"""Where a colour begins and ends in text: code points that no text may hold. `write` puts
colours in their place; where they came with the text itself, they are shown as escapes."""

SEQUENCES: Final = {
    ord(GOOD): "\x1b[32m",
    ord(WARN): "\x1b[33m",
    ord(BAD): "\x1b[31m",
    ord(END): "\x1b[0m",
}


class Screen:
    """`width` in columns, 0: as wide as the text; `color`: whether colours are shown."""

    __slots__ = ("color", "width")

    def __init__(self, width: int = 0, color: bool = False) -> None:
        self.width = max(width, LEAST_WIDTH) if width else 0
        self.color = color


ENDLESS: Final = Screen()
"""No limit to the width, and no colours: a file, a pipe."""


class Sink:
    """What takes a task's output where it is one of several whose outputs become one.

    `write` is given texts for stdout, `note` lines for stderr.
    """

    __slots__ = ("note", "warned", "write")

    def __init__(self, write: Callable[[str], object], note: Callable[[str], object]) -> None:
        self.write = write
        self.note = note
        self.warned: set[str] = set()


sink: ContextVar[Sink | None] = ContextVar("sink", default=None)
"""Of this task and what it starts; None: stdout and stderr themselves."""


class ColoredText(str):
    """Text of a cell with its meaning, one of GOOD, WARN and BAD."""

    __slots__ = ("tone",)
    tone: str

    def __new__(cls, text: str, tone: str) -> ColoredText:
        """The text with its tone."""
        colored = super().__new__(cls, text)
        colored.tone = tone
        return colored


_choice = AUTO


def choose_color(choice: str) -> None:
    """The value of `--color`, for this process."""
    global _choice
    _choice = choice


def this_screen() -> Screen:
    """The screen that stdout leads to."""
    if sink.get() is not None:
        return ENDLESS
    return Screen(columns_of(sys.stdout), _shows_color(is_terminal()))


def is_terminal() -> bool:
    """True if stdout leads to a terminal."""
    return sys.stdout is not None and sys.stdout.isatty()


def columns_of(stream: TextIO | None) -> int:
    """How wide the terminal is that it leads to, 0 where that is none and no width is set."""
    wanted = os.environ.get("NODELIFE_WIDTH", "")
    if wanted.isdecimal():
        return int(wanted)
    if stream is None or not stream.isatty():
        return 0
    given = os.environ.get("COLUMNS", "")
    if given.isdecimal():
        return int(given)
    try:
        return os.get_terminal_size(stream.fileno()).columns
    except (OSError, ValueError):
        return 0


def _shows_color(on_terminal: bool) -> bool:
    if _choice != AUTO:
        return _choice == ALWAYS
    return on_terminal and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


KUBECTL_VERBS = (
    "annotate|apply|auth|config|cordon|create|delete|describe|drain|edit|exec|explain|get|label|"
    "logs|patch|rollout|scale|taint|uncordon|version|wait"
)
VERBS_WITH_SET = frozenset({"audit", "diverge", "explain", "repair", "status", "what-if"})
VERBS_WITH_PROFILE = VERBS_WITH_SET | {"daemonset", "drain-plan"}
"""Verbs that take `--profile`, and `--set`; of daemonset only some commands take the latter."""
VERBS_WITH_DUMPS = VERBS_WITH_PROFILE | {"budgets", "changes", "replay"}
"""Verbs that take `-f` and `--now`."""
VERBS_WITHOUT_NAMESPACE = frozenset({"daemon", "doctor", "metrics", "rbac", "ui"})
"""Verbs to which the namespace of a question means nothing."""

# Before these words "kubectl drain" is a subject of a sentence, and no command to be typed.
_PROSE = "cordons|deletes|does|evicts|gives|had|has|in|is|lists|of|refuses|takes|waits|would"

PROSE_WIDTH = 100
WARNING_LENGTH = 200
"""So much of a warning is shown without `-v 1`."""

_COMMAND = (
    r"(?:echo '[^']*' \| )?"
    r"kubectl(?: (?:'--[^']*'|--[^\s']+))* "
    rf"(?:krew|nodelife|{KUBECTL_VERBS})\b"
    r"(?: (?:'[^']*'|[^\s;,`'()])+)*"
)
_GLUE = "\ufdd4"  # a space within a command, while lines are broken; no text may hold it
_C0_NAMES = {"\t": "\\t", "\n": "\\n", "\r": "\\r"}
_UNSAFE_RANGES = (
    (0x00, 0x1F),
    (0x7F, 0x9F),
    (0x061C, 0x061C),  # marks of writing direction
    (0x200E, 0x200F),
    (0x2028, 0x202E),  # line and paragraph separators, embeddings, overrides
    (0x2066, 0x2069),
    (0xD800, 0xDFFF),  # lone surrogates, which no encoding can print
    (0xFDD0, 0xFDD3),  # where our colours begin and end
)


def _shown(code: int) -> str:
    """The notation of the character: `^[` for ESC, `\\r` for CR, `^G`, `\\x9b`, `\\u202e`."""
    character = chr(code)
    if character in _C0_NAMES:
        return _C0_NAMES[character]
    if code < 0x20 or code == 0x7F:
        return "^" + chr(code ^ 0x40)
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"


@functools.cache
def _unsafe(allowed: str = "") -> re.Pattern[str]:
    """The unsafe characters.

    Made when it is needed: most texts are found clean in a quicker way.
    """
    import re

    inside = "".join(rf"\u{low:04x}-\u{high:04x}" for low, high in _UNSAFE_RANGES)
    return re.compile(f"(?![{allowed}])[{inside}]" if allowed else f"[{inside}]")


def printable(text: str) -> str:
    """`text` on one line with no control character in it: for names, cells and error lines."""
    if text.isprintable():
        return text
    return _unsafe().sub(lambda match: _shown(ord(match[0])), text)


def printable_text(text: str) -> str:
    """As `printable`, but newlines and tabs stay."""
    if text.replace("\n", "").replace("\t", "").isprintable():
        return text
    return _unsafe(allowed=r"\n\t").sub(lambda match: _shown(ord(match[0])), text)


def escape_json(text: str) -> str:
    """JSON text with its unsafe characters as `\\uXXXX`: the same document, safe to show."""
    if text.isascii() and "\x7f" not in text:
        return text  # JSON itself escapes the controls below that
    return _unsafe(allowed=r"\n\t").sub(lambda match: f"\\u{ord(match[0]):04x}", text)


def json_line(document: object) -> str:
    """The document as JSON on a line of its own, safe to show."""
    import json

    return escape_json(json.dumps(document, ensure_ascii=False)) + "\n"


def broken_into_lines(text: str, width: int) -> str:
    """Prose with lines of at most `width` columns and `PROSE_WIDTH`, 0: as long as they are.

    A command in it is never broken: half of one may be copied, and do something else. One that is
    longer than a line stands on a line of its own, and the terminal breaks it.
    """
    most = min(width, PROSE_WIDTH)
    if not width or all(len(line) <= most for line in text.splitlines()):
        return text
    lines = []
    for line in text.splitlines():
        lines += [line] if len(line) <= most else _wrapped(line, most)
    return "\n".join(lines)


def _wrapped(line: str, width: int) -> list[str]:
    import re
    import textwrap

    indent = " " * (len(line) - len(line.lstrip()))
    if re.match(_COMMAND, line.lstrip()):
        return [line]
    glued = re.sub(_COMMAND, lambda match: match[0].replace(" ", _GLUE), line)
    parts = textwrap.wrap(
        glued,
        width,
        subsequent_indent=f"{indent}  ",
        break_long_words=False,
        break_on_hyphens=False,
    )
    lines = []
    for part in parts:
        if len(part) <= width or _GLUE in part:
            lines.append(part.replace(_GLUE, " "))
        else:  # a name that is longer than a line
            lines += textwrap.wrap(part, width, initial_indent=indent, subsequent_indent=indent)
    return lines


def prepare() -> None:
    """Print what stdout's encoding does not have as escapes instead of failing."""
    choose_verbose(False)
    choose_leading_flags(None)
    _warned.clear()
    for stream in (sys.stdout, sys.stderr):
        if stream is not None and hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")


def write(text: str) -> None:
    """Put `text` on stdout, cleaned, with a newline at its end; nothing at all for an empty text.

    Marks of colours become colours where they are shown.

    Raises OSError (BrokenPipeError if the reader went away); `cli.main` knows what to do.
    """
    if (elsewhere := sink.get()) is not None:
        elsewhere.write(text if not text or text.endswith("\n") else f"{text}\n")
        return
    if text and sys.stdout is not None:
        sys.stdout.write(cleaned(text))
        if not text.endswith("\n"):
            sys.stdout.write("\n")


def cleaned(text: str) -> str:
    """The text as stdout shows it: without control characters, with its colours."""
    return _colored(text) if END in text else printable_text(text)


def _colored(text: str) -> str:
    if not this_screen().color:
        return printable_text(text)
    unsafe = _unsafe(allowed=r"\n\t\ufdd0-\ufdd3")
    return unsafe.sub(lambda match: _shown(ord(match[0])), text).translate(SEQUENCES)


class LeadingFlags(
    namedtuple(
        "LeadingFlags", ("kubectl", "nodelife", "dump", "settings"), defaults=((), (), (), ())
    )
):
    """The flags that lead to a cluster, as words: `kubectl` for kubectl, `nodelife` for this
    program, `dump` for its verbs that read one (`VERBS_WITH_DUMPS`), `settings` for those that take
    them: `--profile=` and `--set=`, with which no daemon is asked."""

    __slots__ = ()

    def in_text(self, text: str) -> str:
        """The text with the flags in each of its commands."""
        if not any(self) or "kubectl " not in text:
            return text
        return _commands().sub(self._led, text)

    def in_values(self, value: Any) -> Any:
        """The same for every text in plain JSON values, but for a dump's: a document is kept, and
        is read where that file is not."""
        if self.dump:
            return self._replace(dump=()).in_values(value)
        if not any(self):
            return value
        if isinstance(value, str):
            return self.in_text(value)
        if isinstance(value, dict):
            return {key: self.in_values(each) for key, each in value.items()}
        if isinstance(value, (list, tuple)):
            return [self.in_values(each) for each in value]
        return value

    def _led(self, match: re.Match[str]) -> str:
        plugin, verb = match["plugin"], match["verb"]
        if verb is not None:
            return f"kubectl{_words(self.kubectl)} {verb}"
        named = (
            plugin in VERBS_WITHOUT_NAMESPACE
            or " -n " in match["rest"]
            or " --namespace" in match["rest"]
        )
        unused = ("--namespace=",) * named + ("--via=",) * (plugin == "rbac")  # asks no daemon
        flags = [flag for flag in self.nodelife if not flag.startswith(unused)]
        led = f"kubectl nodelife{_words(flags)} {plugin}"
        rest = match["rest"].rstrip(".:")
        end = match["rest"][len(rest) :]
        if plugin in VERBS_WITH_DUMPS and " -f " not in rest:
            rest += _words(self.dump)
        return led + rest + _words(self._settings_for(plugin, rest)) + end

    def _settings_for(self, plugin: str, rest: str) -> list[str]:
        """The settings that the verb takes, and that the command does not name itself."""
        if plugin == "diverge" and not self.dump:
            return []  # it takes them of a dump alone
        taken = ("--profile",) * (plugin in VERBS_WITH_PROFILE)
        taken += ("--set",) * (plugin in VERBS_WITH_SET)
        wanting = tuple(f"{flag}=" for flag in taken if f" {flag}" not in rest)
        return [flag for flag in self.settings if flag.startswith(wanting)]

    def query(self) -> str:
        """The flags as one word of a question to a daemon, which has settings of its own."""
        return "\n".join("\t".join(words) for words in self[:-1])

    @classmethod
    def of_query(cls, text: str) -> LeadingFlags:
        """The flags of such a word; none where it is not one."""
        parts = [tuple(filter(None, line.split("\t"))) for line in text.split("\n")]
        return cls(*parts) if len(parts) == len(cls._fields) - 1 else cls()


def _words(flags: Sequence[str]) -> str:
    return "".join(f" {shlex.quote(flag)}" for flag in flags)


@functools.cache
def _commands() -> re.Pattern[str]:
    """Where a command begins: up to its verb."""
    import re

    return re.compile(
        rf"\bkubectl (?:(?P<verb>{KUBECTL_VERBS})\b(?! (?:{_PROSE})\b)(?![-\w])|"
        r"nodelife (?P<plugin>[a-z][a-z-]*)\b(?! --help)"
        r"(?P<rest>(?: (?:'[^']*'|[^\s;,`'\"()])+)*))"
    )


_flags: ContextVar[LeadingFlags | None] = ContextVar("leading flags", default=None)


def choose_leading_flags(flags: LeadingFlags | None) -> None:
    """The flags that the commands which are printed get from now on, in this task and in what it
    starts."""
    _flags.set(flags if flags is not None and any(flags) else None)


def leading_flags() -> LeadingFlags | None:
    """The flags chosen; None: none."""
    return _flags.get()


def in_text(text: str) -> str:
    """The text with those flags in its commands."""
    flags = _flags.get()
    return text if flags is None else flags.in_text(text)


def flush() -> None:
    """Write out what is buffered for stdout. Raises OSError."""
    if sys.stdout is not None:
        sys.stdout.flush()


def note(text: str) -> None:
    """Put one line on stderr: an error, a warning, what is being done; on a terminal it is broken
    between words. Never raises OSError."""
    if (elsewhere := sink.get()) is not None:
        elsewhere.note(in_text(text))
        return
    if sys.stderr is None:
        return
    try:
        led = printable(in_text(text))
        sys.stderr.write(broken_into_lines(led, columns_of(sys.stderr)) + "\n")
        sys.stderr.flush()
    except OSError:
        pass  # there is no reader left


def was_warned(text: str) -> bool:
    """True if that warning was put on stderr already."""
    elsewhere = sink.get()
    return text in (_warned if elsewhere is None else elsewhere.warned)


def warn(*texts: str) -> None:
    """A warning line on stderr for each, worded as kubectl's: once for each text, and its beginning
    alone unless `choose_verbose` was called, or it names a command, of which half may do harm."""
    for text in texts:
        if not was_warned(text):
            _warn(text)


def _warn(text: str) -> None:
    elsewhere = sink.get()
    (_warned if elsewhere is None else elsewhere.warned).add(text)
    if len(text) > WARNING_LENGTH and not _verbose and "kubectl " not in text:
        kept = text[: WARNING_LENGTH - len(_MORE)]
        words = kept.rpartition(" ")[0]  # unless a long name is cut: where it ends is not the point
        text = f"{words if len(words) > len(kept) // 2 else kept}{_MORE}"
    note(f"Warning: {text}")


_MORE = " ... (-v 1 shows all of it)"
_warned: set[str] = set()
_verbose = False


def is_verbose() -> bool:
    """True if this process shows in full what it shortens otherwise."""
    return _verbose


def choose_verbose(choice: bool = True) -> None:
    """Show warnings of this process in full, or shortened."""
    global _verbose
    _verbose = choice
