"""`kubectl drain`, request by request.

`options`, `filters` and `conversation` are kubectl's own, without I/O: a live drain uses them as
well. `drain` plays the conversation in a virtual cluster, and `cluster` has the requests to the
cluster that is drained, their answers, and what client-go does below.
"""
