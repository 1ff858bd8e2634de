"""Reading scenarios: what is wrong with one is said with its place and a remedy, on one line."""

import json
from typing import Any

import pytest

from kubectl_nodelife.errors import BadInput
from kubectl_nodelife.kube.times import SECOND_NS, format_time
from kubectl_nodelife.sim.events import KubeletEvent, ReportedCondition
from kubectl_nodelife.sim.generate import Generate, generate
from kubectl_nodelife.sim.scenario import Given, assemble, parse_scenario
from tests.sim.documents import document, node, pod, scenario


def fault(content: bytes) -> str:
    with pytest.raises(BadInput) as caught:
        assemble(parse_scenario(content, "s.yaml"))
    text = str(caught.value)
    assert "\n" not in text
    assert text.startswith("s.yaml")
    return text


def spec_fault(**spec: Any) -> str:
    return fault(json.dumps(document(**spec)).encode())


@pytest.mark.parametrize(
    ("content", "words"),
    [
        pytest.param(b"", ["is empty"], id="nothing"),
        pytest.param(b"a: [1", ["not YAML", "line"], id="broken-yaml"),
        pytest.param(b"\x00\x01\x02\xff", ["binary"], id="binary-noise"),
        pytest.param(b"- 1", ["expected a mapping", "a list"], id="a-list"),
        pytest.param(b"a: 1\n---\nb: 2", ["2 documents", "one document"], id="two-documents"),
        pytest.param(b"kind: Scenario", ["apiVersion", "missing"], id="no-api-version"),
        pytest.param(
            b"{apiVersion: nodelife.dev/v1alpha1, kind: Senario}",
            ["kind", "'Senario'", "Scenario"],
            id="another-kind",
        ),
        pytest.param(
            b"{apiVersion: nodelife.dev/v1alpha1, kind: Scenario, specs: {}}",
            ["specs: unknown field", "did you mean spec?"],
            id="unknown-field-at-the-top",
        ),
    ],
)
def test_what_is_no_scenario(content: bytes, words: list[str]) -> None:
    told = fault(content)
    assert all(word in told for word in words), told


NODE = node("a1")


def happens(**what: Any) -> dict[str, Any]:
    """A spec in which only that happens."""
    return {"events": [{"at": "1s", **what}]}


@pytest.mark.parametrize(
    ("spec", "told"),
    [
        ({"durations": "1m"}, "spec.durations: unknown field; did you mean duration?"),
        ({"duration": "1 hour"}, "spec.duration: '1 hour' is not a duration"),
        ({"duration": "-5s"}, "spec.duration: -5s must not be negative"),
        ({"duration": 60}, "spec.duration: 60 lacks a unit; write 60s for seconds"),
        ({"duration": "0s"}, "spec.duration: 0s must be at least 1ms"),
        ({"duration": "2562047h47m16s"}, "2562047h47m16s must be at most 8784h0m0s"),
        (
            {"generate": {"zones": 1000, "nodesPerZone": 100_000}},
            "spec.generate: 100000000 nodes with 30 pods and 3 DaemonSets each are more than",
        ),
        ({"profile": "v2.0"}, "spec.profile: unknown profile 'v2.0'"),
        ({"start": "again"}, "spec.start: unknown value 'again'; known here: restart, join"),
        ({"controllers": ["pod-cg"]}, "spec.controllers[0]: unknown value 'pod-cg'; did you mean"),
        ({"time": "yesterday"}, "spec.time: 'yesterday' is not an RFC 3339 time"),
        (
            {"kubelet": {"leaseRenew": "1s"}},
            "spec.kubelet.leaseRenew: unknown field; did you mean leaseRenew",
        ),
        ({"kubelet": {"leaseRenewInterval": "0s"}}, "must be at least 1ms"),
        ({"generate": {"zones": 0}}, "spec.generate.zones: 0 is out of range"),
        ({"generate": {"zones": "3"}}, "spec.generate.zones: expected a whole number"),
        ({"objects": [{"kind": "Node"}]}, "spec.objects[0].metadata"),
        ({"objects": [{"metadata": {"name": "x"}}]}, "spec.objects[0].kind"),
        ({"objects": [{"kind": "Node", "metadata": {}}]}, "spec.objects[0].metadata.name"),
        (
            {"objects": [{**NODE, "spec": {"unschedulable": "perhaps"}}]},
            "spec.objects[0].spec.unschedulable",
        ),
        (
            {"objects": [{"kind": "DaemonSet", "metadata": {"name": "d"}, "spec": {}}]},
            "spec.objects[0]: spec.selector does not match the labels of spec.template",
        ),
        ({"events": {}}, "spec.events: expected a list, found a mapping"),
        ({"events": [{"cordon": {"nodes": ["a1"]}}]}, "spec.events[0]: lacks the field at"),
        ({"events": [{"at": "1s"}]}, "spec.events[0]: names nothing that happens"),
        (
            {"events": [{"at": "1s", "cordon": {"nodes": ["a1"]}, "delete": {}}]},
            "spec.events[0]: has cordon and delete; give exactly one",
        ),
        (happens(reboot={}), "spec.events[0].reboot: unknown field"),
        (happens(drain={}), "spec.events[0].drain: names no nodes"),
        (
            {"objects": [NODE], "events": [{"at": "1s", "cordon": {"nodes": ["a2"]}}]},
            "spec.events[0].cordon.nodes[0]: node a2 never exists; did you mean a1?",
        ),
        (happens(cordon={}), "spec.events[0].cordon: names no nodes or names them twice"),
        (happens(cordon={"selector": "a in b"}), "spec.events[0].cordon.selector"),
        (
            happens(kubelet={"nodes": ["a1"], "heartbeats": "halt"}),
            "spec.events[0].kubelet.heartbeats: unknown value 'halt'",
        ),
        (
            happens(kubelet={"nodes": ["a1"]}),
            "spec.events[0].kubelet: nothing happens to the kubelet",
        ),
        (
            happens(kubelet={"nodes": [], "heartbeats": "stop"}),
            "spec.events[0].kubelet.nodes: the list is empty",
        ),
        (
            happens(kubelet={"nodes": ["a1"], "conditions": {"Ready": "no"}}),
            "spec.events[0].kubelet.conditions.Ready: unknown value 'no'",
        ),
        (
            happens(taint={"nodes": ["a1"], "add": ["k=v:Never"]}),
            "spec.events[0].taint.add[0]: taint 'k=v:Never': unknown effect",
        ),
        (
            happens(apply={"kind": "Pot", "metadata": {"name": "p"}}),
            "Pot is not a kind that is simulated; did you mean Pod?",
        ),
        (happens(apply={"kind": "Pod", "metadata": {}}), "spec.events[0].apply.metadata.name"),
        (
            happens(delete={"kind": "Node"}),
            "spec.events[0].delete.name: expected text, found nothing",
        ),
        (happens(delete={"kind": "no", "name": "a", "namespace": "x"}), "a Node has no namespace"),
        (
            happens(apply={"kind": "Pod", "metadata": {"name": "p"}, "spec": 5}),
            "spec.events[0].apply.spec",
        ),
    ],
)
def test_what_is_wrong_in_the_spec(spec: dict[str, Any], told: str) -> None:
    found = spec_fault(**spec)
    assert told in found, found


