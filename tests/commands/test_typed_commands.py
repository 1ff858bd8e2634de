"""Commands that we print are typed: each must reach the cluster that it is about, and no other."""

import asyncio
import json
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import pytest
import yaml

from kubectl_nodelife.cli import VERBS, main, nodelife
from kubectl_nodelife.commands.flags import DefaultGroup
from kubectl_nodelife.report import terminal
from kubectl_nodelife.report.terminal import (
    VERBS_WITH_DUMPS,
    VERBS_WITH_PROFILE,
    VERBS_WITH_SET,
    LeadingFlags,
)
from tests import objects
from tests.daemon.user import FLAGS, ROOT, User, user
from tests.loopback import contexts_of, needs_kubectl, sandbox
from tests.outlook.asking import lost

PROD = LeadingFlags(
    kubectl=("--kubeconfig=/my files/config", "--context=prod"),
    nodelife=("--context=prod", "--namespace=shop"),
    dump=("-f", "a dump.json"),
)
OF_KUBECTL = "kubectl '--kubeconfig=/my files/config' --context=prod"


@pytest.mark.parametrize(
    "text, led",
    [
        ("to do it: kubectl taint node b2 a=b:NoExecute", f"to do it: {OF_KUBECTL} taint node"),
        ("echo {} | kubectl delete --raw /x -f -", f"echo {{}} | {OF_KUBECTL} delete --raw"),
        (
            "'kubectl nodelife replay --drain w1' shows more",
            "'kubectl nodelife --context=prod --namespace=shop replay --drain w1 -f 'a dump.json''",
        ),
        (
            "see kubectl nodelife daemon logs",
            "see kubectl nodelife --context=prod daemon logs",
        ),
        (
            "`kubectl nodelife status`",
            "`kubectl nodelife --context=prod --namespace=shop status -f 'a dump.json'`",
        ),
    ],
)
def test_a_command_gets_the_flags(text: str, led: str) -> None:
    assert PROD.in_text(text).startswith(led)


@pytest.mark.parametrize(
    "text",
    [
        "kubectl drain refuses its node: --force lifts that",
        "Nothing: kubectl drain does not touch it.",
        "kubectl --context=prod taint node b2 a:NoExecute",
        "kubectl nodelife --context=prod explain node b2",
        "see 'kubectl nodelife status --help'",
        "my-kubectl-drainer",
    ],
)
def test_what_is_no_command_or_has_them_already_stays(text: str) -> None:
    assert PROD.in_text(text) == text


GIVEN = LeadingFlags(settings=("--profile=v1.34", "--set=pod-eviction-timeout=1m"))


@pytest.mark.parametrize(
    "text, led",
    [
        ("explain node b2", "explain node b2 --profile=v1.34 --set=pod-eviction-timeout=1m"),
        ("drain-plan b2.", "drain-plan b2 --profile=v1.34."),
        ("what-if lose zone a --set=x=y", "what-if lose zone a --set=x=y --profile=v1.34"),
        ("daemonset status cni", "daemonset status cni --profile=v1.34"),
        ("replay --drain b2", "replay --drain b2"),
        ("diverge", "diverge"),
    ],
)
def test_a_command_gets_the_settings_that_were_given(text: str, led: str) -> None:
    assert GIVEN.in_text(f"kubectl nodelife {text}") == f"kubectl nodelife {led}"
    of_dump = GIVEN._replace(dump=("-f", "d")).in_text("kubectl nodelife diverge")
    assert of_dump.startswith("kubectl nodelife diverge -f d --profile=v1.34 --set=")


def test_a_daemon_is_told_no_settings() -> None:
    flags = PROD._replace(settings=GIVEN.settings)
    assert LeadingFlags.of_query(flags.query()) == PROD


def verbs_taking(*flags: str) -> set[str]:
    """The verbs that take these flags, in each of their commands."""
    ctx, taking = click.Context(nodelife), set()
    for verb in VERBS:
        command = nodelife.get_command(ctx, verb)
        assert command is not None
        of_verb = [command]
        if isinstance(command, DefaultGroup):
            of_verb = list(command.commands.values())
        taken = [{opt for param in each.params for opt in param.opts} for each in of_verb]
        if all(opts.issuperset(flags) for opts in taken):
            taking.add(verb)
    return taking


