"""The Common Expression Language (CEL), as the API server evaluates it in admission.

`evaluate` gives an expression's value over partly known objects: what was not read is `Unknown`,
which the caller reports, instead of an absent field.
"""

from kubectl_nodelife.kube.cel.evaluation import CelError, Partial, evaluate
from kubectl_nodelife.kube.cel.parser import Unknown

__all__ = ["CelError", "Partial", "Unknown", "evaluate"]
