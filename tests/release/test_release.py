"""A release passes its own check, is the same each time, and each planted fault is found."""

from __future__ import annotations

import json
import re
import shutil
import tarfile
from collections.abc import Callable
from io import BytesIO
from pathlib import Path

import pytest

from release import archive, assemble, lock, source, wheels
from release.__main__ import WHEELS
from release.archive import File
from release.checks import MANIFEST, check, sha256, write_sums
from release.lock import Pin
from release.manifest import archive_name, render
from release.platforms import BY_NAME, PLATFORMS
from release.source import Commit, ReleaseError

LINUX = BY_NAME["linux-amd64"]
NAME = archive_name("linux-amd64")
ROOT = Path(__file__).parents[2]


def test_the_release_passes(release: Path) -> None:
    assert check(release) == []
    sizes = {platform.name: (release / archive_name(platform.name)).stat().st_size
             for platform in PLATFORMS}  # fmt: skip
    assert max(sizes.values()) <= 20_000_000, sizes


def test_the_same_commit_gives_the_same_bytes(
    release: Path, commit: Commit, tmp_path: Path
) -> None:
    tree = tmp_path / "elsewhere"
    source.export(ROOT, commit, tree)
    wheel, sdist = source.build(tree, commit, tmp_path)
    packages = assemble.locked_packages(LINUX, WHEELS)
    again = tmp_path / NAME
    files = assemble.tree(LINUX, tree, wheel, packages, source.manual(tree, commit))
    archive.write(again, files, commit.time)
    for path in (wheel, sdist, again):
        assert sha256(path) == sha256(release / path.name), path.name


def test_the_lock_is_of_this_setup_cfg() -> None:
    for platform in PLATFORMS:
        assert lock.digest_of(platform) == lock.digest(), "run: bin/release lock"
    for platform in lock.DEVELOPED_ON:
        wanted = lock.digest(lock.development(platform))
        assert lock.digest_of(platform, lock.DEVELOPMENT) == wanted, "run: bin/release lock"
        versions = {pin.name: pin.version for pin in lock.read(platform, lock.DEVELOPMENT)}
        assert versions.items() >= {pin.name: pin.version for pin in lock.read(platform)}.items()


def test_all_locks_hold_the_same_versions() -> None:
    versions: dict[str, str] = {}
    for platform in PLATFORMS:
        for pin in lock.read(platform):
            assert versions.setdefault(pin.name, pin.version) == pin.version
            assert pin.hashes, pin.name


# A release with little in it, and what may be wrong with it.


class Planted:
    """A small release in a folder, which a test may spoil. `spoil` keeps all sums right."""

    def __init__(self, release: Path, folder: Path) -> None:
        self.folder = folder
        for path in release.iterdir():
            if not path.name.endswith((".tar.gz", ".cdx.json")) or path.name.startswith(
                ("kubectl_nodelife", "kubectl-nodelife-linux-amd64")
            ):
                shutil.copy(path, folder)
        kept = r"man|kubectl_nodelife|licenses|msgspec|[^/]+-info"
        small = re.compile(rf"nodelife/[^/]+|.*/({kept})/.*")
        tree = archive.read(release / NAME)
        self.tree = {name: file for name, file in tree.items() if small.fullmatch(name)}
        self.pack()

    def pack(self, extra: tarfile.TarInfo | None = None) -> None:
        """Write the archive, and an entry that `archive.write` would refuse; then all sums."""
        path = self.folder / NAME
        archive.write(path, self.tree, 1_000_000, level=1)
        if extra is not None:
            content = BytesIO()
            with tarfile.open(path) as old, tarfile.open(fileobj=content, mode="w:gz") as new:
                for entry in old:
                    new.addfile(entry, old.extractfile(entry))
                new.addfile(extra)
            path.write_bytes(content.getvalue())
        self.sum_up()

    def sum_up(self) -> None:
        """The manifest and SHA256SUMS for what is there."""
        template = (ROOT / "krew-manifest.yaml").read_text()
        version = next(self.folder.glob("*.whl")).name.split("-")[1]
        sums = {NAME: sha256(self.folder / NAME)}
        manifest = render(template, version, "https://example.invalid/v0", sums)
        (self.folder / MANIFEST).write_text(manifest)
        write_sums(self.folder)


