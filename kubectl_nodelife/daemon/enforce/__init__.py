"""Enforce mode: the named controllers decide on what the cluster shows, and their writes are sent.

`enforcement.py` holds it together: preflight, Lease, and terms, each a decision task of its own on
the news that the dry run reads as well (`host`). A write passes `write_gate`,
which has its limits and its client and asks for Lease, pause and kill switch, and `recorder` writes
it down. `tripwires` and `write_gate` open a breaker, and `manager` looks for a
kube-controller-manager.

Enforcing controllers never see what the dry run has only planned; the dry run sees what they did
through its watches, like all other writes.
"""
