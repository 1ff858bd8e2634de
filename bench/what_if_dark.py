"""What if a node is lost, asked while one of three zones is dark: its nodes are being called
Unknown and tainted, and their pods are about to be evicted, at the pace of the manager's clients.

It is measured as a daemon's child answers, text and all; `childrenCpu` is the CPU of the processes
that play beside it. Making the cluster is not measured.
"""

from __future__ import annotations

import gc
import json
import resource
from collections import deque
from collections.abc import Iterator
from typing import Final

from msgspec.structs import replace

from bench import Stopwatch
from bench.daemon_answers import looking, not_of_a_play
from bench.zone_outage import OUTAGE_NS, make_setting
from kubectl_nodelife.commands.answering import what_if
from kubectl_nodelife.controllers import make_controllers
from kubectl_nodelife.daemon.cluster_view import keep_summary
from kubectl_nodelife.engine.cache import Cache
from kubectl_nodelife.engine.settings import make_settings
from kubectl_nodelife.kube.meta import KubeObject, MicroTime
from kubectl_nodelife.kube.node import Lease
from kubectl_nodelife.kube.times import SECOND_NS
from kubectl_nodelife.sim.generate import with_leases
from kubectl_nodelife.sim.run import run as simulate
from kubectl_nodelife.sim.scenario import PASS_DRIFT_NS

NODES = 5001
PODS = 50_010
_DARK_NS: Final = 100 * SECOND_NS
_SILENT_NS: Final = 105 * SECOND_NS


def run(nodes: int, pods: int, seed: int, stopwatch: Stopwatch) -> dict[str, object]:
    """Zone a is silent for 105 s when it is asked what follows if node b1 is lost."""
    setting = make_setting(nodes, pods, seed)
    settings = make_settings(setting.profile, {})
    setting = setting.under(settings)
    names = setting.scenario.controllers
    controllers = make_controllers(settings, names, pass_drift_ns=PASS_DRIFT_NS)
    now_ns = setting.start_ns + OUTAGE_NS + _DARK_NS
    played = simulate(setting, controllers, until_ns=OUTAGE_NS + _DARK_NS).cluster
    cache = Cache()
    cache.fill(sorted(_as_read(played, now_ns), key=lambda obj: obj.key), now_ns)
    cache.unsettled_pods()
    deque(keep_summary(cache), maxlen=0)
    view = looking(cache, now_ns)().with_more(Cache(), {})
    del played
    gc.collect()
    gc.freeze()
    with stopwatch:
        found = what_if.answer(view, {"word": ["lose", "node", "b1"], "output": ["json"]})
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return {
        "silentNodes": sum(name.startswith("a") for name in cache.nodes),
        "differences": len(json.loads(found["text"])["differences"]),
        "childrenCpu": round(children.ru_utime + children.ru_stime, 3),
    }


def _as_read(played: Cache, now_ns: int) -> Iterator[KubeObject]:
    """The objects as the API has them, with the Leases that kubelets have renewed."""
    for obj in with_leases(played.everything(), now_ns):
        if isinstance(obj, Lease) and obj.metadata.name.startswith("a"):
            spec = replace(obj.spec, renew_time=MicroTime(now_ns - _SILENT_NS))
            yield replace(obj, spec=spec)
        else:
            yield not_of_a_play(obj)
