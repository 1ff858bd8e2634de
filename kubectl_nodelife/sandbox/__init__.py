"""The virtual cluster served as a Kubernetes API on loopback, in real time, for demos and tests.

Kubelets, scheduler and owners are the simulator's own (`sim`); the controllers are the real ones.
What is here: an API server's storage and manners, and what must happen in real time (lease
renewals, budgets).
"""
