"""Answers that the daemon gives, or the command itself where no daemon runs: a module a question.

Each takes a `ClusterView` and the query as it comes over the socket, and makes the text, so that
the answer is the same from either. `for_daemon` registers them with the daemon, `ask` calls
them without one.
"""
