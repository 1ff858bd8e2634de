"""`kubectl drain`, request by request.

`options`, with the filters that they steer, and `conversation` are kubectl's own, without I/O: a
live drain uses them as well. `drain` plays the conversation in a virtual cluster.
"""
