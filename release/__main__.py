"""`bin/release`: make a release, check one, or renew the lock."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from release import archive, contents, lock, source
from release.checks import MANIFEST, check, sha256, write_sums
from release.contents import Contents
from release.manifest import NO_ADDRESS, render
from release.platforms import BY_NAME, PLATFORMS
from release.source import ReleaseError

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
            commit, home = source.commit_of(ROOT), given.homepage
            made = contents.make(ROOT, commit, platforms, WHEELS, home)
            write(Path(given.out), made, given.base_url, home)
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
    def again(value: str, homepage: str) -> Contents:
        print(f"{folder}: made again of commit {value[:12]}, to compare ...", file=sys.stderr)
        commit = source.commit_named(ROOT, value)
        return contents.make(ROOT, commit, PLATFORMS, WHEELS, homepage)

    faults = check(folder, again)
    for fault in faults:
        print(f"error: {fault}", file=sys.stderr)
    if not faults:
        print(f"{folder}: may be published")
    return 1 if faults else 0


def write(out: Path, made: Contents, base_url: str, homepage: str = "") -> None:
    """Write a release into a folder. Raises ReleaseError."""
    if out.exists() and any(out.iterdir()):
        raise ReleaseError(f"{out}: not empty; name another folder with --out, or remove it")
    out.mkdir(parents=True, exist_ok=True)
    for name, tree in made.trees.items():
        archive.write(out / name, tree, made.commit.time)
        print(f"{out / name}: {(out / name).stat().st_size / 1e6:.1f} MB")
    for name, document in made.components.items():
        (out / name).write_text(document)
    archives = [name.replace(".cdx.json", ".tar.gz") for name in made.components]
    sums = {name: sha256(out / name) for name in archives}
    (out / MANIFEST).write_text(render(made.manifest, made.version, base_url, sums, homepage))
    write_sums(out)


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
