"""CEL, the expressions of admission policies: values, errors, and what is not known."""

import pytest

from kubectl_nodelife.kube.cel import CelError, Partial, Unknown, evaluate

VALUES = {
    "object": {"metadata": {"name": "web-1", "namespace": "shop"}},
    "request": Partial(name="web-1", operation="CREATE"),
    "list": [1, 2, 3],
}


@pytest.mark.parametrize(
    "expression, value",
    [
        ("!object.metadata.name.startsWith('web')", False),
        ("has(object.metadata.labels)", False),
        ("has(object.metadata.name) && size(object.metadata.name) == 5", True),
        ("object.metadata.name in ['a', \"web-1\"]", True),
        ("object.metadata['name'] == 'web-1'", True),
        ("object.metadata.?labels.?app.orValue('none')", "none"),
        ("object.?metadata.?name.hasValue()", True),
        ("request.userInfo.username == 'x' || true", True),
        ("false && object.missing", False),
        ("list.all(x, x > 0) && list.exists(x, x == 3) && !list.exists(x, x > 3)", True),
        ("list.exists_one(x, x > 2)", True),
        ("list.map(x, x * 2)", [2, 4, 6]),
        ("list.filter(x, x % 2 == 1)", [1, 3]),
        ("list[0] + 2 * 3 - 1 >= 6 ? 'yes' : 'no'", "yes"),
        ("-7 / 2 == -3 && -7 % 2 == -1", True),
        ("'a.b.c'.split('.').size() == 3", True),
        ("object.metadata.name.matches('^web-[0-9]+$')", True),
        ("{'a': 1}.a == 1", True),
        ("1 == true", False),
        ("variables.isWeb && request.operation != 'DELETE'", True),
        ("r'a\\d' == 'a\\\\d'", True),
    ],
)
def test_cel(expression: str, value: object) -> None:
    variables = {"isWeb": "object.metadata.name.startsWith('web')"}
    assert evaluate(expression, VALUES, variables) == value


@pytest.mark.parametrize(
    "expression, error",
    [
        ("object.metadata.labels.app == 'x'", CelError),
        ("object.metadata.name + 1", CelError),
        ("1 / 0", CelError),
        ("list[7]", CelError),
        ("request.userInfo.username == 'x'", Unknown),
        ("authorizer.group('')", Unknown),
        ("quantity('1Gi').isGreaterThan(quantity('1Mi'))", Unknown),
        ("object.metadata.name ===", Unknown),
        ("(1", Unknown),
        ("", Unknown),
    ],
)
def test_cel_that_fails_or_is_not_known(expression: str, error: type[Exception]) -> None:
    with pytest.raises(error):
        evaluate(expression, VALUES)
