"""The contents of a commit's release: `bin/release` packs it, `check` makes it again to compare.

Everything comes from the commit, the lock and the home page, so that it can be made twice.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from release import archive, assemble, lock, sbom, source
from release.archive import File, Tree
from release.manifest import archive_name, components_name
from release.platforms import Platform
from release.source import Commit


class Contents(NamedTuple):
    """A release before it is packed.

    `trees`: the files of the archives, the wheel and the sdist, by the name of the packed file.
    `components`: the documents that list what archives are made of, by file name.
    `manifest`: the text of krew-manifest.yaml, without addresses and sums.
    """

    version: str
    commit: Commit
    trees: dict[str, Tree]
    components: dict[str, str]
    manifest: str


def make(
    root: Path, commit: Commit, platforms: Sequence[Platform], wheels: Path, homepage: str = ""
) -> Contents:
    """The contents of a release of that commit, for those platforms. Raises ReleaseError.

    `root`: a checkout that has the commit. `wheels`: the folder where downloads are kept.
    """
    with tempfile.TemporaryDirectory(prefix="nodelife-release-") as name:
        tree, built = Path(name, "source"), Path(name, "built")
        source.export(root, commit, tree, homepage)
        manual = {
            path.name: File(path.read_bytes())
            for path in source.write_manual(tree, commit).iterdir()
        }
        wheel, sdist = source.build(tree, commit, built)
        version = source.version_of(tree)
        made = Contents(version, commit, {}, {}, (tree / "krew-manifest.yaml").read_text())
        for path in (wheel, sdist):
            made.trees[path.name] = archive.read(path)
        for platform in platforms:
            packages = assemble.locked_packages(platform, wheels)
            files = assemble.tree(platform, tree, wheel, packages, manual)
            made.trees[archive_name(platform.name)] = files
            document = sbom.document(platform, version, commit, packages, lock.read(platform))
            made.components[components_name(platform.name)] = document
        return made
