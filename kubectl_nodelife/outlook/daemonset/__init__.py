"""DaemonSets explained: the counts and what is odd, the truth table, the rollout, the history.

The controller's own rules are asked on a cache; nothing here decides, and nothing is written.
"""
