"""`bin/release`: make a release, check one, or renew the lock."""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from release import archive, assemble, lock, sbom, source
from release.checks import MANIFEST, check, sha256, write_sums
from release.manifest import NO_ADDRESS, archive_name, render
from release.platforms import BY_NAME, PLATFORMS, Platform
from release.source import Commit, ReleaseError

ROOT = Path(__file__).parents[1]
WHEELS = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache", "nodelife-release")


def main(arguments: Sequence[str]) -> int:
    """Run the command line and return its exit code."""
    given = _parser().parse_args(arguments)
    try:
        if given.command == "lock":
            lock.renew(keep=given.keep)
        elif given.command == "check":
            return _check(Path(given.folder or given.out))
        else:
            platforms = [BY_NAME[name] for name in given.platform] or list(PLATFORMS)
            where = given.base_url, given.homepage
            make(Path(given.out), platforms, source.commit_of(ROOT), *where)
    except ReleaseError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="bin/release", description=__doc__)
    parser.add_argument("command", nargs="?", choices=("make", "check", "lock"), default="make")
    parser.add_argument("folder", nargs="?", metavar="DIR", help="what to check; default: dist")
    parser.add_argument(
        "--keep", action="store_true", help="lock: add what is missing, leave other versions"
    )
    parser.add_argument(
        "--out", default="dist", metavar="DIR", help="where it is made; default: dist"
    )
    parser.add_argument(
        "--platform", action="append", default=[], choices=sorted(BY_NAME), help="default: all"
    )
    parser.add_argument(
        "--base-url", default=NO_ADDRESS, help="where the archives will lie, for the manifest"
    )
    parser.add_argument(
        "--homepage", default="", help="what the manifest calls the plugin's home page"
    )
    return parser


def _check(folder: Path) -> int:
    faults = check(folder)
    for fault in faults:
        print(f"error: {fault}", file=sys.stderr)
    if not faults:
        print(f"{folder}: may be published")
    return 1 if faults else 0


def make(
    out: Path, platforms: Sequence[Platform], commit: Commit, base_url: str, homepage: str = ""
) -> None:
    """Make a release of that commit in `out`, for those platforms. Raises ReleaseError."""
    if out.exists() and any(out.iterdir()):
        raise ReleaseError(f"{out}: not empty; name another folder with --out, or remove it")
    out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="nodelife-release-") as name:
        work = Path(name)
        tree = work / "source"
        source.export(ROOT, commit, tree)
        wheel, _ = source.build(tree, commit, out)
        version, manual = source.version_of(tree), source.manual(tree, commit)
        for platform in platforms:
            began = time.monotonic()
            packages = assemble.locked_packages(platform, WHEELS)
            path = out / archive_name(platform.name)
            files = assemble.tree(platform, tree, wheel, packages, manual)
            archive.write(path, files, commit.time)
            document = sbom.document(platform, version, commit, packages, lock.read(platform))
            path.with_name(path.name.replace(".tar.gz", ".cdx.json")).write_text(document)
            size = path.stat().st_size / 1e6
            print(f"{path}: {size:.1f} MB, {time.monotonic() - began:.0f}s")
        sums = {archive_name(p.name): sha256(out / archive_name(p.name)) for p in platforms}
        template = (tree / "krew-manifest.yaml").read_text()
        (out / MANIFEST).write_text(render(template, version, base_url, sums, homepage))
    write_sums(out)


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
