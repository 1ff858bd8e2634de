"""`status` on a dump: joining the controllers and judging every node, without reading the dump.

`decodeSeconds` and `podsPerSecond` measure its reading: the dump is one JSON List, as
`kubectl get -o json` prints it but for its indentation. `renderSeconds`: making the JSON document.
"""

from __future__ import annotations

import gc
import tempfile
import time
from pathlib import Path

import msgspec

from bench import Stopwatch
from bench.zone_outage import make_setting
from kubectl_nodelife.commands.answering.status import finished
from kubectl_nodelife.commands.cluster.look import view_of_dump
from kubectl_nodelife.dumps.dump import read_dump
from kubectl_nodelife.kube.codec import encode
from kubectl_nodelife.kube.meta import MicroTime
from kubectl_nodelife.kube.node import Lease, LeaseMeta, LeaseSpec, Node
from kubectl_nodelife.outlook.status import KINDS, status_steps

SILENT_EVERY = 50
SILENCE_NS = 20 * 10**9


def run(nodes: int, pods: int, seed: int, stopwatch: Stopwatch) -> dict[str, object]:
    """One kubelet in fifty has not reported for 20 s."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "dump.json"
        file.write_bytes(dump(nodes, pods, seed))
        gc.collect()
        began = time.perf_counter()
        snapshot = read_dump([str(file)])
        decode_seconds = time.perf_counter() - began
        size = file.stat().st_size
    with stopwatch:
        status = finished(status_steps(view_of_dump(snapshot, KINDS)))
    began = time.perf_counter()
    document = msgspec.json.encode(status.document())
    render_seconds = time.perf_counter() - began
    read = sum(type(obj).__name__ == "Pod" for obj in snapshot.objects)
    return {
        "dumpBytes": size,
        "decodeSeconds": round(decode_seconds, 6),
        "podsPerSecond": round(read / decode_seconds),
        "renderSeconds": round(render_seconds, 6),
        "documentBytes": len(document),
        "silentNodes": sum(n.verdict.state == "silent" for n in status.nodes),
    }


def dump(nodes: int, pods: int, seed: int) -> bytes:
    """A List of a synthetic cluster's objects with a Lease for each node."""
    setting = make_setting(nodes, pods, seed)
    items = [encode(obj) for obj in setting.objects]
    names = [obj.name for obj in setting.objects if isinstance(obj, Node)]
    for i, name in enumerate(names):
        silence_ns = 0 if i % SILENT_EVERY else SILENCE_NS
        renewed = MicroTime(setting.start_ns - silence_ns)
        metadata = LeaseMeta(name=name, namespace="kube-node-lease")
        lease = Lease(metadata=metadata, spec=LeaseSpec(holder_identity=name, renew_time=renewed))
        items.append(encode(lease))
    return msgspec.json.encode({"apiVersion": "v1", "kind": "List", "items": items})
