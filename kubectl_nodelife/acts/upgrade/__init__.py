"""The leader of a node upgrade on a live cluster, and what surrounds `controllers/upgrade` on an
operator's machine: `leader` plugs watches, controller and writer together and keeps the Lease,
`processes` runs the commands of `--run` and `--gate`.
"""
