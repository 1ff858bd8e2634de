"""`bin/release check` finds each fault that is planted into a release, and says it in a line."""

import json
import random
import re
import shutil
import tarfile
from collections.abc import Callable
from io import BytesIO
from pathlib import Path

import pytest

from kubectl_nodelife import __version__
from release import archive, assemble, lock
from release.archive import File
from release.checks import MANIFEST, SUMS, check, read_manifest, sha256, write_sums
from release.contents import Contents
from release.manifest import archive_name, render
from release.platforms import PLATFORMS
from release.source import PACKAGE, Commit, ReleaseError, tag_of
from tests.release.conftest import BASE_URL, HOMEPAGE

ROOT = Path(__file__).parents[2]
NAMES = [archive_name(platform.name) for platform in PLATFORMS]
NAME, ARM = NAMES[:2]
SBOM = NAME.replace(".tar.gz", ".cdx.json")
CLICK = "nodelife/lib/click/core.py"

KEPT = re.compile(
    r"nodelife/[^/]+|nodelife/lib/(kubectl_nodelife/[^/]+|click/.*|tabulate/.*)|.*-info/.*"
    rf"|nodelife/licenses/.*|.*/kubectl-nodelife\.1|{PACKAGE}/[^/]+|{PACKAGE}-[^/]+/[^/]+"
)
"""What a small release keeps of each tree."""

DESCRIPTION = re.compile(rb"  description: \|\n(    .*\n)+")


class Planted:
    """A small release in a folder, which a test may spoil. `pack` keeps all sums right."""

    def __init__(self, contents: Contents, folder: Path) -> None:
        self.folder = folder
        self.contents = contents
        self.trees = {name: dict(tree) for name, tree in contents.trees.items()}
        self.wheel = next(name for name in self.trees if name.endswith(".whl"))
        self.sdist = next(name for name in self.trees if name.startswith(f"{PACKAGE}-")
                          and name != self.wheel)  # fmt: skip

    def write(self) -> None:
        for name, tree in self.trees.items():
            archive.write(self.folder / name, tree, self.contents.commit.time, level=1)
        for name, text in self.contents.components.items():
            (self.folder / name).write_text(text)
        self.sum_up()

    def put(self, path: str, content: bytes | None, name: str = NAME, *, program=False) -> None:
        """Put a file into an archive, the wheel or the sdist, or take it out; then all sums."""
        self.trees[name].pop(path, None)
        if content is not None:
            self.trees[name][path] = File(content, program)
        archive.write(self.folder / name, self.trees[name], self.contents.commit.time, level=1)
        self.sum_up()

    def change(self, path: str, old: bytes, new: bytes, name: str = NAME) -> None:
        file = self.trees[name][path]
        assert old in file.content
        self.put(path, file.content.replace(old, new, 1), name, program=file.is_program)

    def add_entry(self, path: str, **of: object) -> None:
        """An entry that `archive.write` would not write."""
        entry = tarfile.TarInfo(path)
        entry.mtime, entry.mode = self.contents.commit.time, 0o644
        for key, value in of.items():
            setattr(entry, key, value)
        packed = BytesIO()
        with (
            tarfile.open(self.folder / NAME) as old,
            tarfile.open(fileobj=packed, mode="w:gz") as new,
        ):
            for one in old:
                new.addfile(one, old.extractfile(one))
            new.addfile(entry)
        (self.folder / NAME).write_bytes(packed.getvalue())
        self.sum_up()

    def manifest(self, old: str, new: str) -> None:
        """Change the manifest, after its sums."""
        text = (self.folder / MANIFEST).read_text()
        assert old in text
        (self.folder / MANIFEST).write_text(text.replace(old, new, 1))
        write_sums(self.folder)

    def sbom(self, change: Callable[[dict], object]) -> None:
        document = json.loads((self.folder / SBOM).read_text())
        change(document)
        self.raw(SBOM, json.dumps(document, indent=2).encode() + b"\n")

    def raw(self, name: str, content: bytes) -> None:
        """Put a file into the folder as it is; sums right."""
        (self.folder / name).write_bytes(content)
        write_sums(self.folder)

    def drop(self, name: str) -> None:
        (self.folder / name).unlink()
        write_sums(self.folder)

    def sum_up(self) -> None:
        """The manifest and SHA256SUMS for what is there."""
        sums = {name: sha256(self.folder / name) for name in NAMES}
        made = render(self.contents.manifest, __version__, BASE_URL, sums, HOMEPAGE)
        (self.folder / MANIFEST).write_text(made)
        write_sums(self.folder)

    def check(self) -> list[str]:
        return check(self.folder, lambda value, homepage: self.contents)

    @property
    def info(self) -> str:
        return f"{PACKAGE}-{__version__}.dist-info"


