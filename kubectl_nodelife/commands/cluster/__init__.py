"""Reads a cluster for a verb: `look` makes a `ClusterView` of a dump (`-f`) or of the API server.

`where` says which; `direct` reads a live cluster, and `saving` keeps it in a file. `commands/ask`
asks the daemon first.
"""
