"""`kubectl drain`, request by request.

`options`, `filters` and `conversation` are kubectl's own, without I/O: a live drain uses them as
well. `drain` plays the conversation in a virtual cluster, and `cluster` is what the process asks of
whatever cluster it drains, what comes back, and what client-go does below.
"""
