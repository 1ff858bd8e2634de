"""Finds pods whose status contradicts their containers or their node, and plans their repair.

`audit_pods` goes over all pods once, looks at their readiness and asks `findings`, which cite the
fields that they stand on; `classes` names a pod's class, and holds what is to be said about each.
`repair_plan` says which requests `repair` would send, and when the node
controller's mark may be undone.
"""

from typing import Final

CAP: Final = 100
"""So many requests in one run of `repair`, unless another limit is given."""
