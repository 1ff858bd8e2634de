"""The list of string fields by which redaction is tested, against a running API server's own."""

import json

from kubectl_nodelife.snapshot import Redaction
from tests.hostile.openapi import documents_of_kinds, found_in, planted, reduce
from tests.hostile.test_planted_secrets import KEPT, KEY
from tests.real.control_plane import control_plane
from tests.real.test_gated_kinds import GATES_ON


def test_of_this_servers_string_fields_only_those_on_the_list_stay() -> None:
    with control_plane(api_server=GATES_ON) as plane:
        paths = [f"/openapi/v3/{path}" for path in documents_of_kinds()]
        reduced = reduce([plane.api.call("GET", path) for path in paths])
    allowed = set(KEPT.read_text().splitlines())
    found = 0
    for kind in reduced["kinds"]:
        document = planted(reduced, kind)
        found += len(found_in(json.dumps(document)))
        kept = found_in(json.dumps(Redaction(KEY)(kind, document)))
        more = {f"{kind} {path}" for path in kept} - allowed
        assert not more, sorted(more)
    assert found > 2_000, "the document has the kinds in it"
