"""Starts kubectl nodelife from an archive, with the packages in lib/ beside it and no others.

An interpreter fits if extension modules for it are here. The interpreter that the launcher
remembers may have become another Python; then the launcher must search again. Old versions of
Python must be able to run this file, which recognises them.
"""

import _imp
import os
import sys

# Filled in by bin/release: how extension modules in lib/ end, and what uname calls the machine.
SUFFIXES = ()  # type: tuple[str, ...]
MACHINES = ()  # type: tuple[str, ...]

HERE = os.path.dirname(os.path.abspath(__file__))


def fits():
    """True if this interpreter can load what is in lib/."""
    return _imp.extension_suffixes()[:1][0] in SUFFIXES and os.uname()[4] in MACHINES


def tell():
    """Print the path of this interpreter if it fits, or what it is; the exit code."""
    if fits():
        print(getattr(sys, "_base_executable", None) or sys.executable)
        return 0
    version = ".".join(str(part) for part in sys.version_info[:3])
    kind = "" if sys.implementation.name == "cpython" else sys.implementation.name + " "
    suffix = (_imp.extension_suffixes() or ["no extension modules"])[0]
    other = " with other extension modules: " + suffix + ", " + os.uname()[4]
    known = any("-" + "".join(map(str, sys.version_info[:2])) + "-" in s for s in SUFFIXES)
    print(kind + version + (other if known else ""))
    return 1


def start():
    """Run the program and return its exit code."""
    if sys.argv[1:] == ["__python"]:
        return tell()
    if not fits():
        os.environ["NODELIFE_SEARCH"] = "again"
        launcher = os.path.join(HERE, "kubectl-nodelife")
        os.execv(launcher, [launcher, *sys.argv[1:]])
    # At the end: nothing in there can take the place of a module of the standard library.
    sys.path.append(os.path.join(HERE, "lib"))
    from kubectl_nodelife.quick import main

    return main()


if __name__ == "__main__":
    sys.exit(start())
