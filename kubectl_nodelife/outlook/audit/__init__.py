"""Pods that are not what their containers and their node say: found, explained, and mended.

`sweep` goes over all pods once and asks `findings` and `readiness`; `notes` holds what is to be
said about each class, `evidence` reads the fields that a finding stands on, `advice` tells whether
a pod may be forced away, `answer` makes a document of it all. `mend` says when the node
controller's mark may be undone, and `plan` what `repair` would send.
"""
