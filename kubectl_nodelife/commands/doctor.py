"""`kubectl nodelife doctor`: whether everything is there that this program needs."""

from __future__ import annotations

import click

from kubectl_nodelife.commands.flags import Connection, Output, connection_flags, output_flags
from kubectl_nodelife.errors import EXIT_DONE, EXIT_NO


@click.command()
@click.option("--exit-code", is_flag=True, help="Exit with 4 if a check failed.")
@output_flags()
@connection_flags
def doctor(exit_code: bool, output: Output, connection: Connection) -> int:
    """Check the program, kubectl, completion, kubeconfig, cluster, clock, daemon and journal.

    Says of each what was found and what to do. Changes nothing, and starts nothing; the cluster
    is asked for its version only.

    Before you uninstall: daemon stop --all, and completion uninstall. What the program has written
    for you stays, in ~/.cache/nodelife, ~/.local/state/nodelife and ~/.config/nodelife.

    \b
    Examples:
      kubectl nodelife doctor
      kubectl nodelife doctor -o json
    """
    from kubectl_nodelife.commands.doctor_checks import diagnose
    from kubectl_nodelife.report.doctor import FAILED, DoctorPage

    findings = list(diagnose(connection))
    output.show(DoctorPage(findings))
    failed = any(finding.result == FAILED for finding in findings)
    return EXIT_NO if exit_code and failed else EXIT_DONE
