"""Explains DaemonSets: counts and oddities, which nodes should run a pod, rollout and history.

The controller's own rules are applied to a cache; nothing is decided here, and nothing written.
"""
