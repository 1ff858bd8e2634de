"""krew's rules, as far as they are written down here for machines without krew."""

import tarfile
from collections.abc import Callable
from copy import deepcopy
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from kubectl_nodelife import __version__
from release.krew_rules import SEMVER, Manifest, archive_faults, manifest_faults
from release.manifest import render
from release.platforms import PYTHONS
from release.source import tag_of

ROOT = Path(__file__).parents[2]
MANIFEST: dict[str, Any] = yaml.safe_load((ROOT / "krew-manifest.yaml").read_text())


def faults(manifest: dict[str, Any]) -> list[str]:
    try:
        return manifest_faults(msgspec.convert(manifest, Manifest))
    except msgspec.ValidationError as error:
        return [str(error)]


def test_the_manifest_passes() -> None:
    assert faults(MANIFEST) == []


def test_the_caveats_name_the_pythons() -> None:
    assert f"CPython {', '.join(PYTHONS[:-1])} or {PYTHONS[-1]} must" in MANIFEST["spec"]["caveats"]


def test_a_home_page_is_named_only_where_there_is_one() -> None:
    template = (ROOT / "krew-manifest.yaml").read_text()
    sums = {"kubectl-nodelife-linux-amd64.tar.gz": "1" * 64}
    for home in ("", "https://example.invalid/"):
        made = yaml.safe_load(render(template, "1.0.0", "https://x.invalid", sums, home))
        assert made["spec"].get("homepage", "") == home
        assert faults(made) == []


def test_the_manifest_is_of_this_version() -> None:
    tag = tag_of(__version__)
    assert MANIFEST["spec"]["version"] == tag
    assert all(f"/{tag}/" in platform["uri"] for platform in MANIFEST["spec"]["platforms"])


@pytest.mark.parametrize(
    ("version", "tag"),
    [("1.0.0", "v1.0.0"), ("1.0.0rc1", "v1.0.0-rc.1"), ("1.2.10rc12", "v1.2.10-rc.12")],
)
def test_a_tag_is_a_semantic_version(version: str, tag: str) -> None:
    assert tag_of(version) == tag and SEMVER.fullmatch(tag)


BREAKS: dict[str, Callable[[dict[str, Any]], object]] = {
    "name": lambda m: m["metadata"].update(name="node life"),
    "version": lambda m: m["spec"].update(version="0.1.0"),
    "shortDescription": lambda m: m["spec"].update(shortDescription="x" * 51),
    "unknown field `homePage`": lambda m: m["spec"].update(homePage="typo"),
    "platforms": lambda m: m["spec"]["platforms"].append(m["spec"]["platforms"][0]),
    "unknown field `files`": lambda m: m["spec"]["platforms"][1].update(files=[]),
    "unknown field `matchExpressions`": lambda m: m["spec"]["platforms"][0]["selector"].update(
        matchExpressions=[]
    ),
    "selector": lambda m: m["spec"]["platforms"][0]["selector"]["matchLabels"].pop("arch"),
    "sha256": lambda m: m["spec"]["platforms"][0].update(sha256="A" * 64),
    "uri": lambda m: m["spec"]["platforms"][0].update(uri="https://x.invalid/a.tar.xz"),
    "bin": lambda m: m["spec"]["platforms"][0].update(bin="../kubectl-nodelife"),
}


@pytest.mark.parametrize("fault", BREAKS)
def test_a_broken_manifest_is_found(fault: str) -> None:
    manifest = deepcopy(MANIFEST)
    BREAKS[fault](manifest)
    assert any(fault in line for line in faults(manifest))


def entry(name: str, kind: bytes = tarfile.REGTYPE, mode: int = 0o644) -> tarfile.TarInfo:
    made = tarfile.TarInfo(name)
    made.type, made.mode = kind, mode
    return made


GOOD = [entry("n", tarfile.DIRTYPE, 0o755), entry("n/x", mode=0o755), entry("n/LICENSE")]


@pytest.mark.parametrize(
    ("entries", "faults"),
    [
        (GOOD, []),
        ([*GOOD, entry("n/y", tarfile.SYMTYPE)], ["n/y: neither a file nor a folder"]),
        ([*GOOD, entry("n/y", tarfile.LNKTYPE)], ["n/y: neither a file nor a folder"]),
        ([*GOOD, entry("n/a..b")], ["n/a..b: the name leads out of the archive"]),
        (
            [*GOOD, entry("n/license")],
            ["n/license: there twice, for a file system that ignores case"],
        ),
        ([*GOOD, entry("/n/y")], ["/n/y: the name leads out of the archive"]),
        (GOOD[:2], ["no file with the licence"]),
        ([entry("n/x"), GOOD[2]], ["n/x: may not be executed"]),
        (GOOD[2:], ["n/x: not in the archive"]),
    ],
)
def test_what_krew_does_not_unpack(entries: list[tarfile.TarInfo], faults: list[str]) -> None:
    assert archive_faults(entries, "n/x") == faults
