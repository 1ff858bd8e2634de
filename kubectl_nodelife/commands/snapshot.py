"""`kubectl nodelife snapshot save`: a dump that gives the same answers later."""

from __future__ import annotations

import contextlib

import click

from kubectl_nodelife.commands.flags import Connection, SpellingGroup, connection_flags
from kubectl_nodelife.report import terminal


@click.group(cls=SpellingGroup)
@connection_flags
def snapshot(connection: Connection) -> None:
    """A cluster in a file, for later or for a colleague: `-f FILE` answers as the cluster did."""


@snapshot.command()
@click.argument("file", metavar="FILE")
@click.option("--full", is_flag=True, help="Keep values, commands and annotations as they are.")
@connection_flags
def save(file: str, full: bool, connection: Connection) -> None:
    """Write what all verbs read to FILE: private, complete or not at all, packed if it ends .gz.

    Values of environment variables, args and commands become digests that tell equal from different
    and nothing else; annotations go unless something depends on them. Secrets and ConfigMaps are
    never read, with --full either.

    \b
    Examples:
      kubectl nodelife snapshot save monday.json.gz
      kubectl nodelife snapshot save before-upgrade.json --context production
      kubectl nodelife snapshot save all.json --full
    """
    import asyncio
    import secrets

    from kubectl_nodelife.commands.cluster.direct import target_of
    from kubectl_nodelife.commands.cluster.saving import save_cluster
    from kubectl_nodelife.kube.names import first_names
    from kubectl_nodelife.kube.redaction import KEY_BYTES
    from kubectl_nodelife.report.live_line import progress_bar
    from kubectl_nodelife.snapshot import Redaction, SnapshotFile

    target = target_of(connection)
    redaction = None if full else Redaction(secrets.token_bytes(KEY_BYTES))
    with SnapshotFile(file) as out, contextlib.ExitStack() as bars:
        saved = asyncio.run(
            save_cluster(
                target,
                out,
                redaction,
                lambda total: bars.enter_context(progress_bar(f"reading {target.server}", total)),
            )
        )
    if saved.refused:
        kinds, words = first_names(list(saved.refused), 3), next(iter(saved.refused.values()))
        terminal.warn(f"{kinds} cannot be read ({words}): the snapshot says that it lacks them")
    terminal.note(
        f"{file}: {saved.objects:,} objects of {saved.moment}, {saved.size_bytes / 1e6:,.1f} MB"
    )