@pytest.fixture(scope="session")
def small(release: Path, tmp_path_factory: pytest.TempPathFactory) -> Planted:
    """A small release that passes."""
    trees, commit = {}, None
    for path in release.iterdir():
        if path.name.endswith((".whl", ".tar.gz")):
            kept = {n: f for n, f in archive.read(path).items() if KEPT.fullmatch(n)}
            trees[path.name] = kept
    wheel = next(tree for name, tree in trees.items() if name.endswith(".whl"))
    found = re.search(rb'COMMIT = "(\w+)"', wheel[f"{PACKAGE}/build_info.py"].content)
    assert found is not None
    commit = Commit(found[1].decode(), 1_700_000_000)
    components = {path.name: path.read_text() for path in release.glob("*.cdx.json")}
    manifest = (ROOT / "krew-manifest.yaml").read_text()
    contents = Contents(__version__, commit, trees, components, manifest)
    made = Planted(contents, tmp_path_factory.mktemp("small"))
    made.write()
    assert made.check() == []
    return made


@pytest.fixture
def planted(small: Planted, tmp_path: Path) -> Planted:
    """The same, to be spoiled."""
    folder = tmp_path / "dist"
    shutil.copytree(small.folder, folder)
    return Planted(small.contents, folder)


def bump(document: dict) -> None:
    part = next(c for c in document["components"] if c["name"] == "yarl")
    part["version"] += ".1"


def module(planted: Planted, python: str = "311") -> str:
    return next(n for n in planted.trees[NAME] if f"/_tables.cpython-{python}" in n)


