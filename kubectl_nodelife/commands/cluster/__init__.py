"""Reads a cluster for a verb: `look` makes a `ClusterView` of a dump (`-f`) or of a live one's
lists; for `drain-plan`, `budgets` and upgrades as the drain planner takes it.

`direct` reads a live cluster, and `saving` keeps it in a file. `commands/ask` asks the daemon
first. Verbs that only send requests need `direct` alone, which is why nothing is imported here.
"""
