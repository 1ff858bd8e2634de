"""Credential plugins: what they are told, what they may answer, and that failing is an error."""

import asyncio
import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from kubectl_nodelife.errors import BadInput, Failed, NodelifeError
from kubectl_nodelife.live.kubeconfig import Cluster, EnvVar, ExecConfig
from kubectl_nodelife.live.plugin import (
    Credential,
    CredentialPlugin,
    PluginPolicy,
    check_policy,
    load_policy,
)

V1 = "client.authentication.k8s.io/v1"
CLUSTER = Cluster(
    server="https://here",
    certificate_authority_data="Y2E=",
    extensions=({"name": "client.authentication.k8s.io/exec", "extension": {"audience": "x"}},),
)


def credential(**status: Any) -> str:
    return json.dumps({"kind": "ExecCredential", "apiVersion": V1, "status": status})


def run(
    script: str, policy: PluginPolicy | None = None, timeout_seconds: float = 20, **changes: Any
) -> Credential:
    """Run a Python one-liner as the plugin."""
    config = ExecConfig(
        **{
            "command": sys.executable,
            "args": ("-c", script),
            "env": (EnvVar("GREETING", "hello"),),
            "api_version": V1,
            "interactive_mode": "IfAvailable",
            **changes,
        }
    )
    environ = {"PATH": os.environ["PATH"], "INHERITED": "yes"}
    plugin = CredentialPlugin(config, CLUSTER, environ, policy or PluginPolicy(), timeout_seconds)
    return asyncio.run(plugin.run())


def test_a_token_and_its_end() -> None:
    text = credential(token="t0", expirationTimestamp="2026-01-01T00:00:00Z")
    got = run(f"print({text!r})")
    assert (got.token, got.expires) == ("t0", 1_767_225_600_000_000_000)


def test_it_is_told_of_the_cluster_only_if_it_asks_and_never_lent_the_terminal() -> None:
    script = (
        "import os, sys, json; info = json.loads(os.environ['KUBERNETES_EXEC_INFO']);"
        "token = json.dumps([info['spec'], os.environ['GREETING'], os.environ['INHERITED'],"
        " sys.stdin.read()]);"
        f"print(json.dumps({{'kind': 'ExecCredential', 'apiVersion': '{V1}',"
        " 'status': {'token': token}}))"
    )
    spec, *rest = json.loads(run(script).token)
    assert spec == {"interactive": False}
    assert rest == ["hello", "yes", ""]
    spec, *_ = json.loads(run(script, provide_cluster_info=True).token)
    assert spec["cluster"] == {
        "server": "https://here",
        "certificate-authority-data": "Y2E=",
        "config": {"audience": "x"},
    }


@pytest.mark.parametrize(
    "script, changes, complaint",
    [
        pytest.param(
            "raise SystemExit('no session: log in')", {}, "no session: log in", id="fails"
        ),
        pytest.param("print('hello')", {}, "not an ExecCredential", id="not-json"),
        pytest.param("pass", {}, "not an ExecCredential", id="silent"),
        pytest.param(f"print({credential()!r})", {}, "neither a token", id="empty-status"),
        pytest.param(f"print({credential(token='')!r})", {}, "neither a token", id="empty-token"),
        pytest.param(
            f"print({credential(token='t', clientCertificateData='c')!r})",
            {},
            "without its key",
            id="no-key",
        ),
        pytest.param(
            f"print({credential(token='t')!r})",
            {"api_version": "client.authentication.k8s.io/v1beta1"},
            "not ExecCredential of",
            id="another-version",
        ),
        pytest.param("", {"command": "no-such-plugin"}, "cannot be run", id="missing"),
        pytest.param("", {"interactive_mode": "Always"}, "needs a terminal", id="wants-a-terminal"),
    ],
)
def test_a_failing_plugin_is_an_error(script: str, changes: dict[str, Any], complaint: str) -> None:
    with pytest.raises(Failed, match=complaint):
        run(script, **changes)


def test_the_install_hint_is_the_advice() -> None:
    with pytest.raises(Failed, match=r"; install it: brew install it$"):
        run("", command="no-such-plugin", install_hint="\ninstall it:\n\n  brew install it\n")


def test_a_hanging_plugin_is_ended() -> None:
    with pytest.raises(Failed, match="no answer within"):
        run("import time; time.sleep(60)", timeout_seconds=0.2)


@pytest.mark.parametrize(
    "text, command, allowed",
    [
        pytest.param(None, "aws", True, id="no-file"),
        pytest.param("kind: Preference", "aws", True, id="no-word"),
        pytest.param("credentialPluginPolicy: AllowAll", "aws", True, id="allow-all"),
        pytest.param("credentialPluginPolicy: DenyAll", "aws", False, id="deny-all"),
        pytest.param(
            "{credentialPluginPolicy: Allowlist, credentialPluginAllowlist: [{command: aws}]}",
            "aws",
            True,
            id="listed",
        ),
        pytest.param(
            "{credentialPluginPolicy: Allowlist, credentialPluginAllowlist: [{name: gke}]}",
            "aws",
            False,
            id="not-listed",
        ),
        pytest.param(
            "{credentialPluginPolicy: Allowlist, credentialPluginAllowlist: [{command: sh}]}",
            "/bin/sh",
            True,
            id="listed-by-name-called-by-path",
        ),
    ],
)
def test_kuberc_says_which_plugins_may_run(
    tmp_path: Path, text: str | None, command: str, allowed: bool
) -> None:
    if text is not None:
        (tmp_path / "kuberc").write_text(text)
    policy = load_policy({"KUBERC": str(tmp_path / "kuberc")})
    environ = {"PATH": "/bin:/usr/bin"}
    if allowed:
        check_policy(policy, command, environ)
    else:
        with pytest.raises(BadInput, match="not allowed by kuberc"):
            check_policy(policy, command, environ)


@pytest.mark.parametrize(
    "text",
    [
        "credentialPluginPolicy: DenyEverything",
        "credentialPluginPolicy: Allowlist",
        "{credentialPluginPolicy: Allowlist, credentialPluginAllowlist: [{comand: aws}]}",
        "{credentialPluginPolicy: DenyAll, credentialPluginAllowlist: [{command: aws}]}",
        "a: b:",
        "[]",
    ],
)
def test_a_misspelt_guard_does_not_fall_open(tmp_path: Path, text: str) -> None:
    (tmp_path / "kuberc").write_text(text)
    with pytest.raises(NodelifeError):
        load_policy({"KUBERC": str(tmp_path / "kuberc")})


def test_kuberc_off() -> None:
    assert load_policy({"KUBERC": "off"}) == PluginPolicy()
