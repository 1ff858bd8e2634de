"""Flags over kubeconfig, rows after client-go's own rules (client_config.go, validation.go)."""

import json
from pathlib import Path
from typing import Any

import pytest

from kubectl_nodelife.commands.flags import Connection
from kubectl_nodelife.errors import BadInput
from kubectl_nodelife.live.kubeconfig import Cluster, Context, ExecConfig, KubeConfig, User
from kubectl_nodelife.live.target import (
    Target,
    cluster_identity,
    find_target,
    parse_timeout,
    resolve,
)


def config(**changes: Any) -> KubeConfig:
    """Two clusters, two users, two contexts."""
    parts: dict[str, Any] = {
        "clusters": {
            "one": Cluster(server="https://one/", tls_server_name="one.internal"),
            "two": Cluster(server="https://two", certificate_authority_data="b25l"),
        },
        "users": {"me": User(token="t"), "you": User(token_file="/token", impersonate="robot")},
        "contexts": {
            "first": Context(cluster="one", user="me", namespace="apps"),
            "second": Context(cluster="two", user="you"),
        },
        "current_context": "first",
    }
    return KubeConfig(**{**parts, **changes})


def target(**flags: Any) -> Target:
    return resolve(config(), Connection(**flags))


def test_current_context_and_its_namespace() -> None:
    found = target()
    assert (found.context, found.server, found.namespace) == ("first", "https://one", "apps")
    assert found.user.token == "t"


def test_flags_choose_context_cluster_user_and_namespace() -> None:
    assert target(context="second").server == "https://two"
    assert target(context="second").namespace == "default"
    assert target(cluster="two").server == "https://two"
    assert target(user="you").user.token_file == "/token"
    assert target(namespace="other").namespace == "other"


def test_a_server_flag_drops_the_name_to_check_unless_given_too() -> None:
    assert target().cluster.tls_server_name == "one.internal"
    assert target(server="https://10.0.0.1").cluster.tls_server_name == ""
    given = target(server="https://10.0.0.1", tls_server_name="api").cluster
    assert (given.server, given.tls_server_name) == ("https://10.0.0.1", "api")


def test_skipping_checks_drops_the_authority_and_a_given_authority_ends_skipping() -> None:
    skipping = target(context="second", insecure_skip_tls_verify=True).cluster
    assert skipping.insecure_skip_tls_verify
    assert skipping.certificate_authority_data == ""


def test_given_authority_replaces_the_inline_one(tmp_path: Path) -> None:
    (tmp_path / "ca").write_text("x")
    cluster = target(context="second", certificate_authority=str(tmp_path / "ca")).cluster
    assert cluster.certificate_authority == str(tmp_path / "ca")
    assert cluster.certificate_authority_data == ""


def test_given_token_wins_over_the_file() -> None:
    user = target(context="second", token="now").user
    assert (user.token, user.token_file) == ("now", "")


def test_impersonation_flags() -> None:
    user = target(
        impersonate="ann",
        impersonate_groups=("a", "b"),
        impersonate_uid="7",
        impersonate_user_extra=("k=1", "k=2", "j=x=y"),
    ).user
    assert (user.impersonate, user.impersonate_uid) == ("ann", "7")
    assert user.impersonate_groups == ("a", "b")
    assert user.impersonate_user_extra == {"k": ["1", "2"], "j": ["x=y"]}
    assert target(context="second").user.impersonate == "robot"


@pytest.mark.parametrize(
    "changes, flags, complaint",
    [
        pytest.param({}, {"context": "gone"}, 'context "gone" does not exist.*first', id="context"),
        pytest.param({}, {"cluster": "gone"}, 'cluster "gone" does not', id="cluster"),
        pytest.param({}, {"user": "gone"}, 'user "gone" does not', id="user-is-not-anonymous"),
        pytest.param({"current_context": "old"}, {}, '"old" does not exist', id="stale-current"),
        pytest.param({"current_context": ""}, {}, "no current-context", id="none-chosen"),
        pytest.param({"users": {}}, {}, 'user "me" that context "first" names', id="no-such-user"),
        pytest.param({"clusters": {"one": Cluster()}}, {}, "no server", id="no-server"),
        pytest.param({}, {"impersonate_groups": ("g",)}, "need --as", id="group-without-user"),
        pytest.param({}, {"impersonate_user_extra": ("g",)}, "KEY=VALUE", id="extra-malformed"),
        pytest.param({}, {"client_certificate": "/dev/null"}, "without client-key", id="no-key"),
        pytest.param({}, {"certificate_authority": "/no/ca"}, "/no/ca: this file", id="no-ca-file"),
        pytest.param(
            {"users": {"me": User(token="t", username="u")}}, {}, "only one", id="two-methods"
        ),
        pytest.param(
            {"users": {"me": User(exec=ExecConfig(command="x", api_version="a/v1"))}},
            {},
            "interactiveMode",
            id="exec-without-mode",
        ),
    ],
)
def test_what_cannot_be_used_is_said(
    changes: dict[str, Any], flags: dict[str, Any], complaint: str
) -> None:
    with pytest.raises(BadInput) as caught:
        resolve(config(**changes), Connection(**flags))
    assert __import__("re").search(complaint, str(caught.value))


