"""Enforce mode: the named controllers decide on what the cluster shows, and their writes are sent.

`enforcement.py` holds it together: preflight, Lease, and terms, each a decision task of its own on
the news that the dry run reads as well. Enforcing controllers never see what the dry run has only
planned; the dry run sees what they did through its watches, like everybody else's writes.
"""
