"""What `audit` says beforehand of a cluster that falls silent, against the play of that outage."""

import pytest

from kubectl_nodelife.engine.pace import pace_of
from kubectl_nodelife.engine.settings import make_settings
from kubectl_nodelife.outlook.audit.document import beforehand, tainted_in_first_pass
from kubectl_nodelife.sim.scenario import Scenario, assemble, parse_scenario
from tests.simulating import simulate_scenario

SCENARIO = """
apiVersion: nodelife.dev/v1alpha1
kind: Scenario
metadata: {{name: all-silent}}
spec:
  flags: {{kube-api-qps: "{qps}", kube-api-burst: "{burst}"}}
  controllers: [node-lifecycle, taint-eviction]
  duration: 20m
  objects: []
  generate: {{zones: 1, nodesPerZone: {nodes}, podsPerNode: {pods}, seed: 1}}
  events:
  - {{at: 20s, kubelet: {{nodes: [{names}], heartbeats: stop}}}}
"""


def all_silent(nodes: int, pods: int, qps: int) -> Scenario:
    names = ", ".join(f"a{n}" for n in range(1, nodes + 1))
    text = SCENARIO.format(nodes=nodes, pods=pods, qps=qps, burst=qps * 3 // 2, names=names)
    return parse_scenario(text.encode(), "all-silent.yaml")


@pytest.mark.parametrize("nodes, pods, qps", [(30, 20, 20), (100, 30, 20), (100, 30, 100)])
def test_as_many_are_tainted_as_was_said(nodes: int, pods: int, qps: int) -> None:
    scenario = all_silent(nodes, pods, qps)
    setting = assemble(scenario)
    settings = make_settings(setting.profile, scenario.flags)
    pace = pace_of(settings)
    assert pace is not None
    pass_ns, tainted = tainted_in_first_pass(setting.cluster, settings, pace)
    story = simulate_scenario(scenario)
    lost = min(r.at for r in story.records if r.action == "SetNodeCondition" and r.at > 20)
    dark = max(r.at for r in story.records if r.action == "SetZoneState")
    really = [r for r in story.records if r.action == "AddTaint" and r.at <= dark]
    really = [r for r in really if r.detail["effect"] == "NoExecute"]
    assert pass_ns / 1e9 == pytest.approx(dark - lost, rel=0.05)
    assert tainted == pytest.approx(len(really), rel=0.05)
    (said,) = beforehand(setting.cluster, settings)
    assert f"about {tainted} nodes are tainted before the pass" in said
    assert ("kube-api-qps 100 makes it" in said) == (qps < 100)


def test_nothing_is_said_of_a_cluster_whose_pass_is_short() -> None:
    setting = assemble(all_silent(3, 5, 20))
    assert not [*beforehand(setting.cluster, make_settings(setting.profile, {}))]
