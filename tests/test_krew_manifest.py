"""krew's rules for a manifest, for machines without krew.

Follows krew's pkg/index/types.go and internal/index/validation/validate.go, and is stricter in one
point: krew ignores a key that it does not know, so a typo would pass there. Of the pairs of system
and architecture only those that we ship for are allowed.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from copy import deepcopy
from pathlib import Path, PurePosixPath
from typing import Any

import pytest
import yaml

from kubectl_nodelife import __version__

ROOT = Path(__file__).parents[1]
MANIFEST: dict[str, Any] = yaml.safe_load((ROOT / "krew-manifest.yaml").read_text())

SEMVER = re.compile(
    r"v(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)(-[0-9A-Za-z.-]+)?(\+[0-9A-Za-z.-]+)?", re.ASCII
)
SHIPPED = {(system, arch) for system in ("linux", "darwin") for arch in ("amd64", "arm64")}
TEXT_KEYS = {"shortDescription", "description", "homepage", "caveats"}


def faults(manifest: dict[str, Any]) -> list[str]:
    """What krew, or a reviewer of its index, would refuse."""
    spec = manifest["spec"]
    platforms = spec["platforms"]
    pairs = [tuple(p["selector"]["matchLabels"].get(k) for k in ("os", "arch")) for p in platforms]
    checks = {
        "apiVersion": manifest["apiVersion"] == "krew.googlecontainertools.github.com/v1alpha2",
        "kind": manifest["kind"] == "Plugin",
        "name": re.fullmatch(r"[\w-]+", manifest["metadata"]["name"], re.ASCII) is not None,
        "version": SEMVER.fullmatch(spec["version"]) is not None,
        "shortDescription": 0 < len(spec["shortDescription"]) <= 50
        and "\n" not in spec["shortDescription"],
        "keys": set(manifest) == {"apiVersion", "kind", "metadata", "spec"}
        and set(spec) <= TEXT_KEYS | {"version", "platforms"},
        "platforms": len(pairs) == len(set(pairs)) and bool(pairs) and set(pairs) <= SHIPPED,
    }
    failed = [name for name, passed in checks.items() if not passed]
    return failed + [fault for platform in platforms for fault in platform_faults(platform)]


def platform_faults(platform: dict[str, Any]) -> list[str]:
    """The same for one archive."""
    binary = platform["bin"]
    checks = {
        "platform keys": set(platform) == {"selector", "uri", "sha256", "bin"},
        "selector": set(platform["selector"]) == {"matchLabels"}
        and set(platform["selector"]["matchLabels"]) == {"os", "arch"},
        "sha256": isinstance(platform["sha256"], str)
        and re.fullmatch(r"[0-9a-f]{64}", platform["sha256"]) is not None,
        "uri": platform["uri"].startswith("https://") and platform["uri"].endswith(".tar.gz"),
        "bin": str(PurePosixPath(binary)) == binary and not binary.startswith(("/", "..")),
    }
    return [name for name, passed in checks.items() if not passed]


def test_the_manifest_passes() -> None:
    assert faults(MANIFEST) == []


def test_the_manifest_is_of_this_version() -> None:
    assert MANIFEST["spec"]["version"] == f"v{__version__}"
    assert all(f"/v{__version__}/" in platform["uri"] for platform in MANIFEST["spec"]["platforms"])


BREAKS: dict[str, Callable[[dict[str, Any]], object]] = {
    "name": lambda m: m["metadata"].update(name="node life"),
    "version": lambda m: m["spec"].update(version="0.1.0"),
    "shortDescription": lambda m: m["spec"].update(shortDescription="x" * 51),
    "keys": lambda m: m["spec"].update(homePage="typo"),
    "platforms": lambda m: m["spec"]["platforms"].append(m["spec"]["platforms"][0]),
    "platform keys": lambda m: m["spec"]["platforms"][1].update(files=[]),
    "selector": lambda m: m["spec"]["platforms"][0]["selector"].update(matchExpressions=[]),
    "sha256": lambda m: m["spec"]["platforms"][0].update(sha256="A" * 64),
    "uri": lambda m: m["spec"]["platforms"][0].update(uri="https://x.invalid/a.tar.xz"),
    "bin": lambda m: m["spec"]["platforms"][0].update(bin="../kubectl-nodelife"),
}


@pytest.mark.parametrize("fault", BREAKS)
def test_a_broken_manifest_is_found(fault: str) -> None:
    manifest = deepcopy(MANIFEST)
    BREAKS[fault](manifest)
    assert fault in faults(manifest)
