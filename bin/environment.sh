# Sourced by the scripts beside it, with $root set: ready_environment makes $root/.venv, if it is
# missing or stale. Fresh means: its stamp, written last, holds the version of its Python and the
# hash of setup.cfg. An environment that works is brought up to date, else it is made anew.

venv=$root/.venv

# The stamp that an environment of the Python $1 would have; nothing if that Python cannot run.
stamp_for() {
    "$1" -I -c '
import hashlib, platform, sys
with open(sys.argv[1], "rb") as file:
    print(platform.python_version(), hashlib.sha256(file.read()).hexdigest())
' "$root/setup.cfg" 2>/dev/null
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
    # Compiling 1,500 files beforehand would take longer than all else.
    "$venv/bin/python" -m pip install --quiet --disable-pip-version-check --no-compile \
        --editable "${root}[test,release]" || {
        echo "error: the packages that setup.cfg names could not be installed, see above" >&2
        exit 1
    }
    stamp_for "$venv/bin/python" >"$venv/stamp"
}
