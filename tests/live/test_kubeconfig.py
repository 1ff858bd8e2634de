"""kubeconfig files are found and merged as kubectl does it; the real kubectl is the judge."""

import base64
import json
import os
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
import pytest

from kubectl_nodelife.errors import BadInput
from kubectl_nodelife.live.kubeconfig import KubeConfig, kubeconfig_files, load_kubeconfig

KUBECTL = shutil.which("kubectl")

A = """
apiVersion: v1
kind: Config
current-context: ctx-a
preferences: {}
clusters:
- name: shared
  cluster: {server: https://a.example:6443, certificate-authority: /pki/ca.crt, unheard-of: 1}
- name: only-a
  cluster: {server: https://only-a.example, insecure-skip-tls-verify: true, tls-server-name: x.y}
- name: bare
  cluster: null
users:
- name: shared
  user:
    tokenFile: /secret/token
    as: bob
    as-groups: [ops, "42"]
    as-user-extra: {reason: [night, shift]}
- name: plugin
  user:
    exec:
      apiVersion: client.authentication.k8s.io/v1beta1
      command: login
      args: [--cluster, a]
      env: [{name: AWS_PROFILE, value: dev}]
      installHint: ask Bob
- name: on-path
  user: {exec: {apiVersion: client.authentication.k8s.io/v1, command: aws, interactiveMode: Never}}
contexts:
- name: ctx-a
  context: {cluster: shared, user: shared, namespace: null}
- name: both
  context: {cluster: shared, user: shared, namespace: from-a}
"""
B = """
current-context: ctx-b
clusters:
- name: shared
  cluster: {server: https://b.example, proxy-url: "http://proxy:3128", disable-compression: true}
- name: only-b
  cluster: {server: https://only-b.example/prefix, certificate-authority: /abs/ca.crt}
users:
- name: shared
  user: {token: from-b, client-key-data: aGVsbG8=}
- name: only-b
  user: {username: u, password: "p:w", client-certificate: /c.crt, client-key: /c.key}
- name: oidc
  user: {auth-provider: {name: oidc, config: {client-id: me}}}
contexts:
- name: ctx-b
  context: {cluster: only-b, user: only-b}
- name: both
  context: {cluster: only-b, user: only-b, extensions: [{name: e, extension: {a: 1}}]}
"""
NO_CONTEXT = "clusters: [{name: third, cluster: {server: https://third}}]\n"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Two folders with a file each, so that relative paths tell whose they are."""
    for name, text in (("a", A), ("b", B), ("c", NO_CONTEXT), ("empty", ""), ("comment", "# x\n")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "config").write_text(text)
    return tmp_path


@pytest.mark.skipif(KUBECTL is None, reason="there is no kubectl on this machine to compare with")
@pytest.mark.parametrize(
    "names",
    [
        pytest.param(names, id="+".join(names))
        for names in (
            ("a",),
            ("b",),
            ("a", "b"),
            ("b", "a"),
            ("c", "b", "a"),
            ("empty", "b", "a"),
            ("a", "empty"),
            ("comment", "c", "b"),
            ("missing", "b"),
            ("a", "a", "b"),
            ("empty",),
            ("missing",),
        )
    ],
)
def test_merge_equals_kubectl_config_view(folder: Path, names: tuple[str, ...]) -> None:
    listed = os.pathsep.join(str(folder / name / "config") for name in names)
    theirs = _kubectl_view(listed, folder)
    ours = _as_document(load_kubeconfig(kubeconfig_files(None, {"KUBECONFIG": listed})))
    assert _plain(ours) == _plain(theirs)


@pytest.mark.skipif(KUBECTL is None, reason="there is no kubectl on this machine to compare with")
def test_relative_names_in_kubeconfig_are_against_the_working_folder(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder)
    theirs = _kubectl_view(os.pathsep.join(("b/config", "", "a/config")), folder)
    files = kubeconfig_files(None, {"KUBECONFIG": os.pathsep.join(("b/config", "", "a/config"))})
    assert _plain(_as_document(load_kubeconfig(files))) == _plain(theirs)


RELATIVE = """
clusters: [{name: c-NAME, cluster: {server: https://x, certificate-authority: pki/ca.crt}}]
users:
- name: u-NAME
  user: {client-certificate: ../NAME/tls.crt, client-key: ./tls.key, tokenFile: token}
- {name: path-NAME, user: {exec: {apiVersion: c/v1beta1, command: ./bin/login}}}
- {name: plain-NAME, user: {exec: {apiVersion: c/v1beta1, command: login}}}
"""


@pytest.mark.skipif(KUBECTL is None, reason="there is no kubectl on this machine to compare with")
def test_paths_are_relative_to_their_own_file(tmp_path: Path) -> None:
    listed = _two_files_with_relative_paths(tmp_path)
    theirs = _kubectl_view(listed, tmp_path, "--flatten")
    ours = load_kubeconfig(listed.split(os.pathsep))
    for name, cluster in ((c["name"], c["cluster"]) for c in theirs["clusters"]):
        path = ours.clusters[name].certificate_authority
        assert _base64_of(path) == cluster["certificate-authority-data"]
    for name, user in ((u["name"], u["user"]) for u in theirs["users"] if "exec" not in u["user"]):
        assert _base64_of(ours.users[name].client_certificate) == user["client-certificate-data"]
        assert _base64_of(ours.users[name].client_key) == user["client-key-data"]


def test_plugin_and_token_file_are_relative_to_their_own_file_too(tmp_path: Path) -> None:
    users = load_kubeconfig(_two_files_with_relative_paths(tmp_path).split(os.pathsep)).users
    commands = {name: user.exec.command for name, user in users.items() if user.exec}
    assert commands == {
        "path-a": str(tmp_path / "a/bin/login"),
        "path-b": str(tmp_path / "b/bin/login"),
        "plain-a": "login",
        "plain-b": "login",
    }
    assert users["u-b"].token_file == str(tmp_path / "b/token")


def _two_files_with_relative_paths(folder: Path) -> str:
    for name in "ab":
        (folder / name / "pki").mkdir(parents=True)
        (folder / name / "config").write_text(RELATIVE.replace("NAME", name))
        for file in ("pki/ca.crt", "tls.crt", "tls.key"):
            (folder / name / file).write_text(f"{file} of {name}")
    return os.pathsep.join(str(folder / name / "config") for name in "ab")


def _base64_of(path: str) -> str:
    return base64.b64encode(Path(path).read_bytes()).decode()


MALFORMED = [
    pytest.param("a: b:", "not YAML", id="not-yaml"),
    pytest.param("[]", "not a mapping", id="a-list"),
    pytest.param("kind: Pod", "not Config", id="another-kind"),
    pytest.param("apiVersion: v2", "not v1", id="another-version"),
    pytest.param(
        "clusters: [{name: a, cluster: {server: 1}}]", "cluster 'a'", id="number-for-text"
    ),
    pytest.param("users: [{name: a, user: {token: 12}}]", "user 'a'", id="token-without-quotes"),
    pytest.param(
        "clusters: [{name: a, cluster: {insecure-skip-tls-verify: 'true'}}]",
        "bool",
        id="text-for-bool",
    ),
    pytest.param(
        "clusters: [{name: a, cluster: {server: x}}, {name: a, cluster: {server: y}}]",
        "twice",
        id="name-twice",
    ),
    pytest.param("users: [{name: u, user: {client-key-data: '!!'}}]", "base64", id="not-base64"),
    pytest.param("current-context: 7", "not a text", id="number-for-context"),
]


@pytest.mark.parametrize("text, complaint", MALFORMED)
def test_malformed_file_is_refused_by_name(tmp_path: Path, text: str, complaint: str) -> None:
    path = tmp_path / "config"
    path.write_text(text)
    with pytest.raises(BadInput, match=complaint) as caught:
        load_kubeconfig([str(path)])
    assert caught.value.on == str(path)


@pytest.mark.skipif(KUBECTL is None, reason="there is no kubectl on this machine to compare with")
@pytest.mark.parametrize("text, complaint", MALFORMED)
def test_what_is_refused_here_kubectl_refuses_too(
    tmp_path: Path, text: str, complaint: str
) -> None:
    (tmp_path / "config").write_text(text)
    with pytest.raises(subprocess.CalledProcessError):
        _kubectl_view(str(tmp_path / "config"), tmp_path)


def test_the_flag_wins_over_the_environment_and_must_exist(tmp_path: Path) -> None:
    files = kubeconfig_files(str(tmp_path / "x"), {"KUBECONFIG": "elsewhere"})
    assert files == (str(tmp_path / "x"),)
    with pytest.raises(BadInput, match="no such kubeconfig"):
        load_kubeconfig(files, must_exist=True)


def test_without_flag_and_variable_it_is_the_file_in_home() -> None:
    assert kubeconfig_files(None, {"HOME": "/home/me"}) == ("/home/me/.kube/config",)
    assert kubeconfig_files(None, {"HOME": "/home/me", "KUBECONFIG": ""}) == (
        "/home/me/.kube/config",
    )


def test_a_folder_in_place_of_a_file_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="Is a directory"):
        load_kubeconfig([str(tmp_path)])


def _kubectl_view(listed: str, cwd: Path, *flags: str) -> dict[str, Any]:
    assert KUBECTL is not None
    done = subprocess.run(
        [KUBECTL, "config", "view", "--raw", "-o", "json", *flags],
        env={"KUBECONFIG": listed, "HOME": str(cwd), "PATH": os.environ["PATH"]},
        cwd=cwd,
        capture_output=True,
        check=True,
    )
    view: dict[str, Any] = json.loads(done.stdout)
    return view


def _as_document(config: KubeConfig) -> dict[str, Any]:
    """The config as one kubeconfig document, as kubectl prints it: entries by name."""
    return {
        "kind": "Config",
        "apiVersion": "v1",
        "clusters": _named(config.clusters, "cluster"),
        "users": _named(config.users, "user"),
        "contexts": _named(config.contexts, "context"),
        "current-context": config.current_context,
    }


def _named(entries: Mapping[str, msgspec.Struct], field: str) -> list[dict[str, Any]]:
    return [{"name": name, field: msgspec.to_builtins(entries[name])} for name in sorted(entries)]


def _plain(view: Any) -> Any:
    """Without what is empty: kubectl prints some empty fields and leaves out others."""
    if isinstance(view, dict):
        plain = {key: _plain(value) for key, value in view.items()}
        return {
            key: value for key, value in plain.items() if value not in (None, "", {}, [], False)
        }
    if isinstance(view, (list, tuple)):
        return [_plain(value) for value in view]
    return view
