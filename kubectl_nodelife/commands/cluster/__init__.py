"""Reads a cluster for a verb: `look` makes a `ClusterView` of a dump (`-f`) or of the API server.

`commands/ask` asks the daemon first.
"""
