"""Reconstructs what happened as one timeline, from the journal, Events and the objects themselves.

`lines` makes a line of everything that a source tells, `actors` names who did it, `merging` makes
one line of what several sources tell, `causes` links lines that the journal does not link, and
`timeline` puts them together. Pure; `commands/replay` reads the sources.
"""
