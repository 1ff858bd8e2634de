"""Makes a release and checks it: `bin/release`, `bin/release check`, `bin/release lock`.

A release is a folder with one archive for each platform of krew's index, a wheel, an sdist, a
list of what is inside each archive (SBOM), `SHA256SUMS` and the manifest for krew. Everything is
made from a commit, never from the work tree, and twice the same commit gives the same bytes.

- `platforms`  what is shipped for: systems, architectures, CPython versions
- `lock`       the packages inside, pinned with hashes for each platform (`release/lock/`)
- `source`     the commit as a folder, and the wheel and sdist made from it
- `manual`     manual pages from the help texts
- `screens`    a page of screens for the documentation (`bin/docs`), from a sandbox
- `wheels`     downloads what the lock names and unpacks it side by side for all Pythons
- `linked_parts`  what compiled modules have linked in, and the texts of its licences
- `licences`   which licences may be inside, and their texts
- `archive`    a tree of files as a reproducible .tar.gz or wheel, and back
- `contents`   all that a release of a commit holds, before it is packed; `check` compares with it
- `sbom`       the list of components, by cyclonedx-py
- `manifest`   krew's manifest with addresses and sums; `krew_rules` is what krew would refuse
- `binaries`   reads the headers of ELF and Mach-O files
- `checks`     `bin/release check`: one function for each thing that could be wrong

`release/launcher/` holds the two files that only an archive has: the launcher and `main.py`.
"""
