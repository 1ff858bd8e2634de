"""Reconstructs what happened as one timeline, from the journal, Events and the objects themselves.

`lines` makes a line (`replay_line`) of everything that a source tells, `actors` names who did it,
and `timeline` puts them together: one line of what several sources tell, linked to what led to it.
`drains` finds the drains in it, `drain_review` looks back on one, `lanes` are the states of nodes
and zones over time. Pure; `commands/replay` reads the sources.
"""
