"""The drain planner: what `kubectl drain` would do to these nodes, when, and what stops it.

A plan is a replay of the future on a virtual clock (`timeline`): kubectl as it retries and waits
(`sim.kubectl`), a cluster that answers and replaces pods (`world`; `planned_nodes` is what the
scheduler of `workloads.placement` sees), three times over with fast, middling and slow assumptions
(`timing`). What comes out is put into words by `plan`. Waves of our own making are in `waves`, what
no plan can beat in `bounds`, and an independent check of any plan in `replay`.
"""
