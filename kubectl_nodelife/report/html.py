"""Self-contained pages from Jinja2 templates: one base, with what all pages share of style.

Nothing is fetched and no script runs, by a policy that allows the page's one style by its digest: a
page can be mailed, archived and printed. All markup is in the templates, which escape whatever they
are given and cut what is very long: a policy's message may have a million characters. Jinja2 is
imported only where a page is made.
"""

from __future__ import annotations

import base64
import hashlib
from typing import Any, Final, NamedTuple

from kubectl_nodelife.report.terminal import in_text

LONGEST: Final = 600
"""Characters of one text."""


class Tick(NamedTuple):
    """A mark of a picture's axis: its place, its text, and the class of that."""

    x: str
    label: str
    style: str = "tick"


def render_page(template: str, **values: Any) -> str:
    """The page `template`.html with these plain values; there is no way to pass it markup."""
    from jinja2 import Environment, PackageLoader, StrictUndefined
    from markupsafe import Markup

    def bounded(value: Any) -> Any:
        if not isinstance(value, str) or isinstance(value, Markup):  # of a macro of ours
            return value
        led = in_text(value)
        return led if len(value) <= LONGEST else f"{led[:LONGEST]}…"

    environment = Environment(
        loader=PackageLoader("kubectl_nodelife.report"),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=bounded,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters["sha256_base64"] = _sha256_base64
    return environment.get_template(f"{template}.html").render(values)


def _sha256_base64(text: str) -> str:
    """The digest by which a Content-Security-Policy names the one style that it allows."""
    return base64.b64encode(hashlib.sha256(text.encode()).digest()).decode("ascii")
