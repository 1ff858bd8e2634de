"""The flags of a daemon: each comes through the command line into its field, and through the
arguments of another daemon like it."""

from typing import Any

import click
import pytest
from click.testing import CliRunner

from kubectl_nodelife.daemon.flags import DEFAULTS, FLAGS, SECRETS, DaemonFlags, flags_named
from kubectl_nodelife.errors import BadInput
from kubectl_nodelife.live.connection import DeclaredFlag


def parsed(*words: str) -> DaemonFlags:
    """What the daemon finds in `options.flags`."""
    found: list[DaemonFlags] = []

    @click.command()
    @flags_named()
    def command(flags: DaemonFlags) -> None:
        found.append(flags)

    done = CliRunner().invoke(command, words, catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return found[0]


def some_value(group: str, field: str, flag: DeclaredFlag) -> str:
    if flag.choices:
        return flag.choices[-1]
    if field in ("controllers", "assume_stopped"):
        return "pod-gc,daemonset"
    texts = {"--metrics-bind-address": "[::1]:9", "--webhook": "https://h/x", "--profile": "v1.30"}
    texts |= {"--cap": "taints-per-minute=7", "--notify-on": "nodeLost,zoneStops"}
    return texts.get(flag.name, "5000" if flag.value in ("PORT", "N") else "/some")


@pytest.mark.parametrize("group, field, flag", FLAGS, ids=[flag.name for _, _, flag in FLAGS])
def test_each_flag_reaches_its_field_and_another_daemon(
    group: str, field: str, flag: DeclaredFlag
) -> None:
    default: Any = getattr(getattr(DEFAULTS, group) if group else DEFAULTS, field)
    word = flag.name if default is False else f"{flag.name}={some_value(group, field, flag)}"
    flags = parsed(word)
    assert getattr(getattr(flags, group) if group else flags, field) != default
    passed_on = flags.arguments()
    assert any(each.startswith(flag.name) for each in passed_on) is not (flag.name in SECRETS)
    assert parsed(*passed_on).with_secrets(flags.secrets()) == flags


def test_no_writes_at_all_stays_none_at_all() -> None:
    flags = parsed("--max-writes=0")
    assert flags.orders.max_writes == 0 and parsed(*flags.arguments()) == flags
    assert parsed() == DEFAULTS and DEFAULTS.arguments() == []


def test_a_repeated_flag_is_repeated_and_a_path_stays_where_it_was() -> None:
    flags = parsed("--set", "a=1,2", "--set", "b=3")
    assert flags.assignments == ("a=1,2", "b=3") and parsed(*flags.arguments()) == flags
    flags = parsed("--metrics-token-file=token")
    assert flags.metrics.token_file.startswith("/")


def test_without_its_value_a_flag_means_its_usual_one() -> None:
    assert parsed("--serve-answers").answer_port == 9877


def test_a_webhook_that_comes_by_a_pipe_is_there_before_the_check() -> None:
    flags = parsed("--notify-on=nodeLost")
    with pytest.raises(BadInput, match="no one is notified"):
        flags.check()
    flags.with_secrets({"webhook": "https://host/path"}).check()
