"""A file for each verb, or two of one subject: parse flags, look at the cluster, answer, print it.

A verb is a click command, listed in `cli.VERB_GROUPS` with its line of help; its module is imported
only when it is called. A command returns nothing, or its exit code. What verbs share: `flags` (in
kubectl's spellings), `ask` (the daemon, if one runs, or by `via` that of a pod), `cluster/` (a dump
or a live cluster), `answering/` (what the daemon answers as well); for those that change something
`writing`.
"""