PROGRAM = assemble.PROGRAM
TREE_FAULTS: dict[str, tuple[Callable[[Planted], object], str]] = {
    "launcher does nothing": (
        lambda p: p.put(PROGRAM, b"#!/bin/sh\nexit 0\n", program=True),
        f"{NAME}: {PROGRAM} is not what the commit and the lock give",
    ),
    "launcher with its placeholders": (
        lambda p: p.put(
            PROGRAM, (ROOT / "release/launcher/kubectl-nodelife").read_bytes(), program=True
        ),
        f"{PROGRAM} is not what",
    ),
    "launcher may not be executed": (
        lambda p: p.put(PROGRAM, p.trees[NAME][PROGRAM].content),
        "may not be executed",
    ),
    "launcher is missing": (lambda p: p.put(PROGRAM, None), f"{PROGRAM}: not in the archive"),
    "main.py is missing": (lambda p: p.put("nodelife/main.py", None), "main.py is missing"),
    "main.py is no Python": (
        lambda p: p.put("nodelife/main.py", b"def ("),
        "main.py cannot be read: ",
    ),
    "main.py admits another Python": (
        lambda p: p.change("nodelife/main.py", b"cpython-311", b"cpython-310"),
        "main.py admits other Pythons",
    ),
    "main.py admits another machine": (
        lambda p: p.change("nodelife/main.py", b"'x86_64'", b"'aarch64'"),
        "main.py admits other machines",
    ),
    "main.py with code": (
        lambda p: p.put("nodelife/main.py", p.trees[NAME]["nodelife/main.py"].content + b"1\n"),
        "main.py is not what",
    ),
    "package changed": (
        lambda p: p.put(CLICK, b"raise SystemExit\n"),
        f"{CLICK} is not what the commit",
    ),
    "package's file gone": (lambda p: p.put(CLICK, None), f"{CLICK} is missing"),
    "package's metadata gone": (
        lambda p: p.put(next(n for n in p.trees[NAME] if "/click-" in n), None),
        "click: None inside",
    ),
    "our program changed": (
        lambda p: p.put("nodelife/lib/kubectl_nodelife/cli.py", b"raise SystemExit(0)\n"),
        "kubectl_nodelife/cli.py is not what",
    ),
    "file added": (
        lambda p: p.put("nodelife/lib/evil.py", b"1\n"),
        "evil.py does not belong there",
    ),
    "names that differ in case": (
        lambda p: p.put(CLICK.replace("core", "Core"), b""),
        "for a file system that ignores case",
    ),
    "LICENSE empty": (lambda p: p.put("nodelife/LICENSE", b""), "LICENSE is missing or empty"),
    "LICENSE missing": (lambda p: p.put("nodelife/LICENSE", None), "LICENSE is missing or empty"),
    "licence's text missing": (
        lambda p: [p.put(n, None) for n in list(p.trees[NAME]) if "/licenses/certifi/" in n],
        "certifi: the text of its licence is missing",
    ),
    "linked part's licence missing": (
        lambda p: p.put("nodelife/licenses/pyyaml/linked/libyaml.txt", None),
        "libyaml.txt is missing",
    ),
    "forbidden licence": (
        lambda p: p.change(
            next(n for n in p.trees[NAME] if "/click-" in n and n.endswith("/METADATA")),
            b"License-Expression: BSD-3-Clause",
            b"License-Expression: AGPL-3.0-only",
        ),
        "click: its licence is not among those allowed",
    ),
    "bytecode": (
        lambda p: p.put("nodelife/lib/x.cpython-311.pyc", b""),
        "x.cpython-311.pyc: bytecode",
    ),
    "module cut": (
        lambda p: p.put("nodelife/lib/x.cpython-311-x86_64-linux-gnu.so", b"\x7fELF\x02\x01"),
        "x.cpython-311-x86_64-linux-gnu.so: not made for linux",
    ),
    "module for another machine": (
        lambda p: p.put("nodelife/lib/x.abi3.so", b"\x7fELF\x02\x01".ljust(18, b"\0") + b"\xb7\0"),
        "x.abi3.so: made for arm64",
    ),
    "module for one Python": (
        lambda p: p.put(
            "nodelife/lib/x.cpython-311-x86_64-linux-gnu.so",
            b"\x7fELF\x02\x01".ljust(18, b"\0") + b"\x3e\0",
        ),
        "x: for 3.11, and not for 3.11, 3.12, 3.13, 3.14",
    ),
    "manual missing": (
        lambda p: p.put("nodelife/man/man1/kubectl-nodelife.1", None),
        "manual pages are missing",
    ),
    "link": (
        lambda p: p.add_entry("nodelife/zzz", type=tarfile.SYMTYPE, linkname="main.py"),
        "nodelife/zzz: neither a file nor a folder",
    ),
    "way out": (lambda p: p.add_entry("nodelife/../z"), "leads out of the archive"),
    "world-writable": (lambda p: p.add_entry("nodelife/zzz", mode=0o666), "mode 0666, not 0644"),
    "owner": (lambda p: p.add_entry("nodelife/zzz", uid=1000), "its entries belong to a user"),
    "times": (lambda p: p.add_entry("nodelife/zzz", mtime=1), "its entries are of several times"),
    "order": (lambda p: p.add_entry("nodelife/AAA"), "its entries are not sorted"),
    "same name twice": (lambda p: p.add_entry(CLICK), "there twice"),
    "too large": (
        lambda p: p.put("nodelife/large", random.Random(1).randbytes(21_000_000)),
        "and 20 are allowed",
    ),
    "wheel without LICENSE": (
        lambda p: p.put(f"{p.info}/licenses/LICENSE", None, p.wheel),
        "licenses/LICENSE is missing",
    ),
    "wheel with a stale RECORD": (
        lambda p: p.change(f"{p.info}/RECORD", b"sha256=", b"sha256=x", p.wheel),
        "RECORD is not what",
    ),
    "wheel with another program": (
        lambda p: p.put(f"{PACKAGE}/cli.py", b"", p.wheel),
        f"{PACKAGE}/cli.py is not what",
    ),
    "wheel of no commit": (
        lambda p: p.put(f"{PACKAGE}/build_info.py", b"", p.wheel),
        "no wheel that names a commit",
    ),
    "sdist of junk": (
        lambda p: p.raw(p.sdist, b"junk"),
        f"{PACKAGE}-{__version__}.tar.gz: cannot be read",
    ),
    "sdist with less": (
        lambda p: p.put(f"{PACKAGE}-{__version__}/setup.cfg", None, p.sdist),
        "setup.cfg is missing",
    ),
}

