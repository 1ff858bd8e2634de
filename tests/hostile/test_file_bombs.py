"""Files that are small on the disk and large in memory."""

import gzip
import json
import resource
import subprocess
import sys
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from kubectl_nodelife.kube.documents import yaml_documents
from kubectl_nodelife.kube.unreadable import InputError
from tests.objects import write_list

SECONDS = 60
MEMORY = 1 << 30
POD = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a", "namespace": "b"}}


class Said(NamedTuple):
    """What a command printed to stderr, and how it ended."""

    code: int
    err: str


RUN_EACH = """
import io, json, sys
from kubectl_nodelife.cli import main
said = []
for arguments in json.load(sys.stdin):
    sys.stdout, sys.stderr = io.StringIO(), io.StringIO()
    code = main(arguments)
    said.append((code, sys.stderr.getvalue()))
sys.stdout = sys.__stdout__
print(json.dumps(said))
"""


def run(*commands: list[str], memory: int = MEMORY) -> list[Said]:
    """Commands one after another in one process, with at most that much address space for all."""
    done = subprocess.run(
        [sys.executable, "-c", RUN_EACH],
        input=json.dumps(commands),
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=True,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (memory, memory)),
    )
    return [Said(*one) for one in json.loads(done.stdout)]


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


BOMBS = {
    "nine-levels-of-nine": (laughs(9), "its aliases stand for"),
    "forty-levels-of-nine": (laughs(40), "its aliases"),
    "merge-keys": (MERGES, "its aliases stand for"),
    "list-in-itself": ("a: &a [*a]", "an alias refers to what holds it"),
    "map-in-itself": ("a: &a {b: {c: *a}}", "an alias refers to what holds it"),
}


@pytest.mark.parametrize("text, told", BOMBS.values(), ids=BOMBS)
def test_aliases_are_bounded(text: str, told: str) -> None:
    with pytest.raises(InputError, match=told):
        list(yaml_documents(text.encode(), "file"))


def test_every_verb_that_reads_yaml_bounds_them(tmp_path: Path) -> None:
    commands, expected = [], []
    for name, (text, told) in BOMBS.items():
        path = tmp_path / f"{name}.yaml"
        path.write_text(text)
        for verb in ("status", "simulate", "sandbox"):
            commands.append([verb, "-f", str(path)])
        commands.append(["status", "--kubeconfig", str(path)])
        expected += [told] * 4
    for command, told, said in zip(commands, expected, run(*commands), strict=True):
        assert said.code == 2, (command, said)
        assert said.err.splitlines()[-1].startswith("error: ") and told in said.err, command


def test_aliases_within_reason_are_read() -> None:
    text = "base: &base {a: 1}\none: {<<: *base, b: 2}\ntwo: [*base, *base]\nstar: '*'\n"
    (found,) = yaml_documents(text.encode(), "file")
    assert found["one"] == {"a": 1, "b": 2} and found["two"] == [{"a": 1}, {"a": 1}]


def packed_blanks(mebibytes: int) -> bytes:
    """That many MiB of blanks as gzip: one block, which refers to nothing before it, repeated."""
    packer = zlib.compressobj(6, zlib.DEFLATED, 16 + zlib.MAX_WBITS)
    head = packer.compress(b"[") + packer.flush(zlib.Z_FULL_FLUSH)
    block = packer.compress(b" " * (1 << 20)) + packer.flush(zlib.Z_FULL_FLUSH)
    return head + block * mebibytes


def test_a_gzip_bomb_is_refused_without_the_memory(tmp_path: Path) -> None:
    """450 MiB in 0.5 MB, in a process that may have 300 MiB."""
    path = tmp_path / "bomb.json.gz"
    path.write_bytes(packed_blanks(450))
    (said,) = run(["status", "-f", str(path), "--max-file-size", "400Mi"], memory=300 << 20)
    assert said.code == 2, said.err
    assert "holds more than 419,430,400 bytes" in said.err
    assert "--max-file-size" in said.err


