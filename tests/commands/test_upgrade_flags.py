"""The flags of an upgrade: each a field of the policy, a flag before the file."""

import json
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner

from kubectl_nodelife.commands.flags import Connection
from kubectl_nodelife.commands.upgrade.flags import _POLICY, policy_flags, policy_of
from kubectl_nodelife.controllers.upgrade.claims import is_selected, named_nodes
from kubectl_nodelife.controllers.upgrade.policy import (
    UpgradePolicy,
    WorkMode,
    policy_digest,
    policy_from,
    policy_mapping,
)
from kubectl_nodelife.errors import BadInput, NodelifeError
from kubectl_nodelife.kube.meta import ObjectMeta
from kubectl_nodelife.kube.node import Node
from kubectl_nodelife.kube.times import SECOND_NS
from kubectl_nodelife.upgrade.answers import drain_options

CONNECTION = Connection()


def given(*words: str) -> dict[str, Any]:
    found: list[dict[str, Any]] = []

    @click.command()
    @policy_flags
    def command(given: dict[str, Any]) -> None:
        found.append(given)

    outcome = CliRunner().invoke(command, list(words))
    assert outcome.exit_code == 0, outcome.output
    return found[0]


def policy(*words: str, connection: Connection = CONNECTION) -> UpgradePolicy:
    return policy_of(given(*words), connection)


BLUE = ("-l", "pool=blue", "--nothing")


def test_without_further_flags_the_policy_has_its_defaults() -> None:
    assert policy(*BLUE) == UpgradePolicy(selector="pool=blue")


def test_every_policy_flag_is_a_field() -> None:
    fields = policy_mapping(UpgradePolicy()).keys() | {
        *("minAvailable", "clusterMinAvailable", "maxPerZone", "maxParallel", "expectWork"),
        "canaryTemplate",
    }
    flags = {flag.field for flag in _POLICY}
    assert flags <= fields
    by_other_ways = {"work", "selector", "nodes", "drain", "namespace", "canaryNodes"}
    assert fields - flags <= by_other_ways, "each field can be given"


def test_flags_are_read_as_the_file_would_be() -> None:
    found = policy(*BLUE, "--max-unavailable", "3", "--soak", "90s", "--target", "bootID=changed")
    assert (found.max_unavailable, found.soak_ns) == (3, 90 * SECOND_NS)
    assert [str(target) for target in found.target] == ["bootID=changed"]
    assert not policy(*BLUE, "--no-shield").shield and policy(*BLUE).shield
    assert policy(*BLUE, "--force", "--grace-period", "5").drain == {
        "force": True,
        "gracePeriod": 5,
    }


def test_the_canaries_are_a_number_or_names() -> None:
    assert policy(*BLUE, "--canary", "2").canary == 2
    named = policy(*BLUE, "--canary", "b1,b2")
    assert (named.canary, named.canary_nodes) == (2, ("b1", "b2"))


def test_a_flag_wins_over_the_file(tmp_path: Path) -> None:
    path = tmp_path / "upgrade.yaml"
    path.write_text(
        "apiVersion: nodelife.dev/v1alpha1\nkind: Upgrade\n"
        "spec: {selector: pool=blue, maxUnavailable: 20%, soak: 1m, nothing: true}\n"
    )
    found = policy("-f", str(path), "--soak", "2m")
    assert (found.selector, found.max_unavailable) == ("pool=blue", "20%")
    assert found.soak_ns == 120 * SECOND_NS
    path.write_text("kind: Upgrade\n")
    with pytest.raises(BadInput, match="nodelife"):
        policy("-f", str(path))


def of_file(tmp_path: Path, spec: str, *words: str) -> UpgradePolicy:
    path = tmp_path / "upgrade.yaml"
    path.write_text(f"apiVersion: nodelife.dev/v1alpha1\nkind: Upgrade\nspec: {spec}\n")
    return policy("-f", str(path), *words)


def test_every_flag_may_stand_in_a_file_under_its_name(tmp_path: Path) -> None:
    named = of_file(
        tmp_path,
        "{selector: pool=blue, run: ./reboot, rerunSafe: true, target: bootID=changed,"
        " force: true, gracePeriod: 5, window: 'Mon-Fri 22:00-04:00 UTC'}",
    )
    words = ("--run", "./reboot", "--rerun-safe", "--target", "bootID=changed", "--force")
    more = ("--grace-period", "5", "--window", "Mon-Fri 22:00-04:00 UTC")
    assert named == policy(*BLUE[:2], *words, *more)
    runs = "{selector: pool=blue, run: x}"
    assert of_file(tmp_path, runs).work.command == "x"
    assert of_file(tmp_path, runs, "--rerun-safe").work.rerun_safe
    assert of_file(tmp_path, runs, "--wait", "--target", "bootID=changed").work.command == ""
    assert of_file(tmp_path, "{nodes: [a], replace: true}").work.command == ""


