"""`kubectl nodelife upgrade preview`: what a newer release changes for this cluster's nodes."""

from __future__ import annotations

import click

from kubectl_nodelife.commands.cluster.where import Where, where_flags
from kubectl_nodelife.commands.flags import Output, output_flags
from kubectl_nodelife.errors import BadInput
from kubectl_nodelife.report import terminal


@click.command("preview")
@click.argument("release", required=False, metavar="v1.N")
@output_flags("table", "wide", "json", "yaml", "name", "markdown")
@where_flags("profile", "assignments")
def preview(release: str | None, output: Output, where: Where) -> int:
    """Say what upgrading the control plane changes for nodes, taints, pods, DaemonSets and drains.

    Of all that differs between the cluster's release and the one named (by default the next), only
    what concerns something here is shown, and what it concerns. Changes of kubelets are those that
    come when the nodes follow. Nothing is written.

    \b
    Examples:
      kubectl nodelife upgrade preview
      kubectl nodelife upgrade preview v1.38 -o wide
      kubectl nodelife upgrade preview v1.37 -f dump.json
    """
    from kubectl_nodelife.commands.cluster.look import KindsToRead, look
    from kubectl_nodelife.engine.profiles import Profile, parse_profile
    from kubectl_nodelife.kube.kinds import kind_named
    from kubectl_nodelife.outlook.releases import KINDS
    from kubectl_nodelife.outlook.releases import preview as previewed
    from kubectl_nodelife.report.releases import PreviewPage

    view = look(where, KindsToRead(KINDS, needed=("Node",)))
    for warning in view.warnings:
        terminal.warn(warning)
    for kind in view.unread:
        terminal.warn(f"{kind_named(kind).resource} were not read: what concerns them is left out")
    before = view.settings.profile
    try:
        target = Profile(before.minor + 1) if release is None else parse_profile(release)
    except ValueError as error:
        raise BadInput(str(error)) from None
    if target.minor <= before.minor:
        what = f"{target.name} is not newer than the cluster's {before.name}"
        raise BadInput(what, remedy="name a newer release")
    if (stand_in := target.stands_in()) is not None:
        terminal.warn(stand_in)
    output.show(PreviewPage(previewed(view.objects, view.settings, target)))
    return 0
