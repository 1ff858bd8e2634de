"""Reads from Kubernetes' own Go modules since and until which release each behaviour holds.

    python -m tests.upstream.since_dates            what the modules say, against our tables
    python -m tests.upstream.since_dates --write    the same, written to docs/since-dates.md

Run by hand where Go can fetch modules (`go mod download k8s.io/kubernetes@vX.Y.Z`, 26 of them).
A behaviour is dated by a line of the source that stands, or no longer stands, where it is done: the
mark. Dates are those of the last patch of each release, and of v1.11.0; the tables of the node
lifecycle have v1.16.0 for 1.16.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

from kubectl_nodelife.controllers.daemonset.behaviour import SINCE_UNTIL as DAEMON_SETS
from kubectl_nodelife.engine.profiles import SWITCHES as NODES
from kubectl_nodelife.engine.profiles import Span
from kubectl_nodelife.kubelet.releases import SINCE_UNTIL as KUBELETS

PAGE = Path(__file__).parents[2] / "docs" / "since-dates.md"

PATCHES = {
    11: 0, 12: 10, 13: 12, 14: 10, 15: 12, 16: 15, 17: 17, 18: 20, 19: 16, 20: 15, 21: 14, 22: 17,
    23: 17, 24: 17, 25: 16, 26: 15, 27: 16, 28: 15, 29: 15, 30: 14, 31: 14, 32: 13, 33: 9, 34: 5,
    35: 2, 36: 3,
}  # fmt: skip
"""The patch of each minor release that is read."""

DS = "pkg/controller/daemon/daemon_controller.go"
UPDATE = "pkg/controller/daemon/update.go"
DS_UTIL = "pkg/controller/daemon/util/daemonset_util.go"
LIFECYCLE = "pkg/controller/nodelifecycle/node_lifecycle_controller.go"
NODE_UTIL = "pkg/controller/util/node/controller_utils.go"
PODGC = "pkg/controller/podgc/gc_controller.go"
STATUS = "pkg/kubelet/status/status_manager.go"
GENERATE = "pkg/kubelet/status/generate.go"
OWNED = "pkg/kubelet/types/pod_status.go"
POD_UTIL = "pkg/api/v1/pod/util.go"
PATCH = "pkg/util/pod/pod.go"


class Mark(NamedTuple):
    """A behaviour of a table holds where the pattern occurs `times` in the file, or does not."""

    rule: str
    path: str
    pattern: str
    there: bool = True
    times: int = 1


MARKS: dict[str, tuple[Mark, ...]] = {
    "DaemonSet controller": (
        Mark("suspends", DS, r"suspendedDaemonPods "),
        Mark("tolerates_pid_pressure", DS_UTIL, r"TaintNodePIDPressure"),
        Mark("tolerates_network_unavailable", DS_UTIL, r"TaintNodeNetworkUnavailable"),
        Mark("tolerates_out_of_disk", DS + "|" + DS_UTIL, r"TaintNodeOutOfDisk"),
        Mark("deletion_observed_at_the_mark", DS, r"if curPod.DeletionTimestamp != nil"),
        Mark("failed_pods_back_off", DS, r"IsInBackOffSinceUpdate"),
        Mark("failed_pods_end_the_sync", DS, r"if failedPodsObserved > 0"),
        Mark("succeeded_pods_deleted", DS, r"SucceededDaemonPodReason ="),
        Mark("finished_terminating_left_out", DS, r"includeDeletedTerminal bool"),
        Mark("unfit_terminating_deleted_again", DS, r"pod\.DeletionTimestamp != nil", False, 3),
        Mark("binds_for_old_kubelets", DS, r"nodeCanUseMatchFields := "),
        Mark("own_scheduler_name", DS, r'"kubernetes.io/daemonset-controller"'),
        Mark("classic_rolling_update", UPDATE, r"SplitByAvailablePods"),
        Mark("unavailable_old_pods_use_budget", UPDATE, r"numUnavailable\+\+", True, 4),
        Mark("available_at_the_instant", POD_UTIL, r"Compare\(now\.Time\) <= 0"),
        Mark("generation_label_counts", DS_UTIL, r"fmt\.Sprint\(\*dsTemplateGeneration\)"),
        Mark("status_written_after_error", DS, r"statusErr := dsc\.updateDaemonSetStatus"),
        Mark("status_update_retried", DS, r"if i >= StatusUpdateRetries"),
        Mark("requeue_for_min_ready_after_status", DS, r"numberReady != numberAvailable"),
        Mark("node_queue", DS, r"nodeUpdateQueue +workqueue"),
        Mark(
            "node_filter_labels_and_taints", DS, r"DeepEqual\(oldNode, curNode\)|nodeInSameC", False
        ),
        Mark("node_filter_true_conditions", DS, r"func shouldIgnoreNodeUpdate", False),
        Mark("not_found_on_delete_is_fine", DS, r"if !(api)?errors\.IsNotFound\(err\)"),
        Mark("terminating_namespace_is_fine", DS, r"NamespaceTerminatingCause"),
        Mark("create_timeout_ignored", DS, r"errors\.IsTimeout\(err\)"),
        Mark("slow_start_skips_from_the_batch", DS, r"skippedPods := createDiff - batchSize\n"),
        Mark("collision_count_checked", UPDATE, r"stale collision count"),
    ),
    "node lifecycle, taint eviction and pod-gc": (
        Mark("decide_on_current", LIFECYCLE, r"switch currentReadyCondition\.Status"),
        Mark("requeue_untainted", LIFECYCLE, r"zoneNoExecuteTainter\[[^]]*\]\.Remove\(", True, 3),
        Mark("pod_not_ready_event", NODE_UTIL, r'"NodeNotReady", "Node is not ready"'),
        Mark("classic_eviction", LIFECYCLE, r"seTaintBasedEvictions bool|runTaintManager bool"),
        Mark("noschedule_gate", LIFECYCLE, r"taintNodeByCondition"),
        Mark("gc_quarantine", PODGC, r"nodeQueue\.AddAfter"),
    ),
    "kubelet's status manager": (
        Mark("owns_unschedulable", OWNED, r"Unschedulable"),
        Mark("request_per_change", STATUS, r"type podStatusSyncRequest"),
        Mark(
            "batch_empties_queue",
            STATUS,
            r"len\(m\.podStatusChannel\)|m\.syncBatch\((ctx, )?false\)",
        ),
        Mark("terminate_sets_phase", STATUS, r"status\.Phase = v1\.PodFailed"),
        Mark("delete_when_finished", STATUS, r"podIsFinished +bool"),
        Mark("disruption_target", OWNED, r"DisruptionTarget"),
        Mark("phase_waits_for_containers", STATUS, r"couldHaveRunningContainers bool"),
        Mark("resize_conditions", OWNED, r"PodResizeInProgress"),
    ),
}

TABLES = {
    "DaemonSet controller": DAEMON_SETS,
    "node lifecycle, taint eviction and pod-gc": NODES,
    "kubelet's status manager": KUBELETS,
}


def module(minor: int) -> Path:
    """The folder of a release's source. Raises CalledProcessError where it cannot be fetched."""
    name = f"k8s.io/kubernetes@v1.{minor}.{PATCHES[minor]}"
    told = subprocess.run(
        ["go", "mod", "download", "-json", name], capture_output=True, check=True, cwd="/"
    )
    return Path(json.loads(told.stdout)["Dir"])