FOLDER_FAULTS: dict[str, tuple[Callable[[Planted], object], str]] = {
    "wrong sum": (
        lambda p: (p.folder / NAME).write_bytes((p.folder / NAME).read_bytes() + b"\0"),
        f"{NAME}: not the sum of {SUMS}",
    ),
    "no sums": (lambda p: (p.folder / SUMS).unlink(), "so that this is no release"),
    "sums of junk": (lambda p: (p.folder / SUMS).write_bytes(b"\xff\xfe\n"), f": not in {SUMS}"),
    "sum of what is not there": (
        lambda p: (p.folder / SUMS).write_text((p.folder / SUMS).read_text() + "00  gone\n"),
        f"gone: in {SUMS}, but not here",
    ),
    "secret.key": (
        lambda p: p.raw("secret.key", b"x"),
        "secret.key: does not belong into a release",
    ),
    "second wheel": (
        lambda p: p.raw(
            "kubectl_nodelife-0.1.0-py3-none-any.whl", (p.folder / p.wheel).read_bytes()
        ),
        "kubectl_nodelife-0.1.0-py3-none-any.whl: does not belong",
    ),
    "three platforms": (lambda p: p.drop(ARM), f"{ARM}: is missing"),
    "no wheel": (lambda p: p.drop(p.wheel), "there is no wheel that names a commit"),
    "no sdist": (lambda p: p.drop(p.sdist), f"{PACKAGE}-{__version__}.tar.gz: is missing"),
    "archive of junk": (lambda p: p.raw(NAME, b"junk"), f"{NAME}: cannot be read: "),
    "archive cut": (
        lambda p: p.raw(NAME, (p.folder / NAME).read_bytes()[:10_000]),
        f"{NAME}: cannot be read: ",
    ),
    "wheel cut": (
        lambda p: p.raw(p.wheel, (p.folder / p.wheel).read_bytes()[:1000]),
        ".whl: cannot be read: ",
    ),
    "archives exchanged": (
        lambda p: (p.raw(NAME, (p.folder / ARM).read_bytes()), p.sum_up()),
        "main.py admits other machines",
    ),
    "no manifest": (lambda p: p.drop(MANIFEST), f"{MANIFEST} is missing"),
    "manifest is no YAML": (
        lambda p: p.raw(MANIFEST, b"a: [\n"),
        f"{MANIFEST}: krew would not take",
    ),
    "manifest is no mapping": (lambda p: p.raw(MANIFEST, b"- 1\n"), f"{MANIFEST}: krew would not"),
    "manifest is binary": (
        lambda p: p.raw(MANIFEST, b"\xff\0"),
        f"{MANIFEST}: krew would not take",
    ),
    "manifest without spec": (
        lambda p: p.raw(MANIFEST, b"kind: Plugin\napiVersion: x\nmetadata: {name: x}\n"),
        "missing required field `spec`",
    ),
    "sum is a number": (
        lambda p: p.manifest(f'sha256: "{sha256(p.folder / NAME)}"', "sha256: 12"),
        "`str`, got `int`",
    ),
    "typo in a key": (lambda p: p.manifest("caveats:", "caveat:"), "unknown field `caveat`"),
    "another selector": (lambda p: p.manifest("arch: amd64", "arch: arm64"), "is selected where"),
    "description missing": (
        lambda p: p.raw(MANIFEST, DESCRIPTION.sub(b"", (p.folder / MANIFEST).read_bytes())),
        "description is not that of",
    ),
    "home page missing": (lambda p: p.manifest(f"  homepage: {HOMEPAGE}\n", ""), "no home page"),
    "home page leads nowhere": (
        lambda p: p.manifest(HOMEPAGE, "https://kubectl-nodelife.invalid/"),
        "no home page",
    ),
    "another version": (
        lambda p: p.manifest(f"version: {tag_of(__version__)}", "version: v0.1.0"),
        "version is not that of",
    ),
    "address in another version's folder": (
        lambda p: p.manifest(BASE_URL, "https://example.com/v0.1.0"),
        "lie in several folders",
    ),
    "addresses in another version's folder": (
        lambda p: [p.manifest(f"{BASE_URL}/{n}", f"https://example.com/v0.1.0/{n}") for n in NAMES],
        f"{NAME}: its address has no folder {tag_of(__version__)}",
    ),
    "no address": (
        lambda p: p.manifest("https://example.com/v", "https://kubectl-nodelife.invalid/v"),
        "has no address; give --base-url",
    ),
    "old manifest": (
        lambda p: p.manifest(sha256(p.folder / NAME), "0" * 64),
        f"not the sum of {NAME}",
    ),
    "another launcher": (
        lambda p: p.manifest("bin: nodelife/kubectl-nodelife", "bin: nodelife/main.py"),
        "nodelife/main.py is not the launcher",
    ),
    "components of junk": (lambda p: p.raw(SBOM, b"{"), "not a CycloneDX document"),
    "components missing": (lambda p: p.drop(SBOM), f"{SBOM} is missing"),
    "component missing": (lambda p: p.sbom(lambda d: d["components"].pop()), f"{SBOM}"),
    "component of another version": (lambda p: p.sbom(bump), "yarl: 1."),
    "component with a wrong hash": (
        lambda p: p.sbom(
            lambda d: d["components"][0]["externalReferences"][0]["hashes"][0].update(
                content="0" * 64
            )
        ),
        f"{SBOM}: line ",
    ),
    "component of another licence": (
        lambda p: p.sbom(lambda d: d["components"][0].update(licenses=[])),
        f"{SBOM}: line ",
    ),
    "another serial number": (
        lambda p: p.sbom(lambda d: d.update(serialNumber="urn:uuid:" + "0" * 32)),
        f"{SBOM}: line ",
    ),
}