def test_the_verbs_that_read_dumps_are_those_that_take_f() -> None:
    assert verbs_taking("-f", "--now") == VERBS_WITH_DUMPS
    assert verbs_taking("-f", "--now", "--profile") == VERBS_WITH_PROFILE
    assert verbs_taking("-f", "--now", "--set") == VERBS_WITH_SET


def test_a_ranked_target_is_asked_about_with_the_settings(
    capsys: pytest.CaptureFixture[str],
) -> None:
    dump = str(ROOT / "tests" / "wild" / "node-09-kubelet-clock-wrong" / "first.json")
    given = ("--profile=v1.34", "--set=node-monitor-grace-period=20s")
    main(["what-if", "--each", "node", "-f", dump, *given, "-o", "json"])
    items = json.loads(capsys.readouterr().out)["items"]
    assert items and all(item["command"].endswith(" ".join(given)) for item in items)


def test_a_dump_is_named_again(capsys: pytest.CaptureFixture[str]) -> None:
    dump = str(ROOT / "tests" / "wild" / "node-09-kubelet-clock-wrong" / "first.json")
    main(["status", "-f", dump])
    assert f"\nWhy: kubectl nodelife explain node w-behind -f {dump}\n" in capsys.readouterr().out


# --- typed ----------------------------------------------------------------------------------------


Object = dict[str, Any]
GOING = {"deletionTimestamp": "2026-01-01T00:00:30Z", "deletionGracePeriodSeconds": 30}


def pod(node: str, name: str, **more: Any) -> Object:
    """A pod that is Ready, in the namespace shop if no other is given."""
    status = {"containerStatuses": [{"name": "c", "ready": True, "state": {"running": {}}}]}
    return objects.pod(name, node, ready=True, status=status, **{"namespace": "shop", **more})


def workload(name: str, **budgets: int | str) -> list[Object]:
    """A ReplicaSet with one pod on a1, and budgets by name with their minAvailable."""
    meta = {"namespace": "shop", "metadata": {"generation": 1}}
    ready = {"replicas": 1, "readyReplicas": 1}
    status = {"expectedPods": 1, "currentHealthy": 1, "desiredHealthy": 1}
    status |= {"observedGeneration": 1, "disruptionsAllowed": 0}
    of = objects.owner("ReplicaSet", name)
    return [
        objects.workload("ReplicaSet", name, 1, namespace="shop", status=ready),
        pod("a1", f"{name}-0", labels={"app": name}, owner=of),
        *(
            objects.budget(budget, name, status=status, minAvailable=least, **meta)
            for budget, least in budgets.items()
        ),
    ]


def guarded() -> list[Object]:
    """A pod whose evictions a webhook is asked about that is not there."""
    hook = {
        "namespaceSelector": {"matchLabels": {"guarded": "yes"}},
        "failurePolicy": "Fail",
        "clientConfig": {"service": {"namespace": "guarded", "name": "gone"}},
    }
    meta = {"name": "guarded", "labels": {"guarded": "yes"}}
    return [
        {"apiVersion": "v1", "kind": "Namespace", "metadata": meta},
        objects.webhook(on="*", **hook),
        pod("a1", "guarded", namespace="guarded"),
    ]


def cluster() -> list[Object]:
    """A cluster about which much is to be said: a cordoned node, a lost one, budgets that allow
    nothing, one pod that two of them match, one that a finalizer keeps.
    """
    held = {**GOING, "deletionGracePeriodSeconds": 0, "finalizers": ["example.com/x"]}
    return [
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "shop"}},
        *workload("web", web=1),
        *workload("api", api="100%"),
        *workload("two", one=0, other=0),
        *lost("lost-1"),
        pod("lost-1", "stuck", metadata=GOING),
        pod("a1", "held", metadata=held),
        *guarded(),
    ]


