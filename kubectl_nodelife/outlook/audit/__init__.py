"""Finds pods whose status contradicts their containers or their node, and plans their repair.

`audit_pods` goes over all pods once and asks `findings` and `readiness`; `classify` names a pod's
class, `notes` holds what is to be said about each class, `evidence` reads the fields that a finding
stands on, `advice` tells whether a pod may be force-deleted. `undo_mark` says when the node
controller's mark may be undone, and `repair_plan` which requests `repair` would send.
"""

from typing import Final

CAP: Final = 100
"""So many requests in one run of `repair`, unless it is told otherwise."""
