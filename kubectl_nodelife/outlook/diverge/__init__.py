"""Compares what our copy of the controllers decides with what the cluster's own controllers write.

`observations.py` is what was recorded, by the daemon or, of a dump, by `dump_observations.py`;
`judgement.py` puts the verdict together from `overdue.py` (which expected writes are missing or
late), `setting_estimates.py` (which settings fit what was seen) and what other writers did. A false
alarm is worse than silence: what could not be watched is never judged.
"""
