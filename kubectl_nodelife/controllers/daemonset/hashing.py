"""Template hashes and revision names.

Follows `ComputeHash` (`pkg/controller/controller_utils.go`) and `HashControllerRevision` in form:
32-bit FNV over the template and the collision count, in the alphabet without vowels. Upstream
hashes Go's printed form of the template, which depends on the field order of Go structs; ours
hashes the template's canonical JSON. The value is therefore ours alone: revisions are matched by
content and a pod's hash is read from its label, never computed again and compared.
"""

from __future__ import annotations

from typing import Any

import msgspec

SAFE_ALPHABET = "bcdfghjklmnpqrstvwxz2456789"
FNV_PRIME_32 = 0x01000193
FNV_OFFSET_32 = 0x811C9DC5
REVISION_PREFIX_LIMIT = 223

_encoder = msgspec.json.Encoder(order="deterministic")


def canonical_json(value: Any) -> bytes:
    """Compact JSON with sorted keys: equal values give equal bytes, whatever their key order."""
    return _encoder.encode(value)


def fnv1a_32(content: bytes) -> int:
    """The 32-bit FNV-1a hash."""
    value = FNV_OFFSET_32
    for byte in content:
        value = ((value ^ byte) * FNV_PRIME_32) & 0xFFFFFFFF
    return value


def safe_encode(text: str) -> str:
    """Each character mapped into the safe alphabet. Follows `rand.SafeEncodeString`."""
    return "".join(SAFE_ALPHABET[ord(c) % len(SAFE_ALPHABET)] for c in text)


def without_null_timestamp(template: dict[str, Any]) -> dict[str, Any]:
    """The template less `metadata.creationTimestamp: null`.

    API servers before 1.34 write that null, later ones do not; it means nothing, and a template
    must not become another one because the cluster was upgraded.
    """
    metadata = template.get("metadata")
    if isinstance(metadata, dict) and metadata.get("creationTimestamp", "") is None:
        kept = {k: v for k, v in metadata.items() if k != "creationTimestamp"}
        return {**template, "metadata": kept}
    return template


def compute_hash(template: dict[str, Any], collision_count: int | None) -> str:
    """The hash label of a template. Follows `ComputeHash`; a collision count of 0 counts as set."""
    content = canonical_json(without_null_timestamp(template))
    if collision_count is not None:
        content += collision_count.to_bytes(4, "little") + bytes(4)
    return safe_encode(str(fnv1a_32(content)))


def controller_revision_name(prefix: str, revision_hash: str) -> str:
    """`<prefix>-<hash>`, the prefix cut to 223 characters. Follows `ControllerRevisionName`."""
    return f"{prefix[:REVISION_PREFIX_LIMIT]}-{revision_hash}"
