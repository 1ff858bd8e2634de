"""The per-user process that watches one cluster, plans in dry-run, and answers at once.

`paths`, `client` and `identity_cache` are the half that every quick command loads: nothing in them
imports more than a socket and json. The rest is the process itself: `instance` (one for each user
and cluster), `run` (plugs it together), `decisions` (the one task that touches the engine), `gate`
(whether the controllers may decide), `controller_host` (the engine with its overlay), `follow`
(what other controllers do), `cluster_view` (what an answer is made from), `journal`, `server`,
`config` and `reload`.
"""
