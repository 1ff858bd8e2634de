"""Zone keys from both generations of labels."""

import pytest

from kubectl_nodelife.kube.node import zone_display, zone_key

REGION, ZONE = "topology.kubernetes.io/region", "topology.kubernetes.io/zone"
REGION_BETA = "failure-domain.beta.kubernetes.io/region"
ZONE_BETA = "failure-domain.beta.kubernetes.io/zone"

KEYS = {
    "no map": (None, "", ""),
    "no zone labels": ({"kubernetes.io/os": "linux"}, "", ""),
    "stable": ({REGION: "r", ZONE: "z"}, "r:\x00:z", ""),
    "beta": ({REGION_BETA: "r", ZONE_BETA: "z"}, "r:\x00:z", "r:\x00:z"),
    "beta goes first": ({REGION_BETA: "b", REGION: "r", ZONE: "z"}, "b:\x00:z", "b:\x00:"),
    "an empty beta label goes first too": ({ZONE_BETA: "", ZONE: "z", REGION: "r"}, "r:\x00:", ""),
    "zone only": ({ZONE: "z"}, ":\x00:z", ""),
    "both empty": ({ZONE: "", REGION: ""}, "", ""),
}


@pytest.mark.parametrize(("labels", "now", "until_1_16"), KEYS.values(), ids=KEYS)
def test_zone_key(labels: dict[str, str] | None, now: str, until_1_16: str) -> None:
    assert zone_key(labels) == now
    assert zone_key(labels, beta_only=True) == until_1_16


@pytest.mark.parametrize(
    ("key", "text"), [("r:\x00:z", "r/z"), (":\x00:z", "z"), ("r:\x00:", "r"), ("", "")]
)
def test_zone_display(key: str, text: str) -> None:
    assert zone_display(key) == text
