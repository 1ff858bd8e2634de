"""The virtual cluster served as a Kubernetes API on loopback, in real time, for demos and tests.

Kubelets, scheduler and owners are the simulator's own (`sim`); the controllers are the real ones.
This folder has an API server's storage and behaviour, and what must happen in real time (lease
renewals, budgets). `cluster` reads the initial objects, and `tls` has the socket with a certificate
of its own. A request comes to `server`, which passes it to `discovery`, `reading`,
`writing` or `deleting`; `status` has its errors. They work on `store`, whose kinds are in
`discovery`; `served` gives the same store to the simulator's parts, which `cluster` drives.
"""
