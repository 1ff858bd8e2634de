"""Questions that the daemon answers, or a command itself where none runs: one module a question.

Each takes a `ClusterView` and the query as the daemon gets it, and makes the text, so that the
answer is the same whoever gives it. `for_daemon` hands them to the daemon, `direct` to commands.
"""
