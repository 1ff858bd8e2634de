"""Node upgrades: take nodes out of service, have something done to them, prove them, release them.

Nothing upstream does this. The rules are pure: counts, zones, windows and order decide which node
may be claimed, checks and proofs whether it may be released.
"""
