"""Judges the journal that an enforcing daemon leaves: nothing applied follows what was not."""

import sqlite3
from pathlib import Path

_QUERY = """
    SELECT follower.action, follower.namespace, follower.name, first.action, first.name,
        first.outcome, first.why || first.error
    FROM changes AS follower JOIN changes AS first ON first.id = follower.cause
    WHERE follower.mode = 'enforce' AND first.mode = 'enforce' AND follower.outcome = 'applied'
        AND first.patch != '' AND first.outcome NOT IN ('applied', 'confirmed')
        AND first.settled_ns >= follower.time_ns
"""


def followed_nothing(state: Path) -> list[str]:
    """A line for each change that was applied though the write that led to it came to nothing.
    `state`: a folder with journals below it. A write that had its end before the other was decided
    did not lead to it: the controller knew of that end.
    """
    found = []
    for path in sorted(state.rglob("journal.db")):
        with sqlite3.connect(f"file:{path}?mode=ro", uri=True) as journal:
            for row in journal.execute(_QUERY):
                action, namespace, name, first, first_name, outcome, why = row
                found.append(
                    f"{action} {namespace}/{name} was applied, and the {first} {first_name} that "
                    f"led to it is {outcome}: {why}"
                )
    return found
