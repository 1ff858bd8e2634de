"""The drain planner: what `kubectl drain` would do to these nodes, when, and what stops it.

A plan is a replay of the future: kubectl as it retries and waits (`sim.kubectl`) on the simulated
cluster that scenarios have, with the pods that matter in it (`scope`, `world`; `planned_nodes` is
what the scheduler sees of the rest), three times over with fast, middling and slow assumptions
(`timing`). `clock` finds out when nothing will ever change. What comes out is put into words by
`plan`, in the structs of `results`, whose encoding is the document. Waves of our own making are in
`waves`, and what no plan can beat in `bounds`.
"""
