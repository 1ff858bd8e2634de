"""The leader of a node upgrade on a live cluster: Lease, watches, the work itself, and orders.

What is decided is `controllers/upgrade`'s affair. Here is what surrounds it on an operator's
machine: `leader` plugs watches, controller and writer together and keeps the Lease, `processes`
runs the commands of `--run` and `--gate`.
"""
