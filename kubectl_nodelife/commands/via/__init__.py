"""`--via`: asks the daemon of a pod through the API server.

`pods` finds the pod, `tunnel` makes sockets of streams to it, `endpoint` is what `ask` sees.
"""
