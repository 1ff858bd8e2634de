"""What may be asked about DaemonSets, by the names that the daemon knows."""

SUMMARY, NODES, STATUS, HISTORY, UNDO = "counts", "nodes", "status", "history", "undo"

QUESTION = "daemonset"
"""The daemon's name for all of them; one of the five words says which."""
