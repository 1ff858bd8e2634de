# Sourced by the scripts beside it, with $root set: ready_environment makes $root/.venv, if it is
# missing or stale. Fresh means: its stamp, written last, holds the version of its Python and the
# hash of setup.cfg and of the lock. An environment that works is brought up to date, else it is
# made anew. Packages are those of release/lock, by version and hash; `bin/release lock` renews it.
# `ready_environment run` installs what the program itself needs, and nothing for tests.

venv=$root/.venv

# The stamp that an environment of the Python $1 would have; nothing if that Python cannot run.
stamp_for() {
    "$1" -I -c '
import hashlib, os, platform, sys
digest = hashlib.sha256()
for name in filter(os.path.exists, sys.argv[1:]):
    with open(name, "rb") as file:
        digest.update(file.read())
print(platform.python_version(), digest.hexdigest())
' "$root/setup.cfg" "$(lock_of development)" 2>/dev/null
}

# The lock for this machine: of what the program needs (run) or of all (development).
lock_of() {
    case $(uname -s) in
    Darwin) system=darwin ;;
    *) system=linux ;;
    esac
    case $(uname -m) in
    arm64 | aarch64) machine=arm64 ;;
    *) machine=amd64 ;;
    esac
    [ "$1" = run ] && folder=release/lock || folder=release/lock/development
    echo "$root/$folder/$system-$machine.txt"
}

environment_is_fresh() {
    [ -f "$venv/stamp" ] && [ "$(stamp_for "$venv/bin/python")" = "$(cat "$venv/stamp")" ]
}

# The first Python that will do, by the names that systems give it; a shim may exist and not run.
find_python() {
    lacking=
    for name in "${NODELIFE_PYTHON:-python3.11}" python3.11 python3.12 python3.13 python3.14 python3; do
        "$name" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || continue
        if "$name" -c 'import ensurepip, venv' 2>/dev/null; then
            echo "$name"
            return
        fi
        lacking=${lacking:-$name}
    done
    if [ -n "$lacking" ]; then
        package=$("$lacking" -c 'import sys; print("python%d.%d-venv" % sys.version_info[:2])')
        echo "error: $lacking comes without venv; install the package $package and run this again" >&2
    else
        echo "error: no Python 3.11 or newer found; install one (and its venv package), or name" \
            "one in NODELIFE_PYTHON" >&2
    fi
    return 1
}

ready_environment() {
    if environment_is_fresh; then
        return
    fi
    rm -f "$venv/stamp"
    if "$venv/bin/python" -c 'import sys, pip; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
        echo "Bringing $venv up to date with setup.cfg ..." >&2
    else
        python=$(find_python) || exit 1
        echo "Making $venv with $python, once ..." >&2
        "$python" -m venv --clear "$venv" || exit 1
    fi
    wanted=${1:-development}
    lock=$(lock_of "$wanted")
    if [ -f "$lock" ]; then
        set -- --require-hashes --no-deps --only-binary=:all: --requirement "$lock"
    else
        echo "no packages are pinned for development on this machine: as setup.cfg names them" >&2
        set -- "${root}[test,release,docs]"
    fi
    # Compiling 1,500 files beforehand would take longer than all else.
    "$venv/bin/python" -m pip install --quiet --disable-pip-version-check --no-compile \
        "$@" || {
        echo "error: the packages of $lock could not be installed, see above;" \
            "'bin/release lock' renews it" >&2
        exit 1
    }
    # A line in a .pth file is what an editable install comes to. A relative path, since Python reads
    # the file in the locale's encoding, in which the name of the folder may not exist.
    site=$("$venv/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
    echo ../../../.. >"$site/kubectl-nodelife-checkout.pth" || exit 1
    if [ "$wanted" = run ]; then
        echo run >"$venv/stamp" # stale for bin/test, which needs more
    else
        stamp_for "$venv/bin/python" >"$venv/stamp"
    fi
}
