"""A secret in every text of every kind that is read: which ones a snapshot keeps, all of them.

`kept_strings.txt` is the list; a line more in it is a decision that somebody takes. The journal
follows the same list for what it would create.
"""

import copy
import json
import re
from pathlib import Path

import pytest

from kubectl_nodelife.daemon.changes import patch_text
from kubectl_nodelife.engine.calls.call import Request
from kubectl_nodelife.kube.redaction import Digests
from kubectl_nodelife.snapshot import Redaction
from tests.hostile.openapi import FIELDS, found_in, planted

REDUCED = json.loads(FIELDS.read_text())
KEPT = Path(__file__).with_name("kept_strings.txt")
KEY = bytes(32)

NEVER = re.compile(
    r"mountOptions|httpGet|exec|gitRepo|workingDir|subPath|sysctls|args|command|env|parameters"
    r"|annotations|managedFields|volumeAttributes|httpHeaders|containerStatuses.*message"
    r"|^Pod status\.message|seLinux|secret|configMap|hostPath|csi|flexVolume|iscsi|rbd|clientIP"
)


def kept_of(kind: str) -> set[str]:
    made = Redaction(KEY)(kind, planted(REDUCED, kind))
    return {f"{kind} {path}" for path in found_in(json.dumps(made))}


def all_kept() -> list[str]:
    return sorted(line for kind in REDUCED["kinds"] for line in kept_of(kind))


def test_every_kind_that_is_read_has_its_fields() -> None:
    from kubectl_nodelife.kube.kinds import KINDS

    assert set(REDUCED["kinds"]) == {kind.name for kind in KINDS}
    assert len(found_in(json.dumps(planted(REDUCED, "Pod")))) > 400


def test_what_stays_is_on_the_list(request: pytest.FixtureRequest) -> None:
    text = "".join(f"{line}\n" for line in all_kept())
    if request.config.getoption("--update-golden"):
        KEPT.write_text(text)
    assert text == KEPT.read_text()


def test_what_may_hold_a_secret_is_not_on_the_list() -> None:
    assert not [line for line in KEPT.read_text().splitlines() if NEVER.search(line)]


@pytest.mark.parametrize("owner", [None, "StatefulSet", "VirtualMachine"])
def test_of_revisions_only_what_a_template_decides_by(owner: str | None) -> None:
    template = planted(REDUCED, "DaemonSet")["spec"]["template"]
    metadata = {"name": "r", "namespace": "d"}
    if owner is not None:
        reference = {"kind": owner, "apiVersion": "apps/v1", "controller": True}
        metadata["ownerReferences"] = [reference]  # type: ignore[assignment]
    data = {"spec": {"template": template, "other": "s3cr3t:other"}, "top": "s3cr3t:top"}
    made = Redaction(KEY)("ControllerRevision", {"metadata": metadata, "data": data})
    found = {f"DaemonSet {path}" for path in found_in(json.dumps(made["data"]))}
    assert found <= set(KEPT.read_text().splitlines())


def test_the_journal_keeps_no_more_of_what_it_would_create() -> None:
    pod = planted(REDUCED, "Pod")
    request = Request("POST", "/api/v1/namespaces/d/pods", "application/json", pod)
    before = copy.deepcopy(pod)
    found = {f"Pod {path}" for path in found_in(patch_text(request, Digests(KEY)))}
    assert pod == before, "what is sent stays as it is"
    allowed = set(KEPT.read_text().splitlines())
    assert found <= allowed, sorted(found - allowed)
