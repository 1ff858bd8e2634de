"""Files that are small on the disk and large in memory."""

from __future__ import annotations

import gzip
import json
import resource
import subprocess
import sys
from pathlib import Path

import pytest

from kubectl_nodelife.kube.documents import yaml_documents
from kubectl_nodelife.kube.errors import InputError

SECONDS = 60
MEMORY = 1 << 30
POD = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a", "namespace": "b"}}


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    """A verb in a process of its own, with at most MEMORY of address space."""
    return subprocess.run(
        [sys.executable, "-m", "kubectl_nodelife", *arguments],
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY)),
    )


def laughs(levels: int) -> str:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x]"]
    for n in range(1, levels):
        lines.append(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]")
    pod = "apiVersion: v1\nkind: Pod\nmetadata: {name: a, namespace: b, labels: *a%d}\n"
    return "\n".join(lines) + "\n" + pod % (levels - 1)


MERGES = "\n".join(
    ["a0: &a0 {x: 1, y: 2}"]
    + [f"a{n}: &a{n} {{<<: [{', '.join([f'*a{n - 1}'] * 9)}]}}" for n in range(1, 12)]
)


@pytest.mark.parametrize(
    "text, told",
    [
        pytest.param(laughs(9), "its aliases stand for", id="nine-levels-of-nine"),
        pytest.param(laughs(40), "its aliases multiply", id="forty-levels-of-nine"),
        pytest.param(MERGES, "its aliases stand for", id="merge-keys"),
        pytest.param("a: &a [*a]", "an alias refers to what holds it", id="list-in-itself"),
        pytest.param("a: &a {b: {c: *a}}", "an alias refers to what holds it", id="map-in-itself"),
    ],
)
def test_aliases_are_bounded(text: str, told: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=told):
        list(yaml_documents(text.encode(), "file"))
    path = tmp_path / "bomb.yaml"
    path.write_text(text)
    for arguments in (["status", "-f", str(path)], ["simulate", "-f", str(path)]):
        done = run(*arguments)
        assert done.returncode == 2, done.stderr
        assert told in done.stderr and done.stderr.startswith("error: ")
    done = run("status", "--kubeconfig", str(path))
    assert done.returncode == 2 and told in done.stderr.splitlines()[-1]


def test_aliases_within_reason_are_read() -> None:
    text = "base: &base {a: 1}\none: {<<: *base, b: 2}\ntwo: [*base, *base]\nstar: '*'\n"
    (found,) = yaml_documents(text.encode(), "file")
    assert found["one"] == {"a": 1, "b": 2} and found["two"] == [{"a": 1}, {"a": 1}]


def test_a_gzip_bomb_is_refused_without_the_memory(tmp_path: Path) -> None:
    """1.5 GiB in 1.5 MB, in a process that may have 1 GiB."""
    path = tmp_path / "bomb.json.gz"
    with gzip.open(path, "wb", 6) as file:
        file.write(b'{"apiVersion": "v1", "kind": "List", "items": [')
        for _ in range(48):
            file.write(b" " * (32 << 20))
    done = run("status", "-f", str(path), "--max-file-size", "1Gi")
    assert done.returncode == 2, done.stderr
    assert "holds more than 1,073,741,824 bytes" in done.stderr
    assert "--max-file-size" in done.stderr


def test_the_flag_moves_the_limit(tmp_path: Path) -> None:
    plain = tmp_path / "pods.json"
    plain.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": [POD] * 100}))
    packed = tmp_path / "pods.json.gz"
    packed.write_bytes(gzip.compress(plain.read_bytes()) + gzip.compress(b" " * 50) + b"\0" * 9)
    for path in (plain, packed):
        for size, code in (("1Ki", 2), ("1Mi", 0)):
            done = run("audit", "-f", str(path), "--max-file-size", size)
            assert done.returncode == code, done.stderr
    done = run("audit", "-f", str(plain), "--max-file-size", "much")
    assert done.returncode == 2 and "--max-file-size" in done.stderr