def wrong_sum(planted: Planted) -> None:
    with open(planted.folder / NAME, "ab") as file:
        file.write(b"\0")


def old_manifest(planted: Planted) -> None:
    before = (planted.folder / MANIFEST).read_text()
    planted.tree["nodelife/README"] = File(b"new")
    planted.pack()
    (planted.folder / MANIFEST).write_text(before)
    write_sums(planted.folder)


def missing_licence(planted: Planted) -> None:
    planted.tree = {n: f for n, f in planted.tree.items() if "/licenses/certifi/" not in n}
    planted.pack()


def forbidden_licence(planted: Planted) -> None:
    name = next(n for n in planted.tree if "/click-" in n and n.endswith("/METADATA"))
    text = planted.tree[name].content.replace(b"License-Expression: BSD-3-Clause",
                                              b"License-Expression: AGPL-3.0-only")  # fmt: skip
    assert text != planted.tree[name].content
    planted.tree[name] = File(text)
    planted.pack()


def symlink(planted: Planted) -> None:
    entry = tarfile.TarInfo("nodelife/link")
    entry.type, entry.linkname, entry.mtime = tarfile.SYMTYPE, "main.py", 1_000_000
    planted.pack(entry)


def path_out(planted: Planted) -> None:
    planted.tree["nodelife/../outside"] = File(b"")
    planted.pack()


def wrong_mode(planted: Planted) -> None:
    planted.tree[assemble.PROGRAM] = File(planted.tree[assemble.PROGRAM].content)
    planted.pack()


def world_writable(planted: Planted) -> None:
    entry = tarfile.TarInfo("nodelife/zzz")
    entry.mode, entry.mtime = 0o666, 1_000_000
    planted.pack(entry)


def bytecode(planted: Planted) -> None:
    planted.tree["nodelife/lib/msgspec/__init__.cpython-311.pyc"] = File(b"")
    planted.pack()


def extension(planted: Planted, python: str = "311") -> str:
    return next(n for n in planted.tree if f"msgspec/_core.cpython-{python}" in n)


def foreign_machine(planted: Planted) -> None:
    name = extension(planted)
    content = bytearray(planted.tree[name].content)
    content[18] = 183  # e_machine: AArch64
    planted.tree[name] = File(bytes(content))
    planted.pack()


def missing_abi(planted: Planted) -> None:
    del planted.tree[extension(planted, "313")]
    planted.pack()


def stale_lock(planted: Planted) -> None:
    name = next(n for n in planted.tree if "/click-" in n and n.endswith("/METADATA"))
    older = re.sub(r"click-[^/]+", "click-8.0.0.dist-info", name)
    planted.tree[older] = planted.tree.pop(name)
    planted.pack()


def missing_manual(planted: Planted) -> None:
    planted.tree = {n: f for n, f in planted.tree.items() if "/man/" not in n}
    planted.pack()


def short_sbom(planted: Planted) -> None:
    path = planted.folder / NAME.replace(".tar.gz", ".cdx.json")
    document = json.loads(path.read_text())
    document["components"] = [c for c in document["components"] if c["name"] != "yarl"]
    path.write_text(json.dumps(document))
    planted.sum_up()


def other_program(planted: Planted) -> None:
    planted.tree["nodelife/lib/kubectl_nodelife/cli.py"] = File(b"raise SystemExit(0)\n")
    planted.pack()


def too_large(planted: Planted) -> None:
    import random

    planted.tree["nodelife/large"] = File(random.Random(1).randbytes(21_000_000))
    planted.pack()