def holds_in(mark: Mark, source: Path) -> bool:
    """True if the release with that source shows the behaviour."""
    files = [source / path for path in mark.path.split("|")]
    text = "".join(file.read_text() for file in files if file.is_file())
    return (len(re.findall(mark.pattern, text)) >= mark.times) is mark.there


def span_of(mark: Mark, sources: dict[int, Path]) -> Span:
    """Since and until which release the behaviour holds. Raises ValueError where it comes twice."""
    minors = [minor for minor, source in sources.items() if holds_in(mark, source)]
    if not minors or minors != list(range(minors[0], minors[-1] + 1)):
        raise ValueError(f"{mark.rule}: the releases {minors} are no span")
    since = 0 if minors[0] == min(PATCHES) else minors[0]
    return since, None if minors[-1] == max(PATCHES) else minors[-1] + 1


def row(mark: Mark, span: Span) -> str:
    """The line of the page."""
    since = f"1.{span[0]}" if span[0] else "-"
    until = f"1.{span[1] - 1}" if span[1] is not None else "-"
    files = ", ".join(f"`{path}`" for path in mark.path.split("|"))
    pattern = mark.pattern.replace("\\n", "").replace("\\", "").replace("|", " or ")
    where = f"{files}: {'' if mark.there else 'without '}`{pattern}`"
    where += f", {mark.times} times" if mark.times > 1 else ""
    return f"| `{mark.rule}` | {since} | {until} | {where} |"


HEAD = """# Since and until which release

Written by `python -m tests.upstream.since_dates --write` from each release's Go module. `since`
and `until` are the first and the last release that show the behaviour, with their last patch; the
tables in the code that they are held against are `controllers/daemonset/behaviour.py`,
`engine/profiles.py` and `kubelet/releases.py`. What no line of the source dates is not listed.
"""


def page(sources: dict[int, Path]) -> tuple[str, list[str]]:
    """The page, and what differs from our tables."""
    lines, differences = [HEAD], []
    for name, marks in MARKS.items():
        lines += [f"## {name[0].upper()}{name[1:]}", ""]
        lines += ["| behaviour | since | until | dated by |", "| --- | --- | --- | --- |"]
        for mark in marks:
            try:
                span = span_of(mark, sources)
            except ValueError as error:
                differences.append(str(error))
                continue
            lines.append(row(mark, span))
            if span != TABLES[name][mark.rule]:
                differences.append(f"{mark.rule}: {span}, our table has {TABLES[name][mark.rule]}")
        lines.append("")
    return "\n".join(lines), differences


def main() -> int:
    """Compare, and write the page where asked."""
    text, differences = page({minor: module(minor) for minor in PATCHES})
    if "--write" in sys.argv:
        PAGE.write_text(text)
    print("\n".join(differences) or "our tables are what the modules say")
    return 1 if differences else 0


if __name__ == "__main__":
    sys.exit(main())
