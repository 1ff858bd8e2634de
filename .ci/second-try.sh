# Sourced by run and virtual-time: has each test that needs another try named in a line of its own, which run counts.

# Those that failed in the run of pytest that has just ended: name_failed CACHE_FOLDER
name_failed() {
    "$root/.venv/bin/python" -c 'import json, sys; print(*sorted(json.load(open(sys.argv[1]))), sep="\n")' \
        "$1/v/cache/lastfailed" | sed 's/^/second try: /'
}
