"""A virtual cluster: scenario in, timeline out. It plugs into the loop in place of a real one.

The controllers that run on it are the real ones; what is simulated here is everything around them:
the API server (`api`), kubelets, a scheduler, workload owners, and the scenario's own events
(`script`).
"""