def test_the_flag_moves_the_limit(tmp_path: Path) -> None:
    plain = tmp_path / "pods.json"
    write_list(plain, [POD] * 100)
    packed = tmp_path / "pods.json.gz"
    packed.write_bytes(gzip.compress(plain.read_bytes()) + gzip.compress(b" " * 50) + b"\0" * 9)
    scenario = tmp_path / "scenario.yaml"
    meta = {"apiVersion": "nodelife.dev/v1alpha1", "kind": "Scenario", "metadata": {"name": "s"}}
    scenario.write_text(json.dumps({**meta, "spec": {"duration": "1s"}}) + " " * 2000)
    cases = [
        (["audit", "-f", str(plain), "--max-file-size", "1Ki"], 2),
        (["audit", "-f", str(plain), "--max-file-size", "1Mi"], 0),
        (["audit", "-f", str(packed), "--max-file-size", "1Ki"], 2),
        (["audit", "-f", str(packed), "--max-file-size", "1Mi"], 0),
        (["audit", "-f", str(plain), "--max-file-size", "much"], 2),
        (["simulate", "-f", str(scenario), "--max-file-size", "1Ki"], 2),
        (["simulate", "-f", str(scenario), "--max-file-size", "1Mi"], 0),
        (["sandbox", "-f", str(plain), "--max-file-size", "1Ki"], 2),
    ]
    for (command, code), said in zip(cases, run(*(c for c, _ in cases)), strict=True):
        assert said.code == code, (command, said)
        assert code == 0 or "--max-file-size" in said.err


def test_a_file_without_an_end_is_refused() -> None:
    """A device tells no size: it is read until the limit, and not beyond."""
    too_long = "holds more than 67,108,864 bytes"
    verbs = {"status": "is not text, but binary", "simulate": too_long, "sandbox": too_long}
    commands = [[verb, "-f", "/dev/zero", "--max-file-size", "64Mi"] for verb in verbs]
    for said, told in zip(run(*commands), verbs.values(), strict=True):
        assert said.code == 2 and told in said.err


READ = """
import resource, sys
resource.setrlimit(resource.RLIMIT_AS, (%d, %d))
from kubectl_nodelife.dumps.dump import read_dump
print(len(read_dump(sys.argv[1:]).objects))
"""
HEAVY = json.dumps({**POD, "metadata": {**POD["metadata"], "managedFields": [{"f:a": {}}] * 2000}})


def heavy_list(pods: int) -> Iterator[bytes]:
    """25 KB a pod, nearly all of which no decision reads."""
    yield b'{"apiVersion":"v1","items":['
    for i in range(pods):
        yield (b"," if i else b"") + HEAVY.replace('"name": "a"', f'"name": "a{i}"').encode()
    yield b'],"kind":"List"}'


@pytest.mark.parametrize("way", ["a pipe", "a file", "gzip"])
def test_a_long_list_takes_little_memory(way: str, tmp_path: Path) -> None:
    """240 MB in a process that may have 230 MB."""
    most, pods = 230 << 20, 10_000
    path = tmp_path / ("list.json.gz" if way == "gzip" else "list.json")
    command = [sys.executable, "-c", READ % (most, most), "-" if way == "a pipe" else str(path)]
    if way == "a pipe":
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
            assert process.stdin is not None and process.stdout is not None
            process.stdin.writelines(heavy_list(pods))
            process.stdin.close()
            assert process.stdout.read() == b"%d\n" % pods
        return
    opened: Any = gzip.GzipFile(path, "wb", 1) if way == "gzip" else path.open("wb")
    with opened as file:
        file.writelines(heavy_list(pods))
    done = subprocess.run(command, capture_output=True, timeout=SECONDS, check=False)
    assert done.stdout == b"%d\n" % pods, done.stderr.decode()[-300:]