FAULTS = {**TREE_FAULTS, **FOLDER_FAULTS}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_planted_fault_is_found(fault: str, planted: Planted) -> None:
    plant, words = FAULTS[fault]
    plant(planted)
    found = planted.check()
    assert any(words in line for line in found), found
    assert all("\n" not in line for line in found)


def test_an_archive_of_other_packages_than_the_locks_is_found(planted: Planted) -> None:
    name = next(n for n in planted.trees[NAME] if "/click-" in n and n.endswith("/METADATA"))
    content = planted.trees[NAME].pop(name).content
    planted.put(re.sub(r"click-[^/]+", "click-8.0.0.dist-info", name), content)
    assert any("click: 8.0.0 inside, " in line for line in planted.check())


def test_a_licence_whose_bytes_are_damaged_is_a_line(planted: Planted) -> None:
    """The standard library gives a Header, and no text, of a line that is not ASCII."""
    name = next(n for n in planted.trees[NAME] if "/click-" in n and n.endswith("/METADATA"))
    content = planted.trees[NAME].pop(name).content
    planted.put(name, b"Classifier: L\xffcense :: ?\n" + content)
    assert all("\n" not in line for line in planted.check())


def test_any_damage_is_a_line_and_no_traceback(planted: Planted) -> None:
    """Bytes changed, cut and put in at chance places, with all sums made right again."""
    chance = random.Random(23)
    manifest = read_manifest(planted.folder)
    for name in sorted(path.name for path in planted.folder.iterdir() if path.name != SUMS):
        whole = (planted.folder / name).read_bytes()
        for _ in range(4):
            at = chance.randrange(len(whole))
            flipped = bytes([whole[at] ^ 0x55]) + whole[at + 1 :]
            rest = chance.choice([b"", flipped, b"\xff\n- [" + whole[at:]])
            planted.raw(name, whole[:at] + rest)
            found = planted.check()
            assert all("\n" not in line for line in found), found
            if not found:  # a comment, or what no unpacker reads
                assert read_manifest(planted.folder) == manifest
                if name in planted.trees:
                    assert archive.read(planted.folder / name) == planted.trees[name], at
        planted.raw(name, whole)


def test_a_lock_older_than_setup_cfg_is_found(planted: Planted, monkeypatch) -> None:
    monkeypatch.setattr(lock, "requirements", lambda root=ROOT: ["another"])
    assert any("the lock is not of this setup.cfg" in line for line in planted.check())


def test_a_release_of_an_unknown_commit_is_not_passed(planted: Planted) -> None:
    def again(value: str, homepage: str) -> Contents:
        raise ReleaseError("git log: bad object")

    assert check(planted.folder, again) == [
        "not compared with what the commit gives: git log: bad object"
    ]