def test_a_server_alone_is_enough() -> None:
    found = resolve(KubeConfig(), Connection(server="http://127.0.0.1:8001"))
    assert (found.server, found.context, found.namespace) == (
        "http://127.0.0.1:8001",
        "",
        "default",
    )


def test_nothing_configured_is_an_error_and_not_localhost(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="no cluster is configured"):
        find_target(Connection(), {"HOME": str(tmp_path)})


@pytest.mark.parametrize(
    "text, expected",
    [
        (None, None),
        ("0", None),
        ("30", 30_000_000_000),
        ("1m30s", 90_000_000_000),
        ("250ms", 250_000_000),
    ],
)
def test_request_timeout(text: str | None, expected: int | None) -> None:
    assert parse_timeout(text) == expected


@pytest.mark.parametrize("text", ["soon", "-5s", "5 s"])
def test_request_timeout_malformed(text: str) -> None:
    with pytest.raises(BadInput, match="invalid timeout"):
        parse_timeout(text)


def test_identity_follows_where_and_as_whom_but_not_secrets() -> None:
    one = cluster_identity(target())
    assert one == cluster_identity(target(token="renewed"))
    assert one == cluster_identity(target(namespace="elsewhere"))
    others = [
        target(server="https://elsewhere"),
        target(impersonate="ann"),
        target(user="you"),
        resolve(
            config(
                clusters={"one": Cluster(server="https://one/", certificate_authority_data="eA==")}
            ),
            Connection(),
        ),
    ]
    assert len({one, *(cluster_identity(other) for other in others)}) == len(others) + 1


def test_identity_reads_the_authority_and_not_its_path(tmp_path: Path) -> None:
    for name, text in (("a", "same"), ("b", "same"), ("c", "other")):
        (tmp_path / name).write_text(text)
    a, b, c = (
        cluster_identity(target(certificate_authority=str(tmp_path / name))) for name in "abc"
    )
    assert a == b != c


@pytest.fixture
def in_pod(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """The environment of a pod, with its service account's files."""
    folder = tmp_path / "serviceaccount"
    folder.mkdir()
    for name, text in (("token", "t"), ("ca.crt", "CA"), ("namespace", "nodelife\n")):
        (folder / name).write_text(text)
    monkeypatch.setattr("kubectl_nodelife.live.target.SERVICE_ACCOUNT", str(folder))
    where = {"KUBERNETES_SERVICE_HOST": "fd00::1", "KUBERNETES_SERVICE_PORT": "443"}
    return {"HOME": str(tmp_path), **where}


@pytest.mark.parametrize("in_cluster", [False, True], ids=["by-itself", "--in-cluster"])
def test_in_a_pod_its_service_account_counts(in_pod: dict[str, str], in_cluster: bool) -> None:
    target = find_target(Connection(in_cluster=in_cluster), in_pod)
    assert target.server == "https://[fd00::1]:443" and target.namespace == "nodelife"
    assert target.user.token_file.endswith("/token")
    assert target.cluster.certificate_authority.endswith("/ca.crt")


def test_in_cluster_does_not_look_at_a_kubeconfig(in_pod: dict[str, str], tmp_path: Path) -> None:
    path = tmp_path / "config"
    path.write_text(json.dumps({"clusters": [{"name": "c", "cluster": {"server": "https://x"}}]}))
    environ = {**in_pod, "KUBECONFIG": str(path)}
    assert find_target(Connection(in_cluster=True), environ).server == "https://[fd00::1]:443"
    del environ["KUBERNETES_SERVICE_HOST"]
    with pytest.raises(BadInput, match="no pod with a service account's token"):
        find_target(Connection(in_cluster=True), environ)


def test_what_reads_the_cluster_itself_is_no_question_for_another_daemon() -> None:
    with pytest.raises(BadInput, match="--via: this reads the cluster itself"):
        find_target(Connection(server="https://x", via="deploy/d"), {})
