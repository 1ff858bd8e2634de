"""The words by which the daemon is asked about DaemonSets."""

SUMMARY, NODES, STATUS, HISTORY, UNDO = "counts", "nodes", "status", "history", "undo"

QUESTION = "daemonset"
"""The daemon's name for all of them; one of the five words says which."""
