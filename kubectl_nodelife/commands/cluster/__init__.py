"""How every verb looks at a cluster: `look` reads a dump (`-f`) or the API server into one
`ClusterView`. The daemon is asked before that, by `commands/ask`.
"""
