"""What is deep: tests that the short run of `bin/test` leaves out, and why each is.

A whole file or folder stands in `DEEP` by its path, a single test by its node id, without what it
is parametrized with. A test may also be marked where it stands, `@pytest.mark.deep`, and
`first_few` marks all but the first seeds. `bin/test PATH` runs all of a path, `bin/test --deep`
everything. The rule: whatever starts daemons, servers or other programs, waits, or computes for
more than some seconds is deep; the short run has one test of that kind, tests/test_smoke.py.
"""

from collections.abc import Iterable
from typing import Any, Final

import pytest

DEEP: Final = {
    "processes that share work": """
        tests/sweep/test_killed.py
        tests/sweep/test_sweep.py
    """,
    "releases, demos, installations": """
        tests/release
        tests/test_demo.py
    """,
    "a real control plane, or the real controllers": """
        tests/real/test_upgrade.py
        tests/real/test_upgrade_nodes.py
        tests/real/test_upgrade_leaders.py
        tests/real/test_upgrade_times.py
        tests/real/test_predictions.py
        tests/real/test_recordings.py
        tests/real/test_pace.py
        tests/real/test_enforce.py
        tests/real/standing_in/test_e2e.py
        tests/real/standing_in/test_faults.py
        tests/real
        tests/real_code
    """,
    "verbs that act, as processes, on a sandbox": """
        tests/hostile/test_between_upgrades.py
        tests/hostile/test_between_acts.py
        tests/acts/test_drain.py
        tests/acts/test_repair.py
        tests/acts/test_rollout_undo.py
        tests/acts/test_signals.py
        tests/acts/upgrade/test_dry_run.py
        tests/acts/upgrade/test_orders.py
    """,
    "daemons, and commands as processes of their own": """
        tests/diverge/test_on_a_sandbox.py
        tests/daemon/test_command_faults.py
        tests/daemon/test_command_weather.py
        tests/daemon/test_commands.py
        tests/daemonset/test_live.py
        tests/daemon/test_explain.py
        tests/daemon/test_several_clusters.py
        tests/via/test_via.py
        tests/test_readme.py
        tests/daemon/test_drain_plan.py
        tests/snapshot/test_sandbox.py
        tests/daemon/test_forked_answers.py
        tests/daemon/test_hung_watch.py
        tests/daemon/test_what_if.py
        tests/hostile/test_credentials.py
        tests/hostile/test_enforce_soak.py
        tests/hostile/test_evidence_of_life.py
        tests/hostile/test_starved_leader.py
        tests/hostile/test_two_users.py
        tests/hostile/test_one_journal.py
        tests/hostile/test_secrets_of_a_daemon.py
        tests/notify/test_notices.py
        tests/notify/test_webhook_secret.py
        tests/pod_status/test_live.py
        tests/replay/test_sandbox.py
    """,
    "kubectl, a browser, a terminal, Prometheus": """
        tests/sandbox/test_kubectl.py
        tests/metrics/test_alerts.py
        tests/metrics/test_endpoint.py
        tests/report/test_every_screen.py
        tests/report/test_pages_in_chromium.py
        tests/report/test_watch_in_tmux.py

        tests/ui/test_accessible.py
        tests/ui/test_crowded_looks.py
        tests/ui/test_drawing.py
        tests/ui/test_looks.py
        tests/ui/test_modules.py
        tests/ui/test_mutated_queries.py
        tests/ui/test_own_network.py
        tests/ui/test_page.py
        tests/ui/test_reads.py
        tests/ui/test_second_user.py
        tests/ui/test_states.py
        tests/ui/test_time.py
        tests/ui/test_types.py
        tests/ui/test_verb.py
        tests/ui/test_without_a_mouse.py
        tests/ui/test_works.py
    """,
    "files and numbers of the worst size": """
        tests/hostile/test_bombs.py
        tests/hostile/test_file_bombs.py
        tests/hostile/test_worst_values.py
    """,
    "waiting": """
        tests/hostile/test_gentle.py::test_no_storm
        tests/live/test_plugin_failures.py
        tests/daemon/test_listener.py::test_no_other_peer_keeps_anybody_out
        tests/daemon/test_listener.py::test_no_room_is_made_by_cutting_what_is_being_answered
        tests/daemon/test_listener.py::test_a_flood_of_another_peer_is_slowed_down
        tests/daemon/test_file_watch.py
        tests/ui/test_security.py::test_a_connection_that_asks_nothing_is_cut
        tests/snapshot/test_save.py
    """,
    "some seconds of computing": """
        tests/what_if/test_hostile.py::test_a_cluster_that_never_rests_for_a_day
        tests/claims/test_what_if.py::test_a_lie_of_what_if_is_caught
        tests/claims/test_what_if.py::test_a_wrong_exit_code_is_caught
        tests/claims/test_each.py::test_a_lie_of_a_ranking_is_caught
        tests/claims/test_each.py::test_a_lie_of_a_rankings_document_is_caught
        tests/claims/test_explained.py::test_lies_about_a_pod_and_its_node_are_caught
        tests/claims/test_divergence.py::test_a_lie_about_withheld_writes_is_caught
        tests/claims/test_divergence_causes.py::test_a_lie_about_a_cause_is_caught
        tests/claims/test_drain_timeouts.py
        tests/claims/test_daemonsets.py::test_what_did_not_come_once_is_not_said
        tests/claims/test_daemonsets.py::test_a_lie_about_a_daemonset_is_caught
        tests/claims/test_upgrade_plans.py::test_what_did_not_come_once_is_not_said
        tests/claims/test_upgrade_plans.py::test_a_lie_of_an_upgrade_plan_is_caught
        tests/claims/test_upgrade_plans.py::test_windows_that_take_one_node_fewer_are_in_the_range
        tests/engine/test_fork.py::test_two_branches_of_an_outage_of_5000_nodes_are_as_two_runs
        tests/enforce/test_as_simulated.py
        tests/enforce/test_mass_loss.py
        tests/enforce/test_simulation.py
        tests/hostile/test_flapping.py
        tests/upgrade/test_full_passes.py
        tests/upgrade/test_hand_calculation.py::test_500_nodes_as_calculated_by_hand
    """,
}
"""Paths and node ids, by the reason; what takes longest first."""

_REASONS: Final = {path: reason for reason, paths in DEEP.items() for path in paths.split()}


def why_deep(inside: str) -> str:
    """Why the file, folder or node id is deep by the table, or ``""``."""
    name = inside.partition("[")[0]
    file, *_ = name.split("::")
    folders = [file[:end] for end, char in enumerate(file) if char == "/"]
    return next(filter(None, map(_REASONS.get, (*folders, file, name))), "")


def place(inside: str) -> int:
    """Where the node id stands in the table: what stands first is begun first."""
    name = inside.partition("[")[0]
    return min(
        (n for n, path in enumerate(_REASONS) if name.startswith(path)), default=len(_REASONS)
    )


def one_of(many: int, rows: Iterable[Any]) -> list[Any]:
    """The rows as parameters of a test; the short run plays one of so `many`, the first of each."""
    return [
        pytest.param(row, marks=pytest.mark.deep("rows beyond a few")) if place % many else row
        for place, row in enumerate(rows)
    ]


def first_few(seeds: Iterable[Any], few: int = 5) -> list[Any]:
    """The seeds as parameters of a test; all after the first few are deep."""
    return [
        seed if place < few else pytest.param(seed, marks=pytest.mark.deep("seeds beyond a few"))
        for place, seed in enumerate(seeds)
    ]
