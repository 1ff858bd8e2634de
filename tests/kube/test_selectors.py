"""Label selectors as objects and as text, and field selectors."""

import pytest

from kubectl_nodelife.kube import selectors
from kubectl_nodelife.kube.meta import LabelSelector, LabelSelectorRequirement, ObjectMeta
from kubectl_nodelife.kube.node import Node, NodeSpec
from kubectl_nodelife.kube.pod import Pod, PodSpec, PodStatus

Req = LabelSelectorRequirement
LABELS = {"app": "web", "tier": "front", "cores": "8", "empty": ""}


def test_absent_selector_matches_nothing_and_empty_everything() -> None:
    assert not selectors.matches(None, LABELS)
    assert selectors.matches(LabelSelector(), LABELS)
    assert selectors.matches(LabelSelector(), None)


def test_match_labels_and_expressions_must_all_hold() -> None:
    both = LabelSelector({"app": "web"}, (Req("tier", "In", ("front", "back")),))
    assert selectors.matches(both, LABELS)
    assert not selectors.matches(both, {"app": "web"})
    assert not selectors.matches(both, {"app": "db", "tier": "front"})
    assert not selectors.matches(both, None)


def test_matches_set() -> None:
    assert selectors.matches_set(None, None)
    assert selectors.matches_set({"app": "web"}, LABELS)
    assert not selectors.matches_set({"app": "web", "x": ""}, LABELS)


REQUIREMENTS = {
    "In": (Req("app", "In", ("db", "web")), True),
    "In, other value": (Req("app", "In", ("db",)), False),
    "In, key absent": (Req("x", "In", ("web",)), False),
    "In of the empty value, key absent": (Req("x", "In", ("",)), False),
    "In without values": (Req("app", "In"), False),
    "NotIn": (Req("app", "NotIn", ("db",)), True),
    "NotIn, key absent": (Req("x", "NotIn", ("db",)), True),
    "NotIn, the value": (Req("app", "NotIn", ("web",)), False),
    "NotIn without values": (Req("app", "NotIn"), False),
    "Exists": (Req("empty", "Exists"), True),
    "Exists, key absent": (Req("x", "Exists"), False),
    "Exists with values": (Req("app", "Exists", ("web",)), False),
    "DoesNotExist": (Req("x", "DoesNotExist"), True),
    "DoesNotExist, key there": (Req("app", "DoesNotExist"), False),
    "DoesNotExist with values": (Req("x", "DoesNotExist", ("y",)), False),
    "Gt": (Req("cores", "Gt", ("7",)), True),
    "Gt, equal": (Req("cores", "Gt", ("8",)), False),
    "Gt, label not a number": (Req("app", "Gt", ("7",)), False),
    "Gt, key absent": (Req("x", "Gt", ("7",)), False),
    "Gt, two values": (Req("cores", "Gt", ("6", "7")), False),
    "Lt": (Req("cores", "Lt", ("9",)), True),
    "Lt, equal": (Req("cores", "Lt", ("8",)), False),
    "Lt, limit not a number": (Req("cores", "Lt", ("many",)), False),
    "unknown operator": (Req("app", "Like", ("web",)), False),
}


@pytest.mark.parametrize(("requirement", "expected"), REQUIREMENTS.values(), ids=REQUIREMENTS)
def test_requirement(requirement: LabelSelectorRequirement, expected: bool) -> None:
    assert selectors.matches(LabelSelector(match_expressions=(requirement,)), LABELS) is expected


def test_faults_say_what_is_wrong() -> None:
    assert selectors.requirement_fault(Req("a", "In")) == "a: In needs at least one value"
    assert selectors.requirement_fault(Req("a", "Gt", ("5",))) is None
    assert selectors.selector_fault(None) is None
    assert selectors.selector_fault(LabelSelector({"a": "b"})) is None
    gt = LabelSelector(match_expressions=(Req("a", "Exists"), Req("a", "Gt", ("5",))))
    assert selectors.selector_fault(gt) == "a: unknown operator 'Gt'"
    taken = LabelSelector(match_expressions=(Req("a", "Exists", ("b",)),))
    assert selectors.selector_fault(taken) == "a: Exists takes no values"


