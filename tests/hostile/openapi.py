"""The string fields of the API, reduced from an API server's OpenAPI v3 documents.

`python -m tests.hostile.openapi FOLDER` writes `string_fields.json` anew from the documents that a
Kubernetes release has in api/openapi-spec/v3; tests/real does the same with a running API server.
A field is a list of one type, a map "{}", the name of another definition, or "string".
"""

import json
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from kubectl_nodelife.kube.kinds import KINDS, group_of

FIELDS = Path(__file__).with_name("string_fields.json")
SECRET = "s3cr3t:"

Reduced = dict[str, Any]


def documents_of_kinds() -> list[str]:
    """The paths under /openapi/v3 that describe the kinds that are read."""
    versions = dict.fromkeys(kind.api_version for kind in KINDS)
    return [f"apis/{v}" if group_of(v) else f"api/{v}" for v in versions]


def reduce(documents: Iterable[dict[str, Any]]) -> Reduced:
    """{"kinds": {kind: definition}, "definitions": {name: {member: field}}}"""
    schemas: dict[str, Any] = {}
    for document in documents:
        schemas |= document["components"]["schemas"]
    kinds: dict[str, str] = {}
    for name, schema in schemas.items():
        for gvk in schema.get("x-kubernetes-group-version-kind", ()):
            version = f"{gvk['group']}/{gvk['version']}" if gvk["group"] else gvk["version"]
            if any((k.name, k.api_version) == (gvk["kind"], version) for k in KINDS):
                kinds[gvk["kind"]] = name
    definitions: dict[str, Any] = {}
    waiting = list(kinds.values())
    while waiting:
        name = waiting.pop()
        if name in definitions:
            continue
        members = schemas[name].get("properties", {})
        found = {key: _field(value, schemas) for key, value in members.items()}
        definitions[name] = {key: field for key, field in sorted(found.items()) if field}
        waiting += [n for field in found.values() if (n := _named(field)) in schemas]
    return {"kinds": kinds, "definitions": dict(sorted(definitions.items()))}


def _field(schema: dict[str, Any], schemas: dict[str, Any]) -> Any:
    """What a member holds; None where no text of somebody's choice fits in."""
    inner = schema.get("allOf", [{}])[0] if "allOf" in schema else schema
    if "$ref" in inner:
        name = inner["$ref"].rpartition("/")[2]
        if name.endswith((".Time", ".MicroTime", ".Quantity", ".FieldsV1")):
            return None
        return name if schemas[name].get("properties") else "string"
    if inner.get("type") == "array":
        item = _field(inner["items"], schemas)
        return [item] if item else None
    if inner.get("type") == "object":
        values = inner.get("additionalProperties")
        value = _field(values, schemas) if isinstance(values, dict) else "string"
        return {"{}": value} if value else None
    if inner.get("type") == "string" and inner.get("format") != "date-time":
        return "string"
    return None


def _named(field: Any) -> str:
    while isinstance(field, (list, dict)):
        field = field[0] if isinstance(field, list) else field["{}"]
    return str(field)


def planted(reduced: Reduced, kind: str) -> dict[str, Any]:
    """An object of the kind with every field set, and a secret that names its path in each text."""
    version = next(k.api_version for k in KINDS if k.name == kind)
    made = _plant(reduced["kinds"][kind], "", reduced["definitions"], ())
    return {**made, "apiVersion": version, "kind": kind}


def _plant(field: Any, path: str, definitions: dict[str, Any], above: tuple[str, ...]) -> Any:
    if field == "string":
        return SECRET + path
    if isinstance(field, list):
        return [_plant(field[0], f"{path}[]", definitions, above)]
    if isinstance(field, dict):
        return {"key": _plant(field["{}"], f"{path}{{}}", definitions, above)}
    if field in above:
        return {}
    return {
        name: _plant(inner, f"{path}.{name}".lstrip("."), definitions, (*above, field))
        for name, inner in definitions[field].items()
    }


def found_in(text: str) -> set[str]:
    """The paths of the secrets in a text."""
    return {word.split('"')[0].split("\\")[0] for word in text.split(SECRET)[1:]}


def main(folder: str) -> None:
    """Write the list anew."""
    paths = [path.replace("/", "__") + "_openapi.json" for path in documents_of_kinds()]
    read = (json.loads((Path(folder) / path).read_text()) for path in paths)
    FIELDS.write_text("\n".join(_lines(reduce(read))) + "\n")


def _lines(reduced: Reduced) -> Iterator[str]:
    """JSON, a definition a line."""
    yield '{"kinds": ' + json.dumps(dict(sorted(reduced["kinds"].items()))) + ","
    yield '"definitions": {'
    entries = [f"{json.dumps(n)}: {json.dumps(f)}" for n, f in reduced["definitions"].items()]
    yield ",\n".join(entries)
    yield "}}"


if __name__ == "__main__":
    main(sys.argv[1])
