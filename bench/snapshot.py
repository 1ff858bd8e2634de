"""`snapshot save` of a large cluster, from a server in another process, digests and gzip included.

`peakRssBytes` is this process alone; `memoryBeforeBytes` is its memory before the first request.
`secondsInTheServer` is the other process's CPU, which a real API server spends elsewhere.
"""

from __future__ import annotations

import json
import os
import resource
import secrets
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import bench
from bench.__main__ import peak_rss_bytes
from kubectl_nodelife.kube.redaction import KEY_BYTES
from kubectl_nodelife.live.kubeconfig import Cluster, User
from kubectl_nodelife.live.target import Target
from kubectl_nodelife.snapshot import Redaction, SnapshotFile

NODES = 5000
PODS = 150_000


def run(nodes: int, pods: int, seed: int, stopwatch: bench.Stopwatch) -> dict[str, object]:
    """Save once, packed."""
    command = [sys.executable, "-m", "bench._page_server", str(nodes), str(pods), str(seed)]
    server = subprocess.Popen(command, stdout=subprocess.PIPE)
    try:
        assert server.stdout is not None
        told: dict[str, Any] = json.loads(server.stdout.readline())
        cluster = Cluster(server=told["url"], certificate_authority_data=told["authority"])
        figures = _save(Target("bench", "default", "bench", "", cluster, User()), stopwatch)
    finally:
        server.kill()
        server.wait()
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return {**figures, "secondsInTheServer": round(used.ru_utime + used.ru_stime, 3)}


def _save(target: Target, stopwatch: bench.Stopwatch) -> dict[str, object]:
    import asyncio

    from kubectl_nodelife.commands.cluster.saving import save_cluster

    before = peak_rss_bytes()
    with tempfile.TemporaryDirectory() as folder:
        os.environ["HOME"] = folder  # the user's own config is not read
        path = Path(folder) / "snapshot.json.gz"
        with SnapshotFile(str(path)) as file, stopwatch:
            redaction = Redaction(secrets.token_bytes(KEY_BYTES))
            done = save_cluster(target, file, redaction, lambda total: lambda count: None)
            saved = asyncio.run(done)
    return {
        "objects": saved.objects,
        "fileBytes": saved.size_bytes,
        "memoryBeforeBytes": before,
        "objectsPerSecond": round(saved.objects / stopwatch.wall_seconds),
    }
