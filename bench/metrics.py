"""The cost of a scrape's text: the metrics of a cluster, without and with those of each node.

This measures the work of the endpoint in its thread, as text and as OpenMetrics. `sampleSeconds`:
one sample of all nodes, which the daemon takes in slices, every two seconds at the most.
"""

from __future__ import annotations

import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

from bench import Stopwatch
from bench.status import dump
from kubectl_nodelife.commands.cluster.look import view_of_dump
from kubectl_nodelife.daemon.metrics.cluster_sample import ClusterSample, sample_steps
from kubectl_nodelife.daemon.metrics.endpoint import expose
from kubectl_nodelife.daemon.metrics.recorder import ChangeCounts, cluster_values, work_values
from kubectl_nodelife.dumps.dump import read_dump
from kubectl_nodelife.outlook.status import KINDS

NODES = 5_000
PODS = 150_000
ACCEPT = {"text": "text/plain", "openmetrics": "application/openmetrics-text;version=1.0.0"}


def run(nodes: int, pods: int, seed: int, stopwatch: Stopwatch) -> dict[str, object]:
    """One kubelet in fifty has not reported for 20 s."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "dump.json"
        file.write_bytes(dump(nodes, pods, seed))
        view = view_of_dump(read_dump([str(file)]), KINDS)
    began = time.perf_counter()
    sample = _finished(sample_steps(view, per_node=True))
    figures: dict[str, object] = {"sampleSeconds": round(time.perf_counter() - began, 6)}
    work = work_values(ChangeCounts(0), Counter(), None, None)
    for per_node in (False, True):
        values = {**cluster_values(sample, {}, per_node=per_node), **work}
        for name, accept in ACCEPT.items():
            began = time.perf_counter()
            with stopwatch:
                made = expose(values, accept)
            word = f"{name}{'PerNode' if per_node else ''}"
            figures[f"{word}Seconds"] = round(time.perf_counter() - began, 6)
            figures[f"{word}Bytes"] = len(made.body)
    return figures


def _finished(steps: Any) -> ClusterSample:
    while True:
        try:
            next(steps)
        except StopIteration as end:
            sample: ClusterSample = end.value
            return sample