ASKED = (
    ("status",),
    ("explain", "node", "a1"),
    ("explain", "node", "a2"),
    ("explain", "node", "a1", "--taint", "maintenance=now:NoExecute"),
    ("explain", "pod", "stuck"),
    ("explain", "node", "lost-1"),
    ("drain-plan", "a1", "--ignore-daemonsets", "--force"),
    ("what-if", "--each", "node", "--until", "5m"),
    ("audit", "-A"),
    ("repair", "-A", "--dry-run=client"),
    ("budgets", "-A"),
    ("explain", "budget", "web"),
    ("replay",),
    ("diverge",),
    ("daemonset", "-A"),
    ("upgrade", "plan", "a1", "lost-1", "--nothing"),
)


REMEDIES = (
    " scale replicaset ",
    " patch pdb ",
    " delete pdb ",
    " patch pod ",
    " patch validatingwebhookconfiguration ",
)
"""Of the drain plan."""


def commands_in(value: Any) -> Iterator[str]:
    """Every command in the texts of a document."""
    if isinstance(value, str):
        yield from (found[0] for found in re.finditer(terminal._COMMAND, value))
    elif isinstance(value, dict):
        for each in value.values():
            yield from commands_in(each)
    elif isinstance(value, list):
        for each in value:
            yield from commands_in(each)


async def typed(command: str, one: User, *, dry: bool = True) -> str:
    """What a shell says to the command; of kubectl's a dry run."""
    if (
        dry
        and " nodelife " not in command
        and " --raw " not in command
        and " describe " not in command
        and " auth " not in command
    ):
        command += " --dry-run=server"
    process = await asyncio.create_subprocess_exec(
        *("timeout", "20", "/bin/sh", "-c", command),
        env={**one.environ, "PATH": f"{one.home}/bin:{one.environ['PATH']}"},
        cwd=one.home,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    out, _ = await process.communicate()
    return out.decode()


@needs_kubectl
@pytest.mark.deep("commands as processes")
async def test_each_command_reaches_the_cluster_that_it_is_about(tmp_path: Path) -> None:
    there: list[str] = []
    elsewhere: list[str] = []
    async with (
        sandbox(flags=FLAGS, objects=cluster(), record=there) as prod,
        sandbox(flags=FLAGS, objects=cluster(), record=elsewhere) as other,
        user(str(tmp_path / "none")) as one,
    ):
        both = contexts_of({"prod": prod, "other": other}) | {"current-context": "other"}
        config = str(tmp_path / "my config")
        Path(config).write_text(yaml.safe_dump(both))
        plugin = one.home / "bin" / "kubectl-nodelife"
        plugin.parent.mkdir()
        os.symlink(ROOT / "bin" / "kubectl-nodelife", plugin)
        cordon = f"kubectl --kubeconfig='{config}' --context=prod cordon a2"
        await typed(cordon, one, dry=False)
        before = len(elsewhere)
        flags = (f"--kubeconfig={config}", "--context=prod")
        found: set[str] = set()
        for words in ASKED:
            output = () if words[0] == "status" else ("-o", "json")
            told = await one.run(*words, *flags, "-n", "shop", *output)
            assert told.code in ((3,) if words[0] == "diverge" else (0, 4)), told
            document = yaml.safe_load(told.out) if output and told.out else told.out
            found |= set(commands_in(document))
            found |= set(commands_in(told.err))
        found = {command for command in found if "kubectl drain refuses" not in command}
        kinds = {command.partition("--")[0] for command in found}
        assert len(found) >= 6 and any(" taint " in each for each in found), found
        assert any(" nodelife " in kind for kind in kinds), kinds
        asked = sorted(command for command in found if " auth can-i " in command)
        for remedy in REMEDIES:
            assert any(remedy in each for each in found), (remedy, found)
        found -= {*asked[1:]}  # `upgrade plan` has thirty, all alike
        for command in sorted(found):
            there.clear()
            said = await typed(command, one)
            assert there or "daemon" in command, (command, said)
        assert len(elsewhere) == before, elsewhere[before:]