def test_json_and_yaml_say_the_same() -> None:
    doc = document(duration="3m", objects=[node("a")], events=[])
    yaml_text = (
        "apiVersion: nodelife.dev/v1alpha1\nkind: Scenario\nmetadata: {name: test}\n"
        "spec: {duration: 3m, objects: " + json.dumps([node("a")]) + ", events: []}"
    )
    assert parse_scenario(json.dumps(doc).encode(), "f") == parse_scenario(yaml_text.encode(), "f")


def test_unquoted_yaml_words_are_taken_as_meant() -> None:
    text = (
        b"{apiVersion: nodelife.dev/v1alpha1, kind: Scenario, spec: {time: 2026-02-03T04:05:06Z, "
        b"events: [{at: 1m, kubelet: {selector: x, conditions: {Ready: False}}}]}}"
    )
    read = parse_scenario(text, "f")
    assert read.time_ns is not None
    assert format_time(read.time_ns) == "2026-02-03T04:05:06Z"
    what = read.events[0].what
    assert isinstance(what, KubeletEvent)
    assert what.conditions == {"Ready": ReportedCondition("False")}


def test_unknown_kinds_and_fields_of_objects_are_passed_over() -> None:
    odd = {"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": "w"}}
    setting = assemble(scenario(objects=[odd, {**node("a"), "extra": 1}]))
    assert list(setting.cluster.nodes) == ["a"]


def test_inline_objects_stand_in_for_the_snapshots() -> None:
    given = Given(
        scenario(objects=[node("a"), node("b")]).objects, frozenset({"Node"}), 7 * SECOND_NS
    )
    setting = assemble(scenario(objects=[node("a", ready="False")]), given)
    ready = {name: n.ready() for name, n in setting.cluster.nodes.items()}
    assert {name: r.status for name, r in ready.items() if r} == {"a": "False", "b": "True"}
    assert setting.start_ns == 7 * SECOND_NS


def test_the_scenarios_time_goes_before_the_snapshots() -> None:
    given = Given((), moment_ns=7 * SECOND_NS)
    assert assemble(scenario(time="1970-01-01T00:00:09Z"), given).start_ns == 9 * SECOND_NS


def test_an_object_without_a_creation_time_was_made_two_seconds_before() -> None:
    setting = assemble(scenario(objects=[node("a"), pod("p", "a")]))
    for obj in setting.objects:
        assert obj.metadata.creation_timestamp == setting.start_ns - 2 * SECOND_NS
        assert obj.uid


def test_a_generated_cluster_has_what_was_asked_for() -> None:
    wanted = Generate(zones=3, nodes_per_zone=5, pods_per_node=9, daemon_sets=2, seed=4)
    objects = list(generate(wanted, 0, "v1.36"))
    assert objects == list(generate(wanted, 0, "v1.36"))
    assert objects != list(generate(Generate(3, 5, 0, 9, 2, 5), 0, "v1.36"))
    keys = {(type(obj).__name__, obj.key) for obj in objects}
    assert len(keys) == len(objects) == len({obj.uid for obj in objects})
    setting = assemble(scenario(generate={"zones": 3, "nodesPerZone": 5, "podsPerNode": 9}))
    assert sorted(setting.cluster.nodes) == sorted(f"{z}{i}" for z in "abc" for i in range(1, 6))
    assert {len(setting.cluster.pods_on(name)) for name in setting.cluster.nodes} == {9}
