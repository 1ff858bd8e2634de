"""The virtual cluster served as a Kubernetes API on loopback, in real time, for demos and tests.

Kubelets, scheduler and owners are the simulator's own (`sim`); the controllers are the real ones.
What is here: an API server's storage and manners, and what must happen in real time (lease
renewals, budgets). `inputs` says what it begins with and `listening` where it is found, with a
`certificate` of its own. A request comes to `server`, which hands it to `discovery`, `reading`
(with `tables`), `writing` (with `patches`) or `deleting`; `status` is how it says no. They work on
`store`, whose kinds are `resources`; `served` gives the same store to the simulator's parts, which
`cluster` drives.
"""
