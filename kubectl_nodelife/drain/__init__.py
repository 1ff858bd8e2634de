"""The drain planner: what `kubectl drain` would do to these nodes, when, and what stops it.

A plan is a forecast as all others are: kubectl as it retries and waits (`sim.kubectl`) on branches
of the present (`sim.present`), which is joined once for each snapshot and forked under fast,
middling and slow assumptions (`sim.timing`). `snapshot` is the cluster, and what a plan is about in
it; `play` is one run and its record of pods. What comes out is put into words by `plan`, in the
structs of `results`, whose encoding is the document. Waves of our own making are in `waves`, and
what no plan can beat in `bounds`.
"""

CORDON_FIRST, CORDON_BY_WAVE = "first", "by-wave"
"""When the nodes of waves of our own are cordoned. The help of verbs shows the words."""