PARSED = {
    "": (),
    "  ": (),
    "a=b": (Req("a", "In", ("b",)),),
    "a==b": (Req("a", "In", ("b",)),),
    "a = b": (Req("a", "In", ("b",)),),
    "a!=b": (Req("a", "NotIn", ("b",)),),
    "a=": (Req("a", "In", ("",)),),
    "a": (Req("a", "Exists"),),
    "!a": (Req("a", "DoesNotExist"),),
    "in": (Req("in", "Exists"),),
    "a>5": (Req("a", "Gt", ("5",)),),
    "a<5": (Req("a", "Lt", ("5",)),),
    "a in (x,y)": (Req("a", "In", ("x", "y")),),
    "a in ( x , y )": (Req("a", "In", ("x", "y")),),
    "a in ()": (Req("a", "In", ("",)),),
    "a in (x,)": (Req("a", "In", ("x", "")),),
    "a notin (x)": (Req("a", "NotIn", ("x",)),),
    "topology.kubernetes.io/zone=a": (Req("topology.kubernetes.io/zone", "In", ("a",)),),
    "a=b,c!=d,e in (x,y),!f,g": (
        Req("a", "In", ("b",)),
        Req("c", "NotIn", ("d",)),
        Req("e", "In", ("x", "y")),
        Req("f", "DoesNotExist"),
        Req("g", "Exists"),
    ),
}


@pytest.mark.parametrize(("text", "expected"), PARSED.items(), ids=PARSED)
def test_parse_selector(text: str, expected: tuple[LabelSelectorRequirement, ...]) -> None:
    assert selectors.parse_selector(text).match_expressions == expected


REFUSED = {
    "a=b,": "requirement is missing",
    ",a": "requirement is missing",
    "a=b=c": "cannot read 'a=b=c'",
    "a in x": "cannot read 'a in x'",
    "a in (x": "cannot read",
    "a b": "cannot read 'a b'",
    "=b": "'' is not a valid label key",
    "!": "'' is not a valid label key",
    "a/b/c=d": "'a/b/c' is not a valid label key",
    "-a=b": "'-a' is not a valid label key",
    "a=b c": "'b c' is not a valid label value",
    "a in (x,y z)": "'y z' is not a valid label value",
    "a=" + 64 * "x": "is not a valid label value",
    "a>b": "needs exactly one value, an integer",
}


@pytest.mark.parametrize(("text", "message"), REFUSED.items(), ids=REFUSED)
def test_parse_selector_refuses(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=r"^selector ") as refusal:
        selectors.parse_selector(text)
    assert message in str(refusal.value)
    assert "\n" not in str(refusal.value)


@pytest.mark.parametrize(
    "text", ["a=b,c!=d,e in (x,y),!f,g,h>5,i<6,j notin (x,y)", "topology.kubernetes.io/zone=a", ""]
)
def test_format_selector_is_the_inverse(text: str) -> None:
    assert selectors.format_selector(selectors.parse_selector(text)) == text


def test_format_selector_of_objects() -> None:
    assert selectors.format_selector(None) == "<none>"
    assert selectors.format_selector(LabelSelector({"b": "2", "a": "1"})) == "a=1,b=2"


POD = Pod(
    metadata=ObjectMeta(name="p", namespace="ns"),
    spec=PodSpec(node_name="n1"),
    status=PodStatus(phase="Running"),
)
NODE = Node(metadata=ObjectMeta(name="n1"), spec=NodeSpec(unschedulable=True))

FIELDS = [
    (POD, "", True),
    (POD, "metadata.name=p", True),
    (POD, "metadata.name==p,metadata.namespace=ns", True),
    (POD, "metadata.name=p,spec.nodeName!=n1", False),
    (POD, "spec.nodeName=n1,status.phase!=Failed", True),
    (POD, "spec.nodeName=", False),
    (POD, "spec.hostNetwork=false", True),
    (NODE, "spec.unschedulable=true", True),
    (NODE, "spec.unschedulable=false", False),
    (NODE, r"metadata.name=n\,1", False),
]


@pytest.mark.parametrize(("obj", "text", "expected"), FIELDS)
def test_field_selectors(obj: Pod | Node, text: str, expected: bool) -> None:
    assert (
        selectors.matches_fields(selectors.parse_field_selector(text, type(obj)), obj) is expected
    )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("metadata.name", "cannot read 'metadata.name'; write field=value"),
        ("spec.nodeName=n1", "'spec.nodeName' is not supported for Node; use one of metadata.name"),
    ],
)
def test_field_selector_refuses(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=r"^field selector ") as refusal:
        selectors.parse_field_selector(text, Node)
    assert message in str(refusal.value)
