"""The beginning of every program for /bin/sh that we print, and how its comments are written.

It stops at the first command that fails, says where, and ends what it has started; `FROM` says
where to begin, `wait_all` waits for what runs beside it.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from typing import Final

_COMMENT_BREAK: Final = re.compile(r"[\x00-\x1f\x7f\u2028\u2029]+")
_HEAD: Final = """\
set -eu
FROM=${FROM:-%(first)d} # the %(part)s to begin with
doing=nothing
pids=

k() {
  kubectl%(flags)s "$@"
}

ended() { # what is stopped and said where a command fails, or Ctrl-C is pressed
  code=$?
  for pid in $pids; do
    kill "$pid" 2>/dev/null || :
  done
  if [ "$code" -ne 0 ]; then
    echo "stopped (exit code $code) in $doing; nodes that are cordoned stay so" >&2
    echo "to go on: run it again with FROM=N set; to give up: kubectl uncordon NODE" >&2
  fi
}
trap ended EXIT
trap 'exit 130' INT
trap 'exit 143' TERM HUP

wait_all() { # to the end of each; fails if one did
  failed=0
  for pid in $pids; do
    wait "$pid" || failed=1
  done
  pids=
  return "$failed"
}
"""


def script_head(part: str, first: int, flags: str) -> str:
    """The head of a program that goes by `part`s, counted from `first`, without a last newline.

    `flags`: as `flag_words` has them.
    """
    return (_HEAD % {"part": part, "first": first, "flags": flags}).rstrip()


def flag_words(flags: Sequence[str]) -> str:
    """kubectl's own flags, such as --context, as what follows the word kubectl."""
    return "".join(f" {shlex.quote(flag)}" for flag in flags)


def comment(text: str) -> str:
    """The text on one line of comment: nothing from the cluster may end it and begin a command."""
    return "# " + _COMMENT_BREAK.sub(" ", text)
