"""Commands that we print lead to the cluster that they are about.

A sentence of a document says `kubectl taint node b2 ...`: which flags lead kubectl to that cluster
only the command line knows that asked. So they are put into each command when an answer takes its
form, here and nowhere else: kubectl's own behind the word `kubectl`, a plugin's behind `nodelife`,
those of a dump at the end. A command that has such a flag already is left as it is.
"""

from __future__ import annotations

import functools
import shlex
from collections.abc import Sequence
from typing import Any, NamedTuple

TYPE_CHECKING = False  # as typing's, without importing typing: this is on the quick path
if TYPE_CHECKING:
    import re

KUBECTL_VERBS = (
    "annotate|apply|auth|config|cordon|create|delete|describe|drain|edit|exec|explain|get|label|"
    "logs|patch|rollout|scale|taint|uncordon|version|wait"
)
VERBS_WITH_DUMPS = frozenset(
    {
        "audit",
        "budgets",
        "changes",
        "daemonset",
        "diverge",
        "drain-plan",
        "explain",
        "repair",
        "replay",
        "status",
        "what-if",
    }
)
"""Verbs that take `-f` and `--now`."""

VERBS_WITHOUT_NAMESPACE = frozenset({"daemon", "doctor", "metrics", "rbac", "ui"})
"""Verbs to which the namespace of a question means nothing."""

# Before these words "kubectl drain" is a subject of a sentence, and no command to be typed.
_PROSE = "cordons|deletes|does|evicts|gives|had|has|in|is|lists|of|refuses|takes|waits|would"


class LeadingFlags(NamedTuple):
    """The flags that lead to a cluster, as words: `kubectl` for kubectl, `nodelife` for this
    program, `dump` for its verbs that read one (`VERBS_WITH_DUMPS`)."""

    kubectl: tuple[str, ...] = ()
    nodelife: tuple[str, ...] = ()
    dump: tuple[str, ...] = ()

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
        if plugin not in VERBS_WITH_DUMPS or " -f " in match["rest"]:
            return led + match["rest"]
        rest = match["rest"].rstrip(".:")
        return led + rest + _words(self.dump) + match["rest"][len(rest) :]

    def query(self) -> str:
        """The flags as one word of a question to a daemon."""
        return "\n".join("\t".join(words) for words in self)

    @classmethod
    def of_query(cls, text: str) -> LeadingFlags:
        """The flags of such a word; none where it is not one."""
        parts = [tuple(filter(None, line.split("\t"))) for line in text.split("\n")]
        return cls(*parts) if len(parts) == len(cls._fields) else cls()


def lead_to(
    kubectl: Sequence[str], nodelife: Sequence[str], dump: Sequence[str] = ()
) -> LeadingFlags | None:
    """The flags; None where there are none."""
    flags = LeadingFlags(tuple(kubectl), tuple(nodelife), tuple(dump))
    return flags if any(flags) else None


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