FAULTS: dict[str, tuple[Callable[[Planted], None], str]] = {
    "wrong sum": (wrong_sum, f"{NAME}: not the sum of SHA256SUMS"),
    "old manifest": (old_manifest, f"nodelife.yaml: not the sum of {NAME}"),
    "missing licence": (missing_licence, "certifi: the text of its licence is missing"),
    "forbidden licence": (forbidden_licence, "click: its licence is not among those allowed"),
    "symlink": (symlink, "nodelife/link: neither a file nor a folder"),
    "path out": (path_out, "nodelife/../outside: the name leads out of the archive"),
    "wrong mode": (wrong_mode, "nodelife/kubectl-nodelife: may not be executed"),
    "world-writable": (world_writable, "nodelife/zzz: mode 0666, not 0644"),
    "bytecode": (bytecode, "__init__.cpython-311.pyc: bytecode"),
    "foreign machine": (foreign_machine, "made for arm64"),
    "missing ABI": (missing_abi, "for 3.11, 3.12, 3.14, and not for 3.11, 3.12, 3.13, 3.14"),
    "stale lock": (stale_lock, "click: 8.0.0 inside, "),
    "missing manual": (missing_manual, "the manual pages are missing"),
    "short SBOM": (short_sbom, "yarl: 1."),
    "other program": (other_program, "kubectl_nodelife/cli.py is not that of the wheel"),
    "too large": (too_large, "MB, and 20 are allowed"),
}


@pytest.fixture
def planted(release: Path, tmp_path: Path) -> Planted:
    """A small release that passes."""
    made = Planted(release, tmp_path)
    assert check(made.folder) == []
    return made


@pytest.mark.parametrize("fault", FAULTS)
def test_a_planted_fault_is_found(fault: str, planted: Planted) -> None:
    plant, words = FAULTS[fault]
    plant(planted)
    found = check(planted.folder)
    assert any(words in line for line in found), found


def test_a_lock_older_than_setup_cfg_is_found(planted: Planted, monkeypatch) -> None:
    monkeypatch.setattr(lock, "requirements", lambda root=ROOT: ["another"])
    assert any("the lock is not of this setup.cfg" in line for line in check(planted.folder))


def test_a_manifest_without_an_address_is_found(planted: Planted) -> None:
    path = planted.folder / MANIFEST
    path.write_text(path.read_text().replace("example.invalid", "kubectl-nodelife.invalid"))
    write_sums(planted.folder)
    assert check(planted.folder) == [f"nodelife.yaml: {NAME} has no address; give --base-url"]


def test_a_package_that_differs_between_pythons_stops_the_release(tmp_path: Path) -> None:
    import zipfile

    for abi, text in (("cp311", "1"), ("cp312", "2")):
        with zipfile.ZipFile(tmp_path / f"x-1.0-{abi}-{abi}-linux.whl", "w") as wheel:
            wheel.writestr("x/__init__.py", text)
    with pytest.raises(ReleaseError, match=r"x/__init__.py differs from that of another Python"):
        wheels.unpack(sorted(tmp_path.glob("*.whl")))


def test_what_is_not_committed_is_not_released(tmp_path: Path) -> None:
    import subprocess

    subprocess.run(["git", "init", "-q", tmp_path], check=True)
    (tmp_path / "new").touch()
    with pytest.raises(ReleaseError, match="not committed: new; commit or stash it first"):
        source.commit_of(tmp_path)


def test_a_lock_is_written_as_pip_reads_it(tmp_path: Path) -> None:
    pins = [Pin("b", "1", ("2" * 64, "1" * 64)), Pin("a", "2.0", ("3" * 64,))]
    (tmp_path / "linux-amd64.txt").write_text("# setup.cfg: 12ab\n" + lock.text_of(pins))
    assert [pin.name for pin in lock.read(LINUX, tmp_path)] == ["a", "b"]
    assert set(lock.read(LINUX, tmp_path)[1].hashes) == {"1" * 64, "2" * 64}
    assert lock.digest_of(LINUX, tmp_path) == "12ab"
