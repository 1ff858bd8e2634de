"""A name from a dump or a cluster becomes no option of kubectl and no command of a shell."""

import json
import shlex
from pathlib import Path

import pytest

from kubectl_nodelife.cli import main
from kubectl_nodelife.kube.load import load_objects
from kubectl_nodelife.kube.names import is_dns_subdomain, subject
from kubectl_nodelife.kube.workload import PodDisruptionBudget
from tests.objects import ROOM, manifest, node, pod, write_list

HOSTILE = (
    *("--kubeconfig=evil", "--server=https://evil.example", "-A", "$(reboot)", "a;reboot"),
    *("`id`", "a b", "A", "a_b", "a/b", "..", "a\nreboot", "a.", "-a", "é", "a" * 254),
)


@pytest.mark.parametrize("name", ["a", "a.b-c.9", "9", "a" * 253])
def test_names_that_the_api_server_takes(name: str) -> None:
    assert is_dns_subdomain(name) and subject("node", name) == f"node {name}"


@pytest.mark.parametrize("name", HOSTILE)
def test_another_name_is_one_word_of_a_command_and_no_option(name: str) -> None:
    assert not is_dns_subdomain(name)
    words = shlex.split(f"kubectl delete {subject('pdb', name)} -n x")
    assert words == ["kubectl", "delete", f"pdb/{name}", "-n", "x"]


def blue(name: str) -> dict[str, object]:
    """A node of the pool blue, with room."""
    return node(name, labels={"pool": "blue"}, allocatable=ROOM)


def dump(folder: Path, *objects: object) -> str:
    return write_list(folder / "dump.json", objects)


@pytest.mark.parametrize("name", HOSTILE)
def test_such_a_node_is_in_no_program_that_we_print(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    verb = ["drain-plan", "-l", "pool=blue", "-o", "commands", "--force"]
    found = dump(tmp_path, blue("n1"), blue("n2"), blue(name), pod(namespace="x"))
    main([*verb, "-f", found, "--now", "2026-11-22T12:00:00Z"])
    printed = capsys.readouterr()
    lines = [line for line in printed.out.splitlines() if not line.startswith("#")]
    assert lines, printed.err
    assert not any(name in line for line in lines if len(name) > 3)
    assert "metadata.name: is no DNS name" in printed.err
    for line in lines:
        words = line.replace("&&", " ").split()
        if "k" in words and {"cordon", "uncordon"} & {*words}:
            assert "--" in words, f"names without -- before them: {line}"


@pytest.mark.parametrize("name", ["--kubeconfig=evil", "a b", "A"])
def test_objects_of_either_form_are_set_aside_for_their_names(name: str) -> None:
    """Read quickly as JSON, and slowly with a null or as YAML."""
    slow = blue(name) | {"spec": {"taints": [None]}}
    lists = {"apiVersion": "v1", "kind": "List", "items": [blue("n1"), blue(name), slow]}
    for text in (json.dumps(lists), "---\n" + "\n---\n".join(map(json.dumps, lists["items"]))):
        loaded = load_objects(text.encode(), "dump")
        assert [obj.name for obj in loaded.objects] == ["n1"]
        assert {found.key for found in loaded.unreadable} == {("", name)}
    loaded = load_objects(json.dumps([blue("n1"), pod(namespace=name)]).encode(), "dump")
    assert [obj.name for obj in loaded.objects] == ["n1"]


def test_a_budget_is_heeded_whatever_its_name() -> None:
    """The API server takes any name for it; evictions depend on it."""
    budget = manifest(
        "PodDisruptionBudget", "$(reboot)", "x", spec={"minAvailable": 1, "selector": {}}
    )
    loaded = load_objects(json.dumps(budget).encode(), "dump")
    (found,) = loaded.objects
    assert isinstance(found, PodDisruptionBudget) and not loaded.unreadable
