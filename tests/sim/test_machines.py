"""Reboots, new kubelets and nodes in others' places, on the virtual cluster."""

import json

import pytest

from kubectl_nodelife.kube.node import Node
from kubectl_nodelife.kube.times import SECOND_NS
from kubectl_nodelife.sim.api import Api
from kubectl_nodelife.sim.machines import Return, read_reboot, with_version
from kubectl_nodelife.sim.scenario import assemble, parse_scenario
from kubectl_nodelife.sim.timeline import Timeline
from kubectl_nodelife.sim.world import World
from tests.sim.documents import Json, document, node, pod


class Stand:
    """A world without controllers, and its machines."""

    def __init__(self, *objects: Json) -> None:
        content = json.dumps(document(objects=list(objects))).encode()
        setting = assemble(parse_scenario(content, "test.yaml"))
        self.start_ns = setting.start_ns
        self.api = Api(Timeline(setting.start_ns), setting.start_ns, setting.cluster.copy())
        self.world = World(
            self.api,
            setting.scenario.kubelet,
            end_ns=setting.start_ns + 3600 * SECOND_NS,
            status_rules=setting.status_rules,
        )
        self.world.begin(["Node", "Pod"])
        self.machines = self.world.machines

    def until(self, seconds: float) -> None:
        """Let everything happen until then."""
        end_ns = self.start_ns + int(seconds * SECOND_NS)
        while self.api.pending or (self.world.agenda.next_at() or end_ns + 1) <= end_ns:
            assert self.world.next(None) is not None
        self.api.now_ns = end_ns

    def node(self, name: str) -> Node:
        return self.api.store.nodes[name]

    def ready(self, name: str) -> bool:
        return self.api.store.pods[("default", name)].ready()


def test_a_reboot_changes_the_boot_id_and_runs_the_pods_anew() -> None:
    stand = Stand(node("a"), pod("p", "a"))
    stand.until(1)
    stand.machines.reboot("a", 20 * SECOND_NS, Return(), None)
    assert not stand.world.kubelets.alive("a")
    stand.until(19.5)
    before = stand.node("a").status.node_info.boot_id
    assert before, "nobody knows yet of another"
    stand.until(22)
    boot_id = stand.node("a").status.node_info.boot_id
    assert (boot_id != before, stand.ready("p")) == (True, False)
    stand.until(60)
    found = stand.api.store.pods[("default", "p")].status.container_statuses
    assert stand.ready("p") and found is not None and boot_id in found[0].container_id


def test_the_pods_of_a_machine_that_went_down_again_wait_for_its_last_return() -> None:
    stand = Stand(node("a"), pod("p", "a"))
    stand.machines.reboot("a", 5 * SECOND_NS, Return(), None)
    stand.until(10)
    stand.machines.reboot("a", 30 * SECOND_NS, Return(), None)
    stand.until(41)
    assert not stand.ready("p")
    stand.until(61)
    assert stand.ready("p")


def test_a_pod_that_never_restarts_has_failed_after_a_reboot() -> None:
    stand = Stand(node("a"), pod("p", "a", restartPolicy="Never"))
    stand.machines.reboot("a", 5 * SECOND_NS, Return(), None)
    stand.until(30)
    assert stand.api.store.pods[("default", "p")].status.phase == "Failed"


def test_an_exchanged_kubelet_tells_its_version_and_leaves_pods_alone() -> None:
    stand = Stand(node("a"), pod("p", "a"))
    stand.machines.update_kubelet("a", Return(refit=with_version("v1.37.0")), None)
    stand.until(9)
    assert stand.node("a").status.node_info.kubelet_version == ""
    stand.until(11)
    assert stand.node("a").status.node_info.kubelet_version == "v1.37.0"
    assert stand.ready("p")


def test_a_replacement_registers_under_another_uid_with_its_pools_labels_and_taints() -> None:
    taints = [
        {"key": "dedicated", "value": "x", "effect": "NoSchedule"},
        {"key": "nodelife.dev/outdated", "effect": "PreferNoSchedule"},
    ]
    stand = Stand(node("a", taints=taints))
    old = stand.node("a")
    stand.machines.replace("a", "a-2", 60 * SECOND_NS, Return(), None)
    assert "a" not in stand.api.store.nodes
    stand.until(61)
    new = stand.node("a-2")
    assert new.uid != old.uid and new.metadata.labels == old.metadata.labels
    keys = [taint.key for taint in new.spec.taints]
    assert keys == ["dedicated", "node.kubernetes.io/not-ready"]
    ready = new.ready()
    assert ready is not None and ready.status == "False"
    stand.until(90)
    ready = stand.node("a-2").ready()
    assert ready is not None and ready.status == "True"


def test_a_machine_without_its_network_is_not_ready_until_its_next_return() -> None:
    stand = Stand(node("a"))
    stand.machines.reboot("a", 5 * SECOND_NS, Return(ready=False), None)
    stand.until(30)
    ready = stand.node("a").ready()
    assert ready is not None and (ready.status, ready.reason) == ("False", "KubeletNotReady")
    stand.machines.reboot("a", 5 * SECOND_NS, Return(), None)
    stand.until(60)
    ready = stand.node("a").ready()
    assert ready is not None and ready.status == "True"


@pytest.mark.parametrize("text", ["", "20", "-5s", "20s,", "20s,kernel=6", "20s,kubeletVersion="])
def test_a_word_that_is_no_reboot_is_none(text: str) -> None:
    assert read_reboot(text) is None


def test_a_reboot_may_bring_another_kubelet() -> None:
    assert read_reboot("20s,kubeletVersion=v1.37.0") is not None