@pytest.mark.parametrize(
    ("spec", "says"),
    [
        pytest.param("{maxUnavailble: 1}", "did you mean maxUnavailable", id="a policy"),
        pytest.param("{rum: x}", "did you mean run", id="the work"),
        pytest.param("{forse: true}", "did you mean force", id="a flag of drain"),
        pytest.param("{run: x, wait: true}", "exclude each other", id="two works"),
        pytest.param("{run: ''}", "is empty", id="an empty command"),
        pytest.param("{selector: 5, wait: true}", "Expected `str`", id="a number for a selector"),
        pytest.param("{selector: [a], wait: true}", "Expected `str`", id="a list for one"),
        pytest.param("{job: {kind: Pod}}", "cannot be read", id="no file"),
    ],
)
def test_what_is_wrong_in_a_file_is_named(tmp_path: Path, spec: str, says: str) -> None:
    with pytest.raises(NodelifeError) as caught:
        of_file(tmp_path, spec)
    assert says in str(caught.value)


def test_a_word_for_no_is_not_taken_for_yes(tmp_path: Path) -> None:
    found = of_file(tmp_path, "{selector: a=b, nothing: true, force: 'false'}")
    with pytest.raises(BadInput, match="force"):
        drain_options(found)


def test_the_work_is_one_of_five() -> None:
    found = policy("n1", "--run", "ssh $NODE reboot", "--rerun-safe").work
    assert (found.mode, found.command, found.rerun_safe) == (WorkMode.RUN, "ssh $NODE reboot", True)
    assert policy("n1", "--replace").work.command == ""
    assert policy("n1", "--replace", "delete-vm").work.command == "delete-vm"
    with pytest.raises(BadInput, match="exclude each other"):
        policy("n1", "--run", "x", "--nothing")
    with pytest.raises(BadInput, match="no work"):
        policy("n1")
    with pytest.raises(BadInput, match="no nodes"):
        policy("--nothing")


def test_the_connections_namespace_is_where_canaries_are_made() -> None:
    assert policy(*BLUE, connection=CONNECTION._replace(namespace="ops")).namespace == "ops"


def test_a_policy_is_the_same_after_it_was_handed_over() -> None:
    words = (*BLUE[:2], "--run", "reboot $NODE", "--rerun-safe", "--target", "bootID=changed")
    more = ("--window", "Mon-Fri 22:00-04:00 UTC", "--gate", "check", "--min-available", "80%")
    one = policy(*words, *more, "--canary", "b1,b2", "--expect-work", "4m", "--force")
    other = policy_from(json.loads(json.dumps(policy_mapping(one))))
    assert other == one and policy_digest(other) == policy_digest(one)


@pytest.mark.parametrize(
    "words",
    [
        ("--window", "now and then"),
        ("--exclude", "tier in (db"),
        ("--zones", "-1"),
        ("--retries", "-1"),
        ("--max-failures", "-1"),
        ("--low-water", "120"),
    ],
)
def test_what_no_leader_could_follow_is_refused_at_once(words: tuple[str, ...]) -> None:
    with pytest.raises(BadInput):
        policy(*BLUE, *words)


def test_a_selector_of_drain_is_read_before_anything_is_drained() -> None:
    with pytest.raises(BadInput, match="pod-selector"):
        drain_options(policy(*BLUE, "--pod-selector", "a in ("))


@pytest.mark.parametrize(
    ("exclude", "left_out"),
    [
        *(("b1", False), ("b7", True), ("b1,b7", True), ("tier=db", True)),
        *(("tier in (db)", True), ("!tier", False), ("tier!=db", False)),
        ("tier notin (db)", False),
    ],
)
def test_nodes_are_left_out_by_name_or_by_any_selector(exclude: str, left_out: bool) -> None:
    found = Node(metadata=ObjectMeta(name="b7", labels={"pool": "blue", "tier": "db"}))
    assert is_selected(found, policy(*BLUE, "--exclude", exclude)) is not left_out
    assert named_nodes(policy("b7", "--nothing", "--exclude", "b8")) == ("b7", "b8")
