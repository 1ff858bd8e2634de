"""What happened, as one timeline: the daemon's journal, the cluster's Events, and the objects.

`lines` makes a line of each thing that tells something, `actors` says who it was, `merging` makes
one line of what several sources tell, `causes` links what the journal has not linked, and
`timeline` puts them together. Pure; who reads the sources is `commands.replay`.
"""
