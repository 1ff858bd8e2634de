"""Every command in the README works: it is run, on a sandbox where it asks a cluster.

Not run here are those that install; tests/release holds these ways in one by one.
"""

import re
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from kubectl_nodelife import __version__
from tests.release.users import User

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text()
COMMANDS = [
    line.partition("  #")[0].strip()
    for line in README.splitlines()
    if line.startswith("    ") and line.strip()
]

# What each of these would do is held elsewhere, as said behind it.
ELSEWHERE = {
    "bin/install --prefix ~/.local": "tests/release/test_other_ways.py",
    "kubectl krew install --manifest=nodelife.yaml --archive=kubectl-nodelife-linux-amd64.tar.gz":
        "tests/release/test_krew.py",
    f"pipx install kubectl_nodelife-{__version__}-py3-none-any.whl":
        "tests/release/test_other_ways.py",
    'ln -s "$PWD/bin/kubectl-nodelife" ~/.local/bin/': "tests/test_cli.py",
    "bin/test": "this very run",
    "bin/test tests/report -k ages": "this very run",
}  # fmt: skip


@pytest.fixture(scope="module")
def user(tmp_path_factory: pytest.TempPathFactory) -> Iterator[User]:
    """Somebody whose kubeconfig is a sandbox's, in a folder with the files that commands name."""
    made = User(tmp_path_factory.mktemp("readme"))
    made.script(
        "kubectl", f'shift; exec "{sys.executable}" -m kubectl_nodelife "$@" # kubectl nodelife ...'
    )
    made.script("kubectl-nodelife", f'exec "{sys.executable}" -m kubectl_nodelife "$@"')
    made.environ["PYTHONPATH"] = str(ROOT)
    (made.home / "outage.yaml").write_text((ROOT / "bin/stories/zone-outage.yaml").read_text())
    (made.home / "study.yaml").write_text(
        "apiVersion: nodelife.dev/v1alpha1\nkind: Study\nmetadata: {name: readme}\nspec:\n"
        "  base: {generate: {zones: 2, nodesPerZone: 2, podsPerNode: 3}}\n"
        "  space: {flags.node-monitor-grace-period: [20s, 50s]}\n"
        "  failures:\n  - {kind: independent, mtbf: 1h, mttr: 10m}\n  repeat: 2\n"
    )
    scenario = made.home / "sandbox.yaml"
    scenario.write_text(
        "apiVersion: nodelife.dev/v1alpha1\nkind: Scenario\nmetadata: {name: readme}\nspec:\n"
        "  generate: {zones: 2, nodesPerZone: 2, podsPerNode: 3, daemonSets: 1}\n"
        "  objects:\n"
        "  - {apiVersion: v1, kind: Node, metadata: {name: worker-1}}\n"
        "  - apiVersion: apps/v1\n    kind: DaemonSet\n"
        "    metadata: {name: log-agent, namespace: default}\n"
        "    spec: {selector: {matchLabels: {app: log}}, template: {metadata: {labels: {app: log}},"
        " spec: {containers: [{name: log, image: log}]}}}\n"
    )
    server = subprocess.Popen(
        [sys.executable, "-m", "kubectl_nodelife", "sandbox", "-f", scenario],
        env=made.environ, cwd=ROOT, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert server.stdout is not None
    made.environ["KUBECONFIG"] = server.stdout.readline().partition("=")[2].strip()
    yield made
    made.run("kubectl", "nodelife", "daemon", "stop")
    server.terminate()
    server.wait(30)


def test_there_are_commands_and_no_exception_without_need() -> None:
    assert len(COMMANDS) > 15
    assert ELSEWHERE.keys() - set(COMMANDS) == set()


def test_installation_comes_next_to_what_it_looks_like() -> None:
    first = "\n".join(README.splitlines()[:56])
    for words in ("kubectl krew install nodelife", "--manifest=nodelife.yaml", "pipx install"):
        assert words in first


def test_every_command_works(user: User) -> None:
    for line in COMMANDS:
        if line in ELSEWHERE:
            continue
        if line.startswith("bin/demo"):
            # The demo itself has tests; its stories take minutes.
            assert "tour" in user.ok(ROOT / "bin/demo", "--list")
            continue
        began = time.monotonic()
        if line.startswith("bin/"):
            line = f"{ROOT}/{line}"
        done = user.run("sh", "-c", line)
        assert done.returncode == 0, f"{line}: {done.stderr}"
        assert time.monotonic() - began < 60, line


def test_links_lead_somewhere() -> None:
    for target in re.findall(r"\]\(([^)#]+)\)", README):
        assert (ROOT / target).exists(), target
