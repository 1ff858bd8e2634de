"""The Common Expression Language (CEL), as the API server evaluates it in admission.

`evaluate` gives an expression's value over objects that may be known in part: what was not read is
`Unknown`, which the caller reports, instead of an absent field. Its cost, the size of its values
and its depth are bounded as in the API server; beyond the bounds it is `NotEvaluated`.
"""

from kubectl_nodelife.kube.cel.evaluation import evaluate
from kubectl_nodelife.kube.cel.values import Budget, CelError, NotEvaluated, Partial, Unknown

__all__ = ["Budget", "CelError", "NotEvaluated", "Partial", "Unknown", "evaluate"]
