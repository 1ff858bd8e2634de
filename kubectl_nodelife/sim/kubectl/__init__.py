"""`kubectl drain` in a virtual cluster, request by request.

`drain` is the process, `filters` and `options` are kubectl's own, `client` is what client-go does
below, `cluster` what the process asks of whatever cluster it drains, and `answers` what comes back.
"""
