"""What a person can do about a node that is lost by itself, as page and `explain` say it."""

from __future__ import annotations

import shlex

import msgspec

from kubectl_nodelife.engine.settings import Settings
from kubectl_nodelife.kube.wellknown import TAINT_NODE_OUT_OF_SERVICE
from kubectl_nodelife.outlook.node import NodeOutlook
from kubectl_nodelife.outlook.node_verdict import NodeVerdict
from kubectl_nodelife.workloads.force_advice import OUT_OF_SERVICE, release_of


class Option(msgspec.Struct, frozen=True):
    """A command that one may type, and what it does. `acts`: the same in the words of `what-if`,
    which plays what comes of it; "" where the command changes nothing.
    """

    command: str
    effect: str
    acts: str = ""


def ways_out(settings: Settings, of_node: NodeOutlook, verdict: NodeVerdict) -> list[Option]:
    """What a person can do about a node that is lost by itself instead of waiting; [] for another.
    Either lets a second copy of its pods run beside the first where its machine is still on, so
    that the condition comes first.
    """
    if verdict.state != "unreachable":
        return []
    name = shlex.quote(of_node.node.name)
    off = "only once its machine is known to be off: its pods go"
    delete = f"delete node {name}"
    ways = [Option(f"kubectl {delete}", f"{off}, after a while", delete)]
    declared = any(t.key == TAINT_NODE_OUT_OF_SERVICE for t in of_node.node.spec.taints)
    if release_of(settings).collects_out_of_service and not declared:
        taint = f"taint node {name} {OUT_OF_SERVICE}"
        ways.insert(0, Option(f"kubectl {taint}", f"{off}, and their volumes are detached", taint))
    return ways
