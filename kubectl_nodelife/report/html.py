"""Self-contained pages from Jinja2 templates: one base, with what all pages share of style.

Nothing is fetched and no script runs: a page can be mailed, archived and printed. Templates escape
what they are given; a body is markup already, made by its page with every name escaped. Jinja2 is
imported only where a page is made.
"""

from __future__ import annotations

from collections.abc import Iterable


def render_page(template: str, title: str, body: Iterable[str]) -> str:
    """The page `template`.html with its title (plain text) and body (lines of markup)."""
    from jinja2 import Environment, PackageLoader, StrictUndefined
    from markupsafe import Markup

    environment = Environment(
        loader=PackageLoader("kubectl_nodelife.report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    markup = Markup("\n".join(body))
    return environment.get_template(f"{template}.html").render(title=title, body=markup)
