# Sourced by kube-assets, kube-e2e, kube-manager and real-controllers: builds programs from their Go modules, for tests against real ones.
export CGO_ENABLED=0 GOFLAGS=-buildvcs=false

# Waits until no other program builds what is in this folder: alone FOLDER NAME
alone() {
    mkdir -p "$1"
    exec 9>"$1/$2.lock"
    ! command -v flock >/dev/null || flock 9
}

need_go() {
    command -v go >/dev/null || {
        echo "error: Go is needed to build $1 and is not on PATH; install Go 1.26 or newer" >&2
        exit 1
    }
}

# A module in this folder, with one Go file that imports the packages, so that `go mod tidy` finds what they need.
new_module() {
    printf 'module assets\n\ngo 1.26\n' >go.mod
    {
        printf '//go:build tools\n\npackage tools\n\nimport (\n'
        printf '\t_ "%s"\n' "$@"
        printf ')\n'
    } >tools.go
}

# Lets the module in this folder use Kubernetes: require_kubernetes VERSION
require_kubernetes() {
    go mod edit -require "k8s.io/kubernetes@v$1"
    go mod download "k8s.io/kubernetes@v$1" >&2
    # k8s.io/kubernetes names its in-tree modules by path; their published twins have the version 0.x.
    manifest=$(go env GOMODCACHE)/cache/download/k8s.io/kubernetes/@v/v$1.mod
    for module in $(awk '/=> \.\/staging/ {print $1}' "$manifest" | sort -u); do
        go mod edit -replace "$module=$module@v0.${1#1.}"
    done
    said=$(go mod tidy 2>&1) || {
        echo "$said" >&2
        exit 1
    }
}

# Builds programs of Kubernetes in this folder: build_kubernetes VERSION BIN PROGRAM...
build_kubernetes() {
    version=$1 bin=$2
    shift 2
    # shellcheck disable=SC2046
    new_module $(printf 'k8s.io/kubernetes/cmd/%s ' "$@")
    require_kubernetes "$version"
    minor=${version#1.}
    minor=${minor%%.*}
    stamp=k8s.io/component-base/version
    flags="-s -w -X $stamp.gitVersion=v$version -X $stamp.gitMajor=1 -X $stamp.gitMinor=$minor"
    for program in "$@"; do
        go build -trimpath -ldflags "$flags" -o "$bin/$program.new" "k8s.io/kubernetes/cmd/$program" >&2
        mv "$bin/$program.new" "$bin/$program"
    done
}
